"""What may import what: the base install stays light, and the parts stay apart."""

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"torch", "triton", "transformers", "accelerate", "safetensors", "gguf", "prometheus_client"}
"""What only the extra `live` installs."""

FORBIDDEN = {
    "policies": ("sim", "live"),
    "serving": ("sim", "live"),
    "sim": ("live",),
    "live": ("sim",),
}
"""Parts that must not be reached from a part, not even through a third."""


@dataclass(frozen=True)
class Import:
    """One import statement: what it names, on which line, and whether loading the module leaves it unrun."""

    module: str
    line: int
    lazy: bool


def imports(path: Path, package: Path) -> list[Import]:
    """Every module that a file imports, relative imports resolved and names that are submodules spelled out."""
    here = path.relative_to(package.parent).with_suffix("").parts
    folder = here[:-1]
    found = []

    def visit(node: ast.AST, lazy: bool) -> None:
        names: list[str] = []
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom():
                base = folder[: len(folder) - node.level + 1] if node.level else ()
                source = ".".join([*base, *([node.module] if node.module else [])])
                names = [source, *(f"{source}.{alias.name}" for alias in node.names)]
            case ast.Call(func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module")):
                names = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                lazy = True
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                lazy = True
        found.extend(Import(name, node.lineno, lazy) for name in names)
        for child in ast.iter_child_nodes(node):
            visit(child, lazy)

    visit(ast.parse(path.read_text(encoding="utf-8")), lazy=False)
    return found


def module_name(path: Path, package: Path) -> str:
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


def within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def drives_torch(name: str, package: Path) -> bool:
    """Whether a module may import torch: live code and the Triton twins."""
    return within(name, f"{package.name}.live") or name.endswith("_triton")


def violations(package: Path) -> list[str]:
    """Every import in a package's source that points the wrong way, as `module:line imports name`."""
    graph = {module_name(path, package): imports(path, package) for path in sorted(package.rglob("*.py"))}
    faults = []
    for name, found in graph.items():
        for item in found:
            live = within(item.module, f"{package.name}.live") or item.module.endswith("_triton")
            heavy = item.module.split(".")[0] in HEAVY
            from_command = item.lazy and within(name, f"{package.name}.cli")
            if not drives_torch(name, package) and (heavy or (live and not from_command)):
                faults.append(f"{name}:{item.line} imports {item.module}")
    for part, others in FORBIDDEN.items():
        for name in graph:
            if within(name, f"{package.name}.{part}"):
                faults.extend(
                    f"{name} reaches {target}"
                    for target in sorted(reached(name, graph))
                    if any(within(target, f"{package.name}.{other}") for other in others)
                )
    return faults


def reached(name: str, graph: dict[str, list[Import]]) -> set[str]:
    """Modules of the package that a module imports, directly or through others, lazily or not."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        for item in graph[todo.pop()]:
            parts = item.module.split(".")
            ways = {".".join(parts[:end]) for end in range(1, len(parts) + 1)} & graph.keys()
            todo.extend(ways - seen)
            seen |= ways
    return seen - {name}


BLOCKED_IMPORT = """
import importlib, pkgutil, sys

heavy, part = set(sys.argv[1].split(",")), sys.argv[2]

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in heavy:
            raise ImportError(f"{name} is not part of the base installation")

sys.meta_path.insert(0, Blocker())
module = importlib.import_module(part)
for inner in pkgutil.walk_packages(getattr(module, "__path__", []), f"{part}."):
    if not inner.name.endswith("_triton"):
        importlib.import_module(inner.name)
print(sorted(name for name in sys.modules if name.split(".")[0] in heavy))
"""


def import_blocked(part: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Import a part and all its modules in a fresh interpreter that lacks the extra `live`."""
    command = [sys.executable, "-c", BLOCKED_IMPORT, ",".join(sorted(HEAVY)), part]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def light_parts(package: Path) -> list[str]:
    """Top-level modules and subpackages that must work without the extra `live`."""
    found = [path for path in package.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))]
    names = {module_name(path, package) for path in found if path.stem != "__init__"}
    return sorted(name for name in names if not drives_torch(name, package))


@pytest.mark.parametrize("part", light_parts(ROOT / "specsim"))
def test_a_part_is_imported_where_torch_is_absent(part):
    run = import_blocked(part, ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "[]"


def test_every_part_that_the_design_calls_light_is_among_those_imported():
    named = {
        "core",
        "errors",
        "telemetry",
        "metrics",
        "config",
        "cost",
        "trace",
        "policies",
        "serving",
        "sim",
        "study",
        "report",
        "cli",
    }
    assert {f"specsim.{part}" for part in named} <= set(light_parts(ROOT / "specsim"))


def test_no_import_in_the_source_points_the_wrong_way():
    assert violations(ROOT / "specsim") == []


@pytest.fixture
def package(tmp_path):
    """A package laid out like specsim whose imports are all allowed."""
    sources = {
        "__init__.py": "",
        "core.py": "import math\n",
        "policies/__init__.py": "",
        "policies/dcut.py": "from tiny.core import math\n",
        "sim/__init__.py": "",
        "sim/engine.py": "from ..policies import dcut\n",
        "live/__init__.py": "",
        "live/engine.py": "import torch\nfrom tiny.policies.dcut import math\n",
        "kernels/__init__.py": "",
        "kernels/accept_triton.py": "import triton\n",
        "cli/__init__.py": "",
        "cli/record.py": "def record():\n    from tiny.live import engine\n",
        "cli/types.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tiny.live import engine\n",
        "study/__init__.py": "import tiny.sim.engine\n",
    }
    for name, source in sources.items():
        path = tmp_path / "tiny" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path / "tiny"


def test_the_arrows_of_the_design_are_no_violation(package):
    assert violations(package) == []


@pytest.mark.parametrize(
    ("file", "source", "fault"),
    [
        ("core.py", "import torch\n", "tiny.core:1 imports torch"),
        ("core.py", "def later():\n    import torch.nn as nn\n", "tiny.core:2 imports torch.nn"),
        ("core.py", "from transformers import AutoModel\n", "tiny.core:1 imports transformers"),
        ("core.py", "import importlib\nimportlib.import_module('gguf')\n", "tiny.core:2 imports gguf"),
        ("core.py", "try:\n    import triton\nexcept ImportError:\n    triton = None\n", "tiny.core:2 imports triton"),
        ("study/__init__.py", "from tiny import live\n", "tiny.study:1 imports tiny.live"),
        ("study/__init__.py", "def run():\n    from ..live import engine\n", "tiny.study:2 imports tiny.live"),
        ("core.py", "import tiny.kernels.accept_triton\n", "tiny.core:1 imports tiny.kernels.accept_triton"),
        ("cli/record.py", "from tiny.live import engine\n", "tiny.cli.record:1 imports tiny.live"),
        ("cli/record.py", "if True:\n    from tiny.live import engine\n", "tiny.cli.record:2 imports tiny.live"),
        ("cli/record.py", "def record():\n    import torch\n", "tiny.cli.record:2 imports torch"),
        ("policies/dcut.py", "import tiny.sim\n", "tiny.policies.dcut reaches tiny.sim"),
        ("policies/dcut.py", "from . import __init__\nfrom .. import study\n", "tiny.policies.dcut reaches tiny.sim"),
        ("sim/engine.py", "def f():\n    from tiny import live\n", "tiny.sim.engine reaches tiny.live"),
        ("live/engine.py", "from tiny.sim.engine import dcut\n", "tiny.live.engine reaches tiny.sim.engine"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_found_by_file_and_line(package, file, source, fault):
    (package / file).write_text(source)
    assert fault in violations(package)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\n",
        "import tiny.live.engine\n",
        "try:\n    import triton\nexcept ImportError as fault:\n    raise\n",
    ],
)
def test_importing_a_part_fails_loudly_when_it_needs_torch(package, source):
    assert import_blocked("tiny.policies", package.parent).returncode == 0
    (package / "policies" / "dcut.py").write_text(source)
    run = import_blocked("tiny.policies", package.parent)
    assert run.returncode == 1
    assert "is not part of the base installation" in run.stderr


def test_the_parts_to_import_are_those_on_disk_less_live_code(package):
    assert light_parts(package) == [f"tiny.{name}" for name in ["cli", "core", "kernels", "policies", "sim", "study"]]
