"""Keeps the module list of docs/architecture.md equal to the first docstring sentence of every module in specsim/.

`python docs/architecture.py` fails when the page is out of date; with `--write` it rewrites the list.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from pages import rewritten

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- modules: written by docs/architecture.py -->\n"
END = "<!-- end of modules -->\n"


def sentence(source: str, name: str) -> str:
    """The one sentence a module says of itself: the first of its docstring, which ends on the first line.

    source   the module's text
    name     dotted name, for the message
    returns  the sentence, with its full stop
    Raises   ValueError when there is no docstring, or no sentence ends on its first line
    """
    docstring = ast.get_docstring(ast.parse(source))
    if not docstring:
        raise ValueError(f"{name} has no docstring: its first line must be one sentence saying what the module holds")
    line = docstring.split("\n", 1)[0]
    first, stop, _ = f"{line} ".partition(". ")
    if not stop:
        raise ValueError(f"{name}: the docstring's first line must hold one sentence with its full stop, got {line!r}")
    return f"{first}."


def modules(package: Path) -> dict[str, str]:
    """Every module of a package with its sentence.

    package  folder of the package
    returns  {dotted name: sentence}, in the order of the names
    """
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = sentence(path.read_text(encoding="utf-8"), name)
    return dict(sorted(found.items()))


def section(package: Path) -> str:
    """The page's module list: one heading a subpackage, top-level modules first, one line a module.

    package  folder of the package
    returns  Markdown between the two marks
    """
    groups: dict[str, list[str]] = {package.name: []}
    for name, text in modules(package).items():
        top = name.split(".")[:2]
        group = ".".join(top) if package.joinpath(*top[1:]).is_dir() else package.name
        groups.setdefault(group, []).append(f"- `{name}`: {text}\n")
    return "\n".join(f"### `{group}`\n\n{''.join(lines)}" for group, lines in groups.items())


def updated(page: str, package: Path) -> str:
    """The page with its module list made anew.

    page     text of the page, holding both marks
    package  folder of the package
    returns  the same text around the new list
    Raises   ValueError when a mark is missing
    """
    return rewritten(page, BEGIN, END, section(package))


def main() -> int:
    """Check the page, or rewrite it when asked to; the exit code is 1 when it is out of date."""
    page = PAGE.read_text(encoding="utf-8")
    new = updated(page, ROOT / "specsim")
    if "--write" in sys.argv[1:]:
        PAGE.write_text(new, encoding="utf-8")
    elif new != page:
        print("docs/architecture.md is out of date: run `python docs/architecture.py --write`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
