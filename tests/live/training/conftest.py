"""A tiny random target, its greedy outputs, and small drafters for it."""

import numpy as np
import pytest
import torch

from specsim.live.training.data import join_rows
from specsim.live.training.features import wrap_target
from specsim.live.training.recipe import Recipe


@pytest.fixture(scope="session")
def target(make_model):
    return wrap_target(make_model("float64", seed=3, num_hidden_layers=6), "tiny", "0" * 64)


@pytest.fixture(scope="session")
def make_data(target):
    """Random prompts with the target's greedy outputs."""

    def make(rows=12, prompt=6, output=24, seed=0):
        rng = np.random.default_rng(seed)
        prompts = [rng.integers(2, 40, prompt + index % 3) for index in range(rows)]
        outputs = []
        for index, row in enumerate(prompts):
            tokens = torch.from_numpy(row)[None]
            with torch.no_grad():
                for _ in range(output - index % 5):
                    tokens = torch.cat((tokens, target.model(tokens).logits[:, -1:].argmax(-1)), 1)
            outputs.append(tokens[0, len(row) :].numpy())
        return join_rows(prompts, outputs, [index % 3 for index in range(rows)], [0] * rows)

    return make


@pytest.fixture(scope="session")
def data(make_data):
    return make_data()


RECIPES = {
    "eagle": Recipe("eagle", "eagle", ffn=64, features=(1, 2, 4), unroll=4, batch=4, anchors=6, learning_rate=5e-3),
    "deep": Recipe("deep", "eagle", layers=2, ffn=64, features=(1, 4), unroll=3, batch=4, anchors=6),
    "block": Recipe("block", "block", 2, 64, (1, 2, 4), block_size=5, batch=4, anchors=6, learning_rate=5e-3),
}


@pytest.fixture(params=RECIPES)
def recipe(request):
    """Each kind of drafter in turn."""
    return RECIPES[request.param]


@pytest.fixture
def recipes():
    return RECIPES
