"""Whatever stands in a trained drafter's config.json, it is read, or refused as bad input."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file

from specsim.errors import InputError
from specsim.live.drafters.checkpoints import build_net, read_config, save_drafter
from specsim.live.drafters.config_values import checked_values
from tests.live.drafters.test_checkpoints import NETS

WRONG = ["x", None, [], {}, {"a": 1}, -1, 0, 1.5, True, [1, "x"], float("nan"), 10**12, "16"]


def places(config, path=()):
    """Paths of all keys that say how the drafter is built."""
    for key, value in config.items():
        if key != "specsim":
            yield (*path, key)
            if isinstance(value, dict):
                yield from places(value, (*path, key))


def at(config, path):
    for key in path:
        config = config[key]
    return config


@pytest.mark.parametrize("kind", NETS)
def test_no_value_of_any_key_breaks_reading_a_drafter(kind, tmp_path):
    weights = load_file(save_drafter(NETS[kind](), tmp_path, dtype=torch.float32))
    config = read_config(tmp_path)
    refused = 0
    for path in places(config):
        for value in WRONG:
            changed = copy.deepcopy(config)
            at(changed, path[:-1])[path[-1]] = value
            refused += is_refused(changed, weights)
        changed = copy.deepcopy(config)
        del at(changed, path[:-1])[path[-1]]
        refused += is_refused(changed, weights)
    assert refused > 100


def is_refused(config, weights):
    try:
        build_net(config, dict(weights), "mine")
    except InputError:
        return True
    return False


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_hidden_layers": "x"}, r"^mine: config.json: num_hidden_layers is 'x'; allowed: a whole number of at"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True; allowed: a whole number of at least 1"),
        ({"vocab_size": 0}, "vocab_size is 0; allowed: a whole number of at least 1"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan; allowed: a number above 0"),
        ({"rope_parameters": {"rope_theta": "x"}}, "rope_theta is 'x'; allowed: a number above 0"),
        ({"rope_parameters": [1]}, r"rope_parameters is \[1\]; allowed: an object"),
        ({"target_layer_ids": 3}, "target_layer_ids is 3; allowed: a list of layer numbers"),
        ({"target_layer_ids": [1, -1]}, r"target_layer_ids is \[1, -1\]; allowed"),
        (
            {"final_logit_softcapping": -1.0},
            "final_logit_softcapping is -1.0; allowed: a number above 0, or 0 for none",
        ),
        ({"mlp_bias": "no"}, "mlp_bias is 'no'; allowed: true or false"),
        ({"architectures": [7]}, r"architectures is \[7\]; allowed: a list of names"),
    ],
)
def test_a_value_of_a_wrong_kind_is_named_with_what_is_allowed(keys, message):
    with pytest.raises(InputError, match=message):
        checked_values(keys, "mine")
    with pytest.raises(InputError, match=message):
        checked_values({"transformer_layer_config": keys}, "mine")


def test_null_is_as_good_as_missing(tmp_path):
    save_drafter(NETS["block"](), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    nulls = {"rope_scaling": None, "layer_types": None, "final_logit_softcapping": None}
    assert checked_values(config | nulls, "mine") == checked_values(config, "mine")
    assert "rope_scaling" not in checked_values(config | nulls, "mine")


def test_an_empty_list_and_a_cap_of_0_say_nothing(tmp_path):
    weights = load_file(save_drafter(NETS["eagle"](), tmp_path, dtype=torch.float32))
    empty = {"eagle_aux_hidden_state_layer_ids": []}
    config = read_config(tmp_path) | empty | {"eagle_config": empty}
    assert build_net(config, weights, "mine").config.feature_layers is None
    weights = load_file(save_drafter(NETS["block"](), tmp_path, dtype=torch.float32))
    config = read_config(tmp_path)
    config["dflash_config"]["final_logit_softcapping"] = 0
    assert build_net(config, weights, "mine").config.logit_cap is None
