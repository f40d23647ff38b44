"""Run folders: where a run keeps its config, log, metrics and checkpoints.

runs/digits      the first run with `run.dir: runs/digits`
runs/digits-2    the second: a run never writes into the folder of another
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convnet import checkpoint
from convnet.checkpoint import Checkpoint, CheckpointError
from convnet.errors import UserError
from convnet.formats.files import writing
from convnet.parallel.control import Control

CONFIG, METRICS, LOG, CHECKPOINTS, LOCK = "config.yaml", "metrics.jsonl", "log.txt", "checkpoints", ".lock"
OVERRIDES = "overrides.json"  # of the command line: a list of words such as "solver.lr=0.02"


@dataclass(frozen=True)
class Run:
    """The folder of one run."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def log(self) -> Path:
        return self.path / LOG

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    def keep(self, config: str, overrides: Sequence[str]) -> None:
        """Write down what is run: the text of the resolved config, and the overrides that it came from."""
        for path, text in ((self.config, config), (self.path / OVERRIDES, json.dumps(list(overrides)) + "\n")):
            with writing(path) as partial:
                partial.write_text(text, "utf-8")

    def overrides(self) -> list[str]:
        """Those that `keep` wrote down last."""
        path = self.path / OVERRIDES
        try:
            return [str(override) for override in json.loads(path.read_bytes())] if path.exists() else []
        except ValueError as error:
            raise UserError(f"{path}: expected a JSON list of overrides, found {error}") from None

    def lock(self) -> Any:
        """Hold the folder until the result is closed; raises UserError while another process does."""
        import fcntl

        file = (self.path / LOCK).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise UserError(f"{self.path}: another process trains in this folder") from None
        return file


def fresh(base: Path) -> Run:
    """A new folder: `base`, or the first of base-2, base-3, ... that is not there."""
    base.parent.mkdir(parents=True, exist_ok=True)
    if base.is_dir() and not occupied(base):
        return Run(base)
    number = 1
    while True:
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            path.mkdir()
            return Run(path)
        except FileExistsError:
            number = max(number, *_numbers(base)) + 1


def occupied(path: Path) -> bool:
    """Whether something is there other than a folder that is empty, or holds only what a writer that was killed began.

    What takes the place of a checkpoint that was there before is no such remains.
    """
    if not path.is_dir():
        return path.exists()
    names, began = set(os.listdir(path)) - {LOCK}, re.compile(rf"\.writing-(?!.*{checkpoint.REPLACED})")
    return bool(names) and (names != {CHECKPOINTS} or not all(map(began.match, os.listdir(path / CHECKPOINTS))))


@contextmanager
def making(base: Path) -> Iterator[Run]:
    """A new run to be filled, as `fresh` finds it; of one that is not filled to the end nothing stays behind."""
    before = base.exists()
    run = fresh(base)
    with run.lock():
        checkpoint.clean(run.checkpoints)
        try:
            yield run
        except BaseException:
            shutil.rmtree(run.checkpoints, ignore_errors=True)
            for path in run.path.iterdir():
                path.unlink()
            if run.path != base or not before:
                run.path.rmdir()
            raise


def newest(base: Path) -> Run | None:
    """The last run made from `base`; None where there is none."""
    numbers = [number for number in _numbers(base) if (_numbered(base, number) / CONFIG).is_file()]
    return Run(_numbered(base, max(numbers))) if numbers else None


def _numbers(base: Path) -> list[int]:
    """Those of the folders base, base-2, ... that exist, by number."""
    found = [1] if base.exists() else []
    for path in base.parent.glob(f"{_escaped(base.name)}-*") if base.parent.is_dir() else ():
        match = re.fullmatch(r"([1-9]\d*)", path.name[len(base.name) + 1 :])
        if match and int(match[1]) > 1:
            found.append(int(match[1]))
    return found


def _numbered(base: Path, number: int) -> Path:
    return base if number == 1 else base.with_name(f"{base.name}-{number}")


def _escaped(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def find_checkpoint(where: str | Path, warn: Callable[[str], None], *, best: bool = False) -> Checkpoint:
    """The checkpoint that a run folder, a checkpoint folder or a file in one means: of a run the last, or the best."""
    path = Path(where)
    if path.is_file() and (path.parent / checkpoint.STATE).is_file():
        path = path.parent
    if (path / checkpoint.STATE).is_file():
        return checkpoint.load(path)
    folder = path if path.name == CHECKPOINTS else path / CHECKPOINTS
    if not path.is_dir():
        what = "run or checkpoint"
        fault = f"expected the folder of a {what}, found a file" if path.exists() else f"no such {what}"
        raise CheckpointError(f"{path}: {fault}")
    if not checkpoint.listing(folder):
        raise CheckpointError(f"{path}: neither a run with checkpoints nor a checkpoint")
    if best:
        if not (chosen := checkpoint.best(folder)):
            raise CheckpointError(
                f"{path}: has no best checkpoint, for want of an evaluation; without --best its last is used"
            )
        return checkpoint.load(chosen)
    found = checkpoint.newest(folder, warn)
    if not found:
        raise CheckpointError(f"{folder}: no checkpoint in it can be read")
    return found


def read_by_all(choose: Callable[[], Checkpoint | None], control: Control) -> Checkpoint | None:
    """The checkpoint that `choose` reads at rank 0, which alone calls it; the others read the same one."""
    own: list[Checkpoint] = []

    def path() -> str | None:
        own.extend(filter(None, [choose()]))
        return str(own[0].path) if own else None

    found = control.first(path)
    return own[0] if own else checkpoint.load(Path(found)) if found else None
