"""docs/writing_a_policy.md: its example works as it stands, and its proof is what the history says."""

import re
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from specsim.policies.arms.fixed_arm import FixedArm
from specsim.policies.controller import Controller

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "writing_a_policy.md").read_text(encoding="utf-8")


@pytest.fixture
def example(monkeypatch):
    """The page's class, made from its text."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    module = types.ModuleType("example_policy")
    monkeypatch.setitem(sys.modules, "example_policy", module)  # where its annotations are looked up
    exec(compile(code, "docs/writing_a_policy.md", "exec"), module.__dict__)
    return module.Shrinking


def test_the_example_is_a_budget_policy(example, drafter, context):
    controller = Controller([drafter(max_depth=7)], FixedArm(num_arms=1), example(tokens=20))
    depths = [controller.choose(replace(context, batch=batch)).depth for batch in (1, 4, 20, 21)]
    assert depths == [7, 5, 1, 0]
    with pytest.raises(ValueError, match="tokens"):
        example(tokens=0)


def test_every_place_named_is_there():
    for place in re.findall(r"^\| `(\S+)` \|", PAGE, re.MULTILINE):
        assert (ROOT / place.replace("NAME", "slo_dcut")).exists(), place


def test_the_proof_is_what_the_history_says():
    commit, shown = re.search(r"\$ git show --stat (\w+)\n(.*?)```", PAGE, re.DOTALL).groups()
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-C", str(ROOT), "show", "--stat=80", "--format=", commit]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"the history does not reach back to {commit}")
    assert found.stdout.split() == shown.split()
