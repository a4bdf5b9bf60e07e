"""The block drafter's net against numbers of the public implementation, and its parts against its definition.

`dflash_expected.json` holds logits that DFlashDraftModel of `dflash` 0.1.0 computed in float32 with the weights that
`draw` makes of their names.
"""

import json
from pathlib import Path

import pytest
import torch

from specsim.live.drafters.block_layout import spread_layers
from specsim.live.drafters.checkpoints import build_net
from specsim.live.drafters.decoder_layer import LayerShape, attend_dense, rope_frequencies

EXPECTED = json.loads((Path(__file__).parent / "dflash_expected.json").read_text())
HIDDEN, VOCAB = 24, 37


@pytest.fixture(scope="module")
def net(draw):
    from specsim.live.drafters.block_layout import block_config
    from specsim.live.drafters.block_net import BlockNet

    shapes = {
        name: value.shape for name, value in BlockNet(block_config(EXPECTED["config"], "here")).state_dict().items()
    }
    return build_net(EXPECTED["config"], {name: draw(name, shape) for name, shape in shapes.items()}, "here").eval()


@pytest.fixture(scope="module")
def inputs(draw):
    features = draw("features", (EXPECTED["context"], 3 * HIDDEN)) * 5
    return features, torch.tensor(EXPECTED["block"]), draw("embedding", (VOCAB, HIDDEN)), draw("head", (VOCAB, HIDDEN))


@torch.no_grad()
def test_the_net_computes_the_logits_of_the_public_implementation(net, inputs):
    assert sorted(net.state_dict()) == EXPECTED["names"]
    logits = net.draft_logits(*inputs)
    torch.testing.assert_close(logits, torch.tensor(EXPECTED["logits"]), rtol=0, atol=1e-5)


@torch.no_grad()
def test_keys_kept_in_two_parts_give_the_logits_of_one_pass(net, inputs):
    """Context features may be cached as they come: a block sees what it would see if computed at once."""
    features, block, embedding, head = inputs
    parts = (features[:4], features[4:])
    kept = [
        net.context_key_value(net.context(part), torch.arange(start, start + len(part)))
        for part, start in zip(parts, (0, 4), strict=True)
    ]

    def attend(layer, query, key, value):
        keys = torch.cat([part[layer][0] for part in kept] + [key])
        values = torch.cat([part[layer][1] for part in kept] + [value])
        return attend_dense(query, keys, values)

    hidden = net(embedding[block], torch.arange(11, 11 + len(block)), attend)
    torch.testing.assert_close(net.logits(hidden[1:], head), net.draft_logits(*inputs), rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_block_sees_its_context_its_anchor_and_its_later_places(net, inputs):
    features, block, embedding, head = inputs
    before = net.draft_logits(features, block, embedding, head)
    for changed in range(len(features)):
        other = features.clone()
        other[changed] += 1
        assert (net.draft_logits(other, block, embedding, head) != before).any(-1).all(), (
            f"feature {changed} is not seen"
        )
    for place in (0, len(block) - 1):
        other = block.clone()
        other[place] = 9
        assert (net.draft_logits(features, other, embedding, head) != before).any(-1).all(), (
            f"place {place} is not seen"
        )


def test_block_tokens_are_the_anchor_and_masks(net):
    assert net.block_tokens(torch.tensor([7, 30])).tolist() == [[7] + [5] * 7, [30] + [5] * 7]


@torch.no_grad()
def test_scale_and_cap_of_the_logits_are_applied(draw, inputs):
    own = EXPECTED["config"]["dflash_config"]
    shapes = dict.fromkeys(EXPECTED["names"])
    from specsim.live.drafters.block_layout import block_config
    from specsim.live.drafters.block_net import BlockNet

    def build(**more):
        config = EXPECTED["config"] | {"dflash_config": own | more}
        weights = BlockNet(block_config(config, "here")).state_dict()
        assert weights.keys() == shapes.keys()
        return build_net(config, {name: draw(name, value.shape) for name, value in weights.items()}, "here")

    plain = build().draft_logits(*inputs)
    changed = build(output_multiplier=0.5, final_logit_softcapping=2.0).draft_logits(*inputs)
    torch.testing.assert_close(changed, torch.tanh(plain * 0.5 / 2.0) * 2.0)
    assert not torch.allclose(build(input_embedding_scale=4.0).draft_logits(*inputs), plain)


def test_layers_to_read_are_spread_as_the_public_implementation_spreads_them():
    for key, layers in EXPECTED["spread"].items():
        depth, count = map(int, key.split(","))
        assert list(spread_layers(depth, count)) == layers


def test_rotations_keep_float32_precision_when_the_net_is_cast():
    from specsim.live.drafters.decoder_layer import Rope

    shape = LayerShape(24, 4, 2, 16, 40, rope={"rope_type": "default", "rope_theta": 1e6})
    rope = Rope(shape).to(torch.bfloat16)
    heads = torch.ones(1, 1, 16, dtype=torch.float64)
    angle = 1000 * 1e6 ** (-torch.arange(8) / 8)
    expected = torch.cat((angle.cos() - angle.sin(), angle.cos() + angle.sin()))
    torch.testing.assert_close(rope(heads, torch.tensor([1000]))[0, 0].float(), expected, rtol=0, atol=2e-4)


def test_a_rotation_that_depends_on_the_length_is_refused():
    shape = LayerShape(24, 4, 2, 16, 40, rope={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4})
    with pytest.raises(ValueError, match="default, linear, llama3, yarn"):
        rope_frequencies(shape)
