"""`convnet prepare`: its options, and the datasets that it makes one after the other."""

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from convnet.console import Console
from convnet.data.errors import DataError
from convnet.data.prepare import archives
from convnet.data.prepare.devkit import read_devkit
from convnet.data.prepare.recipe import FORMATS, Recipe
from convnet.data.prepare.run import Job, prepare
from convnet.data.prepare.verify import verify
from convnet.data.sources import EncodedSource, FolderSource
from convnet.data.sources.index import NAME, Index

PARTS = ("train", "val", "valid", "validation", "test")  # a folder of nothing but such folders holds several datasets
Part = tuple[Path, EncodedSource, list[str]]  # where to, the images, their names


def common_options(parser: argparse.ArgumentParser) -> None:
    """Those of every kind of `prepare`."""
    add = parser.add_argument
    add("-o", "--output", required=True, metavar="DIR", help="folder to make")
    add("--format", choices=FORMATS, default="shards", help="tar files, class folders, or an array (default: shards)")
    add("--short-side", type=_short_side, default=256, metavar="PIXELS", help="none: as it is (default: 256)")
    add("--quality", type=_number(1, 100), default=95, help="of the JPEGs (default: 95)")
    add("--keep-original", action="store_true", help="the files as they are, at their size")
    add("--restart", type=_restart, default="row", metavar="N", help="JPEG restart markers: row, none, each N MCUs")
    add("--size", type=_number(1, 65535), metavar="PIXELS", help="sides of raw images (default: the short side)")
    add("--channels", type=int, choices=(1, 3), default=3, help="of raw images (default: 3)")
    add("--exif-orientation", action="store_true", help="turn images as their EXIF tag says")
    add("--no-shuffle", action="store_true", help="keep the order in shards, which is random otherwise")
    add("--shard-size", type=_number(1, 100_000), default=1000, metavar="MB", help="default: 1000")
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


def _all(args: argparse.Namespace, console: Console, parts: Iterator[Part]) -> int:
    """Prepare each part, and verify it where that is asked for."""
    wrong = 0
    for target, source, names in parts:
        job = Job(source, names, target, _recipe(args), "skip" if args.skip_broken else "error", args.workers)
        new = prepare(job, console.bar, console.warn)
        images = len(Index.load(target / NAME))
        done = f"{images} images of {len(source.classes)} classes" + ("" if new else ", prepared before")
        console.say(f"{target}: {done}; {_in_config(job)}")
        for fault in verify(target, console.bar, args.workers) if args.verify else ():
            console.say(fault)
            wrong += 1
    if args.verify:
        console.say(f"{wrong} images are not as they were written" if wrong else "every image is as it was written")
    return int(wrong > 0)


def _recipe(args: argparse.Namespace) -> Recipe:
    if args.format == "raw" and args.short_side is None and args.size is None:
        raise DataError("--format raw needs --size where --short-side is none")
    return Recipe(
        format=args.format,
        short_side=None if args.keep_original else args.short_side,
        quality=args.quality,
        keep_original=args.keep_original,
        restart=args.restart,
        size=args.size or args.short_side or 0,
        channels=args.channels,
        exif_orientation=args.exif_orientation,
        shuffle=not args.no_shuffle,
        shard_size=args.shard_size * 1_000_000,
    )


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
    (root / "classes.txt").write_text("".join(lines), "utf-8")


def _folders(root: Path, target: Path, allow_empty: bool) -> Iterator[Part]:
    """The dataset in a folder, or each of those in its folders; the classes of the first are those of all."""
    if target.resolve().is_relative_to(root.resolve()):
        raise DataError(f"'{target}' lies in '{root}', whose images are to be prepared")
    inside = {path.name: path for path in sorted(root.iterdir()) if path.is_dir()} if root.is_dir() else {}
    if not inside or set(inside) - set(PARTS):
        yield _part(root, target, None, allow_empty)
        return
    classes: tuple[str, ...] | None = None
    for name in (name for name in PARTS if name in inside):
        part = _part(inside[name], target / name, classes, allow_empty)
        classes = part[1].classes
        yield part


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
