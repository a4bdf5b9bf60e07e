"""A tokenizer for which every byte is a token, so that a character may take several."""

from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

NUM_BYTES = 256
END = 256
"""The stop token."""


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, in the order of the alphabet of byte-level tokenizers, then `<end>`."""
    alphabet = sorted(ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer, backend.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
