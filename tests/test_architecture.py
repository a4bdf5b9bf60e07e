"""docs/architecture.md says one true sentence of every module."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LISTED = re.compile(r"^- `(specsim[\w.]*)`: (.+)$", re.MULTILINE)


def load_script():
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "architecture.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


architecture = load_script()


@pytest.fixture
def package(tmp_path):
    """A package of two modules and one subpackage, each with its sentence."""
    folder = tmp_path / "tiny"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text('"""A tiny package."""\n')
    (folder / "core.py").write_text('"""The nouns.\n\nMore about them. And more.\n"""\n')
    (folder / "inner" / "__init__.py").write_text('"""The inner part. It has an engine."""\n')
    (folder / "inner" / "engine.py").write_text('"""The engine."""\n')
    return folder


def test_every_module_on_disk_is_listed_exactly_once_and_nothing_else_is():
    names = [name for name, _ in LISTED.findall((ROOT / "docs" / "architecture.md").read_text())]
    on_disk = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "specsim").rglob("*.py")
    }
    assert set(names) ^ on_disk == set(), "run `python docs/architecture.py --write`"
    assert len(names) == len(set(names))


def test_the_sentence_on_the_page_is_the_first_of_the_modules_docstring():
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert page == architecture.updated(page, ROOT / "specsim"), "run `python docs/architecture.py --write`"


def test_top_level_modules_come_first_and_each_subpackage_has_its_heading(package):
    assert architecture.section(package) == (
        "### `tiny`\n\n- `tiny`: A tiny package.\n- `tiny.core`: The nouns.\n"
        "\n### `tiny.inner`\n\n- `tiny.inner`: The inner part.\n- `tiny.inner.engine`: The engine.\n"
    )


def test_a_new_module_and_a_removed_one_both_make_the_page_out_of_date(package):
    page = f"before\n{architecture.BEGIN}\n{architecture.section(package)}\n{architecture.END}after\n"
    assert architecture.updated(page, package) == page
    (package / "extra.py").write_text('"""An extra."""\n')
    with_extra = architecture.updated(page, package)
    assert "- `tiny.extra`: An extra.\n" in with_extra
    assert with_extra.startswith("before\n")
    assert with_extra.endswith("after\n")
    (package / "extra.py").unlink()
    assert architecture.updated(with_extra, package) == page


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("x = 1\n", "has no docstring"),
        ('"""No full stop"""\n', "one sentence"),
        ('"""A sentence that goes on\nin the next line."""\n', "one sentence"),
    ],
)
def test_a_module_without_a_sentence_on_its_first_line_is_refused_by_name(source, fault):
    with pytest.raises(ValueError, match=f"specsim.x.*{fault}"):
        architecture.sentence(source, "specsim.x")


def test_a_page_without_the_marks_is_refused(package):
    with pytest.raises(ValueError, match="must hold"):
        architecture.updated("no marks here\n", package)
