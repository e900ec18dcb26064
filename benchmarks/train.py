"""Training beside llama2.c's train.py on the same text, tokens, dimensions and batch: tokens a second, or the loss.

    python benchmarks/train.py speed TEXT --tokenizer tok512.bin --llama2c DIR --preset 260K --batch 8 --rounds 3
    python benchmarks/train.py loss TEXT --tokenizer tok512.bin --llama2c DIR --preset 260K --steps 300 -o curves.json
    python benchmarks/train.py speed TEXT --tokenizer tok512.bin --preset 15M

DIR is a checkout of github.com/karpathy/llama2.c, whose train.py runs as it is, in a process of its own, on shards that
gristmill wrote; the two take turns. Without --llama2c ours alone is measured. `loss` gives both the same first weights,
batches, learning rates and optimizer settings, so that their curves may differ by rounding alone. llama2.c needs
requests, sentencepiece and tqdm. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from side_by_side import Part, as_json, compare, run, table

from gristmill.tokenizer.files import load_path
from gristmill.train.data import Shards, Windows, prepare
from gristmill.train.presets import PRESETS, Shape, hf_config
from gristmill.train.settings import Settings
from gristmill.train.sources import SEPARATOR, find_files

WARM_STEPS = 3
"""The first steps of a process allocate and start threads; they are not counted."""


def ours(args: argparse.Namespace, shape: Shape, folder: Path) -> float:
    """Tokens a second, the median over steps of `gristmill train`."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "gristmill", "train", *args.texts, "--tokenizer", args.tokenizer, "-o", str(out)]
    command += ["--shards", str(folder / "shards"), "--preset", args.preset, "--ctx", str(shape.context)]
    command += ["--vocab-size", str(shape.vocab_size), "--steps", str(args.steps), "--batch", str(args.batch)]
    command += ["--log-every", "1", "--eval-batches", "1", "--sample-tokens", "0", "--threads", str(args.threads)]
    run([*command, *(["--compile"] if args.compile else [])])
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return statistics.median(row["tokens_per_s"] for row in rows[WARM_STEPS:] if "tokens_per_s" in row)


def theirs(args: argparse.Namespace, shape: Shape, folder: Path) -> float:
    """Tokens a second of llama2.c's train.py, the median of what it prints for each step."""
    options = {
        "device": "cpu", "dtype": "float32", "compile": args.compile, "vocab_source": "custom",
        "vocab_size": shape.vocab_size, "dim": shape.d_model, "n_layers": shape.n_layers, "n_heads": shape.n_heads,
        "n_kv_heads": shape.n_kv_heads, "multiple_of": 4 if args.preset == "260K" else 32,
        "max_seq_len": shape.context, "batch_size": args.batch, "gradient_accumulation_steps": 1,
        "max_iters": args.steps, "eval_interval": 1000000, "eval_iters": 1, "warmup_iters": 100,
        "out_dir": str(folder / "theirs"),
    }  # fmt: skip
    code = (
        f"import os, sys, torch; torch.set_num_threads({args.threads}); sys.argv[0] = 'train.py';"
        " sys.path.insert(0, '.'); exec(open('train.py').read())"
    )
    flags = [f"--{name}={value}" for name, value in options.items()]
    here = os.getcwd()
    os.chdir(folder / "llama2c")
    try:
        printed = run([sys.executable, "-W", "ignore", "-c", code, *flags]).stdout
    finally:
        os.chdir(here)
    times = [float(ms) for ms in re.findall(r"\| ([\d.]+)ms \|", printed)]
    return args.batch * shape.context * 1000 / statistics.median(times[WARM_STEPS:])


def lay_out(checkout: Path, shards: Shards, vocab_size: int, folder: Path) -> None:
    """A copy of llama2.c's Python files with the shards where its data loader looks; the first one is its test set."""
    target = folder / "llama2c"
    data = target / "data" / f"tok{vocab_size}"
    data.mkdir(parents=True)
    for path in checkout.glob("*.py"):
        shutil.copy(path, target)
    (target / "tokenizer.model").write_bytes(b"")
    every = [np.fromfile(shards.folder / name, np.uint16) for name in shards.files]
    for i, (ids, n) in enumerate(zip(every, shards.n_train, strict=True)):
        ids[:n].tofile(data / f"data{i + 1:02}.bin")
    # Its loader drops a shard's last window and has none left of a short one.
    every[0][: max(shards.n_val[0], 4096)].tofile(data / "data00.bin")


def curves(args: argparse.Namespace, shape: Shape, shards: Shards) -> dict[str, list[float]]:
    """The loss of every step of both, from the same weights, on the same batches."""
    import torch

    sys.path.insert(0, args.llama2c)
    from model import ModelArgs, Transformer

    from gristmill.train.loop import adamw
    from gristmill.train.model import Model, NewCheckpoint

    torch.set_num_threads(args.threads)
    settings = Settings(steps=args.steps, batch=args.batch, ctx=shape.context, lr=args.lr, warmup=args.steps // 10)
    model = Model(NewCheckpoint(hf_config(shape, 1, (2,)), settings.seed), torch.device("cpu"))
    dims = ModelArgs(
        dim=shape.d_model, n_layers=shape.n_layers, n_heads=shape.n_heads, n_kv_heads=shape.n_kv_heads,
        vocab_size=shape.vocab_size, hidden_dim=shape.d_ff, max_seq_len=shape.context,
    )  # fmt: skip
    other = Transformer(dims)
    other.load_state_dict(their_names(model.tensors(), shape))
    optimizers = [
        adamw(model, settings),
        other.configure_optimizers(settings.weight_decay, settings.lr, (settings.beta1, settings.beta2), "cpu"),
    ]
    windows = Windows(shards, shape.context, settings.seed)
    found: dict[str, list[float]] = {"gristmill": [], "llama2.c": []}
    for step in range(args.steps):
        both = torch.from_numpy(windows.take(step * args.batch, (step + 1) * args.batch))
        tokens, targets = both[:, :-1].contiguous(), both[:, 1:].contiguous()
        for name, trained, optimizer in zip(found, (model, other), optimizers, strict=True):
            loss = trained(tokens, targets)
            loss = loss if name == "gristmill" else trained.last_loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained.parameters(), settings.clip)
            for group in optimizer.param_groups:
                group["lr"] = settings.lr_at(step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            found[name].append(loss.item())
    return found


def their_names(tensors: dict[str, object], shape: Shape) -> dict[str, object]:
    """Our weights under llama2.c's names, the rows of q and k in the order that rotates neighbours."""
    names = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
             "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
             "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm", "model.": "", "embed_tokens": "tok_embeddings"}  # fmt: skip
    head_dim = shape.d_model // shape.n_heads
    within = np.arange(head_dim).reshape(2, -1).T.reshape(-1)
    found = {}
    for name, tensor in tensors.items():
        if "q_proj" in name or "k_proj" in name:
            tensor = tensor.view(-1, head_dim, shape.d_model)[:, within].reshape(tensor.shape)
        for ours_, theirs_ in names.items():
            name = name.replace(ours_, theirs_)
        found[name] = tensor
    return {**found, "output.weight": found["tok_embeddings.weight"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["speed", "loss"])
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--llama2c", help="a checkout of llama2.c")
    parser.add_argument("--preset", choices=list(PRESETS), default="260K")
    parser.add_argument("--ctx", type=int, help="tokens of a sequence [the preset's]")
    parser.add_argument("--vocab-size", type=int, help="rows of the embedding [the tokenizer's]")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--compile", action="store_true", help="both by torch.compile")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--out", help="loss: write both curves there as JSON")
    args = parser.parse_args()
    preset = PRESETS[args.preset]
    n_tokens = args.vocab_size or load_path(Path(args.tokenizer)).vocab_size
    shape = replace(preset, context=args.ctx or preset.context, vocab_size=n_tokens)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shards = prepare(
            folder / "shards", find_files(args.texts), Path(args.tokenizer), separator=SEPARATOR, val_fraction=0.02
        )
        if args.mode == "loss":
            show_curves(args, shape, curves(args, shape, shards))
            return
        measure = f"{args.preset}, batch {args.batch} x {shape.context}, tok/s"
        if not args.llama2c:
            found = statistics.median(ours(args, shape, folder) for _ in range(args.rounds))
            print(json.dumps({measure: found}) if args.json else f"{measure}: {found:.0f}")
            return
        lay_out(Path(args.llama2c), shards, shape.vocab_size, folder)
        part = Part(
            measure, lambda: {measure: theirs(args, shape, folder)}, lambda: {measure: ours(args, shape, folder)}
        )
        rows = compare([part], args.rounds)
        settings = {"shape": asdict(shape), "threads": args.threads, "steps": args.steps}
        print(as_json(rows, "llama2.c", settings) if args.json else table(rows, "llama2.c"))


def show_curves(args: argparse.Namespace, shape: Shape, found: dict[str, list[float]]) -> None:
    if args.out:
        Path(args.out).write_text(json.dumps({"shape": asdict(shape), "batch": args.batch, "loss": found}))
    a, b = (np.array(losses) for losses in found.values())
    print(f"{'step':>6}{'llama2.c':>12}{'gristmill':>12}{'difference':>14}")
    for step in sorted({*range(0, args.steps, max(1, args.steps // 10)), args.steps - 1}):
        print(f"{step + 1:6}{b[step]:12.4f}{a[step]:12.4f}{a[step] - b[step]:14.1e}")
    print(f"greatest difference {np.abs(a - b).max():.1e}")


if __name__ == "__main__":
    main()
