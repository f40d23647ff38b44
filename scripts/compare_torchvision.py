"""Scores, loss and every gradient of torchvision's networks, ours against PyTorch in float64, from the same weights.

    python scripts/compare_torchvision.py [ARCH ...] [--batch 8] [--size 224] [--seeds 1 2 3] [--device D] [-o OUT.json]
        [--smooth]

The weights are random, written by torch.save and imported as a user does; dropout is off. Errors are relative:
|ours - theirs| / |theirs|, norms over a whole tensor. In float32 a ReLU at 0 falls on one side or the other, so that
PyTorch's own float32 is off too, by chance in one or the other: of each side the worst over the seeds counts, and ours
may be twice PyTorch's where that is above the tolerance. With --smooth, tanh takes the place of every ReLU and
average of maximum pooling, and the last batch norm of a residual branch counts a tenth, on both sides: then nothing is
left to chance, little is magnified, and the tolerance holds by itself. Needs torch and torchvision.
"""

import argparse
import copy
import json
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from torchvision.models.resnet import BasicBlock, Bottleneck

from convnet import session
from convnet.config import load_config
from convnet.device import describe, open_device
from convnet.formats.torchvision import ARCHITECTURES, default_config, import_torchvision, names
from convnet.run import find_checkpoint

TOLERANCE = 1e-4
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # PyTorch's


def theirs(model: Any, pixels: np.ndarray, labels: np.ndarray, config: Any, dtype: Any) -> dict[str, np.ndarray]:
    """Scores, loss and gradients in `dtype`, batch norm as in training."""
    where = {"dtype": dtype, "device": DEVICE}
    mean, std = (torch.tensor(values, **where)[:, None, None] for values in (config.data.mean, config.data.std))
    model = copy.deepcopy(model).to(**where).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    scores = model((torch.from_numpy(pixels.transpose(0, 3, 1, 2)).to(**where) - mean) / std)
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels).long().to(DEVICE))
    loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: tensor.detach().cpu().numpy() for name, tensor in {"scores": scores, "loss": loss, **found}.items()}


def smooth(model: Any) -> None:
    """Without kinks: tanh for ReLU, average for maximum pooling. Nor chaotic: residual branches that add little."""
    for block in model.modules():
        if isinstance(block, BasicBlock | Bottleneck):
            last = block.bn3 if isinstance(block, Bottleneck) else block.bn2
            torch.nn.init.constant_(last.weight, 0.1)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.ReLU):
                setattr(module, name, torch.nn.Tanh())
            elif isinstance(child, torch.nn.MaxPool2d):
                window = child.kernel_size, child.stride, child.padding
                setattr(module, name, torch.nn.AvgPool2d(*window, ceil_mode=child.ceil_mode))


def smooth_config(arch: str, folder: Path) -> Path:
    """The same of our config, and of those that it includes, in `folder`."""
    original = default_config(arch)
    for file in original.parent.glob("*.yaml"):
        text = file.read_text().replace("neuron: relu", "neuron: tanh")
        Path(folder, file.name).write_text(text.replace("type: pool,", "type: pool, mode: avg, count_pad: true,"))
    return folder / original.name


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


def compare(arch: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """The errors of one network with one seed's weights and images."""
    torch.manual_seed(seed)
    model = torchvision.models.get_model(arch)
    if args.smooth:
        smooth(model)
    rng = np.random.default_rng(seed)
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
        file = smooth_config(arch, Path(folder)) if args.smooth else None
        made = import_torchvision(Path(folder, "w.pth"), arch, config_file=file, overrides=overrides, output=output)
        found = find_checkpoint(made.path, print)
        config = load_config(found.path / "config.yaml")
        engine = session.make_engine(config, session.make_network(config), open_device(args.device))
        engine.load(found.weights)
    reference = theirs(model, pixels, labels, config, torch.float64)
    mine = errors(ours(engine, pixels, labels, arch), reference)
    pytorch = errors(theirs(model, pixels, labels, config, torch.float32), reference)
    worst = max(mine.keys() - {"scores", "loss"}, key=lambda name: mine[name])
    return {
        "seed": seed,
        "device": describe(engine.backend),
        "scores": mine["scores"],
        "loss": mine["loss"],
        "gradients": len(mine) - 2,
        "worst_gradient": mine[worst],
        "worst": worst,
        "pytorch": max(pytorch.values()),
        "pytorch_worst": max(pytorch, key=lambda name: pytorch[name]),
    }


def over_seeds(arch: str, args: argparse.Namespace) -> dict[str, Any]:
    """The errors of one network with each seed, the worst of them, and whether ours are small enough."""
    runs = [compare(arch, seed, args) for seed in args.seeds]
    worst = {key: max(run[key] for run in runs) for key in ("scores", "loss", "worst_gradient", "pytorch")}
    ours, theirs = max(worst["scores"], worst["loss"], worst["worst_gradient"]), worst["pytorch"]
    right = ours <= (TOLERANCE if args.smooth else max(TOLERANCE, 2 * theirs))
    return {"arch": arch, **worst, "right": right, "seeds": runs}


def main() -> int:
    """All networks that are asked for; 1 where an error is above the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arch", nargs="*", default=list(ARCHITECTURES), metavar="ARCH", help="default: all")
    for name, default in (("batch", 8), ("size", 224)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--smooth", action="store_true", help="without ReLU and maximum pooling")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows = []
    for arch in args.arch:
        rows.append(over_seeds(arch, args))
        print(json.dumps(rows[-1]), flush=True)
    if args.output:
        versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
        what = "relative errors of scores, loss and gradients in fp32 against PyTorch in float64, random weights"
        command = " ".join(["python", *sys.argv])
        header: dict[str, Any] = {"what": what, "date": date.today().isoformat(), "command": command}
        header |= {"versions": versions, "batch": args.batch, "size": args.size}
        header |= {"smooth": args.smooth, "tolerance": TOLERANCE}
        args.output.write_text(json.dumps({**header, "rows": rows}, indent=1) + "\n")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
