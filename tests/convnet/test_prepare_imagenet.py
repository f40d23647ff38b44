"""`convnet prepare imagenet` on archives of ILSVRC2012's structure, made here: a tar of tars, a flat tar, the kit."""

import hashlib
import io
import os
import tarfile

import numpy as np
import pytest

from convnet.cli import main
from convnet.data import FolderSource
from convnet.data.prepare import archives, run
from convnet.data.prepare.devkit import read_devkit
from convnet.data.sources import RawSource, ShardSource
from tests.convnet.pictures import encoded

savemat = pytest.importorskip("scipy.io").savemat

IDS = {1: "n03", 2: "n01", 3: "n02"}  # in another order than the wnids are
TRUTH = [3, 1, 1, 2, 3]  # of the validation images, by file name


def tar_of(files, mode="w"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.GNU_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def meta():
    """The struct array of meta.mat: leaves and synsets above them, fields as the kit has them."""
    rows = [(number, wnid, f"{wnid} animal, beast", "a gloss", 0, np.zeros(0), 0, 1300) for number, wnid in IDS.items()]
    rows.append((4, "n00", "everything", "a gloss", 3, np.array([1.0, 2.0, 3.0]), 1, 0))
    names = (
        "ILSVRC2012_ID",
        "WNID",
        "words",
        "gloss",
        "num_children",
        "children",
        "wordnet_height",
        "num_train_images",
    )
    synsets = np.zeros((len(rows), 1), [(name, object) for name in names])
    for i, row in enumerate(rows):
        synsets[i, 0] = row
    buffer = io.BytesIO()
    savemat(buffer, {"synsets": synsets}, do_compression=True)
    return buffer.getvalue()


def image(wnid, number):
    return encoded(hash_of(wnid) + number)


def hash_of(wnid):
    return 100 * int(wnid[1:])


def inner(wnid, count=3):
    return tar_of({f"{wnid}_{number}.JPEG": image(wnid, number) for number in (10, 2, 7)[:count]})


class Archives:
    def __init__(self, root):
        self.train, self.val, self.kit = root / "train.tar", root / "val.tar", root / "devkit.tar.gz"
        self.write_train({f"{wnid}.tar": inner(wnid) for wnid in ("n01", "n02", "n03")})
        # in an order that is not that of the names
        names = [f"ILSVRC2012_val_{number:08}.JPEG" for number in (4, 2, 1, 5, 3)]
        self.val.write_bytes(tar_of({name: encoded(int(name[15:23])) for name in names}))
        self.write_kit({"meta.mat": meta(), "ILSVRC2012_validation_ground_truth.txt": self.lines(TRUTH)})

    @staticmethod
    def lines(ids):
        return "".join(f"{number}\n" for number in ids).encode()

    def write_train(self, files):
        self.train.write_bytes(tar_of(files))

    def write_kit(self, files):
        self.kit.write_bytes(
            tar_of({f"ILSVRC2012_devkit_t12/data/{name}": data for name, data in files.items()}, "w:gz")
        )

    def prepare(self, out, *options, code=0, skip=True):
        command = ["prepare", "imagenet", "--train-tar", self.train, "--val-tar", self.val, "--devkit", self.kit]
        command += ["-o", out, "--workers", "1", *(["--skip-md5"] if skip else []), *options]
        assert main(list(map(str, command))) == code


@pytest.fixture
def given(tmp_path):
    return Archives(tmp_path)


@pytest.mark.parametrize("form, kind", [("folder", FolderSource), ("shards", ShardSource), ("raw", RawSource)])
def test_labels_are_ranks_of_wnids(given, tmp_path, form, kind, capsys):
    """The kit's ids 1, 2, 3 are n03, n01, n02: their labels are 2, 0, 1."""
    out = tmp_path / "out"
    given.prepare(out, "--format", form, "--short-side", 24, "--verify")
    train, val = kind(out / "train"), kind(out / "val")
    assert train.classes == val.classes == ("n01", "n02", "n03")
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert sorted(val.labels.tolist()) == sorted({1: 2, 2: 0, 3: 1}[number] for number in TRUTH)
    assert (out / "classes.txt").read_text() == "".join(f"{w} {w} animal, beast\n" for w in ("n01", "n02", "n03"))
    assert sorted(path.name for path in out.iterdir()) == ["classes.txt", "train", "val"]


def test_images_are_those_of_the_archives(given, tmp_path):
    out = tmp_path / "out"
    given.prepare(out, "--format", "folder", "--keep-original")
    expected = {f"{w}/{w}_{k}.JPEG": image(w, k) for w in ("n01", "n02", "n03") for k in (2, 7, 10)}
    found = {str(path.relative_to(out / "train")): path.read_bytes() for path in (out / "train").rglob("*.JPEG")}
    assert found == expected
    wnids = dict(enumerate((IDS[number] for number in TRUTH), 1))
    for number, wnid in wnids.items():
        name = f"ILSVRC2012_val_{number:08}.JPEG"
        assert (out / "val" / wnid / name).read_bytes() == encoded(number)


def test_a_kit_that_is_unpacked(given, tmp_path):
    with tarfile.open(given.kit) as tar:
        for info in tar:
            path = tmp_path / "kit" / info.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tar.extractfile(info).read())
    packed, unpacked = read_devkit(given.kit), read_devkit(tmp_path / "kit")
    assert packed == unpacked and packed.truth == (1, 2, 2, 0, 1)


class TestSums:
    @pytest.fixture
    def sums(self, given, monkeypatch):
        """The known sums are those of these archives."""
        files = {"train": given.train, "val": given.val, "devkit": given.kit}
        known = {part: hashlib.md5(path.read_bytes()).hexdigest() for part, path in files.items()}
        monkeypatch.setattr(archives, "MD5", known)
        monkeypatch.setattr(archives, "STEP", 1000)
        return known

    def test_right(self, given, tmp_path, sums):
        given.prepare(tmp_path / "out", "--short-side", 24, skip=False)
        assert len(ShardSource(tmp_path / "out" / "train")) == 9

    @pytest.mark.parametrize("part, name", [("train", "train.tar"), ("val", "val.tar"), ("devkit", "devkit.tar.gz")])
    def test_wrong(self, given, tmp_path, sums, part, name, capsys):
        found, sums[part] = sums[part], "0" * 32
        given.prepare(tmp_path / "out", skip=False, code=1)
        err = capsys.readouterr().err
        assert f"{name}' is damaged, or another file: expected MD5 {'0' * 32}, found {found}; --skip-md5" in err
        assert not (tmp_path / "out" / "train").exists()

    def test_of_the_published_archives(self, given, tmp_path, capsys):
        given.prepare(tmp_path / "out", skip=False, code=1)
        assert "expected MD5 fa75699e90414af021442c21a62c3abf" in capsys.readouterr().err

    def test_archives_are_read_once_in_spite_of_an_interruption(self, given, tmp_path, sums, monkeypatch):
        out = tmp_path / "out"
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(run, "_write_units", lambda *args: 1 / 0)
            given.prepare(out, skip=False)
        streams = []
        stream = archives.Stream
        monkeypatch.setattr(archives, "Stream", lambda path, **options: streams.append(path) or stream(path, **options))
        given.prepare(out, skip=False)
        assert not streams

    def test_an_archive_that_changes_is_read_again(self, given, tmp_path, monkeypatch, capsys):
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(run, "_write_units", lambda *args: 1 / 0)
            given.prepare(tmp_path / "out")
        given.write_train({f"{wnid}.tar": inner(wnid, count=2) for wnid in ("n01", "n02", "n03")})
        given.prepare(tmp_path / "out", code=1)
        assert "was prepared from other images" in capsys.readouterr().err


@pytest.mark.parametrize("keep", [700, 1024, 2500])
def test_an_inner_tar_that_is_truncated(given, tmp_path, keep, capsys):
    """In a header, in an image, before the end mark; the archive around it is whole."""
    given.write_train({"n01.tar": inner("n01"), "n02.tar": inner("n02")[:keep], "n03.tar": inner("n03")})
    given.prepare(tmp_path / "out", code=1)
    assert f"{given.train}: n02.tar' is" in (err := capsys.readouterr().err) and "truncated" in err


def test_an_inner_tar_without_its_end_mark(given, tmp_path, capsys):
    whole = inner("n03")
    end = len(whole.rstrip(b"\0"))
    end += -end % 512
    given.write_train({"n01.tar": inner("n01"), "n02.tar": inner("n02"), "n03.tar": whole[:end]})
    given.prepare(tmp_path / "out", code=1)
    assert f"'{given.train}: n03.tar' is truncated: it has no end mark" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["train", "val"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_an_archive_that_is_truncated(given, tmp_path, part, share, capsys):
    path = getattr(given, part)
    os.truncate(path, int(path.stat().st_size * share))
    given.prepare(tmp_path / "out", code=1)
    assert f"'{path}" in (err := capsys.readouterr().err) and err.count("\n") == 1


def kit(synsets, truth):
    return {"meta.mat": synsets, "ILSVRC2012_validation_ground_truth.txt": truth}


@pytest.mark.parametrize("change, words", [
    (lambda a: a.write_train({f"n0{k}.tar": inner("n01") for k in (1, 2)}), "no classes of the dev"),
    (lambda a: a.write_train({f"n0{k}.tar": inner("n01") for k in (1, 2, 3, 4)}), "has unknown classes of the dev"),
    (lambda a: a.write_train({"x.jpg": b""}), "expected tar files of classes in it, such as n01440764.tar, found"),
    (lambda a: a.write_kit({"meta.mat": meta()}), "holds no ILSVRC2012_validation_ground_truth.txt"),
    (lambda a: a.write_kit(kit(b"no", b"1\n")), "cannot read the synsets in meta.mat"),
    (lambda a: a.write_kit(kit(meta()[:300], b"1\n")), "cannot read the synsets in meta.mat"),
    (lambda a: a.write_kit(kit(meta(), b"1\n4\n")), "truth.txt:2: expected the id of a class, found '4'"),
    (lambda a: a.write_kit(kit(meta(), b"1\n")), "expected 1 images, as the ground truth has lines, found 5"),
    (lambda a: a.kit.write_bytes(b"no"), "cannot read the development kit"),
    (lambda a: a.train.unlink(), "train.tar: No such file"),
])  # fmt: skip
def test_archives_that_do_not_fit(given, tmp_path, change, words, capsys):
    change(given)
    given.prepare(tmp_path / "out", code=1)
    assert words in capsys.readouterr().err


def test_one_of_the_archives(given, tmp_path, capsys):
    command = ["prepare", "imagenet", "--devkit", str(given.kit), "-o", str(tmp_path / "out"), "--skip-md5"]
    assert main(command) == 1
    assert "expected --train-tar, --val-tar or both" in capsys.readouterr().err
    assert main([*command, "--val-tar", str(given.val), "--short-side", "24", "--workers", "1"]) == 0
    assert ShardSource(tmp_path / "out" / "val").labels.tolist() == [0, 1, 1, 2, 2]


def test_without_scipy(given, tmp_path, monkeypatch, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "scipy.io", None)
    given.prepare(tmp_path / "out", code=1)
    assert "reading meta.mat needs SciPy: pip install 'convnet[imagenet]'" in capsys.readouterr().err
