"""docs/pages.py: what stands between two marks is replaced, and nothing else; no script does it in its own way."""

import ast
from pathlib import Path

import pytest
from pages import rewritten

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- a table -->\n", "<!-- end of a table -->\n"


def test_what_stands_between_the_marks_is_replaced_and_the_rest_stays():
    page = f"# Title\n\nBefore.\n\n{BEGIN}old\n{END}\nBehind.\n"
    assert rewritten(page, BEGIN, END, "| new |\n") == (
        "# Title\n\nBefore.\n\n<!-- a table -->\n\n| new |\n\n<!-- end of a table -->\n\nBehind.\n"
    )


def test_marks_with_nothing_between_them_are_filled_and_the_same_text_changes_nothing():
    page = rewritten(f"{BEGIN}{END}", BEGIN, END, "text\n")
    assert page == f"{BEGIN}\ntext\n\n{END}"
    assert rewritten(page, BEGIN, END, "text\n") == page


def test_the_first_of_two_places_is_meant_and_other_marks_stay():
    other = "<!-- b -->\nkept\n<!-- end of b -->\n"
    page = f"{other}{BEGIN}{END}{BEGIN}{END}{other}"
    assert rewritten(page, BEGIN, END, "text\n") == f"{other}{BEGIN}\ntext\n\n{END}{BEGIN}{END}{other}"


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}".replace("\n", " ")])
def test_a_page_without_both_marks_in_their_order_is_refused(page):
    with pytest.raises(ValueError, match="must hold '<!-- a table -->' and '<!-- end of a table -->'"):
        rewritten(page, BEGIN, END, "text\n")


def test_every_script_of_the_documentation_writes_its_pages_so():
    for script in sorted(DOCS.glob("*.py")):
        tree = ast.parse(script.read_text(encoding="utf-8"))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert script.name == "pages.py" or "pages" in imported, script.name
