"""What to train: the drafters, and how long."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from specsim.errors import InputError
from specsim.live.drafters.block_layout import spread_layers
from specsim.live.drafters.block_net import BlockConfig, BlockNet
from specsim.live.drafters.checkpoints import DrafterNet
from specsim.live.drafters.decoder_layer import LayerShape
from specsim.live.drafters.eagle_net import EagleConfig, EagleNet
from specsim.live.drafters.layer_layout import layer_shape

KINDS = ("block", "eagle")


@dataclass(frozen=True)
class Recipe:
    """One drafter and its training.

    name           of its folder
    kind           one of KINDS
    layers         decoder layers
    ffn            inner width of the feed-forward part
    features       target layers read, 0-based (empty: `num_features` spread evenly)
    num_features   how many, when `features` are not given
    block_size     tokens of a block (a block drafter), anchor included
    mask_token     token whose frozen embedding stands at a block's open places
    unroll         drafts an EAGLE head is unrolled to in training
    domains        whose rows it is trained on (empty: all)
    init           folder of a drafter to start from (empty: random weights); its sizes are taken over
    batch          rows of a step (0: 64 for blocks, 128 for heads)
    anchors        anchors a row
    learning_rate  at its peak (0: 5e-3, or 1.5e-3 when fine-tuning)
    seed           of weights and batches
    share          part of a plan's time, relative to the other drafters'
    """

    name: str
    kind: str = "eagle"
    layers: int = 1
    ffn: int = 1536
    features: tuple[int, ...] = ()
    num_features: int = 5
    block_size: int = 16
    mask_token: int = 0
    unroll: int = 8
    domains: tuple[str, ...] = ()
    init: str = ""
    batch: int = 0
    anchors: int = 64
    learning_rate: float = 0.0
    seed: int = 0
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.name in ("", ".", "..") or Path(self.name).name != self.name:
            raise InputError(f"drafter {self.name!r}: must be the name of a folder, without its path")
        if self.kind not in KINDS:
            raise InputError(f"drafter {self.name!r}: kind {self.kind!r}; must be one of {', '.join(KINDS)}")
        for key in ("layers", "ffn", "num_features", "unroll", "anchors"):
            if getattr(self, key) < 1:
                raise InputError(f"drafter {self.name!r}: {key} {getattr(self, key)}; must be at least 1")
        if self.block_size < 2:
            raise InputError(f"drafter {self.name!r}: block_size {self.block_size}; must be at least 2")
        if self.batch < 0 or self.seed < 0 or not 0 <= self.learning_rate < float("inf"):
            raise InputError(f"drafter {self.name!r}: batch, learning_rate and seed must be at least 0")
        if not all(isinstance(layer, int) and layer >= 0 for layer in self.features):
            raise InputError(f"drafter {self.name!r}: features {list(self.features)}; must be numbers of layers")
        if not all(isinstance(domain, str) for domain in self.domains):
            raise InputError(f"drafter {self.name!r}: domains {list(self.domains)}; must be names")
        if self.share <= 0:
            raise InputError(f"drafter {self.name!r}: share {self.share}; must be above 0")

    @property
    def depth(self) -> int:
        """Drafts after an anchor that are learnt."""
        return self.block_size - 1 if self.kind == "block" else self.unroll

    @property
    def rows(self) -> int:
        """Rows of a step."""
        return self.batch or (64 if self.kind == "block" else 128)

    @property
    def peak(self) -> float:
        """Learning rate at its peak."""
        return self.learning_rate or (1.5e-3 if self.init else 5e-3)

    def feature_layers(self, num_target_layers: int) -> tuple[int, ...]:
        """Target layers read."""
        return self.features or spread_layers(num_target_layers, self.num_features)


def read_plan(path: Path) -> tuple[Recipe, ...]:
    """Read a plan: a JSON list of objects with keys of `Recipe`.

    Raises      InputError naming drafter and key
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a plan in JSON ({error})") from None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, Mapping) for entry in entries):
        raise InputError(f"{path}: must be a list of objects, one a drafter")
    recipes = tuple(_recipe(entry, path) for entry in entries)
    if len({recipe.name for recipe in recipes}) < len(recipes):
        raise InputError(f"{path}: two drafters have one name")
    return recipes


def _recipe(entry: Mapping[str, Any], path: Path) -> Recipe:
    known = {field.name: field for field in fields(Recipe)}
    for key, value in entry.items():
        if key not in known:
            raise InputError(f"{path}: unknown key {key!r}; allowed are {', '.join(known)}")
        wanted = {"int": int, "float": (int, float), "str": str}.get(str(known[key].type), list)
        if not isinstance(value, wanted) or isinstance(value, bool):  # type: ignore[arg-type]
            raise InputError(f"{path}: {key} is {value!r}; must be of type {known[key].type}")
    if "name" not in entry:
        raise InputError(f"{path}: a drafter has no name")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Recipe(**values)


def build_net(recipe: Recipe, target_config: Any) -> DrafterNet:
    """A drafter with random weights; torch's seed decides them.

    recipe         sizes
    target_config  the target's text configuration
    """
    depth, vocab = int(target_config.num_hidden_layers), int(target_config.vocab_size)
    layers, shape = recipe.feature_layers(depth), target_shape(recipe, target_config)
    net: DrafterNet
    if recipe.kind == "block":
        if not 0 <= recipe.mask_token < vocab:
            raise InputError(f"drafter {recipe.name!r}: mask_token {recipe.mask_token}; the target has {vocab} tokens")
        net = BlockNet(BlockConfig(shape, recipe.layers, layers, recipe.block_size, recipe.mask_token, depth, vocab))
    else:
        net = EagleNet(EagleConfig(shape, layers, vocab, shape.hidden_size, recipe.layers, len(layers)))
    for name, weight in net.named_parameters():
        if weight.ndim > 1:
            # Branches start small: the residual stream begins as what the drafter was given.
            deep = name.endswith(("o_proj.weight", "down_proj.weight"))
            weight.data.normal_(std=weight.shape[1] ** -0.5 * (0.5 if deep else 1.0))
    return net


def target_shape(recipe: Recipe, target_config: Any) -> LayerShape:
    """Layers with the target's heads and positions, a feed-forward part of its own, and normalised queries and keys."""
    keys = target_config.to_dict() | {"intermediate_size": recipe.ffn, "attention_bias": False, "mlp_bias": False}
    keys["layer_types"] = None
    return layer_shape(keys, "the target", qk_norm=True)
