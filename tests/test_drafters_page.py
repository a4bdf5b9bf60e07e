"""docs/drafters.py: its tables are what training wrote, and nothing is written without numbers."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def load_script():
    spec = importlib.util.spec_from_file_location("drafters_page", DOCS / "drafters.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


script = load_script()


def figures(length, depth=15):
    return {
        "outputs": 1234,
        "looping": 0.25,
        "acceptance_length": {"7": length, "15": length + 1},
        "acceptance_length_loop_free": {"7": length - 0.5, "15": None},
        "survival": [round(0.9**k, 4) for k in range(1, depth + 1)],
        "confidence": {"1": {"drafts": 9, "ece": 0.0123, "auc": 0.9}, "4": {"drafts": 3, "ece": None, "auc": 1.0}},
    }


def drafter(**lengths):
    facts = {"parameters": 5_000_000, "steps": 1_822, "seconds": 124.4, "hardware": "1 x a device"}
    return facts | {"evaluation": {domain: figures(length) for domain, length in lengths.items()}}


@pytest.fixture
def results(tmp_path):
    """Two drafters; a third that was not evaluated."""
    file = tmp_path / "results.json"
    written = {
        "eagle-general": drafter(all=3.0, chat=2.0, math=4.0),
        "eagle-math": drafter(all=2.0, chat=1.5, math=5.0),
        "block-general": {"parameters": 1, "evaluation": None},
    }
    file.write_text(json.dumps(written))
    return file


def test_tables_say_what_was_evaluated(results):
    page = script.updated(script.new_page(), script.read(results))
    told = "3.00 (–) | .90 .81 .66 .43 | .012 – – | .90 1.00 – |"
    assert f"| `eagle-general` | chat | **2.00** (1.50) | {told}" in page
    rows = [line.split(" | ")[:4] for line in script.by_domain(script.read(results)).splitlines()[2:]]
    assert rows == [
        ["| `eagle-general`", "chat", "**2.00** (1.50)", "3.00 (–)"],
        ["| ", "math", "4.00 (3.50)", "5.00 (–)"],
        ["| ", "all", "**3.00** (2.50)", "4.00 (–)"],  # all domains together last
        ["| `eagle-math`", "chat", "1.50 (1.00)", "2.50 (–)"],
        ["| ", "math", "**5.00** (4.50)", "6.00 (–)"],
        ["| ", "all", "2.00 (1.50)", "3.00 (–)"],
    ]
    assert "| `eagle-general` | 5,000,000 | 1,822 | 124.4 | 1 x a device |" in page
    assert "| chat | 1,234 | 0.25 |" in page
    assert "block-general" not in page.split("<!-- drafters", 1)[1]
    assert script.updated(page, script.read(results)) == page


def test_positions_beyond_a_shallow_drafter_have_no_number():
    shallow = {"block": drafter(all=2.0)}
    shallow["block"]["evaluation"]["all"]["survival"] = [0.5, 0.25, 0.125, 0.0625, 0.03, 0.02, 0.01]
    assert "| .50 .25 .06 – |" in script.by_domain(shallow)


def test_what_needs_no_training_has_no_steps():
    lookup = {"ngram": {"parameters": 0, "evaluation": {"all": figures(2.0)}}}
    assert script.drafters(lookup).splitlines()[-1] == "| `ngram` | 0 | – | – | – |"


def test_text_around_the_tables_is_kept(results):
    page = script.new_page().replace("## The outputs\n", "## The outputs\n\nOur own words.\n")
    assert "Our own words." in script.updated(page, script.read(results))
    with pytest.raises(ValueError, match="by_domain"):
        script.updated(page.replace("<!-- end of by_domain -->\n", ""), script.read(results))


@pytest.mark.parametrize("content", [None, "{}", '{"eagle": {"evaluation": null}}'])
def test_nothing_is_written_from_nothing(content, tmp_path, monkeypatch):
    file = tmp_path / "results.json"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(script, "PAGE", tmp_path / "drafters.md")
    monkeypatch.setattr(script, "RESULTS", file)
    for arguments in ([], [str(file)], [str(file), "more"]):
        monkeypatch.setattr(sys, "argv", ["drafters.py", *arguments])
        with pytest.raises(SystemExit, match=r"results\.json"):
            script.main()
    assert not script.PAGE.exists()


def test_the_page_is_made_where_there_is_none(results, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "PAGE", tmp_path / "drafters.md")
    monkeypatch.setattr(sys, "argv", ["drafters.py", str(results)])
    script.main()
    assert script.PAGE.read_text() == script.updated(script.new_page(), script.read(results))


def test_the_page_is_what_the_script_writes():
    page = script.PAGE.read_text(encoding="utf-8")
    assert page == script.updated(page, script.read(script.RESULTS)), "run `python docs/drafters.py`"


def test_a_number_that_changes_makes_the_page_out_of_date():
    page, results = script.PAGE.read_text(encoding="utf-8"), script.read(script.RESULTS)
    for place in (("eagle-code", "math"), ("ngram", "chat")):
        changed = json.loads(json.dumps(results))
        changed[place[0]]["evaluation"][place[1]]["confidence"]["8"]["ece"] += 0.01
        assert page != script.updated(page, changed)


def test_the_general_heads_are_as_good_as_the_page_says_and_better_than_the_specialists_at_home():
    results, page = script.read(script.RESULTS), " ".join(script.PAGE.read_text(encoding="utf-8").split())

    def lengths(*names):
        return [
            results[name]["evaluation"][domain]["acceptance_length"]["7"]
            for name, domain in zip(names, ("chat", "code", "math"), strict=True)
        ]

    general, special = lengths(*["eagle-general"] * 3), lengths("eagle-chat", "eagle-code", "eagle-math")
    for own in (general, lengths(*["block-general"] * 3), special):
        assert "{:.2f}, {:.2f} and {:.2f}".format(*own) in page
    assert all(one > other for one, other in zip(general, special, strict=True))
