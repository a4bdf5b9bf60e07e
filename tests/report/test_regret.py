"""A regret study as one HTML file."""

import json
import re
from dataclasses import replace

import pytest

from specsim.policies.config import PolicyConfig
from specsim.report.regret import regret_page, write_regret_report
from specsim.study.regret.bernoulli import bernoulli
from specsim.study.regret.study import study_regret
from tests.report.browser import drawn, needs_browser


@pytest.fixture(scope="module")
def study():
    policies = [PolicyConfig.model_validate(text) for text in ("ucb1", "ucb1:c=.5", "hedge")]
    environments = [bernoulli("stationary", 300), bernoulli("three_swaps", 300)]
    return study_regret(environments, policies, [0, 1, 2], command="specsim regret <&>")


@pytest.fixture(scope="module")
def page(study):
    return regret_page(study)


@pytest.fixture(scope="module")
def figures(page):
    """The figures as the page's script reads them."""
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    return json.loads(found.group(1))


def test_it_loads_nothing_from_elsewhere(page):
    without_plotly = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"(?:src|href)\s*=|url\(|@import|https?://", without_plotly)
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page


def test_every_choice_of_the_reader_has_its_figures(figures):
    places = {f"{environment}/{measure}" for environment in range(2) for measure in range(2)}
    assert {name: set(chart["figures"]) for name, chart in figures.items()} == {
        "curve": places,
        "total": places,
        "arms": {"0", "1"},
    }
    assert {name: chart["follows"] for name, chart in figures.items()} == {
        "curve": "place",
        "total": "place",
        "arms": "table",
    }


def test_time_is_logarithmic_and_changes_are_marked(figures, study):
    layout = figures["curve"]["figures"]["1/0"]["layout"]
    assert layout["xaxis"]["type"] == "log"
    assert [shape["x0"] for shape in layout["shapes"]] == [75, 150, 225]


def test_curves_have_bands_and_lines_of_theory(figures, study):
    traces = figures["curve"]["figures"]["0/0"]["data"]
    assert sum(trace.get("fill") == "toself" for trace in traces) == 3
    assert {"Lai-Robbins", "UCB1 bound", "sqrt(K T ln T)"} < {trace["meta"] for trace in traces}
    seconds = figures["curve"]["figures"]["0/1"]["data"]
    assert {trace["meta"] for trace in seconds} == set(study.policies)
    own = next(trace for trace in traces if trace["meta"] == "ucb1" and "fill" not in trace)
    assert own["y"][-1] == pytest.approx(study.regrets[0].regret, rel=1e-4)


def test_rows_are_ranked_with_the_least_on_top(figures, study):
    rows = figures["total"]["figures"]["0/0"]
    values = [trace["x"][0] for trace in rows["data"]]
    assert values == sorted(values)
    assert rows["layout"]["yaxis"]["categoryarray"][-1] == rows["data"][0]["y"][0]


def test_shares_of_arms_add_up(figures):
    bars = figures["arms"]["figures"]["0"]["data"]
    assert [sum(column) for column in zip(*(bar["x"] for bar in bars), strict=True)] == pytest.approx(
        [1, 1, 1], abs=1e-3
    )


def test_every_number_is_in_a_table_that_needs_no_script(page, study):
    text = re.sub(r"<[^>]+>", " ", page.split('<section id="charts"')[0])
    for found in study.regrets:
        assert (f"{found.regret:.1f}" if found.regret < 99.95 else f"{found.regret:,.0f}") in text
    assert page.count("data-place=") == 4
    assert "three swaps" in text


def test_policies_in_sentences_are_set_apart_longest_first(page):
    whole = page.replace("<wbr>", "")
    assert "<code>ucb1:c=.5</code>" in whole
    assert "<code>ucb1</code>:c" not in whole


def test_a_policys_text_that_begins_like_anothers_is_set_apart_whole(study):
    longer = [
        replace(found, policy="ucb1:c=.5,scale=1") if found.policy == "hedge" else found for found in study.regrets
    ]
    words = replace(study, regrets=longer, findings=["ucb1:c=.5,scale=1 loses least, then ucb1:c=.5, then ucb1."])
    whole = regret_page(words).replace("<wbr>", "")
    assert whole.count("<code>ucb1:c=.5,scale=1</code> loses least, then <code>ucb1:c=.5</code>, then") == 1


def test_what_a_person_wrote_is_escaped(page):
    assert "specsim regret &lt;&amp;&gt;" in page


def test_the_same_study_gives_the_same_bytes(study, tmp_path):
    for name in ("one", "two"):
        write_regret_report(study, tmp_path / "deep" / f"{name}.html")
    assert (tmp_path / "deep" / "one.html").read_bytes() == (tmp_path / "deep" / "two.html").read_bytes()


def test_lines_of_theory_are_explained_where_they_are_drawn(page, study):
    for words in ("Lai-Robbins: where", "UCB1 bound: what", "sqrt(K T ln T): how", "number of steps, number of arms"):
        assert words in page
    assert "Lai-Robbins" not in regret_page(replace(study, environments=study.environments[1:]))


def test_how_it_was_made_is_told(page):
    text = " ".join(re.sub(r"<[^>]+>", " ", page[page.index('id="made"') :]).split())
    assert "Environment three swaps steps (T) 300 arms (K) 3 expected acceptance at first arm 0 0.30" in text
    assert "arms change at step 75, 150, 225" in text
    assert "Seeds number 3 from 0 to 2" in text


@needs_browser
def test_a_browser_draws_every_chart_and_heads_what_is_pointed_at(page, tmp_path):
    then = "const said = document.createElement('p'); said.id = 'said'; document.body.append(said);"
    then += "said.textContent = document.querySelector('[data-chart=curve] .plot').layout.xaxis.unifiedhovertitle.text;"
    shown = drawn(page, tmp_path, then)
    assert shown.count('class="main-svg"') >= 3
    assert '<p id="said">steps: %{x}</p>' in shown


def test_a_policy_that_loses_nothing_does_not_break_the_shades(study):
    perfect = [replace(found, regret=0.0) if found.policy == "hedge" else found for found in study.regrets]
    assert "least" in regret_page(replace(study, regrets=perfect))
