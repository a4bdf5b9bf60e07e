"""A regret study in the terminal."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from specsim.policies.config import PolicyConfig
from specsim.report.regret_terminal import heading, render_regret
from specsim.study.regret.bernoulli import COURSES, bernoulli
from specsim.study.regret.study import DEFAULT_POLICIES, study_regret


@pytest.fixture(scope="module")
def study():
    """Every default policy in every environment, two short seeds."""
    policies = [PolicyConfig.model_validate(text) for text in DEFAULT_POLICIES]
    return study_regret([bernoulli(name, 40) for name in COURSES], policies, [0, 1])


def shown(result, width=80, report=None):
    console = Console(file=io.StringIO(), width=width)
    render_regret(result, console, report)
    return console.file.getvalue()


def test_it_fits_the_terminal(study):
    for width in (80, 60):
        assert max(map(len, shown(study, width).splitlines())) <= width


def test_every_policy_and_number_is_there(study):
    text = shown(study)
    assert "2 seeds of 40 steps" in text
    row = next(line for line in text.splitlines() if line.startswith("ucb1"))
    assert len(row.split()) == 1 + len(COURSES)
    for name in ("stationary", "swaps", "drift", "improve."):
        assert name in text
    assert text.count("ucb1 ") >= 2  # in acceptance and in seconds


def test_too_many_environments_make_a_second_table(study):
    many = replace(study, environments=study.environments * 1, regrets=study.regrets)
    assert sum(line.startswith("policy") for line in shown(many, 80).splitlines()) == 2
    assert sum(line.startswith("policy") for line in shown(many, 60).splitlines()) == 4


def test_what_the_best_fixed_arm_would_lose_stands_below(study):
    text = shown(study)
    row = next(line for line in text.splitlines() if line.startswith("best fixed arm"))
    assert row.split()[-5:] == ["0", "8.00", "6.00", "4.10", "5.00"]


def test_theory_findings_notes_and_the_page_are_told(study):
    text = " ".join(shown(study, report="out/page.html").split())
    assert "stationary, theory: sqrt(K T ln T) 21.0, UCB1 bound 223.9, Lai-Robbins 12.8" in text
    assert " ".join(study.findings[0].split()) in text
    assert "hedge: learns from every arm" in text
    assert text.endswith("Report: out/page.html")


def test_a_heading_is_a_word_a_line():
    assert heading("three_swaps") == "three\nswaps"
    assert heading("hidden_improvement") == "hidden\nimprove."
