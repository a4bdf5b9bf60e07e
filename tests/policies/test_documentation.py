"""docs/policies.md has a row for every policy and names every option."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from specsim.policies.build import ARMS, BUDGETS, CALIBRATORS, GIVEN_BY_THE_RUN, build_controller
from specsim.policies.rewards import REWARDS

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
ROWS = {row.split("`")[1] for row in PAGE.splitlines() if row.startswith("| `")}


@pytest.mark.parametrize("name", [*BUDGETS, *ARMS, *CALIBRATORS, *REWARDS])
def test_every_policy_and_reward_has_a_row(name):
    assert name in ROWS


@pytest.mark.parametrize("policy", [*BUDGETS.values(), *ARMS.values(), *CALIBRATORS.values()])
def test_every_option_is_named(policy):
    for field in fields(policy):
        if field.init and field.name not in GIVEN_BY_THE_RUN:
            assert f"`{field.name}`" in PAGE


def test_the_example_texts_build(drafter):
    section = PAGE.split("## Naming a controller")[1].split("## ")[0]
    texts = [row.split("`")[1] for row in section.splitlines() if row.startswith("| `")]
    assert len(texts) >= 4
    for text in texts:
        drafters = [drafter("ngram"), drafter("exit24")] if "@" in text else [drafter("only")]
        build_controller(text, drafters)


def test_the_example_json_builds(drafter):
    from specsim.policies.config import ControllerConfig

    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    controller = build_controller(ControllerConfig.model_validate_json(block), [drafter("ngram"), drafter("exit24")])
    assert controller.label == "ours"
