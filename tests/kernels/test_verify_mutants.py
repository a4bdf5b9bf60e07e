"""Mutants of verification, of the definition and of the twin, and the gate that catches each.

A mutant is a change of the source. Each is caught by the gate of `test_verify_gates` that is named:

| mutant | definition | twin |
|---|---|---|
| inverted residual | recovered_law | recovered_law |
| temperature after the log-softmax | accepted_share | accepted_share |
| `<=` instead of `<` at uniform 0 | uniform_zero | uniform_zero |
| bonus drawn from the draft | bonus_law | bonus_law |
| recovered token from the target that is not normalised | recovered_law | recovered_law |
| recovered token from the target, not the residual | recovered_law | recovered_law |
| last vocabulary tile out of range | (has no tiles) | last_tile |
| swapped batch rows | own_rows | own_rows |
| draft law not padded: its last token repeated | padded_law | padded_law |
| target drawn with the accept test's uniform | certain_law | certain_law |
| every draw with the uniform of the first position | own_position | own_position |
"""

import importlib.util
import sys
from pathlib import Path

import pytest

from specsim.kernels import accept, recover, verify
from tests.kernels.test_verify_gates import EXACT, GRID, uniform_zero
from tests.kernels.verifying import engine, inject, twin_modules

SOURCES = {"accept": accept, "recover": recover, "verify": verify}
MUTANTS = {
    "inverted residual": ("recovered_law", [("recover", "excess = target - draft", "excess = draft - target")]),
    "temperature after the log-softmax": (
        "accepted_share",
        [
            (
                "verify",
                "log_total = xp.log(xp.sum(xp.exp(tempered), axis=1))",
                "heat = xp.take(step.sampling.temperature, request, axis=0)\n"
                "    log_total = xp.log(xp.sum(xp.exp(tempered * heat[:, None]), axis=1)) / heat",
            )
        ],
    ),
    "at most at uniform 0": ("uniform_zero", [("accept", "return log_uniform < ", "return log_uniform <= ")]),
    "bonus from the draft": (
        "bonus_law",
        [
            (
                "verify",
                "token = draw(weights,",
                "weights = xp.where(rejected[:, None], weights, xp.exp(law[:, -1, :]))\n    token = draw(weights,",
            )
        ],
    ),
    "target not normalised": (
        "recovered_law",
        [("verify", " - xp.take(laws.log_total, row, axis=0)[:, None])", ")")],
    ),
    "recovered from the target": (
        "recovered_law",
        [("verify", "weights = residual(target, xp.concat([draft, padding], axis=1), xp)", "weights = target")],
    ),
    "rows swapped": (
        "own_rows",
        [("verify", "self.index = ", "rows = xp.flip(rows)\n        self.index = ")],
    ),
    "law not padded": ("padded_law", [("verify", "[draft, padding]", "[draft, padding + draft[:, -1:]]")]),
    "target by the accept test's uniform": (
        "certain_law",
        [("verify", "step.uniform(request, place, TARGET)", "step.uniform(request, place, ACCEPT)")],
    ),
    "position stands still": (
        "own_position",
        [("verify", "position + place, stream)", "position + 0 * place, stream)")],
    ),
}
TWIN_MUTANTS = {
    "inverted residual": ("recovered_law", [("residual", "excess = target - draft", "excess = draft - target")]),
    "temperature after the log-softmax": (
        "accepted_share",
        [
            ("verify", "tl.exp(tempered(value, largest, heat)), axis=0))", "tl.exp(value - largest), axis=0))"),
            ("residual", "tempered(highs, largest[:, None], heat[:, None])", "highs - largest[:, None]"),
            ("residual", "tl.sum(sums, axis=1), 1.0))", "tl.sum(sums, axis=1), 1.0)) / heat"),
        ],
    ),
    "at most at uniform 0": ("uniform_zero", [("residual", "log_uniform < margin", "log_uniform <= margin")]),
    "bonus from the draft": (
        "bonus_law",
        [
            (
                "residual",
                "    target = tl.exp(log_target)\n",
                "    at = law - law_vocabulary + token\n"
                '    drafted = tl.load(at, mask=token < law_vocabulary, other=float("-inf")).to(WIDE)\n'
                "    target = tl.exp(tl.where(recovers, log_target, drafted))\n",
            )
        ],
    ),
    "target not normalised": (
        "recovered_law",
        [("residual", "largest, heat) - log_total\n    target", "largest, heat)\n    target")],
    ),
    "recovered from the target": (
        "recovered_law",
        [("residual", "tl.max(left_sums, axis=0) > 0.0", "tl.max(left_sums, axis=0) < 0.0")],
    ),
    "last tile out of range": (
        "last_tile",
        [
            ("verify", "inside = token < vocabulary", "inside = token < vocabulary + 1"),
            ("verify", "mask=token < vocabulary,", "mask=token < vocabulary + 1,"),
        ],
    ),
    "rows swapped": ("own_rows", [("verify", "rows.contiguous()", "rows.flip(0).contiguous()")]),
    "law not padded": (
        "padded_law",
        [
            (
                "residual",
                "law_vocabulary, 0)",
                "vocabulary, 0)\n    token = tl.minimum(token, law_vocabulary - 1)",
            )
        ],
    ),
    "target by the accept test's uniform": ("certain_law", [("verify", " + place, TARGET)", " + place, 0)")]),
    "position stands still": (
        "own_position",
        [("verify", "(position + request) + place, TARGET", "(position + request) + 0 * place, TARGET")],
    ),
}


def mutant(changes, modules, folder):
    """These modules with their sources changed, as one implementation of `verify`: the last of them holds it."""
    loaded = {}
    for name, module in modules.items():
        source = Path(module.__file__).read_text()
        for old, new in [change[1:] for change in changes if change[0] == name]:
            assert old in source, f"{module.__name__} no longer holds {old!r}"
            source = source.replace(old, new)
        path = folder / f"{name}_mutant.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(f"{name}_mutant", path)
        loaded[name] = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded[name]  # a dataclass looks itself up there
        spec.loader.exec_module(loaded[name])
        del sys.modules[spec.name]
    whole = loaded["verify"]
    for name, part in loaded.items():
        for shared in set(vars(part)) & set(vars(whole)) if name != "verify" else ():
            if not shared.startswith("__") and vars(part)[shared] is not vars(modules[name])[shared]:
                setattr(whole, shared, vars(part)[shared])  # defined there, and used by the whole
    for part in loaded.values():
        for injected in {"uniform", "uniform_at"} & set(vars(part)):
            setattr(part, injected, getattr(modules["verify"], injected))
    return whole.verify


def assert_caught(gate, check, call):
    """The gate, which passes on what is, fails on the mutant."""
    check.call = call
    with pytest.raises(AssertionError):
        EXACT.get(gate, uniform_zero)(check)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_gate_catches_the_definition_with(name, monkeypatch, tmp_path):
    gate, changes = MUTANTS[name]
    inject(monkeypatch, GRID, 0.0 if gate == "uniform_zero" else 0.5)
    assert_caught(gate, engine("numpy"), mutant(changes, SOURCES, tmp_path))


@pytest.mark.parametrize("name", TWIN_MUTANTS)
def test_a_gate_catches_the_twin_with(name, monkeypatch, tmp_path):
    gate, changes = TWIN_MUTANTS[name]
    check = engine("twin")
    inject(monkeypatch, GRID, 0.0 if gate == "uniform_zero" else 0.5)
    whole, residual = twin_modules()
    assert_caught(gate, check, mutant(changes, {"residual": residual, "verify": whole}, tmp_path))


def test_the_table_above_lists_every_mutant():
    rows = [line.split("|")[1:4] for line in __doc__.splitlines() if line.startswith("| ")][1:]
    listed = [[cell.strip() for cell in row[1:]] for row in rows]
    held = list(MUTANTS.items())
    expected = [[gate, TWIN_MUTANTS[name][0]] for name, (gate, _) in held]
    expected.insert(6, ["(has no tiles)", TWIN_MUTANTS["last tile out of range"][0]])
    assert listed == expected
