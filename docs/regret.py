"""Writes the tables of docs/regret.md: plays every drafter policy on 200 seeds, which takes a minute or two.

`python docs/regret.py` plays and rewrites the tables; `python docs/regret.py FILE` takes a study that
`specsim regret --out FOLDER` left in FOLDER/regret.json.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pages import rewritten

from specsim.policies.config import PolicyConfig
from specsim.study.regret.bernoulli import COURSES, bernoulli
from specsim.study.regret.result import PolicyRegret, RegretResult
from specsim.study.regret.study import DEFAULT_POLICIES, NUM_SEEDS, study_regret

PAGE = Path(__file__).resolve().parent / "regret.md"
BEGIN, END = "<!-- {}: written by docs/regret.py -->\n", "<!-- end of {} -->\n"

EARLIER = {
    "ucb1": {"stationary": (100, 17), "three_swaps": (251, 42), "hidden_improvement": (180, 90)},
    "thompson_beta": {"stationary": (18, 7), "three_swaps": (1220, 207), "hidden_improvement": (1092, 473)},
    "sliding_window_ucb": {"stationary": (197, 20), "three_swaps": (264, 41), "hidden_improvement": (192, 22)},
    "discounted_ucb": {"stationary": (311, 26), "three_swaps": (359, 27), "hidden_improvement": (283, 24)},
    "discounted_thompson_beta": {"stationary": (144, 16), "three_swaps": (326, 34), "hidden_improvement": (150, 27)},
    "exp3s": {"stationary": (306, 32), "three_swaps": (811, 79), "hidden_improvement": (486, 62)},
}
"""Mean and standard deviation over 200 seeds, measured before this code was written and with other code."""

FOLLOWERS = ("sliding_window_ucb", "discounted_ucb", "discounted_thompson_beta", "change_point")


def regret_table(result: RegretResult) -> str:
    """Mean and standard deviation by policy and environment, earlier measurements in brackets."""
    rows = [_head(result)]
    for policy in result.policies:
        cells = []
        for environment in result.environments:
            found = _find(result, environment.name, policy)
            earlier = EARLIER.get(policy, {}).get(environment.name)
            cells.append(f"{found.regret:.1f} ± {found.regret_sd:.0f}" + (f" ({_pair(earlier)})" if earlier else ""))
        rows.append(f"| `{policy}` | {' | '.join(cells)} |")
    fixed = " | ".join(f"{environment.fixed_regret:.0f}" for environment in result.environments)
    return "\n".join([*rows, f"| best fixed arm, in hindsight | {fixed} |"]) + "\n"


def seconds_table(result: RegretResult) -> str:
    """Mean seconds lost and mean number of switches."""
    rows = [_head(result)]
    for policy in result.policies:
        found = [_find(result, environment.name, policy) for environment in result.environments]
        cells = [f"{own.seconds_regret:.2f} s, {own.switches:,.0f}" for own in found]
        rows.append(f"| `{policy}` | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def follower_table(result: RegretResult) -> str:
    """What following costs when nothing changes, and saves when best and worst change places."""
    rows = [
        "| policy | after a swap, as a share of `thompson_beta` | when nothing changes, in times of `ucb1` |",
        "|---|---|---|",
    ]
    swap = _find(result, "one_swap", "thompson_beta").regret
    still = _find(result, "stationary", "ucb1").regret
    for policy in FOLLOWERS:
        after = _find(result, "one_swap", policy).regret / swap
        before = _find(result, "stationary", policy).regret / still
        rows.append(f"| `{policy}` | {after:.2f} | {before:.2f} |")
    return "\n".join(rows) + "\n"


TABLES = {"regret": regret_table, "seconds": seconds_table, "followers": follower_table}


def updated(page: str, result: RegretResult) -> str:
    """The page with its tables made anew.

    Raises  ValueError when a mark is missing
    """
    for name, table in TABLES.items():
        page = rewritten(page, BEGIN.format(name), END.format(name), table(result))
    return page


def _head(result: RegretResult) -> str:
    names = [environment.name.replace("_", " ") for environment in result.environments]
    return f"| policy | {' | '.join(names)} |\n|---{'|---' * len(names)}|"


def _find(result: RegretResult, environment: str, policy: str) -> PolicyRegret:
    return next(found for found in result.of(environment) if found.policy == policy)


def _pair(earlier: tuple[int, int]) -> str:
    return f"{earlier[0]} ± {earlier[1]}"


def main() -> None:
    """Play or load, then rewrite the tables."""
    if len(sys.argv) > 1:
        result = RegretResult.load(sys.argv[1])
    else:
        policies = [PolicyConfig.model_validate(text) for text in DEFAULT_POLICIES]
        environments = [bernoulli(name) for name in COURSES]
        result = study_regret(environments, policies, list(range(NUM_SEEDS)), jobs=os.cpu_count() or 1)
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")


if __name__ == "__main__":
    main()
