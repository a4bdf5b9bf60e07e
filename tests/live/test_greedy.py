"""The target's greedy path: plain argmax, whoever shares the batch, until a stop token or the limit."""

import numpy as np
import pytest
import torch

from specsim.live.greedy import decode_greedy


@pytest.fixture
def prompts():
    rng = np.random.default_rng(3)
    return [rng.integers(2, 50, length) for length in (5, 17, 1, 9)]


def late_token(path):
    """A token that the path meets late for the first time."""
    return next(token for i, token in enumerate(path) if i >= 3 and token not in path[:i])


def argmax_path(model, prompt, count):
    """One full forward pass a token, no cache, no padding."""
    ids = list(prompt)
    for _ in range(count):
        with torch.inference_mode():
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def test_a_batch_of_any_lengths_decodes_each_prompt_as_alone_and_without_a_cache(make_target, prompts):
    target = make_target(eos_token_id=None)
    outputs = decode_greedy(target, prompts, 20)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert output.token_ids.tolist() == argmax_path(target.model, prompt, 20)
        assert output.finish_reason == "length"


def test_an_output_ends_with_its_first_stop_token(make_target, prompts):
    path = argmax_path(make_target(eos_token_id=None).model, prompts[1], 20)
    stop = late_token(path)
    target = make_target(eos_token_id=stop)
    output = decode_greedy(target, prompts, 20)[1]
    assert output.finish_reason == "stop"
    assert output.token_ids.tolist() == path[: path.index(stop) + 1]


def test_a_stop_token_at_the_limit_is_a_stop(make_target, prompts):
    """CASES 10: the reason is what ended the output, and a stop token did."""
    path = argmax_path(make_target(eos_token_id=None).model, prompts[1], 20)
    stop = late_token(path)
    target = make_target(eos_token_id=stop)
    for limit, reason in ((path.index(stop) + 1, "stop"), (path.index(stop), "length")):
        output = decode_greedy(target, prompts[1:2], limit)[0]
        assert (len(output.token_ids), output.finish_reason) == (limit, reason)


def test_decoding_goes_on_only_until_the_last_output_has_ended(make_target, prompts):
    """With several stop tokens, met after different numbers of tokens."""
    model = make_target(eos_token_id=None).model
    paths = [argmax_path(model, prompt, 30) for prompt in prompts]
    stops = sorted({late_token(path) for path in paths})
    ends = [min(path.index(stop) for stop in stops if stop in path) + 1 for path in paths]
    assert len(set(ends)) > 1
    target = make_target(eos_token_id=stops)
    passes = []
    target.model.register_forward_hook(lambda *_: passes.append(1))
    outputs = decode_greedy(target, prompts, 30)
    assert [len(output.token_ids) for output in outputs] == ends
    assert len(passes) == max(ends) < 30


def test_generation_settings_of_the_model_do_not_apply(make_target, prompts):
    target = make_target(eos_token_id=None)
    plain = decode_greedy(target, prompts, 20)
    target.model.generation_config.repetition_penalty = 9.0
    target.model.generation_config.min_new_tokens = 20
    penalised = decode_greedy(target, prompts, 20)
    for one, other in zip(plain, penalised, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
