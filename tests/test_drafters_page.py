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
        "confidence": {"1": {"drafts": 9, "ece": 0.0123, "auc": 0.9}, "4": {"drafts": 3, "ece": None, "auc": 0.8}},
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
    assert "| `eagle-general` | **2.00** (3.00) | 4.00 (5.00) | **3.00** (4.00) |" in page  # all domains together last
    assert "| `eagle-math` | 1.50 (2.50) | **5.00** (6.00) | 2.00 (3.00) |" in page
    assert "| `eagle-math` | 1.00 (–) | **4.50** (–) | 1.50 (–) |" in page
    assert "| `eagle-general` | 0.90 | 0.81 | 0.73 | 0.66 | 0.53 | 0.43 | 0.31 | 0.21 |" in page
    assert "| `eagle-general` | 0.012 | – | 0.900 | 0.800 |" in page
    assert "| chat | 1,234 | 0.25 |" in page
    assert "block-general" not in page.split("<!-- drafters", 1)[1]
    assert script.updated(page, script.read(results)) == page


def test_positions_beyond_a_shallow_drafter_have_no_number():
    shallow = {"block": drafter(all=2.0)}
    shallow["block"]["evaluation"]["all"]["survival"] = [0.5, 0.25, 0.125, 0.0625, 0.03, 0.02, 0.01]
    assert script.survival(shallow).splitlines()[-1] == "| `block` | 0.50 | 0.25 | 0.12 | 0.06 | 0.02 | – | – | – |"


def test_text_around_the_tables_is_kept(results):
    page = script.new_page().replace("## Acceptance\n", "## Acceptance\n\nOur own words.\n")
    assert "Our own words." in script.updated(page, script.read(results))
    with pytest.raises(ValueError, match="survival"):
        script.updated(page.replace("<!-- end of survival -->\n", ""), script.read(results))


@pytest.mark.parametrize("content", [None, "{}", '{"eagle": {"evaluation": null}}'])
def test_nothing_is_written_from_nothing(content, tmp_path, monkeypatch):
    file = tmp_path / "results.json"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(script, "PAGE", tmp_path / "drafters.md")
    for arguments in ([], [str(file)]):
        monkeypatch.setattr(sys, "argv", ["drafters.py", *arguments])
        with pytest.raises(SystemExit, match=r"results\.json"):
            script.main()
    assert not script.PAGE.exists()


def test_the_page_is_made_where_there_is_none(results, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "PAGE", tmp_path / "drafters.md")
    monkeypatch.setattr(sys, "argv", ["drafters.py", str(results)])
    script.main()
    assert script.PAGE.read_text() == script.updated(script.new_page(), script.read(results))


@pytest.mark.skipif(not script.PAGE.exists(), reason="docs/drafters.md is written once drafters are trained")
def test_the_page_has_numbers():
    assert all(f"<!-- {name}: written" in script.PAGE.read_text(encoding="utf-8") for name in script.TABLES)
