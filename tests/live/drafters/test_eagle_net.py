"""EAGLE-3 heads of both public layouts against a plain transcription of what their authors compute.

The reference knows no cache and no modules: for every draft it runs all positions again, head by head, in float64,
straight from the weights as the checkpoint names them.
"""

import json

import pytest
import torch

from specsim.live.drafters.checkpoints import load_drafter

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, DRAFT_VOCAB = 24, 4, 2, 8, 40, 37, 20
CONTEXT, DEPTH, THETA, EPS = 9, 5, 5000.0, 1e-5
LAYER = {
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "max_position_embeddings": 128,
    "num_attention_heads": HEADS,
    "num_hidden_layers": 1,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "rms_norm_eps": EPS,
    "rope_theta": THETA,
    "vocab_size": VOCAB,
}
SHAPES = {
    "self_attn.q_proj.weight": (HEADS * HEAD_DIM, 2 * HIDDEN),
    "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, 2 * HIDDEN),
    "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, 2 * HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
    "mlp.gate_proj.weight": (FFN, HIDDEN),
    "mlp.up_proj.weight": (FFN, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, FFN),
    "hidden_norm.weight": (HIDDEN,),
    "input_layernorm.weight": (HIDDEN,),
    "post_attention_layernorm.weight": (HIDDEN,),
}


def rms(x, weight):
    return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * weight


def rotate(x, position):
    half = HEAD_DIM // 2
    out = x.clone()
    for pair in range(half):
        angle = torch.tensor(position * THETA ** (-pair / half), dtype=torch.float64)
        low, high = x[pair], x[pair + half]
        out[pair] = low * angle.cos() - high * angle.sin()
        out[pair + half] = high * angle.cos() + low * angle.sin()
    return out


def attention(w, rows, read):
    """All positions, causally. rows [N, width]; read gives a projection's weight by its letter."""
    outs = []
    for t in range(len(rows)):
        heads = []
        for head in range(HEADS):
            kv = head // (HEADS // KV_HEADS)

            def part(letter, row, which):
                return (read(letter) @ row)[which * HEAD_DIM : (which + 1) * HEAD_DIM]

            def normed(letter, row, which):
                vector = part(letter, row, which)
                return rms(vector, w[f"{letter}_norm"]) if f"{letter}_norm" in w else vector

            query = rotate(normed("q", rows[t], head), t)
            scores = torch.stack([query @ rotate(normed("k", rows[s], kv), s) for s in range(t + 1)])
            share = (scores / HEAD_DIM**0.5).softmax(0)
            heads.append(sum(share[s] * part("v", rows[s], kv) for s in range(t + 1)))
        outs.append(torch.cat(heads))
    return torch.stack(outs)


def layer(w, prefix, attended_input, residual):
    norms = {
        k: w[f"{prefix}self_attn.{k}.weight"] for k in ("q_norm", "k_norm") if f"{prefix}self_attn.{k}.weight" in w
    }
    mixed = attention(norms, attended_input, lambda letter: w[f"{prefix}self_attn.{letter}_proj.weight"])
    hidden = residual + mixed @ w[f"{prefix}self_attn.o_proj.weight"].T
    x = rms(hidden, w[f"{prefix}post_attention_layernorm.weight"])
    gate, up = x @ w[f"{prefix}mlp.gate_proj.weight"].T, x @ w[f"{prefix}mlp.up_proj.weight"].T
    return hidden + (gate * torch.sigmoid(gate) * up) @ w[f"{prefix}mlp.down_proj.weight"].T


def reference(weights, prefixes, features, tokens, embedding, head, flags=()):
    """Logits of greedy drafts. prefixes: of the layers' names; flags: switches of the configuration."""
    w = {name: value.double() for name, value in weights.items()}
    embedding, head = embedding.double(), w.get("lm_head.weight", head.double())
    features = features.double()
    if "norm_before_fc" in flags:
        features = rms(features, w["input_norm.weight"])
    if "fc_norm" in flags:
        parts = features.split(HIDDEN, -1)
        features = torch.cat([rms(part, w[f"fc_norm.{i}.weight"]) for i, part in enumerate(parts)], -1)
    states = list(features @ w["fc.weight"].T)
    follow = list(tokens[1:].tolist())
    rows = []
    for _ in range(DEPTH):
        embeds, hidden = embedding[torch.tensor(follow)], torch.stack(states)
        normed = rms(hidden, w[f"{prefixes[0]}hidden_norm.weight"])
        joined = torch.cat([rms(embeds, w[f"{prefixes[0]}input_layernorm.weight"]), normed], -1)
        out = layer(w, prefixes[0], joined, normed if "norm_before_residual" in flags else hidden)
        for prefix in prefixes[1:]:
            out = layer(w, prefix, rms(out, w[f"{prefix}input_layernorm.weight"]), out)
        final = rms(out, w["norm.weight"])
        rows.append(head @ final[-1])
        draft = int(rows[-1].argmax())
        follow.append(draft + int(weights["d2t"][draft]) if "d2t" in weights else draft)
        states.append((final if "norm_output" in flags else out)[-1])
    return torch.stack(rows)


@pytest.fixture
def inputs(draw):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCAB, (CONTEXT + 1,), generator=generator)
    features = draw("features", (CONTEXT, 3 * HIDDEN)) * 3
    return features, tokens, draw("embedding", (VOCAB, HIDDEN)) * 4, draw("head", (VOCAB, HIDDEN)) * 4


@pytest.fixture
def write(draw, tmp_path):
    """Write a checkpoint of random weights."""
    from safetensors.torch import save_file

    def write(config, shapes, extra=None):
        weights = {name: draw(name, shape) for name, shape in shapes.items()} | (extra or {})
        save_file(weights, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path, weights

    return write


def reduced_vocabulary():
    ids = torch.tensor(sorted(torch.randperm(VOCAB, generator=torch.Generator().manual_seed(3))[:DRAFT_VOCAB].tolist()))
    known = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, ids, True)
    return {"d2t": ids - torch.arange(DRAFT_VOCAB), "t2d": known}


def drafts_of(folder, inputs):
    net = load_drafter(folder).float()
    with torch.no_grad():
        return net, net.draft_logits(inputs[0], inputs[1], DEPTH, *inputs[2:])


def test_the_layout_of_eagles_authors_drafts_as_they_do(write, inputs):
    shapes = {f"midlayer.{name}": shape for name, shape in SHAPES.items()}
    shapes |= {"fc.weight": (HIDDEN, 3 * HIDDEN), "norm.weight": (HIDDEN,), "lm_head.weight": (DRAFT_VOCAB, HIDDEN)}
    config = LAYER | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": DRAFT_VOCAB,
    }
    folder, weights = write(config, shapes, reduced_vocabulary())
    net, logits = drafts_of(folder, inputs)
    expected = reference(weights, ["midlayer."], *inputs)
    assert logits.shape == (DEPTH, DRAFT_VOCAB)
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=1e-5)
    assert net.config.layers_of(32) == (1, 15, 28)  # the inputs of layers 2, 16 and 29
    drafts = logits.argmax(-1)
    assert weights["t2d"][net.to_target(drafts)].all()
    assert (net.to_target(drafts) != drafts).any(), "the map must matter in this test"


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("llama", ()),
        ("llama", ("norm_before_residual", "norm_before_fc")),
        ("qwen3", ("norm_before_residual",)),
        ("qwen3", ("fc_norm", "norm_output")),
    ],
)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_speculators_layout_drafts_as_defined(write, draw, inputs, kind, flags, num_layers):
    shapes = {f"layers.0.{name}": shape for name, shape in SHAPES.items()}
    for name, shape in SHAPES.items():
        if num_layers == 2 and name != "hidden_norm.weight":
            shapes[f"layers.1.{name}"] = (shape[0], HIDDEN) if name[10:16] in ("q_proj", "k_proj", "v_proj") else shape
    if kind == "qwen3":
        norms = [f"layers.{i}.self_attn.{k}_norm.weight" for i in range(num_layers) for k in "qk"]
        shapes |= dict.fromkeys(norms, (HEAD_DIM,))
    shapes |= {"fc.weight": (HIDDEN, 3 * HIDDEN), "norm.weight": (HIDDEN,), "lm_head.weight": (DRAFT_VOCAB, HIDDEN)}
    shapes |= {"embed_tokens.weight": (VOCAB, HIDDEN)}
    if "norm_before_fc" in flags:
        shapes["input_norm.weight"] = (3 * HIDDEN,)
    if "fc_norm" in flags:
        shapes |= {f"fc_norm.{i}.weight": (HIDDEN,) for i in range(3)}
    config = {
        "architectures": ["Eagle3DraftModel"],
        "draft_vocab_size": DRAFT_VOCAB,
        "eagle_aux_hidden_state_layer_ids": [2, 5, 7],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": LAYER | {"model_type": kind, "num_hidden_layers": num_layers},
    } | dict.fromkeys(flags, True)
    folder, weights = write(config, shapes, reduced_vocabulary())
    net, logits = drafts_of(folder, inputs)
    prefixes = [f"layers.{i}." for i in range(num_layers)]
    own = weights["embed_tokens.weight"]
    expected = reference(weights, prefixes, inputs[0], inputs[1], own, inputs[3], flags)
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=1e-5)
    assert net.config.layers_of(9) == (1, 4, 6)


def test_a_head_without_an_lm_head_drafts_with_the_targets(write, inputs):
    shapes = {f"layers.0.{name}": shape for name, shape in SHAPES.items()}
    shapes |= {"fc.weight": (HIDDEN, 3 * HIDDEN), "norm.weight": (HIDDEN,)}
    config = {"speculators_model_type": "eagle3", "transformer_layer_config": LAYER}
    folder, weights = write(config, shapes)
    net, logits = drafts_of(folder, inputs)
    torch.testing.assert_close(logits.double(), reference(weights, ["layers.0."], *inputs), rtol=0, atol=1e-5)
    assert logits.shape == (DEPTH, VOCAB)
    assert net.to_target(torch.tensor([30])).tolist() == [30]


def test_feature_layers_that_the_target_lacks_are_refused(write):
    shapes = {f"layers.0.{name}": shape for name, shape in SHAPES.items()}
    shapes |= {"fc.weight": (HIDDEN, 3 * HIDDEN), "norm.weight": (HIDDEN,)}
    ids = {"eagle_aux_hidden_state_layer_ids": [2, 5, 30]}
    folder, _ = write({"speculators_model_type": "eagle3", "transformer_layer_config": LAYER} | ids, shapes)
    with pytest.raises(ValueError, match="with 9 layers"):
        load_drafter(folder).config.layers_of(9)
