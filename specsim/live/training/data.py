"""Token data for training drafters: prompts and what the target answered."""

from __future__ import annotations

import io
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specsim.errors import InputError

DOMAINS = ("chat", "code", "math")
"""Names of the domain numbers in data files."""

KINDS = ("greedy", "sampled, then greedy", "sampled")
"""How an output was drawn, by the numbers in data files."""

ARRAYS = ("p", "o", "pl", "ol", "dom")


@dataclass(frozen=True)
class TokenData:
    """R prompts with their outputs, one after the other.

    tokens      [N] int64, each row's prompt, then its output
    starts      [R + 1] int64, where rows begin
    prompt_len  [R] int64
    domain      [R] int64, index into `domains`
    kind        [R] int64, index into KINDS
    domains     names
    """

    tokens: np.ndarray
    starts: np.ndarray
    prompt_len: np.ndarray
    domain: np.ndarray
    kind: np.ndarray
    domains: tuple[str, ...] = DOMAINS

    def __len__(self) -> int:
        return len(self.prompt_len)

    @property
    def lengths(self) -> np.ndarray:
        """[R] int64, prompt and output together."""
        return np.diff(self.starts)

    def row(self, index: int) -> np.ndarray:
        """Tokens of one row, prompt and output."""
        return self.tokens[self.starts[index] : self.starts[index + 1]]

    def select(self, rows: np.ndarray) -> TokenData:
        """The data of these rows, in their order."""
        parts = [self.row(int(index)) for index in rows]
        starts = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int64)
        tokens = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        return TokenData(
            tokens, starts, self.prompt_len[rows], self.domain[rows], self.kind[rows], domains=self.domains
        )

    def rows_of(self, domains: Sequence[str]) -> np.ndarray:
        """Rows of these domains.

        Raises      InputError for a domain that the data do not have
        """
        unknown = [name for name in domains if name not in self.domains]
        if unknown:
            raise InputError(f"domain {unknown[0]!r}: must be one of {', '.join(self.domains)}")
        return np.flatnonzero(np.isin(self.domain, [self.domains.index(name) for name in domains]))


def join_rows(
    prompts: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    domain: Sequence[int],
    kind: Sequence[int],
    domains: tuple[str, ...] = DOMAINS,
) -> TokenData:
    """Data of prompts and outputs given one by one."""
    parts = [np.concatenate(pair).astype(np.int64) for pair in zip(prompts, outputs, strict=True)]
    return TokenData(
        tokens=np.concatenate(parts) if parts else np.zeros(0, np.int64),
        starts=np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int64),
        prompt_len=np.array([len(prompt) for prompt in prompts], np.int64),
        domain=np.asarray(domain, np.int64),
        kind=np.asarray(kind, np.int64),
        domains=domains,
    )


def read_tokens(path: Path, vocab_size: int | None = None) -> TokenData:
    """Read a data file.

    path        .npz, or .npz.xz, with arrays `p` and `o` (prompt and output tokens, concatenated), `pl` and `ol`
                (lengths), `dom` (index into DOMAINS) and, if known, `kind` (index into KINDS)
    vocab_size  of the target, to check the tokens against (None: not checked)

    Raises      InputError when it is not such a file
    """
    try:
        raw = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, lzma.LZMAError, EOFError) as error:
        raise InputError(f"{path}: cannot be read as token data ({error})") from None
    missing = [name for name in ARRAYS if name not in arrays]
    if missing:
        raise InputError(f"{path}: lacks the array {missing[0]!r}; token data have {', '.join(ARRAYS)}")
    lengths, out_lengths = arrays["pl"].astype(np.int64), arrays["ol"].astype(np.int64)
    if lengths.sum() != len(arrays["p"]) or out_lengths.sum() != len(arrays["o"]) or len(lengths) != len(out_lengths):
        raise InputError(f"{path}: lengths pl, ol do not add up to the tokens p, o")
    top = max(int(arrays["p"].max(initial=0)), int(arrays["o"].max(initial=0)))
    if vocab_size is not None and top >= vocab_size:
        raise InputError(
            f"{path}: token {top}, but the target's vocabulary has {vocab_size}; made by another tokenizer?"
        )
    return _interleave(arrays, lengths, out_lengths)


def _interleave(arrays: dict[str, np.ndarray], lengths: np.ndarray, out_lengths: np.ndarray) -> TokenData:
    """Each row's prompt, then its output."""
    starts = np.concatenate(([0], np.cumsum(lengths + out_lengths)))
    tokens = np.empty(int(starts[-1]), np.int64)
    place = np.arange(len(tokens)) - np.repeat(starts[:-1], lengths + out_lengths)
    is_prompt = place < np.repeat(lengths, lengths + out_lengths)
    tokens[is_prompt] = arrays["p"]
    tokens[~is_prompt] = arrays["o"]
    rows = len(lengths)
    return TokenData(
        tokens=tokens,
        starts=starts.astype(np.int64),
        prompt_len=lengths,
        domain=arrays["dom"].astype(np.int64),
        kind=arrays["kind"].astype(np.int64) if "kind" in arrays else np.zeros(rows, np.int64),
    )


def loops(output: np.ndarray, limit: float = 0.4) -> bool:
    """Whether an output goes in circles: more than `limit` of its 4-grams occurred in it before."""
    grams = [tuple(output[start : start + 4].tolist()) for start in range(len(output) - 3)]
    return bool(grams) and 1 - len(set(grams)) / len(grams) > limit
