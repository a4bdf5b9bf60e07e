from __future__ import annotations

from pathlib import Path

import pytest

import specsim
from specsim.errors import InputError
from specsim.shipped import shipped_names, shipped_path

TRACES = Path(specsim.__file__).resolve().parents[1] / "traces"


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    return folder


def test_a_path_is_taken_as_it_is(tmp_path):
    assert shipped_path("cost", make(tmp_path / "mine")) == tmp_path / "mine"


def test_a_shipped_name_resolves_from_any_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shipped_path("cost", "h20-qwen3-8b") == TRACES / "costs" / "h20-qwen3-8b"


def test_the_working_directory_comes_before_what_ships(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "traces" / "costs" / "h20-qwen3-8b")
    assert shipped_path("cost", "h20-qwen3-8b") == Path("traces/costs/h20-qwen3-8b")
    make(tmp_path / "h20-qwen3-8b")
    assert shipped_path("cost", "h20-qwen3-8b") == Path("h20-qwen3-8b")


def test_traces_lie_beside_the_cost_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "traces" / "mine")
    assert shipped_path("trace", "mine") == Path("traces/mine")
    assert "mine" in shipped_names("trace")
    assert "mine" not in shipped_names("cost")
    assert "costs" not in shipped_names("trace")


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"^h21: no such cost table.*shipped: .*h20-qwen3-8b"):
        shipped_path("cost", "h21")


def test_a_path_outside_is_never_looked_up_as_a_name(tmp_path):
    with pytest.raises(InputError, match="no such cost table"):
        shipped_path("cost", tmp_path / "h20-qwen3-8b")
    with pytest.raises(InputError, match="no such trace"):
        shipped_path("trace", "../costs/h20-qwen3-8b")


def test_a_folder_without_manifest_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"not a cost table: it has no manifest\.json"):
        shipped_path("cost", tmp_path)


def test_a_recording_that_was_cut_short_is_told_from_a_folder_of_something_else(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "manifest.json").touch()
    with pytest.raises(InputError, match="a recording that was cut short; `specsim record --resume` makes a trace"):
        shipped_path("trace", tmp_path)
    (tmp_path / "run.json").touch()
    with pytest.raises(InputError, match=f"cut short; `specsim parity {tmp_path} --recover` makes a trace"):
        shipped_path("trace", tmp_path)


def test_drafters_lie_in_models_and_are_known_by_their_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models" / "eagle-mine"
    folder.mkdir(parents=True)
    with pytest.raises(InputError, match=r"^eagle-mine: no such drafter, neither a folder nor a shipped one"):
        shipped_path("model", "eagle-mine")
    (folder / "config.json").write_text("{}")
    assert shipped_path("model", "eagle-mine") == Path("models/eagle-mine")
    assert "eagle-mine" in shipped_names("model")
    assert "eagle-mine" not in shipped_names("trace")
    with pytest.raises(InputError, match=r"not a drafter: it has no config\.json"):
        shipped_path("model", tmp_path / "models")
