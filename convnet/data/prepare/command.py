"""`convnet prepare`: its options, and the datasets that it makes one after the other."""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from convnet.console import Console
from convnet.data.errors import DataError
from convnet.data.prepare import archives
from convnet.data.prepare.devkit import read_devkit
from convnet.data.prepare.recipe import FORMATS, Recipe
from convnet.data.prepare.run import Job, prepare
from convnet.data.prepare.verify import verify
from convnet.data.sources import EncodedSource, FolderSource
from convnet.data.sources.base import some
from convnet.data.sources.folder import PARTS
from convnet.data.sources.index import NAME, Index
from convnet.formats.files import writing

MOST_TOLD = 20  # of the faults that --verify finds
ENCODED = ("shards", "folder")
FITS = {  # options that are not for everything: for which formats, and whether they go with --keep-original
    "short_side": (FORMATS, False), "quality": (ENCODED, False), "restart": (ENCODED, False), "size": (("raw",), False),
    "channels": (("raw",), False), "exif_orientation": (FORMATS, False), "keep_original": (ENCODED, True),
    "no_shuffle": (("shards",), True), "shard_size": (("shards",), True),
}  # fmt: skip
Part = tuple[Path, EncodedSource, list[str]]  # where to, the images, their names


def common_options(parser: argparse.ArgumentParser) -> None:
    """Those of every kind of `prepare`."""
    add, given = parser.add_argument, argparse.SUPPRESS  # where it is not given there is none: see FITS
    add("-o", "--output", required=True, metavar="DIR", help="folder to make")
    add("--format", choices=FORMATS, default="shards", help="tar files, class folders, or an array (default: shards)")
    add("--short-side", type=_short_side, default=given, metavar="PIXELS", help="none: as it is (default: 256)")
    add("--quality", type=_number(1, 100), default=given, help="of the JPEGs (default: 95)")
    add("--keep-original", action="store_true", default=given, help="the files as they are, at their size")
    add("--restart", type=_restart, default=given, metavar="N", help="JPEG restart markers: row, none, each N MCUs")
    add("--size", type=_number(1, 65535), default=given, metavar="PIXELS", help="of raw images (default: short side)")
    add("--channels", type=int, choices=(1, 3), default=given, help="of raw images (default: 3)")
    add("--exif-orientation", action="store_true", default=given, help="turn images as their EXIF tag says")
    add("--no-shuffle", action="store_true", default=given, help="keep the order in shards, which is random otherwise")
    add("--shard-size", type=_number(1, 100_000), default=given, metavar="MB", help="of a tar file (default: 1000)")
    add("--skip-broken", action="store_true", help="leave out images that cannot be read")
    add("--workers", type=_number(1, 4096), default=0, metavar="N", help="processes; default: one for each CPU")
    add("--verify", action="store_true", help="then read, compare and decode every image that was written")


def imagenet_options(parser: argparse.ArgumentParser) -> None:
    """Those of `prepare imagenet`."""
    parser.add_argument("--train-tar", metavar="FILE", help="ILSVRC2012_img_train.tar")
    parser.add_argument("--val-tar", metavar="FILE", help="ILSVRC2012_img_val.tar")
    parser.add_argument("--devkit", required=True, metavar="FILE", help="ILSVRC2012_devkit_t12.tar.gz, or its folder")
    parser.add_argument("--skip-md5", action="store_true", help="do not compare the archives' MD5 sums")
    common_options(parser)


def folder_options(parser: argparse.ArgumentParser) -> None:
    """Those of `prepare folder`."""
    parser.add_argument("source", metavar="SRC", help="folder of class folders, or of such folders: train, val, ...")
    parser.add_argument("--allow-empty", action="store_true", help="keep the number of a class that has no images")
    common_options(parser)


def prepare_imagenet(args: argparse.Namespace, console: Console) -> int:
    """The exit status of `convnet prepare imagenet`."""
    if not args.train_tar and not args.val_tar:
        raise DataError("expected --train-tar, --val-tar or both")
    return _all(args, console, _imagenet(args, console))


def prepare_folder(args: argparse.Namespace, console: Console) -> int:
    """The exit status of `convnet prepare folder`."""
    return _all(args, console, _folders(Path(args.source), Path(args.output), args.allow_empty))


def _all(args: argparse.Namespace, console: Console, parts: Iterable[Part]) -> int:
    """Prepare each part, and verify it where that is asked for."""
    recipe, wrong = _recipe(args), 0  # before the first part is opened: options that cannot be are told at once
    for target, source, names in parts:
        job = Job(source, names, target, recipe, "skip" if args.skip_broken else "error", args.workers)
        new = prepare(job, console.bar, console.warn)
        images = len(Index.load(target / NAME))
        done = f"{images} images of {len(source.classes)} classes" + ("" if new else ", prepared before")
        console.say(f"{target}: {done}; {_in_config(job)}")
        faults = verify(target, console.bar, args.workers) if args.verify else []
        for fault in faults[:MOST_TOLD]:
            console.say(fault)
        if len(faults) > MOST_TOLD:
            console.say(f"{target}: and {len(faults) - MOST_TOLD} more")
        wrong += len(faults)
    if args.verify:
        damaged = f"{wrong} images or files are not as they were written; remove their folder, then prepare it anew"
        console.say(damaged if wrong else "all is as it was written")
    return int(wrong > 0)


def _recipe(args: argparse.Namespace) -> Recipe:
    given = {name: getattr(args, name) for name in FITS if hasattr(args, name)}
    _check_fit(args.format, given)
    given["shuffle"] = not given.pop("no_shuffle", False)
    if "shard_size" in given:
        given["shard_size"] *= 1_000_000
    if "keep_original" in given:
        given["short_side"] = None
    recipe = Recipe(args.format, **given)
    return replace(recipe, size=_raw_size(recipe)) if args.format == "raw" else recipe


def _check_fit(form: str, given: Mapping[str, Any]) -> None:
    """Raise DataError for an option that would change nothing."""
    for name, value in given.items():
        option, (formats, keeping) = f"--{name.replace('_', '-')}", FITS[name]
        if form not in formats:
            raise DataError(f"{option} goes with --format {' or '.join(formats)}, found --format {form}")
        if "keep_original" in given and not keeping and value is not None:
            raise DataError(f"{option} does not go with --keep-original, which leaves the files as they are")


def _raw_size(recipe: Recipe) -> int:
    """The side of all images; raises DataError."""
    size, side = recipe.size or recipe.short_side, recipe.short_side
    if size is None:
        raise DataError("--format raw needs --size where --short-side is none")
    if side is not None and size > side:
        raise DataError(f"--size {size} is more than --short-side {side} leaves of an image; expected at most {side}")
    return size


def _in_config(job: Job) -> str:
    """What a config says of the result; of images that have a size already, that nothing is resized."""
    sized = job.recipe.short_side is not None or job.recipe.format == "raw"
    expected = job.recipe.format != "folder"  # what the source takes by default
    resize = "" if sized == expected else ", resize: none" if sized else ", resize: null"
    return f"{{type: {job.recipe.format}, path: {job.target}{resize}}}"


def _imagenet(args: argparse.Namespace, console: Console) -> Iterator[Part]:
    devkit = Path(args.devkit)
    if not args.skip_md5:
        archives.check_devkit(devkit)
    kit = read_devkit(devkit)
    root, parts = Path(args.output), {"train": args.train_tar, "val": args.val_tar}
    root.mkdir(parents=True, exist_ok=True)
    found = {  # both, before either is prepared: a fault of the second is told at once
        part: archives.open_archive(Path(tar), part, kit, root / f".{part}.npz", md5=not args.skip_md5, bar=console.bar)
        for part, tar in parts.items()
        if tar
    }
    for part, source in found.items():
        yield root / part, source, source.index.names
    for part in ("train", "val"):
        (root / f".{part}.npz").unlink(missing_ok=True)
    lines = [f"{wnid} {text}\n" for wnid, text in zip(kit.wnids, kit.words, strict=True)]
    with writing(root / "classes.txt") as partial:
        partial.write_text("".join(lines), "utf-8")


def _folders(root: Path, target: Path, allow_empty: bool) -> Iterator[Part]:
    """The dataset in a folder, or each of those in its folders; the classes of the first are those of all.

    All are opened before one is prepared: a fault of the last is told at once.
    """
    if target.resolve().is_relative_to(root.resolve()):
        raise DataError(f"'{target}' lies in '{root}', whose images are to be prepared")
    names = _parts(root) if root.is_dir() else []
    parts = [] if names else [_part(root, target, None, allow_empty)]
    for name in names:
        parts.append(_part(root / name, target / name, parts[0][1].classes if parts else None, allow_empty))
    yield from parts


def _parts(root: Path) -> list[str]:
    """Folders of datasets, where a folder holds these and no classes; raises DataError where both seem to be there."""
    inside = [path for path in root.iterdir() if not path.name.startswith(".") and (path.is_dir() or path.is_symlink())]
    parts = [name for name in PARTS if root / name in inside]
    others = sorted(path.name for path in inside if path.name not in PARTS and path.is_dir())
    if others and len(parts) > 1:
        raise DataError(f"'{root}' has {some(parts)} beside {some(others)}; expected either such folders or classes")
    if others:
        return []
    if gone := [name for name in parts if not (root / name).exists()]:
        raise DataError(f"'{root / gone[0]}' is a symbolic link that leads nowhere; expected a folder")
    return [name for name in parts if (root / name).is_dir()]


def _part(root: Path, target: Path, classes: tuple[str, ...] | None, allow_empty: bool) -> Part:
    source = FolderSource(root, classes=classes, allow_empty=allow_empty)
    return target, source, [os.path.relpath(path, root) for path in source.paths]


def _number(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected {least} to {most}, found '{text}'")
        return int(text)

    return number


def _short_side(text: str) -> int | None:
    return None if text == "none" else _number(1, 65535)(text)


def _restart(text: str) -> str | int:
    return text if text in ("row", "none") else _number(1, 65535)(text)
