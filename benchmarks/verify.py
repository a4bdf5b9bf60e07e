"""How long verification takes on a GPU: the Triton twin beside the same steps in plain torch, both in CUDA graphs.

7 drafts a request, bfloat16 logits, 32 to 2,048 rows over the vocabularies of SmolLM2, Llama 3 and Qwen 2.5: greedy,
sampled with certain drafts, and sampled with drafts drawn from a law. The plain steps are log_softmax, gather and a
multinomial draw (the exponential race that `torch.multinomial` runs, without its check on the host, which no graph
holds). Verdicts are compared with the definition's first: where they differ by more than rounding nothing is measured.

    python benchmarks/verify.py

The last line printed is one JSON object. Needs CUDA: exit code 2 where there is none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DEPTH = 7
ROWS = (32, 128, 512, 2048)
VOCABULARIES = (49152, 128256, 151936)
MODES = ("greedy", "certain", "law")
CHECKED = 32
"""Requests compared with the definition: all of the smallest sizes, as many of the others as its memory allows."""

EDGE = 2.0**-17
"""A draw may differ where its uniform lies this close to the edge between two tokens: sums there are float32."""


@dataclass(frozen=True)
class Case:
    """The arguments of one call."""

    logits: Any
    rows: Any
    proposal: Any
    sampling: Any


def make_case(torch: Any, mode: str, num_rows: int, vocabulary: int) -> Case:
    """Requests one after the other, of drafts that are sometimes the target's most likely token."""
    from specsim.kernels.verify import Proposal, Sampling

    generator = torch.Generator("cuda").manual_seed(num_rows + vocabulary)
    batch = num_rows // (DEPTH + 1)
    logits = torch.empty((num_rows, vocabulary), dtype=torch.bfloat16, device="cuda").normal_(0, 4, generator=generator)
    rows = torch.arange(batch, device="cuda") * (DEPTH + 1)
    best = logits.view(batch, DEPTH + 1, vocabulary)[:, :DEPTH].argmax(-1)
    other = torch.randint(0, vocabulary, (batch, DEPTH), device="cuda", generator=generator)
    tokens = torch.where(torch.rand((batch, DEPTH), device="cuda", generator=generator) < 0.8, best, other)
    law = None
    if mode == "law":
        near = logits.view(batch, DEPTH + 1, vocabulary)[:, :DEPTH].float()
        law = (near + torch.empty_like(near).normal_(0, 1, generator=generator)).log_softmax(-1)
    seed = torch.arange(batch, device="cuda") * 7919
    temperature = torch.full((batch,), 0.0 if mode == "greedy" else 0.8, device="cuda")
    num_verify = torch.full((batch,), DEPTH, dtype=torch.int64, device="cuda")
    return Case(logits, rows, Proposal(tokens, num_verify, law), Sampling(temperature, seed, 0 * seed))


def part(case: Case, batch: int) -> Case:
    """The first requests of a case."""
    from specsim.kernels.verify import Proposal, Sampling

    proposal, sampling = case.proposal, case.sampling
    law = None if proposal.log_prob is None else proposal.log_prob[:batch]
    first = Sampling(sampling.temperature[:batch], sampling.seed[:batch], sampling.position[:batch])
    drafts = Proposal(proposal.tokens[:batch], proposal.num_verify[:batch], law)
    return Case(case.logits[: batch * (DEPTH + 1)], case.rows[:batch], drafts, first)


def verify_with(call: Callable[..., Any], case: Case) -> Any:
    """The verdict of one implementation."""
    return call(case.logits, case.rows, case.proposal, case.sampling)


def differences(torch: Any, case: Case) -> tuple[int, int]:
    """Requests of the whole batch whose verdict is another than the definition's: by rounding, and by more."""
    from specsim.kernels import verify as definition
    from specsim.kernels.verify_triton import verify as twin

    drawn = definition.uniform
    small = part(case, CHECKED)
    size = len(small.rows)

    def answer(verdict: Any) -> Any:
        return torch.stack([verdict.num_accepted, verdict.next_token, verdict.faulty])[:, :size]

    said = answer(verify_with(twin, case))
    try:
        defined = []
        for shift in (0.0, -EDGE, EDGE):
            # Seen by the definition alone: the twin draws its own.
            definition.uniform = lambda *args, shift=shift: (drawn(*args) + shift).clamp(0, 1 - 2.0**-24)
            defined.append(answer(verify_with(definition.verify, small)))
    finally:
        definition.uniform = drawn
    same = [(said == each).all(dim=0) for each in defined]
    explained = same[0] | same[1] | same[2]
    return int((explained & ~same[0]).sum()), int((~explained).sum())


def plain(torch: Any, case: Case) -> Callable[[], Any]:
    """The same steps in torch, op by op."""
    proposal, sampling = case.proposal, case.sampling
    tokens, law = proposal.tokens, proposal.log_prob
    batch = len(case.rows)
    vocabulary = case.logits.shape[1]
    places = case.rows[:, None] + torch.arange(DEPTH + 1, device="cuda")
    heat = sampling.temperature.repeat_interleave(DEPTH + 1)[:, None]
    every = torch.arange(batch, device="cuda")

    def leading(passed: Any) -> Any:
        return passed.to(torch.int64).cumprod(1).sum(1)

    def greedy() -> Any:
        best = case.logits.argmax(-1)[places]
        accepted = leading(tokens == best[:, :-1])
        return accepted, best.gather(1, accepted[:, None])[:, 0]

    def sampled() -> Any:
        target = (case.logits.float() / heat).log_softmax(-1).view(batch, DEPTH + 1, vocabulary)
        chance = torch.rand((batch, DEPTH), device="cuda").log()
        if law is not None:
            chance = chance + law.gather(2, tokens[:, :, None])[:, :, 0]
        accepted = leading(chance < target[:, :-1].gather(2, tokens[:, :, None])[:, :, 0])
        weights = target[every, accepted].exp()
        place = accepted.clamp(max=DEPTH - 1)
        rejected = (accepted < DEPTH)[:, None]
        if law is not None:
            left = (weights - law[every, place].exp()).clamp(min=0)
        else:
            left = weights.scatter(1, tokens.gather(1, place[:, None]), 0.0)
        weights = torch.where(rejected, left, weights)
        return accepted, (weights / torch.empty_like(weights).exponential_()).argmax(-1)

    return greedy if not bool((sampling.temperature > 0).any()) else sampled


def microseconds(torch: Any, call: Callable[[], Any], replays: int = 20, repeats: int = 7) -> float:
    """The fastest of a few series of replays of a graph that holds one call."""
    for _ in range(3):  # compiles, and lets allocators settle
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / replays)
    return min(times)


def main() -> None:
    """Check, then measure and print."""
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("benchmarks/verify.py needs torch and a CUDA device", file=sys.stderr)
        sys.exit(2)
    import triton

    from specsim.kernels.verify_triton import verify as twin

    found = []
    print(f"{'mode':8} {'rows':>5} {'tokens':>7} {'twin us':>9} {'plain us':>9} {'ratio':>6} {'logits GB/s':>11}")
    for mode in MODES:
        for vocabulary in VOCABULARIES:
            for num_rows in ROWS:
                case = make_case(torch, mode, num_rows, vocabulary)
                rounded, wrong = differences(torch, case)
                if wrong or (rounded and mode == "greedy"):
                    sys.exit(f"{mode}, {num_rows} rows of {vocabulary}: {wrong + rounded} verdicts are wrong")
                ours = microseconds(torch, lambda case=case: verify_with(twin, case))
                theirs = microseconds(torch, plain(torch, case))
                rate = case.logits.nbytes / ours / 1e3
                print(
                    f"{mode:8} {num_rows:5} {vocabulary:7} {ours:9.1f} {theirs:9.1f} {theirs / ours:6.2f} {rate:11.0f}"
                )
                found.append(
                    {
                        "mode": mode,
                        "rows": num_rows,
                        "vocabulary": vocabulary,
                        "twin_us": round(ours, 2),
                        "plain_us": round(theirs, 2),
                        "logits_gb_per_s": round(rate, 1),
                        "differs_by_rounding": rounded,
                    }
                )
    result = {
        "benchmark": "verify",
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "drafts": DEPTH,
        "cases": found,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
