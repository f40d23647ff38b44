"""Speed of the convolution kernels: `python -m kernels.bench [--batch 32 128] [--against-torch] [-o OUT.json]`.

One line a shape, pass and batch: the fastest variant, its time (median by device events, over buffers that together
exceed the L2 cache), TFLOP/s, and with --against-torch the ratio to PyTorch with cuDNN in IEEE fp32, in the same run.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from kernels import conv
from kernels.backend import Cuda, cupy
from kernels.conv import Conv
from kernels.layout import view
from kernels.op import Op, Plan, Variant

# name: channels, side of the map, filters, side of the filter, stride, pad
SHAPES = {
    "alexnet.conv1": (3, 224, 64, 11, 4, 2),
    "alexnet.conv2": (64, 27, 192, 5, 1, 2),
    "alexnet.conv3": (192, 13, 384, 3, 1, 1),
    "alexnet.conv4": (384, 13, 256, 3, 1, 1),
    "alexnet.conv5": (256, 13, 256, 3, 1, 1),
    "vgg.128x112": (128, 112, 128, 3, 1, 1),
    "vgg.256x56": (256, 56, 256, 3, 1, 1),
    "vgg.512x28": (512, 28, 512, 3, 1, 1),
    "vgg.512x14": (512, 14, 512, 3, 1, 1),
}
PASSES = {"forward": conv.FORWARD, "dgrad": conv.DGRAD, "wgrad": conv.WGRAD}
CACHE = 128 << 20  # bytes, more than any L2
ROUNDS = 15


def geometry(name: str, batch: int) -> Conv:
    """A square convolution of the table."""
    c, side, f, size, stride, pad = SHAPES[name]
    out = 1 + (side + 2 * pad - size) // stride
    return Conv(c, side, side, batch, f, size, size, stride, stride, pad, pad, out, out, 1)


def gflop(g: Conv) -> float:
    """Two for each multiply-add of one pass."""
    return 2e-9 * g.filters * g.channels * g.rows * g.cols * g.out_h * g.out_w * g.batch


def median_us(backend: Cuda, starts: list[Callable[[], Any]]) -> float:
    """Median time of one start, each round a new one of `starts`."""
    cp = cupy()
    for start in starts[:2]:
        start()
    marks = [cp.cuda.Event() for _ in range(ROUNDS + 1)]
    marks[0].record(backend.stream)
    for i in range(ROUNDS):
        starts[i % len(starts)]()
        marks[i + 1].record(backend.stream)
    backend.synchronize()
    return statistics.median(1e3 * cp.cuda.get_elapsed_time(*marks[i : i + 2]) for i in range(ROUNDS))


def operands(backend: Cuda, op: Op, g: Conv) -> dict[str, Any]:
    """Random maps in H, C, W, N, weights, no bias."""
    image, result = (g.channels, g.height, g.width, g.batch), (g.filters, g.out_h, g.out_w, g.batch)
    weights = (g.filters, g.channels, g.rows, g.cols)
    shapes = {"x": image, "dx": image, "y": result, "dy": result, "w": weights, "dw": weights}
    with backend.stream:
        arrays = {
            name: view(cupy().random.standard_normal(int(np.prod(shapes[name])), np.float32), shapes[name],
                       "hcwn" if kind == "map" else "")
            for name, kind in op.arguments.items() if name in shapes
        }  # fmt: skip
    return {**arrays, "b": None, "beta": 0.0}


def time_variant(backend: Cuda, op: Op, g: Conv, sets: list[dict[str, Any]], chosen: tuple[Variant, Plan]) -> float:
    """Median microseconds of one variant over the sets of operands."""
    workspace = backend.zeros(chosen[1].workspace)
    return median_us(backend, [backend.bind(op, g, arguments, workspace, chosen) for arguments in sets])


def torch_us(backend: Cuda, name: str, g: Conv, count: int) -> float:
    """The same pass by cuDNN, NCHW, over `count` sets of tensors, with cuDNN's own search for the fastest algorithm."""
    import torch

    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = False, True
    stride, pad = (g.stride_h, g.stride_w), (g.pad_top, g.pad_left)
    mask = [name == "dgrad", name == "wgrad", False]

    def prepare() -> Callable[[], Any]:
        x = torch.randn(g.batch, g.channels, g.height, g.width, device="cuda")
        w = torch.randn(g.filters, g.channels, g.rows, g.cols, device="cuda")
        dy = torch.randn(g.batch, g.filters, g.out_h, g.out_w, device="cuda")
        if name == "forward":
            return lambda: torch.nn.functional.conv2d(x, w, None, stride, pad)
        backward = torch.ops.aten.convolution_backward
        return lambda: backward(dy, x, w, None, stride, pad, (1, 1), False, (0, 0), 1, mask)

    with torch.cuda.stream(torch.cuda.ExternalStream(backend.stream.ptr)):
        return median_us(backend, [prepare() for _ in range(count)])


def rows(backend: Cuda, batches: list[int], against_torch: bool) -> Iterator[dict[str, Any]]:
    """A measurement for each shape, batch and pass; conv1 has no input gradient."""
    for shape, batch, (name, op) in product(SHAPES, batches, PASSES.items()):
        g = geometry(shape, batch)
        if name == "dgrad" and shape == "alexnet.conv1":
            continue
        first = operands(backend, op, g)
        size = sum(array.nbytes for array in first.values() if hasattr(array, "nbytes"))
        sets = [first, *(operands(backend, op, g) for _ in range(min(CACHE // size, 4)))]
        times = {
            (variant.name, i): time_variant(backend, op, g, sets, (variant, plan))
            for i, (variant, plan) in enumerate(op.candidates(g, backend.arch))
            if variant.name != "direct"
        }
        (variant, rank), best = min(times.items(), key=lambda item: item[1])
        row = {"shape": shape, "batch": batch, "pass": name, "variant": f"{variant} {rank}", "us": round(best, 1)}
        row |= {"tflops": round(gflop(g) / best * 1e3, 2), "chosen_us": round(next(iter(times.values())), 1)}
        if against_torch:
            theirs = torch_us(backend, name, g, len(sets))
            row |= {"torch_us": round(theirs, 1), "speedup": round(theirs / best, 2)}
        yield row


def main() -> None:
    """Print a line a measurement; write them all with what they were made with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--against-torch", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    backend, found = Cuda(), []
    for row in rows(backend, args.batch, args.against_torch):
        found.append(row)
        print("  ".join(f"{value:>9}" if key != "shape" else f"{value:<14}" for key, value in row.items()), flush=True)
    if args.output:
        device = cupy().cuda.runtime.getDeviceProperties(backend.device.id)["name"].decode()
        versions = {"cupy": cupy().__version__, "nvrtc": cupy().cuda.nvrtc.getVersion()}
        command = " ".join(["python -m kernels.bench", *sys.argv[1:]])
        record = {"date": date.today().isoformat(), "device": device, "versions": versions, "command": command}
        args.output.write_text(json.dumps({**record, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
