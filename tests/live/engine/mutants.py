"""Faults put into the engine one at a time, to see that a test would notice."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Mutant:
    """One fault.

    place   `module:function` or `module:Class.method`, below `specsim.`
    right   a piece of that module's source, which occurs once
    wrong   what stands there instead
    gate    the gate that must notice
    """

    place: str
    right: str
    wrong: str
    gate: str

    def apply(self, monkeypatch) -> None:
        """Put the fault in until the test ends, wherever the function was imported to."""
        module_name, _, path = self.place.partition(":")
        module = import_module(f"specsim.{module_name}")
        source = inspect.getsource(module)
        assert source.count(self.right) == 1, f"{source.count(self.right)} places of {self.right!r} in {module_name}"
        spoiled = dict(vars(module))
        exec(compile(source.replace(self.right, self.wrong), module.__file__, "exec"), spoiled)
        owner, _, name = path.rpartition(".")
        if owner:
            monkeypatch.setattr(getattr(module, owner), name, vars(spoiled[owner])[name])
            return
        right = getattr(module, name)
        for other in [module for key, module in sys.modules.items() if key.startswith("specsim")]:
            if vars(other).get(name) is right:
                monkeypatch.setattr(other, name, spoiled[name])


MUTANTS = {
    "rows of a batch swapped": Mutant(
        "live.verifier:Verifier._judge",
        "out.query_start[: len(batch)]",
        "out.query_start[: len(batch)].flip(0)",
        "greedy",
    ),
    "anchor fed one place too early": Mutant(
        "live.state:SlotState.batch", "slots, lengths - 1, np", "slots, lengths - 2, np", "greedy"
    ),
    "drafts read one place too early": Mutant(
        "live.verifier:Verifier._judge",
        "batch.device_lengths[:, None] + torch",
        "batch.device_lengths[:, None] - 1 + torch",
        "greedy",
    ),
    "following token written one place too late": Mutant(
        "live.verifier:Verifier._judge", "verdict.num_accepted\n", "verdict.num_accepted + 1\n", "greedy"
    ),
    "rejected drafts stay in the sequence and its cache": Mutant(
        "live.committer:Committer._advance",
        "state.length[slots] += emission.num_emitted",
        "state.length[slots] += step.verified + 1",
        "greedy",
    ),
    "block table of another slot": Mutant(
        "live.runner:ModelRunner._eager",
        "self.ops.prepare(packed, table[slots]",
        "self.ops.prepare(packed, table[slots.roll(1)]",
        "greedy",
    ),
    "last row of a prompt's piece off by one": Mutant(
        "live.verifier:Verifier._kept", "np.cumsum(sizes) - 1", "np.cumsum(sizes) - 2", "greedy"
    ),
    "first token of another prompt": Mutant(
        "live.verifier:Verifier._first_tokens",
        "np.array(done, np.int64))",
        "np.array(done, np.int64)[::-1].copy())",
        "greedy",
    ),
    "keys one position too few": Mutant(
        "live.cpu_attention:_together", "<= position[:, :, None]", "< position[:, :, None].clamp(min=1)", "greedy"
    ),
    "a draft sees what follows it": Mutant(
        "live.cpu_attention:_together",
        "position = context[:, None] - counts[:, None] + step",
        "position = context[:, None] - counts[:, None] + step.clamp(min=1)",
        "greedy",
    ),
    "output lost over a preemption": Mutant(
        "live.state:SlotState.admit",
        "np.asarray(request.token_ids, np.int64)",
        "np.zeros(len(request.token_ids), np.int64)",
        "crowded",
    ),
    "stale history read behind a length": Mutant(
        "live.drafters.live_ngram:_draft_each",
        "history[slot, :length])",
        "history[slot, : length + 1])",
        "stale columns",
    ),
    "stale cache read behind a context": Mutant(
        "live.cpu_attention:_together",
        "torch.where(column < context[:, None], column, 0)",
        "column.expand(len(rows), -1)",
        "stale columns",
    ),
    "drafts emitted beyond the limit": Mutant(
        "live.commit:cut_blocks", "np.minimum(num_accepted + 1, room)", "num_accepted + 1", "ends"
    ),
    "drafts emitted behind a stop token": Mutant(
        "live.commit:cut_blocks", "stops.argmax(axis=1) + 1, num_emitted", "num_emitted, num_emitted", "ends"
    ),
    "drafts emitted behind a stop text": Mutant(
        "live.commit:cut_blocks", "num_emitted[row], stopped[row] = place + 1, True", "stopped[row] = True", "ends"
    ),
    "the beginning of a stop text told": Mutant(
        "live.detokenizer:Detokenizer._held_back", "return length", "return 0", "ends"
    ),
    "a request without a law goes on": Mutant(
        "live.committer:Committer._begin_decoding", "if begun.faulty[row] >= 0", "if False", "no law"
    ),
    "a failed request named by another's position": Mutant(
        "live.committer:Committer._end_or_tell_row",
        "self._fail(slot, emitted, now)",
        "self._fail(slot, 0, now)",
        "no law",
    ),
    "randomness of the slot, not of the request": Mutant(
        "live.state:SlotState._laws_of", "self.seeds[there]", "there", "seeds"
    ),
    "temperature of another slot": Mutant(
        "live.state:SlotState._laws_of", "self.temperature[there]", "self.temperature[there.flip(0)]", "seeds"
    ),
    "output position of another request": Mutant(
        "live.state:SlotState.batch", "where[5],", "where[5].flip(0),", "seeds"
    ),
    "filters of another request": Mutant(
        "live.acceptor:TargetAcceptor._filtered", "right=True) - 1", "right=True).clamp(max=len(rows) - 1)", "seeds"
    ),
    "filters forgotten where drafts are verified": Mutant(
        "live.acceptor:TargetAcceptor.judge",
        "if batch.top_k is not None and",
        "if pending.arm < 0 and batch.top_k is not None and",
        "seeds",
    ),
    "draft law not the one drawn from": Mutant(
        "live.acceptor:TargetAcceptor.judge",
        "else pending.drafted.log_prob",
        "else pending.drafted.log_prob / 2",
        "law",
    ),
    "residual inverted": Mutant(
        "kernels.recover:residual", "excess = target - draft", "excess = draft - target", "law"
    ),
    "recovered token from the target": Mutant(
        "kernels.verify:_recovered", "xp.where(rejected[:, None], draft, 0.0)", "draft * 0.0", "law"
    ),
    "bonus from the draft": Mutant(
        "kernels.verify:_recovered",
        "weights = residual(target, xp.concat([draft, padding], axis=1), xp)",
        "weights = xp.where(rejected[:, None], residual(target, xp.concat([draft, padding], axis=1), xp), "
        "xp.concat([xp.exp(xp.take(flat, place + step.depth - 1, axis=0)), padding], axis=1))",
        "law",
    ),
    "temperature after the logarithm of the softmax": Mutant(
        "kernels.verify:_test", "xp.sum(xp.exp(tempered), axis=1)", "xp.sum(xp.exp(tempered * 1.3), axis=1)", "law"
    ),
    "one number for the test and the token": Mutant(
        "kernels.verify:_chances", "place, (-1,)), ACCEPT)", "place, (-1,)), TARGET)", "law"
    ),
    "one number for the draft and its test": Mutant(
        "live.drafters.stepwise:_choose", "(step << 32), DRAFT)", "step, 0)", "law"
    ),
}
"""By name, faults of engines and of verification; each is a row of docs/exactness.md."""
