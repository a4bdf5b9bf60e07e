"""docs/regret.md: its tables are what the study finds."""

import importlib.util
import re
from pathlib import Path

import pytest

from specsim.policies.config import PolicyConfig
from specsim.study.regret.bernoulli import COURSES, bernoulli
from specsim.study.regret.study import DEFAULT_POLICIES, study_regret

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "regret.md").read_text(encoding="utf-8")


def load_script():
    spec = importlib.util.spec_from_file_location("regret_page", DOCS / "regret.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


script = load_script()


def table(name):
    """Rows of a table of the page: policy -> cells."""
    text = PAGE.split(script.BEGIN.format(name))[1].split(script.END.format(name))[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().splitlines()[2:]]
    return {row[0].strip("`"): row[1:] for row in rows}


@pytest.fixture(scope="module")
def small():
    """Every default policy in every environment, two short seeds."""
    policies = [PolicyConfig.model_validate(text) for text in DEFAULT_POLICIES]
    return study_regret([bernoulli(name, 40) for name in COURSES], policies, [0, 1])


def test_every_default_policy_has_its_numbers():
    for name in ("regret", "seconds"):
        assert set(DEFAULT_POLICIES) <= table(name).keys()
        assert all(len(cells) == len(COURSES) for cells in table(name).values())
    assert table("followers").keys() == set(script.FOLLOWERS)


def test_the_page_says_of_followers_what_must_hold():
    for policy, (after, before) in table("followers").items():
        assert float(after) < 0.4
        assert float(before) <= 2.5 or policy == "discounted_ucb"


def test_earlier_measurements_stand_beside_ours_and_agree():
    names = list(COURSES)
    for policy, known in script.EARLIER.items():
        for environment, (mean, spread) in known.items():
            cell = table("regret")[policy][names.index(environment)]
            assert cell.endswith(f"({mean} ± {spread})")
            # Other code, other seeds, and changes that were described in words only: within a sixth.
            assert float(cell.split(" ±")[0]) == pytest.approx(mean, rel=1 / 6)


def test_tables_are_made_of_a_study(small):
    row = next(line for line in script.regret_table(small).splitlines() if "`ucb1`" in line)
    cells = row.strip("|").split("|")[1:]
    found = [small.of(name)[1] for name in COURSES]
    assert [cell.split(" ±")[0].strip() for cell in cells] == [f"{own.regret:.1f}" for own in found]
    assert script.seconds_table(small).count("\n") == 2 + len(DEFAULT_POLICIES)
    assert script.follower_table(small).count("\n") == 2 + len(script.FOLLOWERS)


def test_rewriting_the_tables_leaves_the_text_alone(small):
    again = script.updated(PAGE, small)
    assert again != PAGE
    assert script.updated(again, small) == again
    blank = re.compile(r"<!-- (\w+): written.*?<!-- end of \1 -->", re.DOTALL)
    assert blank.sub("", again) == blank.sub("", PAGE)


def test_a_page_without_marks_is_refused(small):
    with pytest.raises(ValueError, match="must hold"):
        script.updated("nothing\n", small)
