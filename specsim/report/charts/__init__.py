"""The charts of the report, in the sections a reader meets them in."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specsim.report.charts.adaptation import arm_share, difference_to_best_fixed, regret
from specsim.report.charts.drafters import calibration, survival_by_drafter
from specsim.report.charts.figure import Chart
from specsim.report.charts.inside import acceptance_by_position, budget_over_time, verification_by_position
from specsim.report.charts.latency import latency
from specsim.report.charts.load import speedup_by_load, throughput_by_interactivity, throughput_by_load
from specsim.report.palette import Style, drafter_styles, policy_styles
from specsim.study.result import StudyResult


@dataclass(frozen=True)
class Section:
    """Charts that answer one question.

    name    identifier in the page
    title   the question's subject
    legend  names and styles that all its charts share, in order
    charts  those that have something to show
    """

    name: str
    title: str
    legend: dict[str, Style]
    charts: tuple[Chart, ...]


def sections(result: StudyResult) -> list[Section]:
    """Every chart that has something to show, by section; sections without one are left out."""
    policies = policy_styles(result)
    drafters = drafter_styles(drafters_of(result))
    load = (
        speedup_by_load(result, policies),
        throughput_by_load(result, policies),
        throughput_by_interactivity(result, policies),
        latency(result, policies),
    )
    adaptation = (difference_to_best_fixed(result, policies), regret(result, policies))
    inside = (
        budget_over_time(result, policies),
        arm_share(result, drafters),
        verification_by_position(result, policies),
        acceptance_by_position(result, policies),
    )
    measured = {statistics.name: drafters[statistics.name] for statistics in result.drafters}
    every = [
        Section("load", "Speedup, throughput, latency", policies, load),
        Section("adaptation", "What adapting is worth", policies, adaptation),
        Section("inside", "Inside a run", policies, inside),
        Section(
            "drafters", "The drafters", measured, (survival_by_drafter(result, drafters), calibration(result, drafters))
        ),
    ]
    shown = [replace(part, charts=tuple(chart for chart in part.charts if chart.figures)) for part in every]
    return [part for part in shown if part.charts]


def drafters_of(result: StudyResult) -> list[str]:
    """Every drafter that occurs, first those of the trace's statistics, in order."""
    names = [statistics.name for statistics in result.drafters]
    names += [name for cell in result.cells for name in cell.arm_share if name != "none"]
    return list(dict.fromkeys(names))
