"""`convnet prepare`: what it writes, that every form holds the same images, and what happens when it is disturbed."""

import errno
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from convnet.cli import main
from convnet.data import DataError, DecodeError, FolderSource
from convnet.data.decode import decode
from convnet.data.prepare import recipe, run
from convnet.data.prepare.names import prepared_names
from convnet.data.prepare.recipe import Recipe, make
from convnet.data.sources import RawSource, ShardSource
from convnet.data.sources.index import Index
from tests.convnet.pictures import encoded, picture, write_classes

FORMS = ("shards", "folder", "raw")
SOURCES = {"shards": ShardSource, "folder": FolderSource, "raw": RawSource}


def prepare(source, target, *options, code=0):
    assert main(["prepare", "folder", str(source), "-o", str(target), "--workers", "1", *map(str, options)]) == code


def markers(jpeg):
    """Marker codes of a JPEG up to its scan, and the number of restart markers in it."""
    found, at = [], 2
    while jpeg[at + 1] != 0xDA:
        found.append((jpeg[at + 1], jpeg[at + 4 : at + 2 + int.from_bytes(jpeg[at + 2 : at + 4])]))
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4])
    return found, sum(jpeg.count(bytes([0xFF, code]), at) for code in range(0xD0, 0xD8))


def files(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def source(tmp_path):
    return write_classes(tmp_path / "source", width=60, height=50)


class TestImage:
    """One image."""

    @pytest.mark.parametrize("restart, spacing, count", [("row", 3, 1), ("none", 0, 0), (1, 1, 5), (2, 2, 2)])
    def test_jpeg(self, restart, spacing, count):
        made = make(Recipe(short_side=32, restart=restart), encoded(1, width=60, height=50), "x")
        found, restarts = markers(made.data)
        assert (made.width, made.height, made.restart) == (38, 32, spacing) and restarts == count
        frame = next(content for code, content in found if code == 0xC0)  # baseline
        assert [frame[7 + 3 * i] for i in range(3)] == [0x22, 0x11, 0x11]  # 4:2:0
        plain = io.BytesIO()
        picture(0, 64, 64).save(plain, "JPEG")
        tables = [content for code, content in found if code == 0xC4]
        assert tables == [content for code, content in markers(plain.getvalue())[0] if code == 0xC4]

    def test_is_what_evaluation_would_see(self):
        """Up to what a JPEG loses: the same size, the same filter."""
        data = encoded(3, "PNG", width=90, height=60)
        made = make(Recipe(short_side=32, quality=100), data, "x")
        expected = Image.open(io.BytesIO(data)).resize((48, 32), Image.Resampling.BILINEAR)
        found = np.asarray(decode(made.data, "x")).astype(int)
        assert np.abs(found - np.asarray(expected)).mean() < 2.5

    def test_small_images_grow(self):
        assert make(Recipe(short_side=64), encoded(1, width=20, height=40), "x").height == 128

    def test_grey_stays_grey(self):
        made = make(Recipe(short_side=32), encoded(1, mode="L"), "x")
        assert Image.open(io.BytesIO(made.data)).mode == "L" and made.restart == 6  # 43 pixels in MCUs of 8

    @pytest.mark.parametrize("channels", [1, 3])
    def test_raw_is_cut_at_the_centre(self, channels):
        made = make(
            Recipe("raw", short_side=30, size=24, channels=channels), encoded(1, "PNG", width=60, height=40), "x"
        )
        image = picture(1, 60, 40).convert("L" if channels == 1 else "RGB").resize((45, 30), Image.Resampling.BILINEAR)
        expected = np.asarray(image).reshape(30, 45, channels)[3:27, 10:34]
        assert made.data == expected.tobytes()

    def test_raw_images_that_are_too_small_are_padded(self):
        made = make(Recipe("raw", short_side=None, size=8), encoded(1, "PNG", width=4, height=6), "x")
        pixels = np.frombuffer(made.data, np.uint8).reshape(8, 8, 3)
        assert (pixels[1:7, 2:6] == np.asarray(picture(1, 4, 6))).all() and pixels[0].max() == 0

    def test_original(self):
        png = encoded(1, "PNG")
        made = make(Recipe(keep_original=True, short_side=None), png, "x.JPEG")
        assert (made.data, made.width, made.height, made.extension) == (png, 48, 36, ".png")

    @pytest.mark.parametrize("keep", [False, True])
    def test_broken(self, keep):
        with pytest.raises(DecodeError, match="'here'"):
            make(Recipe(keep_original=keep), b"nothing", "here")

    @pytest.mark.parametrize("keep", [False, True])
    @pytest.mark.parametrize(
        "data, words", [(b"", "the file is empty"), (b"what", "not an image; it begins with b'what'")]
    )
    def test_what_is_broken_is_told_in_the_same_words_each_time(self, keep, data, words):
        with pytest.raises(DecodeError, match=words):
            make(Recipe(keep_original=keep), data, "here")

    @pytest.mark.parametrize("form", FORMS)
    def test_a_strip_that_no_jpeg_can_hold(self, form):
        with pytest.raises(DecodeError, match="would have 32 x 96000 pixels; expected at most 65500 a side"):
            make(Recipe(form, short_side=32, size=32), encoded(1, "PNG", width=1, height=3000), "here")
        assert make(Recipe(form, short_side=32, size=32), encoded(1, "PNG", width=1, height=2000), "here").width == 32


def test_names():
    names = ["a/x.jpg", "a/x.png", "a/x_png.gif", "a.b/i.1.jpg", "b/x.jpg"]
    assert prepared_names(names, Recipe()) == ["a/x", "a/x_png", "a/x_png_gif", "a.b/i_1", "b/x"]
    assert prepared_names(names, Recipe("folder"))[:4] == ["a/x", "a/x.png", "a/x_png", "a.b/i.1"]
    assert prepared_names(names, Recipe("folder", keep_original=True)) == names
    assert len(set(prepared_names(["a/x.1", "a/x.1", "a/x.1"], Recipe()))) == 3


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same(source, tmp_path, form, capsys):
    prepare(source, tmp_path / "out", "--format", form, "--short-side", 32, "--verify")
    made = SOURCES[form](tmp_path / "out")
    original = FolderSource(source)
    assert made.classes == original.classes and made.labels.tolist() == original.labels.tolist()
    recipe = Recipe(form, short_side=32, size=32 if form == "raw" else 0)
    for i in range(len(made)):
        expected = make(recipe, original.read(i), "x").data
        assert (made.images[i].tobytes() if form == "raw" else made.read(i)) == expected
    assert not (tmp_path / "out" / ".prepare").exists()
    out = capsys.readouterr().out
    resize = ", resize: none" if form == "folder" else ""
    assert f"{tmp_path}/out: 8 images of 2 classes; {{type: {form}, path: {tmp_path}/out{resize}}}" in out
    assert out.endswith("all is as it was written\n")


def test_originals_in_shards_and_folders(source, tmp_path, capsys):
    for form in ("shards", "folder"):
        prepare(source, tmp_path / form, "--format", form, "--keep-original")
        made, original = SOURCES[form](tmp_path / form), FolderSource(source)
        assert [made.read(i) for i in range(8)] == [original.read(i) for i in range(8)]
    out = capsys.readouterr().out
    assert f"path: {tmp_path}/shards, resize: null}}" in out and f"path: {tmp_path}/folder}}" in out


@pytest.mark.parametrize("form", FORMS)
def test_the_bytes_are_a_function_of_the_images(source, tmp_path, form, monkeypatch):
    """Neither the time nor the number of processes is in them, nor the times or places of the images."""
    monkeypatch.setattr(run, "UNIT", 3)
    monkeypatch.setattr(run, "PIECE", 2)
    prepare(source, tmp_path / "one", "--format", form, "--short-side", 32)
    shutil.move(source, tmp_path / "moved")
    for path in (tmp_path / "moved").rglob("*.jpg"):
        os.utime(path, (1, 1))
    monkeypatch.setattr(time, "time", lambda: 2e9)
    options = ["--format", form, "--short-side", "32", "--workers", "2"]
    assert main(["prepare", "folder", str(tmp_path / "moved"), "-o", str(tmp_path / "two"), *options]) == 0
    assert files(tmp_path / "one") == files(tmp_path / "two") and len(files(tmp_path / "one")) > 2


def test_raw_images_are_not_padded_unless_they_are_small(source, tmp_path, capsys):
    """What the short side leaves of every image cannot be less than the size; what is small by itself is counted."""
    prepare(source, tmp_path / "out", "--format", "raw", "--size", 300, "--short-side", 96, code=1)
    prepare(source, tmp_path / "out", "--format", "raw", "--size", 300, code=1)
    err = capsys.readouterr().err
    assert "--size 300 is more than --short-side 96 leaves of an image; expected at most 96" in err
    assert "--short-side 256 leaves" in err and not (tmp_path / "out").exists()
    (source / "cat" / "2.jpg").write_bytes(encoded(1, width=60, height=40))
    (source / "dog" / "1.jpg").write_bytes(encoded(1, width=30, height=50))
    prepare(source, tmp_path / "out", "--format", "raw", "--size", 50, "--short-side", "none")
    told = f"'{tmp_path}/out': 2 images are smaller than 50x50 pixels, and were given a black border; the first: "
    assert capsys.readouterr().err == f"warning: {told}'cat/2.jpg'\n"
    assert RawSource(tmp_path / "out").images.reshape(8, -1, 3)[[2, 5], 0].max() == 0


def test_shards_are_mixed_and_read_by_other_tools(source, tmp_path):
    prepare(source, tmp_path / "out", "--short-side", 32)
    with tarfile.open(tmp_path / "out" / "shard-000000.tar") as tar:
        names = tar.getnames()
        labels = [int(tar.extractfile(name).read()) for name in names[1::2]]
    assert [name[:-4] for name in names[::2]] == [name[:-4] for name in names[1::2]]
    assert sorted(labels) == [0] * 4 + [1] * 4 != labels
    index = Index.load(tmp_path / "out" / "index.npz")
    assert index["width"].tolist() == [38] * 8 and index["restart"].tolist() == [3] * 8
    (tmp_path / "out" / "index.npz").unlink()
    scanned = ShardSource(tmp_path / "out", class_list=tmp_path / "out" / "classes.txt")
    assert scanned.labels.tolist() == labels and scanned.classes == ("cat", "dog")
    prepare(source, tmp_path / "plain", "--short-side", 32, "--no-shuffle")
    with tarfile.open(tmp_path / "plain" / "shard-000000.tar") as tar:
        assert next(name for name in tar.getnames() if name.endswith(".jpg")) == "cat/0.jpg"


def test_prepared_shards_may_be_copied_but_not_exchanged(source, tmp_path):
    prepare(source, tmp_path / "out", "--short-side", 32)
    shutil.copytree(tmp_path / "out", tmp_path / "copy", copy_function=shutil.copyfile)
    assert ShardSource(tmp_path / "copy").read(5) == ShardSource(tmp_path / "out").read(5)
    shard = tmp_path / "copy" / "shard-000000.tar"
    data = shard.read_bytes()
    prepare(source, tmp_path / "plain", "--short-side", 32, "--no-shuffle")  # of the same size
    shutil.copyfile(tmp_path / "plain" / "shard-000000.tar", shard)
    prepare_error(tmp_path / "copy", "is not the shard that its index is of, or is damaged: expected '")
    shard.write_bytes(data + bytes(512))
    prepare_error(tmp_path / "copy", r"shard-000000.tar' has \d+ bytes, its index says \d+: prepare it again")
    shard.rename(tmp_path / "copy" / "shard-000001.tar")
    prepare_error(tmp_path / "copy", "they differ in 'shard-000000.tar', 'shard-000001.tar'")


@pytest.mark.parametrize("name", ["ünï 日本.jpg", f"{'long' * 30}.jpg", "new\nline.jpg", "\udce9.jpg"])
def test_names_of_any_kind(source, tmp_path, name):
    """Those that need more than one header in a tar, too."""
    (source / "cat" / name).write_bytes(encoded(77))
    for form in FORMS:
        prepare(source, tmp_path / form, "--format", form, "--short-side", 32, "--verify")
        made = SOURCES[form](tmp_path / form)
        assert len(made) == 9 and made.labels.tolist() == [0] * 5 + [1] * 4
    index = Index.load(tmp_path / "shards" / "index.npz")
    (tmp_path / "shards" / "index.npz").unlink()
    assert sorted(ShardSource(tmp_path / "shards").index.names) == sorted(index.names)
    assert f"cat/{name[:-4]}" in index.names


def test_names_of_classes_of_any_kind(source, tmp_path, capsys):
    for old, new in (("cat", " b c "), ("dog", "\udcff")):
        (source / old).rename(source / new)
    prepare(source, tmp_path / "out", "--short-side", 32)
    for folder in (source, tmp_path / "out"):
        made = {"source": FolderSource, "out": ShardSource}[folder.name](
            folder, class_list=tmp_path / "out/classes.txt"
        )
        assert made.classes == (" b c ", "\udcff")
    (source / " b c ").rename(source / "a\nb")
    prepare(source, tmp_path / "other", code=1)
    assert "names of classes that classes.txt can have a line for, found 'a\\nb'" in capsys.readouterr().err


def test_gifs_are_images(source, tmp_path):
    (source / "cat" / "9.gif").write_bytes(encoded(9, "GIF"))
    prepare(source, tmp_path / "out", "--keep-original")
    made = ShardSource(tmp_path / "out")
    assert made.read(4) == encoded(9, "GIF") and made.where(4).endswith("cat/9")
    prepare(source, tmp_path / "folder", "--format", "folder", "--keep-original")
    assert len(FolderSource(tmp_path / "folder")) == 9
    (tmp_path / "out" / "index.npz").unlink()
    assert len(ShardSource(tmp_path / "out")) == 9


def prepare_error(path, words):
    with pytest.raises(DataError, match=words):
        ShardSource(path)


CONFIG = """
name: prepared
seed: 3
data:
  train: {type: %s, path: out, resize: none, crop: random}
layers:
  data: {type: data, size: 24}
  fc: {type: fc, outputs: 2, init: {type: gaussian, std: 0.1}}
  cost: {type: logreg, inputs: [fc, labels]}
train: {batch_size: 4, epochs: 1}
"""


@pytest.mark.parametrize("form", FORMS)
def test_predictions_of_photos_are_of_their_size_when_prepared(source, tmp_path, form, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    prepare(source, "out", "--format", form, "--short-side", 32, *(["--size", 28] if form == "raw" else []))
    Path("c.yaml").write_text(CONFIG % form)
    assert main(["train", "c.yaml", "--device", "cpu", "run.dir=run"]) == 0
    picture(1, 60, 50).save("photo.png")
    picture(1, 60, 50).resize((38, 32), Image.Resampling.BILINEAR).save("scaled.png")
    capsys.readouterr()
    assert main(["predict", "run", "photo.png", "scaled.png", "--format", "csv", "--device", "cpu"]) == 0
    photo, scaled = [line.split(",")[1:] for line in capsys.readouterr().out.splitlines()[-2:]]
    assert photo == scaled


def test_train_and_val_together(tmp_path, capsys):
    write_classes(tmp_path / "source" / "train")
    write_classes(tmp_path / "source" / "val", images=2)
    prepare(tmp_path / "source", tmp_path / "out", "--short-side", 32)
    assert len(ShardSource(tmp_path / "out" / "train")) == 8 and len(ShardSource(tmp_path / "out" / "val")) == 4
    (tmp_path / "source" / "val" / "eel").mkdir()
    prepare(tmp_path / "source", tmp_path / "other", "--short-side", 32, code=1)
    assert "has folders that are not among the 2 classes of the model: 'eel'" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()  # told before the work


def test_what_lies_beside_train_and_val(tmp_path, capsys):
    """Neither makes classes of them, nor is left out without a word."""
    root = tmp_path / "source"
    write_classes(root / "train")
    (root / ".cache").mkdir()
    (root / "val").symlink_to("gone")
    prepare(root, tmp_path / "out", code=1)
    assert capsys.readouterr().err == f"error: '{root}/val' is a symbolic link that leads nowhere; expected a folder\n"
    (root / "val").unlink()
    write_classes(root / "val", images=2)
    (root / "masks").mkdir()
    prepare(root, tmp_path / "out", code=1)
    assert f"'{root}' has 'train', 'val' beside 'masks'; expected either such" in capsys.readouterr().err
    (root / "masks").rmdir()
    prepare(root, tmp_path / "out", "--short-side", 32)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train", "val"]


def test_a_class_may_be_called_train(source, tmp_path):
    (source / "dog").rename(source / "train")
    prepare(source, tmp_path / "out", "--short-side", 32)
    assert ShardSource(tmp_path / "out").classes == ("cat", "train")


@pytest.mark.parametrize("form", FORMS)
def test_again_does_nothing_and_other_options_are_refused(source, tmp_path, form, capsys, monkeypatch):
    out = tmp_path / "out"
    prepare(source, out, "--format", form, "--short-side", 32)
    before = files(out)
    with monkeypatch.context() as patch:
        patch.setattr(run, "_made", lambda *args: pytest.fail("done before"))
        prepare(source, out, "--format", form, "--short-side", 32)
        assert "prepared before" in capsys.readouterr().out
        more, words = (["--channels", 1], "channels 3") if form == "raw" else (["--quality", 90], "quality 95")
        prepare(source, out, "--format", form, "--short-side", 30, *more, code=1)
        assert f"'{out}' was prepared with short_side 32, {words}" in capsys.readouterr().err.replace("size 32, ", "")
        (source / "cat" / "9.jpg").write_bytes(encoded(9))
        prepare(source, out, "--format", form, "--short-side", 32, code=1)
        assert "was prepared from other images" in capsys.readouterr().err
        (source / "cat" / "9.jpg").unlink()
        (source / "cat" / "1.jpg").write_bytes(encoded(9))
        prepare(source, out, "--format", form, "--short-side", 32, code=1)
        assert "was prepared from other images" in capsys.readouterr().err
    assert files(out) == before


@pytest.mark.parametrize(
    "options, words",
    [
        (["--short-side", "none"], "it would have 65501 x 3 pixels; expected at most 65500 a side"),
        (["--short-side", 3], "it would have 65501 x 3 pixels; expected at most 65500 a side"),
        (["--keep-original"], "65501 x 3 pixels are over the limit max_pixels: 100000"),
    ],
)
def test_images_of_sizes_that_cannot_be_kept(source, tmp_path, options, words, capsys, monkeypatch):
    """They are named, as what is broken, and do not end the work."""
    Image.new("L", (65501, 3)).save(source / "dog" / "wide.png")
    monkeypatch.setattr(recipe, "MAX_PIXELS", 100_000 if "--keep-original" in options else 200_000)
    prepare(source, tmp_path / "out", *options, code=1)
    assert "1 of 9 images cannot be read" in (err := capsys.readouterr().err)
    assert f"{source}/dog/wide.png: {words}\n" in err


@pytest.mark.parametrize("form", FORMS)
def test_broken_images(source, tmp_path, form, capsys):
    (source / "cat" / "1.jpg").write_bytes(b"")
    (source / "dog" / "2.jpg").write_bytes(encoded(1)[:-50])
    options = "--format", form, "--short-side", 32
    prepare(source, tmp_path / "out", *options, code=1)
    err = capsys.readouterr().err
    assert "2 of 8 images cannot be read; the same command with --skip-broken" in err
    assert f"{source}/cat/1.jpg: the file is empty" in err and f"{source}/dog/2.jpg: " in err
    prepare(source, tmp_path / "out", *options, "--skip-broken", "--verify")
    assert capsys.readouterr().err.count("warning: left out: ") == 2
    made = SOURCES[form](tmp_path / "out")
    assert made.labels.tolist() == [0, 0, 0, 1, 1, 1]
    expected = make(Recipe(form, short_side=32, size=32), (source / "dog" / "3.jpg").read_bytes(), "x").data
    assert (made.images[5].tobytes() if form == "raw" else made.read(5)) == expected


def test_a_class_without_images(source, tmp_path, capsys):
    (source / "cow").mkdir()
    prepare(source, tmp_path / "out", code=1)
    assert "no images for class 'cow'" in (err := capsys.readouterr().err) and "--allow-empty" in err
    prepare(source, tmp_path / "out", "--allow-empty", "--short-side", 32)
    made = ShardSource(tmp_path / "out", allow_empty=True)
    assert made.classes == ("cat", "cow", "dog") and made.labels.tolist() == [0] * 4 + [2] * 4


def test_nothing_that_can_be_read(source, tmp_path, capsys):
    for path in source.rglob("*.jpg"):
        path.write_bytes(b"?")
    prepare(source, tmp_path / "out", "--skip-broken", code=1)
    assert "images can be read" in capsys.readouterr().err


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", ["flip", "cut"])
def test_verify_finds_damage(source, tmp_path, form, change, capsys):
    out = tmp_path / "out"
    prepare(source, out, "--format", form, "--short-side", 32)
    victim = {"shards": out / "shard-000000.tar", "folder": out / "dog" / "1.jpg", "raw": out / "images.npy"}[form]
    data = bytearray(victim.read_bytes())
    data[700] ^= 1
    victim.write_bytes(bytes(data) if change == "flip" else bytes(data[:300]))
    capsys.readouterr()
    prepare(source, out, "--format", form, "--short-side", 32, "--verify", code=1)
    told = capsys.readouterr().out
    assert ("has changed since it was prepared" if change == "flip" or form == "folder" else "expected") in told
    assert "images or files are not as they were written" in told


def test_verify_finds_damage_around_the_images(source, tmp_path, capsys):
    """A label in a tar, and the header of an array: the images themselves are right."""
    prepare(source, tmp_path / "shards", "--short-side", 32)
    prepare(source, tmp_path / "raw", "--format", "raw", "--short-side", 32)
    shard = tmp_path / "shards" / "shard-000000.tar"
    with tarfile.open(shard) as tar:
        place = tar.getmember("dog/1.cls").offset_data
    for path, at, byte, words in (
        (shard, place, b"0", "place, name or label of 'dog/1' differ from the index"),
        (tmp_path / "raw" / "images.npy", 20, b"?", "images.npy': Cannot parse header"),
    ):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(byte)
        form = ["--format", "raw"] if path.suffix == ".npy" else []
        prepare(source, path.parent, *form, "--short-side", 32, "--verify", code=1)
        assert words in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"options": {}, "unit": 3}', '{"unit": 3}'])
def test_a_plan_that_is_damaged(source, tmp_path, text, capsys):
    work = tmp_path / "out" / ".prepare"
    work.mkdir(parents=True)
    (work / "plan.json").write_text(text)
    prepare(source, tmp_path / "out", code=1)
    assert f"error: cannot read '{work}/plan.json': " in (err := capsys.readouterr().err)
    assert err.endswith(f"; remove '{tmp_path}/out' and begin again\n")


class Interrupted(BaseException):
    """As SIGKILL: nothing of ours is run, on no level."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("after", [1, 3, 5, 7])
def test_stopped_anywhere_and_gone_on_with(source, tmp_path, form, after, monkeypatch):
    """The bytes are those of a run that was never stopped, and no finished unit is made again."""
    monkeypatch.setattr(run, "UNIT", 2)
    monkeypatch.setattr(run, "_shard_images", lambda job: 2)
    options = "--format", form, "--short-side", 32
    prepare(source, tmp_path / "whole", *options)
    made, count = run._made, []

    def stopping(*args):
        for i, one in enumerate(made(*args)):
            if i == after:
                raise Interrupted
            yield one

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(run, "_made", stopping)
        prepare(source, tmp_path / "out", *options)
    monkeypatch.setattr(run, "_made", lambda *args: (count.append(1) or one for one in made(*args)))
    prepare(source, tmp_path / "out", *options)
    assert len(count) == 8 - after // 2 * 2
    whole, out = files(tmp_path / "whole"), files(tmp_path / "out")
    assert whole == out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("moment", [(Index, "save"), (shutil, "rmtree")])
def test_stopped_at_the_very_end(source, tmp_path, form, moment, monkeypatch):
    """Before the index is written, and before the unfinished is removed."""
    owner, name = moment
    out, call = tmp_path / "out", getattr(owner, name)

    def stopping(*args, **options):
        if out / "index.npz" in args or out / ".prepare" in args:
            raise Interrupted
        return call(*args, **options)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(owner, name, stopping)
        prepare(source, out, "--format", form, "--short-side", 32)
    (out / ".writing-index.npz").write_bytes(b"half of")  # what SIGKILL leaves
    (out / ".writing-classes.txt").write_bytes(b"ca")
    prepare(source, out, "--format", form, "--short-side", 32, "--verify")
    assert len(SOURCES[form](out)) == 8 and not (out / ".prepare").exists()
    if name == "save":
        assert not [path for path in out.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_killed_with_its_workers(tmp_path, form):
    """SIGKILL of the command: its processes end too, and the next run goes on."""
    source = write_classes(tmp_path / "source", images=1200, width=160, height=120)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "convnet", "prepare", "folder", source, "-o", out, "--format", form]
    command += ["--short-side", "100", "--workers", "2", *(["--shard-size", "1"] if form == "shards" else [])]
    process = subprocess.Popen(command, start_new_session=True)
    work = out / ".prepare"
    deadline = time.monotonic() + 120
    while not (work / "000000.npz").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "it was too fast to be killed"
    process.kill()
    process.wait()
    kept = (work / "000000.npz").stat().st_mtime_ns
    while time.monotonic() < deadline and session(process.pid):
        time.sleep(0.05)
    assert not session(process.pid)
    again = subprocess.Popen(command)
    while again.poll() is None and (work / "000000.npz").exists():
        assert (work / "000000.npz").stat().st_mtime_ns == kept
        time.sleep(0.02)
    assert again.wait() == 0
    assert len(SOURCES[form](out)) == 2400 and not work.exists()
    assert main(["prepare", "folder", str(source), *map(str, command[6:]), "--verify"]) == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_part_of_the_images_is_no_dataset(source, tmp_path, form):
    """Nothing reads what is not finished, or writes anything beside it that the command would find in its way."""
    out = tmp_path / "out"
    prepare(source, out, "--format", form)
    (out / ".prepare").mkdir()
    with pytest.raises(DataError, match="holds a part of the images: `convnet prepare` was stopped; give it again"):
        SOURCES[form](out)
    prepare(source, out, "--format", form)
    assert len(SOURCES[form](out)) == 8
    if form == "shards":
        with pytest.raises(DataError, match=r"has no images.npy, which .* makes; tar files are data of `type: shards`"):
            RawSource(out)


def session(pid):
    """Processes that are left of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == pid and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_full_disk(source, tmp_path, form, monkeypatch, capsys):
    """The file is named, what is finished is kept, and the same command goes on."""
    monkeypatch.setattr(run, "UNIT", 4)
    monkeypatch.setattr(run, "_shard_images", lambda job: 4)
    out, written = tmp_path / "out", []

    def full(call):
        def limited(*args):
            written.append(1)
            if len(written) > (5 if form == "folder" else 3):  # files; syncs of the plan, of a unit and of its record
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*args)

        return limited

    with monkeypatch.context() as patch:
        if form == "folder":
            patch.setattr(Path, "write_bytes", full(Path.write_bytes))
        else:
            patch.setattr(os, "fsync", full(os.fsync))
        prepare(source, out, "--format", form, "--short-side", 32, code=1)
    err = capsys.readouterr().err
    assert err.startswith(f"error: {out}") and err.endswith(": No space left on device\n")
    assert (out / ".prepare" / "000000.npz").exists() and not (out / "index.npz").exists()
    prepare(source, out, "--format", form, "--short-side", 32, "--verify")


def test_a_target_that_may_not_be_written(source, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    prepare(source, tmp_path / "file" / "out", code=1)
    assert capsys.readouterr().err == f"error: {tmp_path}/file/out: Not a directory\n"
    mkdir = Path.mkdir

    def guarded(self, *args, **options):
        if str(self).startswith(str(tmp_path / "out")):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))
        mkdir(self, *args, **options)

    monkeypatch.setattr(Path, "mkdir", guarded)
    prepare(source, tmp_path / "out", code=1)
    assert capsys.readouterr().err == f"error: {tmp_path}/out: Read-only file system\n"


def test_a_target_that_holds_something_else(source, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    prepare(source, tmp_path / "out", code=1)
    assert "is not empty: it holds 'thesis.tex'" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == ["thesis.tex"]


def test_a_target_inside_the_source(tmp_path, capsys):
    """Not of several datasets either, where it would become one more."""
    write_classes(tmp_path / "data" / "train")
    for source in (tmp_path / "data", tmp_path / "data" / "train"):
        prepare(source, source / "out", code=1)
        assert "whose images are to be prepared" in capsys.readouterr().err
        assert not (source / "out").exists()


def test_two_at_a_time(source, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    with run._work_folder(tmp_path / "out"):
        prepare(source, tmp_path / "out", code=1)
    assert "another process prepares this folder" in capsys.readouterr().err


def test_restart_markers_that_this_pillow_cannot_write(source, tmp_path, monkeypatch, capsys):
    save = Image.Image.save

    def old(self, file, *args, restart_marker_blocks=0, **options):
        save(self, file, *args, **options)

    monkeypatch.setattr(Image.Image, "save", old)
    prepare(source, tmp_path / "out", code=1)
    assert "install pillow>=10.2, or use --restart none" in capsys.readouterr().err
    prepare(source, tmp_path / "out", "--restart", "none")


@pytest.mark.parametrize("option", [["--quality", "0"], ["--restart", "col"], ["--short-side", "0"], ["--size", "x"]])
def test_options_that_cannot_be(source, tmp_path, option, capsys):
    with pytest.raises(SystemExit) as caught:
        prepare(source, tmp_path / "out", *option)
    assert caught.value.code == 2 and f"argument {option[0]}: expected" in capsys.readouterr().err


def test_meta_is_json(source, tmp_path):
    prepare(source, tmp_path / "out", "--short-side", 32)
    with np.load(tmp_path / "out" / "index.npz", allow_pickle=False) as arrays:
        meta = json.loads(str(arrays["meta"]))
    assert meta["options"]["recipe"]["quality"] == 95 and meta["classes"] == ["cat", "dog"]
