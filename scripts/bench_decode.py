"""Images/s of decoding on the CPU: convnet, torchvision's DataLoader, and plain loops with Pillow, on the same cores.

    python scripts/bench_decode.py PHOTOS [--workers 16 8 2 1] [--seconds 4] [--against-torchvision] [-o OUT.json]
    python scripts/bench_decode.py PHOTOS --workers 16 1 --seconds 2 --against-torchvision     # two or three minutes
    python scripts/bench_decode.py PHOTOS --gil        # microseconds an image for which Python's lock is held

PHOTOS is a folder of JPEGs such as ImageNet has.  Two workloads, both to 224 x 224 with mirroring: "originals", random
resized crops of the files as they are; and "prepared", random crops of copies with a shorter side of 256, quality 95.
Every case runs in a process of its own, bound to as many CPUs as it has workers.  Files come from the page cache.
"gpu": as where there is a GPU, which does the resizing of random resized crops; here nobody does it.
convnet with Pillow is measured with one worker and the most; torchvision with the most alone, as it gives bytes
("torchvision") and as recipes have it, in normalised floats; Pillow in loops, one process a CPU, that collect nothing.
A figure is the median over windows of half a second.  Results are printed as they come, and written when all are there,
when the time is up (--limit), or when a signal ends it.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from convnet.data import FileSource, Pipeline, Transform
from convnet.data.fill import choose_form
from convnet.data.transform import resized, resized_crop

SIZE, SHORT, BATCH = 224, 256, 64
WINDOW, WARM_UP = 0.5, 1.0  # seconds
SAMPLES = 250  # for each worker, at least: what is first decoded as a whole, and the length of an epoch
LONGEST = 60  # seconds that a case may take beside those that are measured
CROPS = {"originals": "resized", "prepared": "random"}
OURS = tuple(
    f"{decoder} {workers}{where}"
    for decoder in ("simplejpeg", "pillow")
    for where in ("", " gpu")
    for workers in ("threads", "processes")
)
THEIRS = ("torchvision", "torchvision floats")


def windows(counts: Iterable[int], seconds: float) -> list[float]:
    """Rates of a stream of counts in successive windows, from the first on."""
    rates: list[float] = []
    stream = iter(counts)
    next(stream)
    images, begin = 0, time.perf_counter()
    last = begin
    for count in stream:
        images += count
        now = time.perf_counter()
        if now - last >= WINDOW:
            if last - begin >= WARM_UP:
                rates.append(images / (now - last))
            images, last = 0, now
        if now - begin > WARM_UP + WINDOW + seconds:
            break
    return rates


def convnet(files: list[str], workload: str, kind: str, workers: int) -> Iterator[int]:
    """Sizes of batches of the pipeline."""
    decoder, how, *where = kind.split()
    transform = Transform(3, SIZE, SIZE, crop=CROPS[workload], mirror=True, decoder=decoder)
    source = FileSource(files * -(-SAMPLES * workers // len(files)))
    form = choose_form(source, transform, cells=bool(where))
    with Pipeline(
        source, transform, BATCH, train=True, threads=workers, workers=how, cache="off", form=form
    ) as pipeline:
        sum(len(batch) for batch in pipeline.batches(0))  # which checks all of every file
        for epoch in itertools.count(1):
            for batch in pipeline.batches(epoch):
                yield len(batch)


def torchvision(files: list[str], workload: str, kind: str, workers: int) -> Iterator[int]:
    """Sizes of batches of torch.utils.data.DataLoader with as many worker processes."""
    import torch
    from torchvision import transforms as t

    torch.set_num_threads(1)
    cut = t.RandomResizedCrop(SIZE) if CROPS[workload] == "resized" else t.RandomCrop(SIZE)
    floats = [t.ToTensor(), t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    treat = t.Compose([cut, t.RandomHorizontalFlip(), *(floats if "floats" in kind else [t.PILToTensor()])])

    class Files(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 100_000

        def __getitem__(self, index: int) -> Any:
            with open(files[index % len(files)], "rb") as file:
                return treat(Image.open(file).convert("RGB"))

    loader = torch.utils.data.DataLoader(Files(), BATCH, shuffle=True, num_workers=workers)
    yield from (len(batch) for batch in itertools.chain.from_iterable(itertools.repeat(loader)))


def plain(files: list[str], workload: str) -> Iterator[int]:
    """One image after the other, by Pillow as its manual has it."""
    for number in itertools.count():
        with Image.open(files[number % len(files)]) as file:
            image = file.convert("RGB")
        wide, tall = image.size
        if CROPS[workload] == "resized":
            draws = np.random.randint(0, 2**32, (10, 4), dtype=np.uint32)
            top, left, height, width = resized_crop(tall, wide, draws)
            image = image.crop((left, top, left + width, top + height))
            image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        else:
            left, top = random.randint(0, wide - SIZE), random.randint(0, tall - SIZE)
            image = image.crop((left, top, left + SIZE, top + SIZE))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        yield len(np.asarray(image)[None])


def plain_windows(files: list[str], workload: str, seconds: float) -> list[float]:
    """For a process of its own."""
    return windows(plain(files, workload), seconds)


def measure(files: list[str], workload: str, kind: str, workers: int, seconds: float) -> float:
    """Images/s of one case in this process and those that it starts."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:workers])
    files = files[: SAMPLES * workers]
    if kind == "plain Pillow":
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            parts = [pool.submit(plain_windows, files, workload, seconds) for _ in range(workers)]
            return sum(statistics.median(part.result()) for part in parts)
    stream = convnet if kind in OURS else torchvision
    return statistics.median(windows(stream(files, workload, kind, workers), seconds))


def prepare(file: str, target: str) -> None:
    """A copy with a shorter side of 256."""
    with Image.open(file) as opened:
        image = opened.convert("RGB")
    image.resize(resized(*image.size, SHORT), Image.Resampling.BICUBIC).save(target, "JPEG", quality=95)


def held(act: Callable[[int], Any], count: int) -> tuple[float, float]:
    """Microseconds for which a call holds Python's lock, and how often it takes it.

    This thread looks at the clock without end; when it cannot, the other one has the lock.
    """
    running = threading.Event()

    def work() -> None:
        for number in range(count):
            act(number)
        running.set()

    thread, total, times, clock = threading.Thread(target=work), 0.0, 0, time.perf_counter
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    last = clock()
    while not running.is_set():
        now = clock()
        if 2e-6 < now - last < 1e-3:  # a longer one is the system's, which gave this thread's CPU to another program
            total, times = total + now - last, times + 1
        last = now
    thread.join()
    sys.setswitchinterval(before)
    return 1e6 * total / count, times / count


def gil(files: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Of every stage of an image: its time, and how long and how often it has the lock.

    handover_us: what a call costs that does nothing but give the lock away and take it back; `held_us` has it in it,
    each time.  Only on an idle machine do the figures mean something.
    """
    handover, taken = min(held(lambda number: time.sleep(0), 20_000) for _ in range(3))
    handover = round(handover / max(taken, 1e-9), 1)
    decoders = ("simplejpeg", "pillow") if found("simplejpeg") else ("pillow",)
    for workload, decoder in itertools.product(CROPS, decoders):
        source = FileSource(files[workload])
        transform = Transform(3, SIZE, SIZE, crop=CROPS[workload], mirror=True, decoder=decoder)
        row: dict[str, Any] = {"workload": workload, "decoder": decoder, "handover_us": handover}
        for stage, act in stages(source, transform).items():
            lock, times = min(held(act, len(source)) for _ in range(3))
            begin = time.perf_counter()
            for number in range(len(source)):
                act(number)
            whole = 1e6 * (time.perf_counter() - begin) / len(source)
            row[stage] = {
                "us": round(whole),
                "held_us": round(lock, 1),
                "times": round(times, 1),
            }
        yield row


def stages(source: FileSource, transform: Transform) -> dict[str, Callable[[int], Any]]:
    """What is done to an image, by its number."""
    data = [source.read(index) for index in range(len(source))]
    draws, out = transform.draw(0, 0, np.arange(len(source))), np.zeros((SIZE, SIZE, 3), np.uint8)
    pixels = [transform.load(encoded, "") for encoded in data]

    def decode(number: int) -> None:
        transform.load(data[number], "")

    def cut(number: int) -> None:
        transform.cut(pixels[number], draws[number], out)

    return {"read": source.read, "decode": decode, "cut": cut}


def jpegs(folder: Path) -> list[str]:
    """The photos of a folder."""
    files = sorted(str(path) for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        raise SystemExit(f"{folder}: no JPEGs")
    return files


def record(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures with what they were made with."""
    names = ("convnet", "numpy", "pillow", "pillow-simd", "simplejpeg", "torch", "torchvision")
    versions = {name: metadata.version(name) for name in names if found(name)}
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "")
    cpus = f"{len(os.sched_getaffinity(0))} x {model or platform.processor()}"
    return {
        "date": date.today().isoformat(),
        "command": f"python {' '.join(sys.argv)}",
        "cpus": cpus,
        "python": platform.python_version(),
        "versions": versions,
        "rows": rows,
    }


def found(package: str) -> bool:
    """Whether a package is installed."""
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False


def rates(args: argparse.Namespace, folders: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A row for each workload, kind and number of workers: images/s, for each worker, and against plain Pillow."""
    for workers, workload in itertools.product(args.workers, CROPS):
        base = 0.0
        for kind in kinds(workload, workers, args):
            row = {"workload": workload, "kind": kind, "workers": workers}
            try:
                rate = in_process(folders[workload], workload, kind, workers, args.seconds)
            except subprocess.SubprocessError as error:
                yield row | {"failed": str(error)}
                continue
            base = base or rate
            row |= {"images_per_second": round(rate), "per_worker": round(rate / workers)}
            yield row | {"of_plain_pillow": round(rate / base, 2)}


def kinds(workload: str, workers: int, args: argparse.Namespace) -> Iterator[str]:
    """What is measured with so many workers."""
    yield "plain Pillow"
    for kind in OURS:
        if not (found("simplejpeg") or "simplejpeg" not in kind) or (workers == 1 and "threads" not in kind):
            continue
        if kind.startswith("pillow") and 1 < workers < max(args.workers):
            continue
        if "gpu" not in kind or CROPS[workload] == "resized":
            yield kind
    if args.against_torchvision and found("torchvision") and workers == max(args.workers):
        yield from THEIRS


def in_process(folder: str, workload: str, kind: str, workers: int, seconds: float) -> float:
    """Images/s of one case, by a process that ends with all that it has started."""
    case = ["--case", workload, kind, str(workers), "--seconds", str(seconds)]
    command = [sys.executable, __file__, folder, *case]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            told, _ = process.communicate(timeout=LONGEST + seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return float(told)


def main() -> None:
    """Print a line a measurement; write them all with what they were made with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[16, 8, 2, 1])
    parser.add_argument("--seconds", type=float, default=4, help="of each case")
    parser.add_argument("--limit", type=int, default=0, metavar="SECONDS", help="of all together")
    parser.add_argument("--most", type=int, default=1000, help="photos used")
    parser.add_argument("--against-torchvision", action="store_true")
    parser.add_argument("--gil", action="store_true")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    files = jpegs(args.photos)[: args.most]
    if args.case:
        print(measure(files, args.case[0], args.case[1], int(args.case[2]), args.seconds))
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, stop)
    signal.alarm(args.limit)
    rows: list[dict[str, Any]] = []
    try:
        run(args, files, rows)
    finally:
        if args.output:
            args.output.write_text(json.dumps(record(rows), indent=1) + "\n")


def stop(number: int, frame: object) -> None:
    """End, and write what there is."""
    sys.exit("the time is up" if number == signal.SIGALRM else 128 + number)


def run(args: argparse.Namespace, files: list[str], rows: list[dict[str, Any]]) -> None:
    """Measure; each row is added and printed at once."""
    with tempfile.TemporaryDirectory() as folder:
        small = [os.path.join(folder, f"{number:05}.jpg") for number in range(len(files))]
        with ProcessPoolExecutor() as pool:
            list(pool.map(prepare, files, small, chunksize=16))
        lists = {"originals": files, "prepared": small}
        folders = {"originals": str(args.photos), "prepared": folder}
        for row in gil(lists) if args.gil else rates(args, folders):
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
