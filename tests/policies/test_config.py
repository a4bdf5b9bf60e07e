"""The grammar of a controller's text, and its JSON."""

import pytest
from pydantic import ValidationError

from specsim.errors import InputError
from specsim.policies.config import ControllerConfig, PolicyConfig, parse

READ = [
    ("dcut", ControllerConfig(budget=PolicyConfig(name="dcut"))),
    ("dcut@ngram", ControllerConfig(budget=PolicyConfig(name="dcut"), drafter=PolicyConfig(name="ngram"))),
    (
        " dcut:count = code , depth=7 @ ucb1:c=1e+3 ",
        ControllerConfig(
            budget=PolicyConfig(name="dcut", options={"count": "code", "depth": "7"}),
            drafter=PolicyConfig(name="ucb1", options={"c": "1e+3"}),
        ),
    ),
    (
        "dcut~fitted:path=a/b.json@ngram",
        ControllerConfig(
            budget=PolicyConfig(name="dcut"),
            calibrator=PolicyConfig(name="fitted", options={"path": "a/b.json"}),
            drafter=PolicyConfig(name="ngram"),
        ),
    ),
]


@pytest.mark.parametrize(("text", "config"), READ)
def test_a_text_is_read_by_the_grammar(text, config):
    assert parse(text) == config
    assert ControllerConfig.model_validate(text) == config


@pytest.mark.parametrize(("text", "config"), READ)
def test_a_configuration_writes_a_text_that_reads_as_itself(text, config):
    assert parse(str(config)) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a policy's name is missing"),
        ("@ngram", "a policy's name is missing"),
        ("dcut@", "a policy's name is missing"),
        (":depth=1", "a policy's name is missing"),
        ("dcut:", "'' is no option of dcut; write opt=value"),
        ("dcut:depth", "'depth' is no option of dcut; write opt=value"),
        ("dcut:depth=", "'depth=' is no option of dcut; write opt=value"),
        ("dcut:=7", "'=7' is no option of dcut; write opt=value"),
        ("dcut:depth=7,", "'' is no option of dcut; write opt=value"),
        ("dcut:depth=7,depth=8", "option depth of dcut is given twice"),
        ("dcut@a@b", "at most one ~CALIBRATOR, then at most one @DRAFTER"),
        ("dcut@a~identity", "at most one ~CALIBRATOR, then at most one @DRAFTER"),
    ],
)
def test_a_text_outside_the_grammar_is_refused_in_one_line(text, message):
    with pytest.raises(InputError) as error:
        parse(text)
    assert message in str(error.value)
    assert repr(text) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"budget": "dcut", "budgets": "dcut"},
        {"budget": {"name": "dcut", "option": {}}},
        {"drafter": "ngram"},
        {"budget": 7},
    ],
)
def test_an_unknown_or_missing_key_is_an_error(fields):
    with pytest.raises(ValidationError):
        ControllerConfig.model_validate(fields)
