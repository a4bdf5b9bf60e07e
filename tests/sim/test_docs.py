"""docs/simulator.md shows code that runs."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"


def test_the_example_runs_and_prints_its_throughput(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(code, {})
    throughput, unit = capsys.readouterr().out.split()
    assert float(throughput) > 0
    assert unit == "tokens/s"
