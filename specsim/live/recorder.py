"""Record a position-indexed trace: at every output position of every prompt, what each drafter would propose.

The target decodes its own path first, greedily or drawing; then each drafter proposes after every prefix of it. Whether
a certain draft is accepted depends on the path alone, so any policy can be replayed exactly on what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import specsim
from specsim.errors import InputError
from specsim.live.drafters import Drafter, Proposals
from specsim.live.drafters.trained_everywhere import Drawing, TrainedEverywhere
from specsim.live.greedy import Output, decode_greedy, decode_sampled
from specsim.live.machine import hardware, versions
from specsim.live.models import LoadedModel
from specsim.live.prompts import Prompt, PromptFile, in_turn
from specsim.live.sampling import SamplingParams, request_seed
from specsim.trace import DrafterEntry, Manifest, PromptSet, RecordedBlocks, RequestRow, Sampling, TraceWriter

LOOP_NGRAM = 4
LOOP_SHARE = 0.4
"""An output loops when more than this share of its 4-grams occurred in it before."""

CERTAIN = (
    "Certain drafts are accepted while they are the output's tokens, which the engine does at this seed, too; their "
    "accept_prob is 1 where accepted, 0 from the first rejection or the output's end on. "
)

DRAWN = (
    "Drafts of law 'sampled' were drawn and tested with the numbers that the engine uses at each position; accept_prob "
    "is min(1, target / draft) behind the output's prefix and the block's own earlier drafts, 0 beyond the output's "
    "end. What is so accepted need not be the output's tokens: at each position num_accepted is what decoding has "
    "there, but a walk along the output is an estimate, since decoding would leave it. "
)


@dataclass(frozen=True)
class RecordOptions:
    """How to record.

    max_new_tokens    most tokens of an output
    batch_size        prompts that the target decodes together
    segment           prompts taken of each file in turn (None: file by file)
    temperature       of the target's path, and of drafts that are drawn; 0: greedy
    seed              of the path's randomness; see `sampling.request_seed`, prompts being numbered in their order
    chat_template     whether prompts are wrapped by the tokenizer's chat template, where it has one
    token_ids         whether the drafted tokens are stored
    name              the trace's name (None: the folder's)
    command           the command that was given, for the manifest
    licence           terms of the trace
    prompt_origin     who wrote the prompts
    prompt_licence    terms of the prompts
    """

    max_new_tokens: int = 160
    batch_size: int = 8
    segment: int | None = None
    temperature: float = 0.0
    seed: int = 0
    chat_template: bool = True
    token_ids: bool = True
    name: str | None = None
    command: str = ""
    licence: str = "not stated"
    prompt_origin: str = ""
    prompt_licence: str = "not stated"

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "batch_size", "segment"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} {value}: must be at least 1")
        SamplingParams(temperature=self.temperature, seed=self.seed)  # refuses what no request may ask for


@dataclass(frozen=True, slots=True)
class Progress:
    """One finished request.

    done            requests written, those of an earlier run included
    total           requests in all
    num_tokens      output tokens of this request
    repetition      share of its 4-grams that occurred in it before
    """

    done: int
    total: int
    num_tokens: int
    repetition: float


def record(
    target: LoadedModel,
    drafters: Sequence[Drafter],
    prompts: Sequence[PromptFile],
    out: Path,
    options: RecordOptions,
    resume: bool = False,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Manifest:
    """Record a trace.

    target      the model whose outputs are drafted
    drafters    at least one, with different names
    prompts     where the requests come from
    out         folder of the trace, new or empty
    options     how to record
    resume      continue a run that was killed; requests already written are kept
    report      called after each request is on disk
    returns     the finished trace's manifest

    Raises      InputError when options, prompts and model do not fit, or the folder holds something else
    """
    _check_options(options, drafters)
    asked = in_turn(prompts, options.segment)
    requests = [
        _Request(prompt, _encode(prompt, target, options), request_seed(options.seed, number))
        for number, prompt in enumerate(asked)
    ]
    writer = TraceWriter(out, _manifest(target, drafters, prompts, out, options), resume=resume)
    # Batches never depend on what is done already: float rounding does on who shares a batch, and so might a token.
    for first in range(0, len(requests), options.batch_size):
        batch = requests[first : first + options.batch_size]
        if all(request.prompt.id in writer.done for request in batch):
            continue
        for request, output in zip(batch, _decode(target, batch, options), strict=True):
            if request.prompt.id in writer.done:
                continue
            _write(writer, drafters, request, output, options)
            tokens = output.token_ids
            report(Progress(len(writer.done), len(requests), len(tokens), repetition(tokens)))
    return writer.finish()


def repetition(token_ids: np.ndarray) -> float:
    """1 - distinct 4-grams / 4-grams of a text; 0 when it has none."""
    count = len(token_ids) - LOOP_NGRAM + 1
    if count < 1:
        return 0.0
    windows = np.lib.stride_tricks.sliding_window_view(token_ids, LOOP_NGRAM)
    return 1.0 - len(np.unique(windows, axis=0)) / count


def judge(proposals: Proposals, output: np.ndarray, token_ids: bool) -> RecordedBlocks:
    """Compare proposals with the target's own path.

    proposals   P blocks of at most D drafts
    output      [P] int64, the target's tokens
    token_ids   whether to keep the drafted tokens
    returns     what is written: certain drafts are accepted while they are the path's, drawn ones as they were tested;
                drafts beyond the output's end are censored, not rejected
    """
    positions = np.arange(len(output))
    depth = proposals.token_ids.shape[1]
    index = positions[:, None] + np.arange(depth)
    num_verified = np.minimum(proposals.num_drafts, len(output) - positions)
    verified = np.arange(depth) < num_verified[:, None]
    right = verified & (proposals.token_ids == output[np.minimum(index, len(output) - 1)])
    matched = np.cumprod(right, axis=1, dtype=np.int64)
    accept_prob = matched if proposals.accept_prob is None else proposals.accept_prob
    return RecordedBlocks(
        num_drafts=proposals.num_drafts,
        num_accepted=matched.sum(axis=1) if proposals.accepted is None else proposals.accepted,
        num_verified=num_verified,
        confidence=proposals.confidence.astype(np.float32),
        confidence_max=None if proposals.most is None else proposals.most.astype(np.float32),
        margin=None if proposals.margin is None else proposals.margin.astype(np.float32),
        accept_prob=accept_prob.astype(np.float32),
        draft_token_ids=proposals.token_ids if token_ids else None,
    )


@dataclass(frozen=True, slots=True)
class _Request:
    """A prompt, its token ids [T] int64, and its seed."""

    prompt: Prompt
    ids: np.ndarray
    seed: int


def _decode(target: LoadedModel, batch: Sequence[_Request], options: RecordOptions) -> list[Output]:
    """The target's own paths."""
    prompts = [request.ids for request in batch]
    if not options.temperature:
        return decode_greedy(target, prompts, options.max_new_tokens)
    seeds = [request.seed for request in batch]
    return decode_sampled(target, prompts, seeds, options.temperature, options.max_new_tokens)


def _propose(drafter: Drafter, request: _Request, output: np.ndarray, options: RecordOptions) -> Proposals:
    if drafter.spec.law == "point_mass":
        return drafter.propose_everywhere(request.ids, output)
    assert isinstance(drafter, TrainedEverywhere)
    return drafter.draw_everywhere(request.ids, output, Drawing(request.seed, options.temperature))


def _write(
    writer: TraceWriter, drafters: Sequence[Drafter], request: _Request, output: Output, options: RecordOptions
) -> None:
    tokens = output.token_ids
    blocks = {
        drafter.spec.name: judge(_propose(drafter, request, tokens, options), tokens, options.token_ids)
        for drafter in drafters
    }
    row = RequestRow(
        request_id=request.prompt.id,
        domain=request.prompt.domain,
        num_prompt_tokens=len(request.ids),
        num_output_tokens=len(tokens),
        finish_reason=output.finish_reason,
    )
    writer.add(row, blocks)


def _encode(prompt: Prompt, target: LoadedModel, options: RecordOptions) -> np.ndarray:
    """Token ids [T] int64 of a prompt as the model sees it."""
    tokenizer = target.tokenizer
    if options.chat_template and tokenizer.chat_template:
        messages = [{"role": "user", "content": prompt.text}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    else:
        ids = tokenizer.encode(prompt.text)
    if not ids:
        raise InputError(f"prompt {prompt.id}: no tokens; the tokenizer of {target.name!r} knows nothing in it")
    limit = target.model.config.get_text_config().max_position_embeddings
    if len(ids) + options.max_new_tokens > limit:
        raise InputError(
            f"prompt {prompt.id}: {len(ids)} tokens and {options.max_new_tokens} new ones exceed the context of "
            f"{target.name!r}, {limit} tokens; shorten it or lower --max-new-tokens"
        )
    return np.asarray(ids, dtype=np.int64)


def _check_options(options: RecordOptions, drafters: Sequence[Drafter]) -> None:
    names = [drafter.spec.name for drafter in drafters]
    if not names or len(set(names)) != len(names):
        raise InputError(f"drafters {', '.join(names) or 'none'}: must be at least one, each once")
    drawn = [drafter.spec.name for drafter in drafters if drafter.spec.law == "sampled"]
    if drawn and not options.temperature:
        raise InputError(f"drafter {drawn[0]!r} draws its drafts: give a temperature above 0")


def _path_in_words(options: RecordOptions) -> str:
    if not options.temperature:
        return "greedy outputs"
    return (
        f"outputs at temperature {options.temperature:g}, seed {options.seed}, each token drawn by its request's seed "
        "and position alone,"
    )


def _turns(options: RecordOptions) -> str:
    return "" if options.segment is None else f", {options.segment} of each file in turn"


def _manifest(
    target: LoadedModel,
    drafters: Sequence[Drafter],
    prompts: Sequence[PromptFile],
    out: Path,
    options: RecordOptions,
) -> Manifest:
    template = "chat template" if options.chat_template and target.tokenizer.chat_template else "no template"
    return Manifest(
        name=options.name or out.resolve().name,
        recorded_by=f"specsim {specsim.__version__}",
        how=(
            f"Target: {target.origin}. Its {_path_in_words(options)} in {target.dtype}, {options.batch_size} prompts "
            f"at a time ({template}{_turns(options)}); then each drafter proposes after every prefix of each output. "
            f"{CERTAIN}{DRAWN if any(one.spec.law == 'sampled' for one in drafters) else ''}"
            f"Command: {options.command}"
        ),
        target=target.name,
        model_hash=target.model_hash,
        tokenizer_hash=target.tokenizer_hash,
        drafters=tuple(DrafterEntry.of(drafter.spec, drafter.score_source) for drafter in drafters),
        sampling=Sampling(
            temperature=options.temperature,
            seed=options.seed if options.temperature else None,
            max_new_tokens=options.max_new_tokens,
        ),
        hardware=hardware(target.device),
        versions=versions(),
        licence=options.licence,
        prompt_sets=tuple(
            PromptSet(
                name=file.name,
                num_prompts=len(file.prompts),
                origin=options.prompt_origin,
                licence=options.prompt_licence,
                sha256=file.sha256,
            )
            for file in prompts
        ),
    )
