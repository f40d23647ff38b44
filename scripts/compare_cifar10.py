"""CIFAR-10 test accuracy of convnet and of the same network in PyTorch, from the same initial weights.

    python scripts/compare_cifar10.py DATA [--seeds 1 2 3] [-o OUT.json]

DATA holds train/<class>/*.jpg and test/<class>/*.jpg.  Each side trains once a seed with its own sample order and
augmentation draws (the recipe does not depend on them: shuffled, random 32x32 crops of images padded by 4, mirrored
half the time); PyTorch starts from the weights that convnet's seed gives.  Needs a GPU and torch.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from convnet import __version__
from convnet.config.build import load_config
from convnet.config.schema import Config
from convnet.graph.engine import Engine
from convnet.graph.net import Network
from convnet.run import newest
from convnet.train.schedule import MultiStep
from kernels.backend import NumPy


def read_folder(root: Path) -> tuple[np.ndarray, np.ndarray]:
    """All images uint8 [n, 32, 32, 3] and labels [n] of a class folder, classes in sorted order."""
    classes = sorted(p.name for p in root.iterdir() if p.is_dir())
    files = [(file, label) for label, name in enumerate(classes) for file in sorted((root / name).iterdir())]
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(lambda item: np.asarray(Image.open(item[0]).convert("RGB")), files))
    return np.stack(images), np.array([label for _, label in files])


def run_ours(args: argparse.Namespace, seed: int, folder: Path) -> dict[str, Any]:
    """Train and evaluate by the command line, as a user would."""
    run = folder / f"convnet-{seed}"
    begin = time.time()
    with open(f"{run}.log", "w") as log:
        options = [f"seed={seed}", f"run.dir={run}", *overrides(args)]
        subprocess.run([sys.executable, "-m", "convnet", "train", args.config, *options], check=True, stdout=log)
    seconds = time.time() - begin
    found = newest(run)  # not an older one of that name
    assert found
    command = [sys.executable, "-m", "convnet", "eval", str(found.path), "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"seed": seed, "seconds": round(seconds, 1), "accuracy": result["top1_accuracy"]}


def overrides(args: argparse.Namespace) -> list[str]:
    """What this comparison changes in the config."""
    paths = [f"data.train.path={args.data / 'train'}", f"data.val.path={args.data / 'test'}"]
    return [*paths, *args.set]


def initial_weights(config: Config, seed: int) -> dict[str, np.ndarray]:
    """The parameters that a run of ours starts from with this seed."""
    engine = Engine(Network(config.layers), NumPy(), batch_size=1, seed=seed)
    engine.initialize()
    return engine.tensors()


def torch_network() -> nn.Module:
    """configs/cifar10/quick.yaml, layer by layer, under the same names."""

    def block(i: int, c: int, f: int) -> list[tuple[str, Any]]:
        conv = nn.Conv2d(c, f, 3, padding=1, bias=False)
        return [(f"conv{i}", conv), (f"bn{i}", nn.BatchNorm2d(f)), (f"relu{i}", nn.ReLU())]

    layers = [
        *block(1, 3, 64),
        ("pool1", nn.MaxPool2d(2)),
        *block(2, 64, 128),
        ("pool2", nn.MaxPool2d(2)),
        *block(3, 128, 256),
        ("pool3", nn.AvgPool2d(8)),
        ("flat", nn.Flatten()),
        ("drop", nn.Dropout(0.2)),
        ("fc", nn.Linear(256, 10)),
    ]
    return nn.Sequential(OrderedDict(layers))


class Images:
    """A set of images on the GPU, normalised, to be cropped there."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, config: Config, pad: int = 0):
        # Padding comes before normalisation, as in convnet: the border is black, not the mean.
        padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        mean, std = (torch.tensor(numbers, device="cuda") for numbers in (config.data.mean, config.data.std))
        self.pixels = (torch.from_numpy(padded).cuda().float() - mean) / std
        self.labels = torch.from_numpy(labels).cuda()
        self.pad = pad

    def crops(self, part: torch.Tensor) -> torch.Tensor:
        """Random 32x32 crops of the images `part`, mirrored half the time: [n, 3, 32, 32]."""
        rows = torch.randint(0, 2 * self.pad + 1, (len(part), 1), device="cuda") + torch.arange(32, device="cuda")
        columns = torch.randint(0, 2 * self.pad + 1, (len(part), 1), device="cuda") + torch.arange(32, device="cuda")
        mirror = torch.rand(len(part), 1, device="cuda") < 0.5
        columns = torch.where(mirror, columns.flip(1), columns)
        crops = self.pixels[part[:, None, None], rows[:, :, None], columns[:, None, :]]
        return crops.permute(0, 3, 1, 2).contiguous()


def run_torch(config: Config, train: Images, test: Images, seed: int) -> dict[str, Any]:
    """The same recipe with torch.optim.SGD in fp32 (no tf32)."""
    torch.manual_seed(seed)
    net = torch_network().cuda()
    weights = {name: torch.from_numpy(array) for name, array in initial_weights(config, seed).items()}
    found = net.load_state_dict(weights, strict=False)
    assert not found.unexpected_keys, found
    assert all(name.endswith("num_batches_tracked") for name in found.missing_keys), found
    begin = time.time()
    optimizer, schedule = solver(net, config)
    for _ in range(config.train.epochs):
        net.train()
        for part in torch.randperm(len(train.labels), device="cuda").split(config.train.batch_size):
            if len(part) == config.train.batch_size or config.train.last_batch == "keep":
                loss = nn.functional.cross_entropy(net(train.crops(part)), train.labels[part])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        schedule.step()
    torch.cuda.synchronize()
    return {"seed": seed, "seconds": round(time.time() - begin, 1), "accuracy": accuracy(net, test)}


def solver(net: nn.Module, config: Config) -> tuple[Any, Any]:
    """Momentum SGD and its multistep schedule; only the weights of convolutions and fully connected layers decay."""
    groups = [
        {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": config.solver.weight_decay},
        {"params": [p for p in net.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=config.solver.lr, momentum=config.solver.momentum)
    assert isinstance(config.solver.schedule, MultiStep)
    milestones = [int(epoch) for epoch in config.solver.schedule.milestones]
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, config.solver.schedule.factor)


@torch.no_grad()
def accuracy(net: nn.Module, test: Images) -> float:
    net.eval()
    parts = torch.arange(len(test.labels), device="cuda").split(1000)
    right = sum((net(test.pixels[p].permute(0, 3, 1, 2)).argmax(1) == test.labels[p]).sum().item() for p in parts)
    return right / len(test.labels)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    accuracies = [run["accuracy"] for run in runs]
    stdev = statistics.stdev(accuracies) if len(runs) > 1 else None
    return {"mean": statistics.mean(accuracies), "stdev": stdev, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--config", default="configs/cifar10/quick.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides of the config")
    parser.add_argument("--runs", type=Path, default=Path("runs/compare-cifar10"), help="folder of convnet's runs")
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmarks/cifar10-quick-vs-pytorch.json"))
    args = parser.parse_args()
    for folder in (args.runs, args.output.parent):
        folder.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with ThreadPoolExecutor(len(args.seeds)) as pool:  # our runs, each a process, beside each other
        ours = list(pool.map(lambda seed: run_ours(args, seed, args.runs), args.seeds))
    print("convnet", json.dumps(ours), flush=True)
    config = load_config(args.config, overrides(args))
    train = Images(*read_folder(args.data / "train"), config, pad=4)
    test = Images(*read_folder(args.data / "test"), config)
    theirs = [run_torch(config, train, test, seed) for seed in args.seeds]
    print("pytorch", json.dumps(theirs), flush=True)
    result = {
        "what": "CIFAR-10 (JPEG, quality 75) test accuracy, same network, recipe and initial weights",
        "date": date.today().isoformat(),
        "command": " ".join(["python", *sys.argv]),
        "device": torch.cuda.get_device_name(),
        "versions": {"convnet": __version__, "torch": torch.__version__, "cudnn": torch.backends.cudnn.version()},
        "convnet": summary(ours),
        "pytorch": summary(theirs),
        "note": "seconds: convnet's runs beside each other, from JPEG files; PyTorch's alone, images on the GPU",
    }
    result["difference"] = result["convnet"]["mean"] - result["pytorch"]["mean"]
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("difference", "convnet", "pytorch")}, indent=1))


if __name__ == "__main__":
    main()
