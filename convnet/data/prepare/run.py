"""Preparing a dataset: which work there is, which is done, and doing the rest in parallel.

Everything unfinished lies in DIR/.prepare: the plan, and the index of each unit (a shard, or some thousand images)
that is written.  A unit is recorded after it is written, so that a run that was killed goes on behind the last record;
the same source and options give the same bytes, however often it was interrupted.  At the end the records become
DIR/index.npz, and the folder is removed.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.data.draws import permutation
from convnet.data.errors import DataError, DecodeError
from convnet.data.prepare.names import prepared_names
from convnet.data.prepare.recipe import Made, Recipe, Task, make_all
from convnet.data.prepare.writers import WRITERS, Sample
from convnet.data.sources.base import WORK, EncodedSource, Place
from convnet.data.sources.index import NAME, Index, digest, joined
from convnet.formats.files import writing
from convnet.processes import in_processes

PLAN, LOCK = "plan.json", "lock"
UNIT = 2048  # images, where a unit is not a shard
PIECE = 16  # images that a process takes at a time
PROBES = 64  # images whose mean size tells how many fill a shard
ORDER_SEED = 0  # of the order in shards: the same in every run
Bar = Callable[..., Any]


@dataclass(frozen=True)
class Job:
    """One dataset to prepare: the images of a source, called `names` (`<class>/.../<file>`), into the folder `target`.

    broken: what is done with images that cannot be read: "error" tells of all of them at the end, "skip" leaves them
    out with a warning.
    """

    source: EncodedSource
    names: Sequence[str]
    target: Path
    recipe: Recipe
    broken: str = "error"
    workers: int = 0  # 0: one for each CPU


def prepare(job: Job, bar: Bar, warn: Callable[[str], None]) -> bool:
    """Do what is not done yet; False where all was.  Raises DataError, OSError."""
    if broken := [name for name in job.source.classes if set(name) & set("\r\n")]:
        raise DataError(f"expected names of classes that classes.txt can have a line for, found {broken[0]!r}")
    options = {"recipe": asdict(job.recipe), "source": _fingerprint(job)}
    job.target.mkdir(parents=True, exist_ok=True)
    if (job.target / NAME).exists():
        _check_same(job.target, Index.load(job.target / NAME).meta.get("options"), options)
        shutil.rmtree(job.target / WORK, ignore_errors=True)  # of a run that was killed at the very end
        return False
    if left := sorted(path.name for path in job.target.iterdir()) if not (job.target / WORK).exists() else []:
        raise DataError(f"'{job.target}' is not empty: it holds '{left[0]}', and no {NAME}, as a prepared folder does")
    with _work_folder(job.target) as work:
        unit = _plan(job, work, options)
        shuffled = job.recipe.format == "shards" and job.recipe.shuffle
        order = permutation(ORDER_SEED, 0, len(job.source)) if shuffled else np.arange(len(job.source))
        units = [order[first : first + unit] for first in range(0, len(order), unit)]
        _write_units(job, work, units, bar)
        _finish(job, work, units, options, warn)
    shutil.rmtree(job.target / WORK)
    return True


@contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    import fcntl

    work = target / WORK
    work.mkdir(exist_ok=True)
    with (work / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"'{target}': another process prepares this folder") from None
        yield work


def _fingerprint(job: Job) -> str:
    """Of what is prepared: other images, labels or classes have another; of images, their names and sizes count."""
    sizes = np.array([_bytes(job.source.place(index)) for index in range(len(job.source))], np.int64)
    text = "\0".join([*job.names, "", *job.source.classes])
    return digest(text.encode("utf-8", "surrogateescape") + job.source.labels.tobytes() + sizes.tobytes()).hex()


def _bytes(place: Place) -> int:
    """The size of an encoded image; -1 where there is no file."""
    try:
        return os.stat(place.path).st_size if place.size < 0 else place.size
    except OSError:
        return -1


def _check_same(target: Path, found: Any, wanted: dict[str, Any]) -> None:
    if found is None:
        raise DataError(f"'{target}' holds data that `convnet prepare` did not make; expected an empty folder")
    if found["source"] != wanted["source"]:
        raise DataError(f"'{target}' was prepared from other images; remove it, or choose another folder")
    if found["recipe"] != wanted["recipe"]:
        changed = [f"{key} {value}" for key, value in found["recipe"].items() if wanted["recipe"].get(key) != value]
        raise DataError(f"'{target}' was prepared with {', '.join(changed)}; remove it, or choose another folder")


def _plan(job: Job, work: Path, options: dict[str, Any]) -> int:
    """How many images a unit has, as an earlier run decided, or as is decided now; raises DataError."""
    path = work / PLAN
    if path.exists():
        try:
            plan = json.loads(path.read_text())
            _check_same(job.target, plan["options"], options)
            return int(plan["unit"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"cannot read '{path}': {error!r}; remove '{job.target}' and begin again") from error
    unit = _shard_images(job) if job.recipe.format == "shards" else UNIT
    with writing(path) as partial:
        partial.write_text(json.dumps({"options": options, "unit": unit}))
    return unit


def _shard_images(job: Job) -> int:
    """Images that fill a shard, judged by a few."""
    probes = np.unique(np.linspace(0, len(job.source) - 1, PROBES).astype(int))
    made = make_all(Task(job.recipe, [job.source.place(int(i)) for i in probes]))
    sizes = [len(one.data) for one in made if isinstance(one, Made)]
    if not sizes:
        raise DataError(f"none of {len(made)} images can be read; the first: {made[0]}")
    return max(1, round(job.recipe.shard_size / (np.mean(sizes) + 2048)))  # with the tar's headers and the label


def _write_units(job: Job, work: Path, units: Sequence[NDArray[np.int64]], bar: Bar) -> None:
    """Write the units that are not recorded, in order."""
    names, labels = prepared_names(job.names, job.recipe), job.source.labels
    writer = WRITERS[job.recipe.format](job.target, work, job.recipe, job.source.classes)
    done = 0
    while done < len(units) and _record(work, done).exists():
        done += 1
    writer.begin(sum(len(Index.load(_record(work, number))) for number in range(done)))
    with bar(total=len(job.source), initial=sum(map(len, units[:done])), unit="image", desc=job.target.name) as shown:
        made = _made(job, np.concatenate([*units[done:], np.empty(0, np.int64)]))
        for number in range(done, len(units)):
            taken = _Taken()
            part = writer.write(number, taken.samples(units[number], made, names, labels, shown))
            part.meta.update(broken=taken.broken, kept=taken.kept, padded=taken.padded)
            part.save(_record(work, number))


class _Taken:
    """Which images of a unit went to the writer, which of them have a border, and which cannot be read."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.padded: list[int] = []
        self.broken: list[tuple[str, str]] = []

    def samples(
        self, unit: NDArray[np.int64], made: Iterator[Made | DecodeError], names: Sequence[str], labels: Any, shown: Any
    ) -> Iterator[Sample]:
        for index, one in zip(unit.tolist(), made, strict=False):
            shown.update()
            if isinstance(one, DecodeError):
                self.broken.append((one.path, one.reason))
            else:
                self.kept.append(index)
                self.padded += [index] if one.padded else []
                yield names[index], int(labels[index]), one


def _made(job: Job, order: NDArray[np.int64]) -> Iterator[Made | DecodeError]:
    """Each image of the order, made by processes."""
    tasks = (
        Task(job.recipe, [job.source.place(index) for index in order[first : first + PIECE].tolist()])
        for first in range(0, len(order), PIECE)
    )
    for piece in in_processes(make_all, tasks, job.workers):
        yield from piece


def _record(work: Path, number: int) -> Path:
    return work / f"{number:06}.npz"


def _finish(job: Job, work: Path, units: Sequence[Any], options: dict[str, Any], warn: Callable[[str], None]) -> None:
    """One index of all units, in the order of the source."""
    parts = [Index.load(_record(work, number)) for number in range(len(units))]
    _tell_broken(job, [tuple(one) for part in parts for one in part.meta["broken"]], warn)
    if padded := [index for part in parts for index in part.meta["padded"]]:
        smaller = f"{len(padded)} images are smaller than {job.recipe.size}x{job.recipe.size} pixels"
        warn(f"'{job.target}': {smaller}, and were given a black border; the first: '{job.names[min(padded)]}'")
    writer = WRITERS[job.recipe.format](job.target, work, job.recipe, job.source.classes)
    files = writer.finish(sum(map(len, parts)))
    if files is None:
        files = [part.meta["files"][0] for part in parts]
        for number, part in enumerate(parts):
            part["shard"][:] = number
    meta = {"format": job.recipe.format, "classes": job.source.classes, "files": files, "options": options}
    order = np.argsort(np.concatenate([np.array(part.meta["kept"], np.int64) for part in parts]), kind="stable")
    whole = joined(meta, parts).take(order)
    with writing(job.target / "classes.txt") as partial:
        partial.write_text("".join(f"{name}\n" for name in job.source.classes), "utf-8", "surrogateescape")
    whole.save(job.target / NAME)


def _tell_broken(job: Job, broken: Sequence[tuple[str, ...]], warn: Callable[[str], None]) -> None:
    told = [f"{path}: {reason}" for path, reason in sorted(broken)]
    for line in told if job.broken == "skip" else ():
        warn(f"left out: {line}")
    if told and job.broken == "error":
        raise DataError(
            f"'{job.target}': {len(told)} of {len(job.source)} images cannot be read; the same command with "
            f"--skip-broken leaves them out and keeps all that is done; after repairs, remove '{job.target}' first:\n"
            + "\n".join(f"  {line}" for line in told)
        )
    if len(told) == len(job.source):
        raise DataError(f"'{job.target}': none of the {len(told)} images can be read")
