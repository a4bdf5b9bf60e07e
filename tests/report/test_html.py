import dataclasses
import html
import json
import math
import re
from html.parser import HTMLParser

import pytest

from specsim.report.html import page, write_report
from specsim.report.wording import span, times
from tests.report.browser import drawn, needs_browser

VOID = {"meta", "link", "br", "input", "wbr", "img"}
INLINE = {"code", "wbr", "svg", "path"}
POLICY = "dcut@exit28"


class Page(HTMLParser):
    """Reads a report as a browser would: its text, its tables by label, its scripts and every attribute."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.open, self.attributes, self.text, self.scripts, self.tables = [], [], [], [], {}
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if attributes.get("class") == "scroll":
            self.rows = self.tables.setdefault(attributes["aria-label"], [])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "script":
            self.scripts.append((attributes, ""))
        if tag not in INLINE:
            self.write(" ")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} closes what is not open"
        if tag in ("td", "th"):
            self.rows[-1][-1] = " ".join(self.rows[-1][-1].split())

    def handle_data(self, data):
        if "script" in self.open:
            attributes, source = self.scripts[-1]
            self.scripts[-1] = (attributes, source + data)
        elif "style" not in self.open:
            self.write(data)

    def write(self, data):
        self.text.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    @property
    def words(self):
        return " ".join("".join(self.text).split())

    @property
    def figures(self):
        (source,) = [source for attributes, source in self.scripts if attributes.get("type") == "application/json"]
        return json.loads(source)


@pytest.fixture
def study(make_study):
    return make_study(batches=(8, 64))


@pytest.fixture
def read(study):
    return Page(page(study))


def test_every_element_is_closed(read):
    assert read.open == []


def test_every_finding_and_note_is_there_word_for_word(study, read):
    for sentence in [*study.findings, *study.notes, study.title]:
        assert " ".join(sentence.split()) in read.words


def test_findings_and_notes_of_a_table_stand_with_it(make_study):
    findings = ["Both agree.", "cpu-smollm2: adapting loses.", "h20-qwen3-8b: adapting wins."]
    notes = ["All is made up.", "cpu-smollm2: prices are a what-if."]
    words = Page(page(make_study(batches=(8,), findings=findings, notes=notes))).words
    order = ["All is made up.", "Both agree.", "On h20-qwen3-8b published, NVIDIA H20", "Adapting wins."]
    order += ["On cpu-smollm2 measured, 2 CPU cores", "Adapting loses.", "Prices are a what-if."]
    places = [words.index(piece) for piece in order]
    assert places == sorted(places)
    assert [words.count(piece) for piece in order] == [1] * len(order)


def test_every_policy_and_load_has_its_row_and_column(study, read):
    for table in ("h20-qwen3-8b", "cpu-smollm2"):
        heading, *rows = read.tables[f"Speedup by policy and load on {table}"]
        assert heading == ["policy", "batch 8", "batch 64"]
        assert [row[0].split(" ")[0] for row in rows] == list(dict.fromkeys(cell.policy for cell in study.cells))


def test_the_numbers_in_the_grid_are_the_cells_own(study, read):
    shown = {}
    for table in ("h20-qwen3-8b", "cpu-smollm2"):
        heading, *rows = read.tables[f"Speedup by policy and load on {table}"]
        shown |= {
            (table, at, row[0].split(" ")[0]): text for row in rows for at, text in zip(heading, row, strict=True)
        }
    for cell in study.cells:
        text = shown[cell.table, f"batch {cell.batch}", cell.policy]
        interval = "" if cell.policy == "autoregressive" else f" {span(cell.speedup_interval)}"
        assert times(cell.values["speedup"]) + interval in text


def test_slower_is_a_word_and_not_only_a_colour(study, read):
    rows = read.tables["Speedup by policy and load on cpu-smollm2"]
    (row,) = [row for row in rows if row[0].startswith("fixed_depth:depth=15")]
    cell = next(
        cell for cell in study.cells if (cell.table, cell.batch) == ("cpu-smollm2", 64) and "=15" in cell.policy
    )
    assert cell.slower_than_autoregressive
    assert row[2].startswith("slower")


def test_a_bound_and_a_lossy_policy_are_tagged_in_their_row(study):
    cells = [dataclasses.replace(c, lossy_reason="it cuts") if c.policy == POLICY else c for c in study.cells]
    read = Page(page(dataclasses.replace(study, cells=cells)))
    rows = {row[0] for row in read.tables["Speedup by policy and load on cpu-smollm2"]}
    assert {f"{POLICY} lossy", "clairvoyant@exit28 bound"} <= rows
    assert ("span", "title", "it cuts") in read.attributes
    assert f"Why a policy is lossy {POLICY} it cuts" in read.words, "a phone shows no titles"
    assert "Why a policy is lossy" not in Page(page(study)).words


def test_small_print_is_explained_where_there_is_some(study):
    assert "small print 90 % bootstrap interval" in Page(page(study)).words
    alone = [dataclasses.replace(cell, speedup_interval=(math.nan, math.nan)) for cell in study.cells]
    assert "small print" not in Page(page(dataclasses.replace(study, cells=alone))).words


def test_all_metrics_are_tabulated_for_each_table_and_load(study, read):
    heading, *rows = read.tables["All metrics on cpu-smollm2, batch 64"]
    assert len(rows) == 9
    cell = next(c for c in study.cells if (c.table, c.batch, c.policy) == ("cpu-smollm2", 64, POLICY))
    (row,) = [row for row in rows if row[0] == POLICY]
    shown = dict(zip(heading, row, strict=True))
    assert shown["speedup"] == times(cell.values["speedup"])
    assert shown["throughput tokens/s"] == f"{cell.values['token_throughput']:,.0f}"
    assert "goodput requests/s" not in shown, "no cell has a goodput: no column"


def test_short_names_are_explained_and_texts_are_not(study):
    assert "What the names stand for" not in Page(page(study)).words
    named = dataclasses.replace(study, policies={POLICY: "dcut:depth=3@exit28"})
    assert f"What the names stand for as --policy takes them {POLICY} dcut:depth=3@exit28" in Page(page(named)).words


def test_sentences_of_a_manifest_stand_in_lines_of_their_own_and_words_in_a_row(study):
    tables = [study.tables[0] | {"remarks": ["One thing.", "Another, too."], "names": ["a", "b"]}, study.tables[1]]
    made = page(dataclasses.replace(study, tables=tables))
    assert "<dd>One thing.\nAnother, too.</dd>" in made
    assert "<dd>a, b</dd>" in made


def test_an_engine_option_that_is_not_given_is_no_limit(study):
    engine = study.engine | {"num_kv_blocks": None}
    assert "num kv blocks no limit" in Page(page(dataclasses.replace(study, engine=engine))).words


def test_notes_of_a_table_are_told_below_it_with_the_policies_they_concern(study):
    cells = [dataclasses.replace(c, notes=("priced by mapping",)) if c.policy == POLICY else c for c in study.cells]
    read = Page(page(dataclasses.replace(study, cells=cells)))
    assert f"{POLICY}: priced by mapping" in read.words
    assert " draft cost of exit28 derived from hint: 0.93 of a plain step." in read.words


def test_how_it_was_made_is_told_in_full(study, read):
    assert ("time", "datetime", study.created_at) in read.attributes
    for fact in [
        study.command,
        "2025-11-29 20:14 UTC",
        study.version,
        "9f2c" * 16,
        "NVIDIA H20",
        "published",
        "0, 1, 2, 3",
    ]:
        assert fact in read.words
    assert "drafters, exit24 law point_mass; max depth 15" in read.words
    assert "versions, vllm 0.11" in read.words


def test_nothing_is_loaded_from_elsewhere(study, read):
    loaded = [value for tag, name, value in read.attributes if name in ("src", "href", "srcset", "data", "action")]
    assert loaded == []
    (policy,) = [value for tag, name, value in read.attributes if name == "content" and "default-src" in value]
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    stylesheet = re.search(r"<style>(.*?)</style>", page(study), re.DOTALL)[1]
    assert "url(" not in stylesheet
    assert "@import" not in stylesheet


def test_plotly_is_in_the_file_exactly_once(read):
    assert sum(re.search(r"plotly\.js v\d", source) is not None for _, source in read.scripts) == 1
    assert len(read.scripts) == 3


def test_the_same_study_gives_the_same_bytes(make_study, tmp_path):
    for name in ("one.html", "two.html"):
        write_report(make_study(batches=(8,)), tmp_path / "new" / name)
    assert (tmp_path / "new/one.html").read_bytes() == (tmp_path / "new/two.html").read_bytes()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["one.html", "two.html"]


HOSTILE = "<b>bold</b><script>alert(1)</script>&amp;\"'"


def test_every_string_of_a_person_is_text_and_never_markup(make_study):
    study = make_study(
        tables=(HOSTILE,),
        batches=(8,),
        policies=("autoregressive", HOSTILE),
        title=HOSTILE,
        command=HOSTILE,
        findings=[f"{HOSTILE} wins"],
        notes=[HOSTILE],
        trace={HOSTILE: HOSTILE},
    )
    cells = [
        dataclasses.replace(c, notes=(HOSTILE,), lossy_reason=HOSTILE, arm_share={HOSTILE: 1.0}) for c in study.cells
    ]
    drafters = [dataclasses.replace(drafter, name=HOSTILE, domain=HOSTILE) for drafter in study.drafters[:1]]
    read = Page(page(dataclasses.replace(study, cells=cells, drafters=drafters)))
    assert not [tag for tag, *_ in read.attributes if tag == "b"]
    assert len(read.scripts) == 3
    assert f"{HOSTILE} wins" in read.words
    (figures,) = [source for attributes, source in read.scripts if "type" in attributes]
    assert not set("<>&") & set(figures), "nothing in the data can end its script"
    assert read.words.count("alert(1)") >= 10
    assert "meta" in {tag for tag, *_ in read.attributes}


def test_plotly_is_given_names_it_cannot_read_as_tags(make_study):
    read = Page(page(make_study(tables=("t",), batches=(8, 64), policies=("autoregressive", "<b>"))))
    traces = read.figures["speedup"]["figures"]["0"]["data"]
    assert {trace["name"] for trace in traces if "name" in trace} == {"&lt;b&gt;"}
    assert {trace["meta"] for trace in traces} == {"<b>"}


def test_a_policys_label_in_a_sentence_is_set_apart_only_where_it_is_whole(make_study):
    study = make_study(batches=(8,), findings=["dcut@exit28 beats xdcut@exit28, dcut@exit281 and dcut@thompson."])
    marked = re.search(r'<ul class="findings">(.*?)</ul>', page(study), re.DOTALL)[1]
    assert re.findall(r"<code>(.*?)</code>", marked.replace("<wbr>", "")) == ["dcut@exit28", "dcut@thompson"]


def test_a_label_that_is_a_word_stays_one_and_a_percent_sign_stays_with_its_number(make_study):
    findings = ["D-cut is 70 % of what a clairvoyant one would."]
    study = make_study(batches=(8,), policies=("clairvoyant", "D-cut"), findings=findings)
    assert "<li><code>D-cut</code> is 70\u00a0% of what a clairvoyant one would.</li>" in page(study)


def test_of_two_labels_that_begin_alike_the_longer_is_meant(make_study):
    policies = ("dcut:ratios=0.5", "dcut:ratios=0.5,depth=3")
    study = make_study(batches=(8,), policies=policies, findings=["dcut:ratios=0.5,depth=3 wins over autoregressive."])
    assert "<code>dcut:ratios=0.5,depth=3</code> wins over autoregressive." in page(study).replace("<wbr>", "")


def test_the_reader_chooses_among_every_table_and_load(read):
    values = [value for tag, name, value in read.attributes if tag == "input" and name in ("name", "value")]
    assert values == ["table", "0", "table", "1", "load", "0", "load", "1"]


def test_at_first_the_first_table_and_its_highest_load_are_chosen(study):
    checked = r'name="(\w+)" value="(\d)"[^>]* checked'
    assert re.findall(checked, page(study)) == [("table", "0"), ("load", "1")]
    fewer = [cell for cell in study.cells if (cell.table, cell.batch) != ("h20-qwen3-8b", 64)]
    assert re.findall(checked, page(dataclasses.replace(study, cells=fewer))) == [("table", "0"), ("load", "0")]


def test_nan_reaches_neither_the_page_nor_the_figures(study):
    bare = [
        dataclasses.replace(
            cell,
            values={"speedup": math.nan},
            speedup_interval=(math.nan, math.nan),
            difference_to_best_fixed=None,
            share_of_clairvoyant=None,
            acceptance_by_position=[math.nan] * 3,
            verified_by_position=[math.nan] * 3,
            latency={},
            series={},
        )
        for cell in study.cells
    ]
    read = Page(page(dataclasses.replace(study, cells=bare)))
    assert not re.search(r"\bnan\b", read.words, re.IGNORECASE)
    assert "acceptance" not in read.figures, "a chart without a number is left out"
    assert read.tables["Speedup by policy and load on cpu-smollm2"][1][1:] == ["–", "–"]


@pytest.mark.parametrize(
    ("batches", "policies"),
    [((8,), ("autoregressive",)), ((8,), (POLICY,)), ((8, 64), tuple(f"policy{index}" for index in range(12)))],
)
def test_one_policy_one_load_and_twelve_policies_are_all_shown(make_study, batches, policies):
    read = Page(page(make_study(tables=("t",), batches=batches, policies=policies)))
    rows = read.tables["Speedup by policy and load on t"]
    assert [row[0] for row in rows[1:]] == list(policies)
    assert len(rows[0]) == 1 + len(batches)


def test_a_study_without_cells_says_so_and_needs_no_script(make_study):
    read = Page(page(make_study(policies=(), drafters=[])))
    assert "The study holds no cells." in read.words
    assert read.scripts == []


def test_tables_may_have_been_studied_at_different_loads(study):
    cells = [cell for cell in study.cells if (cell.table, cell.batch) != ("cpu-smollm2", 8)]
    read = Page(page(dataclasses.replace(study, cells=cells)))
    assert set(read.figures["latency"]["figures"]) == {"0/0", "0/1", "1/1"}
    assert "All metrics on cpu-smollm2, batch 8" not in read.tables


@needs_browser
def test_a_browser_draws_every_chart(study, tmp_path):
    shown = drawn(page(study), tmp_path)
    names = re.findall(r'data-chart="(\w+)"', page(study))
    assert len(names) == 12
    for name in names:
        chart = re.search(rf'<figure class="chart" data-chart="{name}".*?</figure>', shown, re.DOTALL)[0]
        assert 'class="main-svg"' in chart, f"{name} was not drawn"
    assert re.findall(r'<div data-place="([\d/]+)">', shown) == ["0/1"], "all but the chosen table are hidden"
    speedup = re.search(r'data-chart="speedup".*?</figure>', shown, re.DOTALL)[0]
    assert "stroke: rgb(0, 114, 178)" in speedup, "the first hue is resolved"
    assert "fill: rgb(0, 114, 178); fill-opacity: 0.14" in speedup, "and its band"
    assert ">h20-qwen3-8b, batch 64</span>" in shown


@needs_browser
def test_a_browser_offers_only_what_the_chosen_table_has(study, tmp_path):
    lacking = [("batch", 64), ("policy", POLICY)]
    cells = [
        cell
        for cell in study.cells
        if cell.table == "cpu-smollm2" or not any(getattr(cell, field) == value for field, value in lacking)
    ]
    shown = drawn(page(dataclasses.replace(study, cells=cells)), tmp_path)
    loads = re.findall(r'<input type="radio" name="load"[^>]*>', shown)
    assert ["disabled" in load for load in loads] == [False, True]
    assert re.findall(r'<div data-place="([\d/]+)">', shown) == ["0/0"]
    legend = re.search(r'<section id="load".*?</section>', shown, re.DOTALL)[0]
    buttons = dict(re.findall(r'<button [^>]*data-key="([^"]+)"([^>]*)>', legend))
    assert [policy for policy, rest in buttons.items() if "hidden" in rest] == [POLICY]


@needs_browser
def test_a_browser_hides_and_shows_one_policy_or_all(study, tmp_path):
    clicks = {
        "one": f'document.querySelector("#load [data-key=\\"{POLICY}\\"]").click();',
        "all": 'document.querySelector("#load [data-all=hide]").click();',
        "none": 'document.querySelector("#load [data-all=hide]").click();'
        'document.querySelector("#load [data-all=show]").click();',
    }
    hidden = {}
    for name, then in clicks.items():
        (tmp_path / name).mkdir()
        shown = drawn(page(study), tmp_path / name, then)
        load = re.search(r'<section id="load".*?</section>', shown, re.DOTALL)[0]
        speedup = re.search(r'data-chart="speedup".*?</figure>', load, re.DOTALL)[0]
        states = re.findall(r'aria-pressed="(\w+)"', load)
        hidden[name] = (states.count("false"), len(re.findall(r'class="trace scatter', speedup)))
    lines = 2 * 8  # a line and a band each; autoregressive is the dashed line
    assert hidden == {"one": (1, lines - 2), "all": (9, 0), "none": (0, lines)}


@needs_browser
def test_a_browser_labels_axes_to_their_ends_and_within_a_power_of_ten(study, tmp_path):
    narrow = [
        dataclasses.replace(cell, values=cell.values | {"token_throughput": 2100.0 + cell.batch})
        for cell in study.cells
    ]
    shown = drawn(page(dataclasses.replace(study, cells=narrow)), tmp_path)
    arms = re.search(r'data-chart="arms".*?</figure>', shown, re.DOTALL)[0]
    last = re.findall(r'<text[^>]*style="([^"]*)"[^>]*>(\d+%)</text>', arms)[-1]
    assert last[1] == "100%"
    assert "display: none" not in last[0], "there is room for its label"
    throughput = re.search(r'data-chart="throughput".*?</figure>', shown, re.DOTALL)[0]
    labels = re.findall(r'class="ytick"><text[^>]*>([^<]+)<', throughput)
    assert len(labels) >= 2


@needs_browser
def test_a_browser_names_what_is_pointed_at_in_ink(study, tmp_path):
    then = """
      const marked = document.createElement("p");
      const hovers = [...document.querySelectorAll(".plot")].filter((plot) => plot.data).map((plot) => ({
        unified: plot.layout.hovermode === "x unified", templates: plot.data.map((trace) => trace.hovertemplate),
        heading: plot.layout.xaxis.unifiedhovertitle.text,
      }));
      marked.id = "hovers"; marked.textContent = JSON.stringify(hovers); document.body.append(marked);"""
    shown = drawn(page(study), tmp_path, then)
    hovers = json.loads(html.unescape(re.search(r'<p id="hovers">(.*?)</p>', shown)[1]))
    assert {hover["unified"] for hover in hovers} == {True, False}
    for hover in hovers:
        for template in filter(None, hover["templates"]):
            assert template.endswith("<extra></extra>") != hover["unified"], template
            assert template.startswith("<b>") != hover["unified"], template
    assert "batch size (running requests): %{x}" in {hover["heading"] for hover in hovers}
