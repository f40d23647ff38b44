"""How fast a network trains from files: `python scripts/bench_flow.py PHOTOS [-o OUT.json]`.

PHOTOS is a folder of JPEGs such as ImageNet has.  They become a set of two classes, each photo as often as it takes to
have --images, scaled to a shorter side of 256 and packed in shards and in an array (raw cache).  `convnet bench data`
then times the stages, and `convnet train` trains AlexNet on a GPU: from the array, which costs next to nothing, so that
this is the rate of the step; and from JPEGs, by threads and by processes.  A row's "share" is its rate in training over
the lower of the step's and its batches' rates.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_decode import jpegs, record

from convnet.device import describe
from kernels.backend import Cuda

CONFIG = Path(__file__).parent.parent / "configs/imagenet/alexnet-owt.yaml"
WARM = 2  # rows of the log that are not counted: in their time kernels are compiled, and threads set to work
CUT = "crop: random, mirror: true"


def convnet(*words: str | Path) -> str:
    """What a command prints."""
    done = subprocess.run([sys.executable, "-m", "convnet", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"convnet {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def make_sets(photos: Path, folder: Path, images: int) -> dict[str, str]:
    """The option `data.train` of each kind of files."""
    files = jpegs(photos)
    for number in range(images):
        link = folder / "originals" / str(number % 2) / f"{number:06}.jpg"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(files[number // 2 % len(files)]).resolve())
    for form in ("shards", "raw"):
        convnet("prepare", "folder", folder / "originals", "-o", folder / form, "--format", form)
    return {
        "raw": f"{{type: raw, path: {folder}/raw, {CUT}}}",
        "shards": f"{{type: shards, path: {folder}/shards, {CUT}}}",
        "originals": f"{{type: folder, path: {folder}/originals, crop: resized, mirror: true}}",
    }


def rows(sets: dict[str, str], runs: Path, epochs: int, batch: int) -> Iterator[dict[str, Any]]:
    """Rates of each kind of files."""
    common = [str(CONFIG), "layers.fc8.outputs=2", "data.val=null", "data.cache=off", f"train.batch_size={batch}"]
    step = 0.0
    for kind, train in sets.items():
        for workers in ("threads",) if kind == "raw" else ("threads", "processes"):
            options = [*common, f"data.train={train}", f"data.workers={workers}"]
            stages = convnet("bench", "data", *options, "--seconds", "1.5")
            rates = {
                name.strip(): int(rate.replace(",", "")) for name, rate in re.findall(r"(.+?) +([\d,]+) im", stages)
            }
            run = runs / f"{kind}-{workers}"
            convnet("train", *options, f"train.epochs={epochs}", f"run.dir={run}")
            log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            trained = [row for row in log if row["event"] == "train"][WARM:]
            rate = statistics.median(row["images_per_second"] for row in trained)
            waits = statistics.median(row["wait_share"] for row in trained)
            step = step or rate
            share = round(rate / min(step, rates["batches"]), 3)
            yield {"files": kind, "workers": workers, "training": round(rate), "share": share,
                   "wait_share": round(waits, 3), "stages": rates}  # fmt: skip


def main() -> None:
    """Print a line a row; write them, as they come, with what they were made with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--images", type=int, default=9000)
    parser.add_argument("--epochs", type=int, default=10, help="of each training, more than two")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    gpu = describe(Cuda()) if args.output else ""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        sets = make_sets(args.photos, Path(folder), args.images)
        for row in rows(sets, Path(folder) / "runs", args.epochs, args.batch):
            print(json.dumps(row), flush=True)
            found.append(row)
            if args.output:
                args.output.write_text(json.dumps({"device": gpu, **record(found)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
