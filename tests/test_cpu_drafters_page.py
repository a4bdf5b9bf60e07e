"""docs/cpu_drafters.py: the page's table is what was measured."""

import importlib.util
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def load_script():
    spec = importlib.util.spec_from_file_location("cpu_drafters_page", DOCS / "cpu_drafters.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


script = load_script()
measured = json.loads(script.MEASURED.read_text(encoding="utf-8"))


def test_the_page_is_what_the_script_writes():
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.updated(page, measured) == page


def test_pruning_pays_and_nothing_differs_between_rounds():
    """The margins hold by far more than rounds differ."""
    speed = {(cell["policy"], cell["drafter"]): cell["tokens_per_second"] for cell in measured["cells"]}
    for drafter in ("eagle-general", "block-general"):
        fixed = speed["fixed_depth:depth=15", drafter]
        assert speed["dcut:ratios=all,numerator=bonus,depth=goodput", drafter] > 2 * fixed
        assert speed["dcut:ratios=all,numerator=bonus", drafter] > 1.2 * fixed
    assert all(cell["same_tokens_every_round"] for cell in measured["cells"])


def test_a_run_that_was_only_tried_out_or_differs_is_refused():
    with pytest.raises(ValueError, match="--tiny"):
        script.table(measured | {"tiny": True})
    cells = [measured["cells"][0] | {"differences": ["step 3"]}]
    with pytest.raises(ValueError, match="step 3"):
        script.table(measured | {"cells": cells})
    with pytest.raises(ValueError, match="must hold"):
        script.updated("no table", measured)
