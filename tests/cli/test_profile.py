"""`specsim profile`: what cannot work is refused before anything slow is begun."""

import pytest

pytest.importorskip("torch", reason="needs the extra `live`")


@pytest.fixture
def early(refused, monkeypatch, tmp_path):
    """Runs a measurement that must be refused before a model is loaded; returns its one line."""
    monkeypatch.setattr("specsim.live.models.load_model", lambda *_, **__: pytest.fail("the model was loaded"))

    def command(*arguments):
        return refused("profile", "--model", "llama-3-8b", "--load-format", "dummy", *arguments)

    return command


@pytest.mark.parametrize(
    ("drafters", "words"),
    [
        ("ngram,medusa", "drafter 'medusa': must be 'ngram', 'exitL'"),
        ("exit2,drafter=./nowhere", "./nowhere: no such drafter folder"),
        ("ngram:sampled", "copied tokens are drawn from no law"),
        ("drafter=", "drafter 'drafter=': must be"),
    ],
)
def test_drafters_that_are_not_there_are_refused_before_the_model_is_loaded(early, tmp_path, drafters, words):
    assert words in early("--out", tmp_path / "new", "--drafters", drafters)


def test_a_smaller_model_that_is_not_there_is_refused_before_the_model_is_loaded(refused, monkeypatch, tmp_path):
    monkeypatch.setattr("specsim.live.models.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    command = ("profile", "--model", model, "--out", tmp_path / "new")
    assert "./nowhere: no such model directory" in refused(*command, "--drafters", "ngram,model=./nowhere")


def test_a_folder_that_cannot_be_made_is_refused_before_the_model_is_loaded(early, tmp_path):
    (tmp_path / "file").touch()
    assert early("--out", tmp_path / "file" / "costs") == f"--out: {tmp_path / 'file'} is not a folder"
    assert early("--out", tmp_path) == f"--out {tmp_path}: exists already; give a new or empty folder"
    assert "/proc/nowhere" in early("--out", "/proc/nowhere/costs")
