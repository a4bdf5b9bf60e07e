"""Writes the tables of docs/h200.md from benchmarks/h200_*.json.

`python docs/h200.py` rewrites the tables; `python docs/h200.py FOLDER` takes the JSON files of another folder, as
`benchmarks/h200_grid.py --out FOLDER` or `benchmarks/h200_merge.py --out FOLDER` left them. Sections about what was
never measured are not there; their text is here until it was, and is the page's own from then on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pages import rewritten

PAGE = Path(__file__).resolve().parent / "h200.md"
MEASURED = Path(__file__).resolve().parents[1] / "benchmarks"
BEGIN, END = "<!-- {}: written by docs/h200.py -->\n", "<!-- end of {} -->\n"

NEAR_TIES_TOO = "h200_near_ties_8b"
"""What `h200_near_ties.py` found of a second model."""

NAMES = ("h200_grid", "h200_overhead", "h200_profile")

SECTIONS = {
    "h200_drafters": """
## SmolLM2 with its trained drafters

Real weights in bfloat16, the shipped prompts in a closed loop, greedy, outputs of at most 64 to 192 tokens;
`benchmarks/h200_drafters.py` says the rest. Output tokens a second, and in brackets how many times plain decoding's.

{drafters}
Tokens a request and step, with the standard error over requests:

{acceptance}
What the simulator makes of the same steps from the cost table, against what they took:

{retaken}
Other libraries decode the first prompts one at a time, greedy, in the same precision, outputs of the same lengths:

{peers}""",
    "h200_near_ties": """
## Where rounding decides

In bfloat16 passes of different shapes round differently, and where two tokens are nearly level either may come out.
Each token of a speculative output that plain decoding's law does not put first must be nearer to the first than twice
the noise that was measured between the two shapes; `benchmarks/h200_near_ties.py` takes both runs' passes again to see.

{near_ties}""",
}
"""By the script that measures it, what the page gets once there is something."""


def summary(found: dict[str, Any]) -> str:
    """How far predictions are off, over all cells of the grid."""
    grid = found["h200_grid"]
    same = min(cell["same_steps"] for cell in grid["cells"])
    rows = [
        "| | |",
        "|---|---|",
        f"| machine | {grid['hardware']} |",
        f"| acceptance | {grid['label']} |",
        f"| cells | {len(grid['cells'])} |",
        f"| steps whose decisions were the simulator's, least of all cells | {same:.1%} |",
        f"| predicted against measured output tokens a second, mean error | {grid['mean_error']:.1%} |",
        f"| largest error | {grid['max_error']:.1%} |",
    ]
    return "\n".join(rows) + "\n"


def throughput(found: dict[str, Any]) -> str:
    """Output tokens a second by policy and batch: measured, and by how much the prediction is off."""
    return _by_batch(found, lambda cell: f"{cell['measured']:,.0f} ({cell['error']:+.1%})")


def speedup(found: dict[str, Any]) -> str:
    """Measured throughput over that of plain decoding."""
    faster = found["h200_grid"]["speedups"]

    def text(cell: dict[str, Any]) -> str:
        ratio = faster.get(cell["policy"], {}).get(str(cell["batch"]))
        return "–" if ratio is None else f"{ratio:.2f}"

    return _by_batch(found, text)


def steps(found: dict[str, Any]) -> str:
    """Milliseconds of a step: measured, predicted."""
    return _by_batch(found, lambda cell: f"{cell['step_ms']:.2f}, {cell['predicted_step_ms']:.2f}")


def overhead(found: dict[str, Any]) -> str:
    """Milliseconds of a step, and what of it the device does not work."""
    rows = ["| policy | requests | step, ms | working, ms | idle | waiting for the host |", "|---|---|---|---|---|---|"]
    for cell in found["h200_overhead"]["cells"]:
        told = "between_kernels_ms" in cell  # older measurements did not tell the two apart
        idle, waiting = (cell["idle_share"], f"{cell['waiting_share']:.1%}") if told else (cell["waiting_share"], "–")
        rows.append(
            f"| `{cell['policy']}` | {cell['batch']} | {cell['step_ms']:.2f} | {cell['busy_ms']:.2f} | {idle:.1%}"
            f" | {waiting} |"
        )
    return "\n".join(rows) + "\n" + _earlier("This table is", found["h200_overhead"], found)


def passes(found: dict[str, Any]) -> str:
    """Milliseconds of a plain pass, of the deepest one and of the host's share, by model and batch."""
    rows = ["| model | requests | plain pass, ms | deepest pass, ms | host, ms |", "|---|---|---|---|---|"]
    tables = dict(found["h200_profile"]["tables"])
    drafters = found.get("h200_drafters")
    if drafters is not None:
        tables["smollm2-135m"] = {"steps": drafters["table_steps"], "date": drafters["date"]}
    for model, table in tables.items():
        for batch, step in table["steps"].items():
            rows.append(
                f"| {model} | {batch} | {step['plain_ms']:.2f} | {step['deepest_ms']:.2f} | {step['host_ms']:.2f} |"
            )
    earlier = [_earlier(f"The rows of {model} are", table, found) for model, table in tables.items()]
    return "\n".join(rows) + "\n" + "".join(earlier)


def drafters(found: dict[str, Any]) -> str:
    """Output tokens a second of each policy and its drafters, by batch, and how many times plain decoding's."""
    cells = found["h200_drafters"]["cells"]
    plain = {cell["batch"]: cell["tokens_per_second"] for cell in cells if cell["policy"] == "autoregressive"}

    def text(cell: dict[str, Any]) -> str:
        speed, base = cell["tokens_per_second"], plain.get(cell["batch"])
        return f"{speed:,.0f}" + (f" ({speed / base:.2f})" if base else "")

    return _by_drafters(found, text)


def acceptance(found: dict[str, Any]) -> str:
    """Tokens a request and step, and their standard error, by policy, drafters and batch."""

    def text(cell: dict[str, Any]) -> str:
        length, error = cell["mean_acceptance_length"], cell["acceptance_error"]
        return f"{length:.2f}" + (f" ± {length * error:.2f}" if error else "")

    return _by_drafters(found, text)


def retaken(found: dict[str, Any]) -> str:
    """How the replica decided, and how far the cost table's seconds are from those of the same steps."""
    report = found["h200_drafters"]
    parity = [cell["parity"] for cell in report["cells"] if "parity" in cell]
    off = [one["predicted_over_measured_seconds"] - 1 for one in parity if one["predicted_over_measured_seconds"]]
    same, steps = (sum(one[name] for one in parity) for name in ("equal_steps", "steps"))
    rows = [
        "| | |",
        "|---|---|",
        f"| machine | {report['hardware']} |",
        f"| runs taken again to the end | {sum(one['complete'] for one in parity)} of {len(report['cells'])} |",
        f"| runs with a step decided otherwise | {sum(one['difference'] is not None for one in parity)} |",
        f"| steps decided the same | {same:,} of {steps:,} |",
    ]
    if off:
        mean, worst = sum(map(abs, off)) / len(off), max(off, key=abs)
        rows += [
            f"| predicted against measured seconds, mean error over runs | {mean:.1%} |",
            f"| largest error | {worst:+.1%} |",
        ]
    return "\n".join(rows) + "\n"


def peers(found: dict[str, Any]) -> str:
    """Tokens a second of other libraries at one request, beside the engine's."""
    report = found["h200_drafters"]
    rows = ["| | requests | tokens a second | outputs equal to the engine's |", "|---|---|---|---|"]
    for peer in report.get("peers", []):
        if "error" in peer:
            rows.append(f"| {peer['peer']} | – | not measured: {_cell_text(peer['error'])} | – |")
        else:
            equal = f"{peer['outputs_equal_to_the_engines']} of {peer['compared']}" if "compared" in peer else "–"
            rows.append(f"| {peer['peer']} | {peer['requests']} | {peer['tokens_per_second']:,.0f} | {equal} |")
    own = [cell for cell in report["cells"] if cell["batch"] == 1]
    if own:
        best = max(own, key=lambda cell: cell["tokens_per_second"])
        named = {"plain decoding": own[0], f"`{best['policy']}`, {_named(best, report)}": best}
        for name, cell in named.items():
            rows.append(f"| this engine, {name} | {cell['finished']} | {cell['tokens_per_second']:,.0f} | |")
    return "\n".join(rows) + "\n"


def near_ties(found: dict[str, Any]) -> str:
    """What was found of each controller: how often rounding decided, and whether it explains every difference."""
    reports = [found[name] for name in ("h200_near_ties", NEAR_TIES_TOO) if name in found]
    heads = ("positions", "requests that differ", "near ties", "largest gap", "largest noise", "faults")
    rows = [f"| model | controller | {' | '.join(heads)} |", f"|---|---{'|---' * len(heads)}|"]
    for report, own in [(each, own) for each in reports for own in each["controllers"]]:
        cells = (
            f"{own['positions']:,}",
            f"{own['differing_requests']} of {own['requests']}",
            own["near_ties"],
            f"{own['largest_gap']:.3g}",
            f"{own['largest_noise']:.3g}",
            len(own["faults"]),
        )
        rows.append(f"| {report['model']} | `{own['controller']}` | {' | '.join(map(str, cells))} |")
    what = [f"{report['model']}: {report['origin']}, {report['dtype']}, {report['hardware']}." for report in reports]
    return "\n".join(rows) + "\n\n" + "\n".join(what) + "\n"


TABLES = {
    "summary": summary,
    "throughput": throughput,
    "speedup": speedup,
    "steps": steps,
    "overhead": overhead,
    "passes": passes,
    "drafters": drafters,
    "acceptance": acceptance,
    "retaken": retaken,
    "peers": peers,
    "near_ties": near_ties,
}


def updated(page: str, found: dict[str, Any]) -> str:
    """The page with its tables made anew.

    found   by name of the script that measured, what it wrote

    Raises  ValueError when a mark is missing
    """
    optional = {mark: script for script, text in SECTIONS.items() for mark in TABLES if f"{{{mark}}}" in text}
    for script, text in SECTIONS.items():
        if script in found and not any(BEGIN.format(mark) in page for mark, own in optional.items() if own == script):
            page += text.format_map({mark: BEGIN.format(mark) + END.format(mark) for mark in TABLES})
    for name, table in TABLES.items():
        if optional.get(name, NAMES[0]) not in found:
            continue
        page = rewritten(page, BEGIN.format(name), END.format(name), table(found))
    return page


def read(folder: Path) -> dict[str, Any]:
    """What the scripts wrote to a folder, by script; what is not there is taken from `benchmarks`, if it is there."""
    found = {}
    for name in (*NAMES, *SECTIONS, NEAR_TIES_TOO):
        path = folder / f"{name}.json"
        path = path if path.exists() else MEASURED / path.name
        if name not in NAMES and not path.exists():
            continue
        found[name] = json.loads(path.read_text(encoding="utf-8"))
        if found[name]["tiny"]:
            raise ValueError(f"{path}: measured with --tiny, so its numbers mean nothing")
    return found


def _by_batch(found: dict[str, Any], text: Any) -> str:
    cells = found["h200_grid"]["cells"]
    batches = sorted({cell["batch"] for cell in cells})
    rows = [f"| policy | {' | '.join(map(str, batches))} |", f"|---{'|---' * len(batches)}|"]
    for policy in dict.fromkeys(cell["policy"] for cell in cells):
        own = {cell["batch"]: text(cell) for cell in cells if cell["policy"] == policy}
        rows.append(f"| `{policy}` | {' | '.join(own.get(batch, '–') for batch in batches)} |")
    return "\n".join(rows) + "\n"


def _by_drafters(found: dict[str, Any], text: Any) -> str:
    report = found["h200_drafters"]
    batches = sorted({cell["batch"] for cell in report["cells"]})
    rows = [f"| policy | drafters | {' | '.join(map(str, batches))} |", f"|---|---{'|---' * len(batches)}|"]
    table: dict[tuple[str, str], dict[int, str]] = {}
    for cell in report["cells"]:
        table.setdefault((cell["policy"], _named(cell, report)), {})[cell["batch"]] = text(cell)
    for (policy, names), own in table.items():
        rows.append(f"| `{policy}` | {names} | {' | '.join(own.get(batch, '–') for batch in batches)} |")
    return "\n".join(rows) + "\n"


def _named(cell: dict[str, Any], report: dict[str, Any]) -> str:
    """Drafters of a cell, in words."""
    if cell["policy"] == "autoregressive":
        return "none"
    names = cell["drafters"]
    return f"all {len(names)}" if len(names) == len(report["drafters"]) else ", ".join(names)


def _cell_text(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def _earlier(what: str, part: dict[str, Any], found: dict[str, Any]) -> str:
    """A sentence where a part was measured before the throughputs were."""
    stale = part.get("date", "") < found["h200_grid"].get("date", "")
    return f"\n{what} of an earlier run than the throughputs above.\n" if stale else ""


def main() -> None:
    """Read, then rewrite the tables."""
    found = read(Path(sys.argv[1]) if len(sys.argv) > 1 else MEASURED)
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
