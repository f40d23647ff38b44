"""From archives that have the layout and the oddities of ILSVRC2012, as its readme and its users describe them, to a
trained network.

The kit's synsets are a MATLAB struct array: ids 1 to 1000 are the classes, without children; from 1001, "entity", on
come their ancestors. The ids' order is not that of the wnids. 22 training images are in CMYK, one is a PNG called
.JPEG, some are grey, and some have an EXIF orientation, which is not applied.
"""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from convnet.cli import main
from convnet.data import FolderSource
from convnet.data.sources import RawSource, ShardSource
from convnet.data.sources.index import Index
from tests.convnet.pictures import encoded, picture

savemat = pytest.importorskip("scipy.io").savemat

FIELDS = "ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height", "num_train_images"
SYNSETS = [
    (1, "n07583066", "guacamole", "a dip made of mashed avocado", [], 0, 4),
    (2, "n02105855", "Shetland sheepdog, Shetland sheep dog, Shetland", "a small sheepdog", [], 0, 4),
    (3, "n01440764", "tench, Tinca tinca", "freshwater dace-like game fish", [], 0, 4),
    (1001, "n00001740", "entity", "that which is perceived to have its own existence", [1002, 1], 17, 0),
    (1002, "n00015388", "animal, animate being, beast", "a living organism", [2, 3], 12, 0),
]
CLASSES = ("n01440764", "n02105855", "n07583066")
TRUTH = [3, 1, 2, 2, 1, 3]  # ids; the labels are 0, 2, 1, 1, 2, 0


def kit():
    """ILSVRC2012_devkit_t12.tar.gz."""
    synsets = np.zeros((len(SYNSETS), 1), [(name, object) for name in FIELDS])
    for row, (number, wnid, words, gloss, children, height, images) in zip(synsets[:, 0], SYNSETS, strict=True):
        double = np.array(children, np.float64).reshape(1, -1) if children else np.zeros((0, 0))
        values = float(number), wnid, words, gloss, float(len(children)), double, float(height), float(images)
        for name, value in zip(FIELDS, values, strict=True):
            row[name] = value
    meta = io.BytesIO()
    savemat(meta, {"synsets": synsets}, do_compression=True)
    root = "ILSVRC2012_devkit_t12"
    return packed(
        {
            f"{root}/readme.txt": b"This is the documentation",
            f"{root}/data/ILSVRC2012_validation_ground_truth.txt": "".join(f"{n}\n" for n in TRUTH).encode(),
            f"{root}/data/meta.mat": meta.getvalue(),
            f"{root}/evaluation/VOCreadxml.m": b"% MATLAB",
        },
        "w:gz",
    )


def packed(files, mode="w"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.GNU_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.uid, info.uname = len(data), 1_339_000_000, 1000, "someone"
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def inks(image):
    """A JPEG in CMYK, as Photoshop writes it: inverted, with Adobe's marker."""
    buffer = io.BytesIO()
    image.convert("CMYK").save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def turned(image):
    buffer, exif = io.BytesIO(), Image.Exif()
    exif[0x112] = 6
    image.save(buffer, "JPEG", exif=exif, quality=95)
    return buffer.getvalue()


def images(wnid):
    """The content of `<wnid>.tar`; numbers are neither in order nor of one width."""
    seed = int(wnid[1:]) % 1000
    files = {f"{wnid}_{number}.JPEG": encoded(seed + number) for number in (10026, 2, 647, 99)}
    if wnid == "n07583066":
        files["n07583066_647.JPEG"] = inks(picture(1))
        files["n07583066_99.JPEG"] = encoded(5, mode="L")
    if wnid == "n02105855":
        files["n02105855_2933.JPEG"] = files.pop("n02105855_2.JPEG")
        files["n02105855_2933.JPEG"] = encoded(2, "PNG")
    if wnid == "n01440764":
        files["n01440764_2.JPEG"] = turned(picture(3))
    return files


CONFIG = """
name: miniature
data:
  train: {type: %(form)s, path: out/train, crop: random, mirror: true%(resize)s}
  val: {type: %(form)s, path: out/val%(resize)s}
layers:
  data: {type: data, size: 24}
  conv: {type: conv, filters: 4, size: 3, neuron: relu, init: {type: gaussian, std: 0.1}}
  fc: {type: fc, outputs: 3, init: {type: gaussian, std: 0.01}}
  cost: {type: logreg, inputs: [fc, labels]}
train: {batch_size: 4, epochs: 2}
"""


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.tar").write_bytes(packed({f"{wnid}.tar": packed(images(wnid)) for _, wnid, *_ in SYNSETS[:3]}))
    names = [f"ILSVRC2012_val_{number:08}.JPEG" for number in (2, 1, 3, 6, 5, 4)]
    Path("val.tar").write_bytes(packed({name: encoded(900 + int(name[15:23])) for name in names}))
    Path("kit.tar.gz").write_bytes(kit())

    def run(*options):
        command = ["prepare", "imagenet", "--train-tar", "train.tar", "--val-tar", "val.tar", "--devkit", "kit.tar.gz"]
        assert main([*command, "-o", "out", "--workers", "1", "--skip-md5", "--verify", *options]) == 0

    return run


@pytest.mark.parametrize(
    "form, kind, options",
    [
        ("shards", ShardSource, ["--short-side", "32"]),
        ("folder", FolderSource, ["--short-side", "32"]),
        ("raw", RawSource, ["--short-side", "32"]),
        ("shards", ShardSource, ["--keep-original"]),
        ("folder", FolderSource, ["--keep-original"]),
    ],
)
def test_prepared_checked_and_trained_with(prepare, form, kind, options, capsys):
    prepare("--format", form, *options)
    train, val = kind(Path("out/train")), kind(Path("out/val"))
    assert train.classes == val.classes == CLASSES
    assert train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert sorted(val.labels.tolist()) == [0, 0, 1, 1, 2, 2]
    assert Path("out/classes.txt").read_text().splitlines()[1] == f"n02105855 {SYNSETS[1][2]}"
    resize = {"--keep-original": ", resize: 32"}.get(options[0], ", resize: none")
    Path("c.yaml").write_text(CONFIG % {"form": form, "resize": resize})
    assert main(["check-data", "c.yaml", "--workers", "1"]) == 0
    told = capsys.readouterr().out
    assert "data.train: 12 images of 3 classes, 4 of each" in told and "no image of data.val is in data.train" in told
    if options == ["--keep-original"] and form == "folder":
        for line in (
            "1 CMYK, converted to RGB: 'out/train/n07583066/n07583066_647.JPEG'",
            "1 PNG files by another name: 'out/train/n02105855/n02105855_2933.JPEG'",
            "1 grey among colours: 'out/train/n07583066/n07583066_99.JPEG'",
            "1 with an EXIF tag that would turn them: 'out/train/n01440764/n01440764_2.JPEG'",
        ):
            assert f"  {line}\n" in told
    assert main(["train", "c.yaml", "--device", "cpu", "run.dir=run"]) == 0
    assert main(["eval", "run", "--device", "cpu"]) == 0
    assert "6 images" in capsys.readouterr().out


def test_odd_images_have_their_colours(prepare):
    """CMYK as Pillow converts it, the PNG as it is, EXIF not applied."""
    prepare("--format", "raw", "--short-side", "36")
    found = RawSource(Path("out/train"))
    names = Index.load(Path("out/train/index.npz")).names
    index = {name: found.images[i].astype(int) for i, name in enumerate(names)}
    for name, image in (("n07583066/n07583066_647", picture(1)), ("n02105855/n02105855_2933", picture(2))):
        expected = np.asarray(image.crop((6, 0, 42, 36))).astype(int)
        assert np.abs(index[name] - expected).mean() < 4
    assert np.abs(index["n01440764/n01440764_2"] - np.asarray(picture(3).crop((6, 0, 42, 36))).astype(int)).mean() < 4
