"""Scores, loss and every gradient of torchvision's networks, ours against PyTorch in float64, from the same weights.

    python scripts/compare_torchvision.py [ARCH ...] [--batch 8] [--size 224] [--device auto] [-o OUT.json]

The weights are random, written by torch.save and imported as a user does; dropout is off. Errors are relative:
|ours - theirs| / |theirs|, norms over a whole tensor. In float32 a ReLU at 0 falls on one side or the other, so that
PyTorch's own float32 is off too: `pytorch` has its worst gradient, and ours may be twice as far off where that is above
the tolerance. Needs torch and torchvision.
"""

import argparse
import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision

from convnet import session
from convnet.config import load_config
from convnet.device import describe, open_device
from convnet.formats.torchvision import ARCHITECTURES, default_config, import_torchvision, names
from convnet.run import find_checkpoint

TOLERANCE = 1e-4


def theirs(model: Any, pixels: np.ndarray, labels: np.ndarray, config: Any, dtype: Any) -> dict[str, np.ndarray]:
    """Scores, loss and gradients in `dtype`, batch norm as in training."""
    mean, std = (torch.tensor(values, dtype=dtype)[:, None, None] for values in (config.data.mean, config.data.std))
    model = copy.deepcopy(model).to(dtype).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    scores = model((torch.from_numpy(pixels.transpose(0, 3, 1, 2)).to(dtype) - mean) / std)
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels).long())
    loss.backward()
    gradients = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    return {"scores": scores.detach().numpy(), "loss": loss.detach().numpy(), **gradients}


def errors(found: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> dict[str, float]:
    """Relative errors by name."""
    assert found.keys() == reference.keys()
    return {name: float(np.linalg.norm(found[name] - r) / np.linalg.norm(r)) for name, r in reference.items()}


def ours(engine: Any, pixels: np.ndarray, labels: np.ndarray, arch: str) -> dict[str, np.ndarray]:
    """The same, under torchvision's names."""
    engine.feed(pixels=pixels, labels=labels, step=0, offset=0)
    (cost,), found = engine.network.costs, {}
    for step in engine.executor("loss", len(labels)).run_stepwise():
        if "y" in step.op.writes and step.layer in (cost.name, cost.inputs[0]):
            executor = engine.executor("loss", len(labels))
            found[step.layer] = engine.backend.download(executor.array(step.arguments["y"]))
    engine.executor("first", len(labels)).run()
    renamed = names(engine.network, arch)
    gradients = {renamed[name]: engine.backend.download(array) for name, array in engine.gradients.items()}
    scores, losses = found[cost.inputs[0]], found[cost.name][0]
    return {"scores": scores.reshape(len(scores), -1).T, "loss": losses.mean(), **gradients}


def compare(arch: str, args: argparse.Namespace) -> dict[str, Any]:
    """The errors of one network."""
    torch.manual_seed(args.seed)
    model = torchvision.models.get_model(arch)
    rng = np.random.default_rng(args.seed)
    pixels = rng.integers(0, 256, (args.batch, args.size, args.size, 3), np.uint8)
    labels = rng.integers(0, 1000, args.batch).astype(np.int32)
    dropouts = [spec.name for spec in load_config(default_config(arch)).layers if spec.layer.type == "dropout"]
    overrides = [
        f"train.batch_size={args.batch}",
        f"layers.data.size={args.size}",
        *(f"layers.{d}.keep=1" for d in dropouts),
    ]
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), Path(folder, "w.pth"))
        output = Path(folder, "run")
        made = import_torchvision(Path(folder, "w.pth"), arch, overrides=overrides, output=output)
        found = find_checkpoint(made.path, print)
        config = load_config(found.path / "config.yaml")
        engine = session.make_engine(config, session.make_network(config), open_device(args.device))
        engine.load(found.weights)
    reference = theirs(model, pixels, labels, config, torch.float64)
    mine = errors(ours(engine, pixels, labels, arch), reference)
    pytorch = errors(theirs(model, pixels, labels, config, torch.float32), reference)
    worst = max(mine.keys() - {"scores", "loss"}, key=lambda name: mine[name])
    return {
        "arch": arch,
        "device": describe(engine.backend),
        "batch": args.batch,
        "size": args.size,
        "scores": mine["scores"],
        "loss": mine["loss"],
        "gradients": len(mine) - 2,
        "worst_gradient": mine[worst],
        "worst": worst,
        "pytorch": max(pytorch.values()),
        "right": max(mine.values()) <= max(TOLERANCE, 2 * max(pytorch.values())),
    }


def main() -> int:
    """All networks that are asked for; 1 where an error is above the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arch", nargs="*", default=list(ARCHITECTURES), metavar="ARCH", help="default: all")
    for name, default in (("batch", 8), ("size", 224), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="auto")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    rows = [compare(arch, args) for arch in args.arch]
    for row in rows:
        print(json.dumps(row), flush=True)
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
