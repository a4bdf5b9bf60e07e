"""Training learns, goes on after a kill as if nothing had been, and gives a drafter for hidden states as they are."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from specsim.errors import InputError
from specsim.live.drafters.checkpoints import save_drafter
from specsim.live.training import trainer as module
from specsim.live.training.anchored import draft_hidden
from specsim.live.training.batches import anchor_batch
from specsim.live.training.features import cache_features
from specsim.live.training.recipe import build_net
from specsim.live.training.trainer import Budget, scale_features, schedule, train_drafter

QUIET = {"log_seconds": 0.0, "checkpoint_seconds": 1e9}


@pytest.fixture(scope="module")
def cache(target, data):
    return cache_features(target, data, (1, 2, 4), dtype=torch.float64)


def state_of(run):
    return {name: value.clone() for name, value in run.net.state_dict().items()}


def test_the_loss_falls_and_drafts_become_right(recipe, target, cache):
    run = train_drafter(recipe, target, cache, Budget(steps=60, **QUIET))
    assert run.steps == run.losses[-1][0] == 60
    (first, first_right), (last, last_right) = (
        np.mean([e[2:4] for e in part], 0) for part in (run.losses[:5], run.losses[-5:])
    )
    assert last < 0.8 * first
    assert last_right > first_right + 0.1
    assert not run.net.training
    assert not any(weight.requires_grad for weight in run.net.parameters())


def test_a_run_that_was_killed_ends_with_the_weights_of_one_that_was_not(recipe, target, cache, tmp_path, monkeypatch):
    whole = state_of(train_drafter(recipe, target, cache, Budget(steps=9, **QUIET)))
    budget, state = Budget(steps=9, log_seconds=0.0, checkpoint_seconds=0.0), tmp_path / "a.state"
    step, calls = module._Trainer.step, []

    def killed(trainer, progress):
        calls.append(progress)
        if len(calls) == 6:
            raise KeyboardInterrupt
        step(trainer, progress)

    monkeypatch.setattr(module._Trainer, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        train_drafter(recipe, target, cache, budget, state)
    run = train_drafter(recipe, target, cache, budget, state)
    assert len(calls) == 6 + 4, "five steps were kept"
    assert run.steps == 9
    assert [entry[0] for entry in run.losses] == list(range(1, 10))
    for name, value in state_of(run).items():
        assert torch.equal(value, whole[name]), name


def test_a_checkpoint_of_another_drafter_is_refused(recipe, target, cache, tmp_path):
    train_drafter(recipe, target, cache, Budget(steps=1, **QUIET), tmp_path / "a.state")
    with pytest.raises(InputError, match="is of another drafter"):
        train_drafter(replace(recipe, seed=9), target, cache, Budget(steps=1, **QUIET), tmp_path / "a.state")


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(recipe, target, cache):
    runs = [train_drafter(replace(recipe, seed=seed), target, cache, Budget(steps=2, **QUIET)) for seed in (1, 1, 2)]
    weights = [run.net.fc.weight for run in runs]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_scales_folded_into_the_weights_change_nothing_but_the_input(recipe, target, data, cache):
    net = build_net(recipe, target.config).double().requires_grad_(False)
    plain = cache_features(target, data, cache.layers, dtype=torch.float64, scaled=False)
    batch = anchor_batch(data, cache.best, np.array([0, 1]), np.array([[8], [9]]), 2, on_path=False, device="cpu")
    places = cache.columns(recipe.features) or slice(None)
    scaled = draft_hidden(net, batch, cache.features[batch.place][..., places], target.embedding, 2)
    scale_features(net, recipe.features, cache, undo=True)
    raw = draft_hidden(net, batch, plain.features[batch.place][..., places], target.embedding, 2)
    torch.testing.assert_close(raw, scaled, rtol=1e-5, atol=1e-5)


def test_what_is_returned_is_the_average_of_the_weights(recipe, target, cache, monkeypatch):
    seen = []
    step = module._Trainer.step

    def watched(trainer, progress):
        step(trainer, progress)
        seen.append(trainer.net.norm.weight.detach().clone())

    monkeypatch.setattr(module._Trainer, "step", watched)
    run = train_drafter(recipe, target, cache, Budget(steps=4, **QUIET))
    average = torch.ones_like(seen[0])
    for count, weight in enumerate(seen, start=1):
        decay = min(module.AVERAGE, count / (count + 10))
        average = decay * average + (1 - decay) * weight
    torch.testing.assert_close(run.net.norm.weight, average)


def test_fine_tuning_starts_from_the_given_drafter(recipe, target, cache, tmp_path):
    first = train_drafter(recipe, target, cache, Budget(steps=40, **QUIET))
    save_drafter(first.net, tmp_path / "first", dtype=torch.float64)
    more = replace(recipe, init=str(tmp_path / "first"), features=(), ffn=1)  # sizes are the first drafter's
    again = train_drafter(more, target, cache, Budget(steps=1, **QUIET))
    assert again.losses[0][2] < 1.2 * first.losses[-1][2]
    torch.testing.assert_close(again.net.fc.weight, first.net.fc.weight, rtol=0.2, atol=0.02)
    assert more.peak == (recipe.learning_rate or 1.5e-3)
    other = {"block": "eagle", "eagle": "block"}[recipe.kind]
    with pytest.raises(InputError, match=f"is not a drafter of kind {other}"):
        train_drafter(replace(more, kind=other), target, cache, Budget(steps=1, **QUIET))


def test_a_drafter_of_another_target_is_not_fine_tuned(recipes, target, cache, make_model, tmp_path):
    from specsim.live.training.features import wrap_target

    other = wrap_target(make_model("float64", num_hidden_layers=6, hidden_size=36), "other")
    save_drafter(build_net(recipes["eagle"], other.config), tmp_path)
    with pytest.raises(InputError, match="made for another target"):
        train_drafter(replace(recipes["eagle"], init=str(tmp_path)), target, cache, Budget(steps=1, **QUIET))


def test_a_loss_that_is_no_number_ends_the_training(recipes, target, cache, monkeypatch):
    monkeypatch.setattr(module, "schedule", lambda progress: math.inf)
    with pytest.raises(FloatingPointError, match="eagle: the loss is nan"):
        train_drafter(recipes["eagle"], target, cache, Budget(steps=5, **QUIET))


def test_the_learning_rate_rises_and_falls():
    assert schedule(0) < 0.05
    assert schedule(module.WARM_UP) == 1.0
    assert schedule(0.52) == pytest.approx(0.5)
    assert schedule(1.0) == 0.0


def test_bfloat16_targets_train_float32_weights(recipe, make_model, data):
    from specsim.live.training.features import wrap_target

    half = wrap_target(make_model("bfloat16", seed=3, num_hidden_layers=6), "half")
    cache = cache_features(half, data, (1, 2, 4))
    run = train_drafter(recipe, half, cache, Budget(steps=30, **QUIET))
    assert run.net.fc.weight.dtype == torch.float32
    assert run.losses[-1][2] < 0.9 * run.losses[0][2]
