"""Sources that are no folders: list files, shards, raw caches, CIFAR's pickles, made-up images; kept listings."""

import io
import json
import os
import pickle
import tarfile
import time

import numpy as np
import pytest

from convnet.data import DataError, DecodeError, FolderSource
from convnet.data.sources import CifarSource, ListSource, RawSource, ShardSource, SyntheticSource, listing
from convnet.data.sources.index import Index


class TestList:
    @pytest.fixture
    def listed(self, tmp_path):
        def read(text, **options):
            (tmp_path / "train.txt").write_text(text)
            return ListSource(tmp_path / "train.txt", **options)

        return read

    def test_numbers(self, listed, tmp_path):
        source = listed("# images\na/1.jpg 1\n\nb c/2.jpg   0\n/abs/3.jpg,1\r\nd.jpg\t0\n")
        names = ["a/1.jpg", "b c/2.jpg", "/abs/3.jpg", "d.jpg"]
        assert source.paths == tuple(os.path.join(tmp_path, name) for name in names)
        assert source.labels.tolist() == [1, 0, 1, 0] and source.labels.dtype == np.int32
        assert source.classes == ("0", "1")
        assert listed("x.jpg 0\ny.jpg 1\n", root="/data").paths == ("/data/x.jpg", "/data/y.jpg")
        assert listed("x.jpg 0\ny.jpg 1\n", classes=("cat", "dog")).classes == ("cat", "dog")

    def test_names(self, listed):
        source = listed("1.jpg dog\n2.jpg cat\n3.jpg\tgreat dane\n")
        assert source.classes == ("cat", "dog", "great dane") and source.labels.tolist() == [1, 0, 2]
        source = listed("1.jpg dog\n2.jpg cat\n", classes=("dog", "cat"))
        assert source.classes == ("dog", "cat") and source.labels.tolist() == [0, 1]

    def test_class_list(self, listed, tmp_path):
        (tmp_path / "names.txt").write_text("zebra\nant\n")
        assert listed("1.jpg 0\n2.jpg 1\n", class_list=tmp_path / "names.txt").classes == ("zebra", "ant")

    @pytest.mark.parametrize(
        "text, words",
        [
            ("a.jpg 0\nb.jpg\n", r"train.txt:2: expected the path of an image and its label, found 'b.jpg'"),
            ("# nothing\n", "expected lines such as 'cat/1.jpg 0', found none"),
            ("a.jpg 0\nb.jpg 2\n", "no images of 1 of 3 classes: '1'; allow_empty"),
            (f"a.jpg {2**31}\n", r"expected labels from 0 to 2\^31 - 1, found 2147483648"),
            (f"a.jpg 0\nb.jpg {10**30}\n", "expected labels from 0"),
            ("a.jpg 0\nb.jpg -1\n", "expected labels from 0 .*, found -1"),
        ],
    )
    def test_faults(self, listed, text, words):
        with pytest.raises(DataError, match=words):
            listed(text)
        assert listed("a.jpg 0\nb.jpg 2\n", allow_empty=True).labels.tolist() == [0, 2]

    def test_other_classes_than_the_models(self, listed):
        with pytest.raises(DataError, match="not among the 2 classes of the model: 'eel'"):
            listed("1.jpg cat\n2.jpg eel\n", classes=("cat", "dog"))
        with pytest.raises(DataError, match="has label 2, and the model has only 2 classes"):
            listed("1.jpg 0\n2.jpg 2\n", classes=("cat", "dog"))


def write_tar(path, files):
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


class TestShards:
    """Of other tools, without an index."""

    @pytest.fixture
    def root(self, tmp_path):
        root = tmp_path / "shards"
        root.mkdir()
        long = "x" * 120  # which takes more than one block
        write_tar(root / "b-1.tar", {"0003.jpg": b"three", "0003.cls": b"0"})
        write_tar(root / "a-0.tar", {
            "0001.cls": b"1\n", "0001.jpg": b"one", "0001.json": b"{}",
            f"d.x/{long}.PNG": b"two", f"d.x/{long}.cls": b"0",
            "notes.txt": b"",
        })  # fmt: skip
        return root

    def test_read(self, root):
        source = ShardSource(root)
        assert [source.read(i) for i in range(len(source))] == [b"one", b"two", b"three"]
        assert source.labels.tolist() == [1, 0, 0] and source.classes == ("0", "1")
        assert source.where(0) == f"{root}/a-0.tar: 0001"
        part = source.take([2, 0])
        assert [part.read(0), part.read(1)] == [b"three", b"one"] and part.labels.tolist() == [0, 1]
        copied = pickle.loads(pickle.dumps(source))
        assert copied.read(2) == b"three"

    def test_the_index_is_made_once_and_again_after_a_change(self, root, caplog):
        ShardSource(root)
        kept = (root / "index.npz").read_bytes()
        ShardSource(root)
        assert (root / "index.npz").read_bytes() == kept and len(caplog.messages) == 1
        write_tar(root / "b-1.tar", {"0003.jpg": b"other", "0003.cls": b"1"})  # the same size
        os.utime(root / "b-1.tar", ns=(1, 1))
        source = ShardSource(root)
        assert source.read(2) == b"other" and source.labels.tolist() == [1, 0, 1] and len(caplog.messages) == 2

    def test_a_folder_that_may_not_be_written(self, root, monkeypatch, tmp_path, caplog):
        save = Index.save
        monkeypatch.setenv("CONVNET_CACHE", str(tmp_path / "cache"))

        def guarded(self, path, **options):
            if path.parent == root:
                raise PermissionError(13, "Permission denied", str(path))
            save(self, path, **options)

        monkeypatch.setattr(Index, "save", guarded)
        assert len(ShardSource(root)) == len(ShardSource(root)) == 3
        assert not (root / "index.npz").exists() and len(caplog.messages) == 1

    @pytest.mark.parametrize(
        "files, words",
        [
            ({"1.jpg": b"x"}, "sample '1' has no label: expected '1.cls'"),
            ({"1.jpg": b"x", "1.cls": b"cat"}, "1.cls: expected a class number, found b'cat'"),
            ({"1.jpg": b"x", "1.png": b"y", "1.cls": b"0"}, "more than one image"),
            ({"notes.txt": b"x"}, "no images in the 1 shards"),
        ],
    )
    def test_faults(self, tmp_path, files, words):
        write_tar(tmp_path / "0.tar", files)
        with pytest.raises(DataError, match=words):
            ShardSource(tmp_path)

    def test_nothing_there(self, tmp_path):
        with pytest.raises(DataError, match="expected a folder of tar files"):
            ShardSource(tmp_path / "none")
        (tmp_path / "0.tar.gz").write_bytes(b"")
        with pytest.raises(DataError, match=r"found none, and 1 that are compressed"):
            ShardSource(tmp_path)

    @pytest.mark.parametrize("cut", [100, 512 + 3, 1024])
    def test_truncated(self, tmp_path, cut):
        write_tar(tmp_path / "0.tar", {"1.jpg": bytes(600), "1.cls": b"0"})
        data = (tmp_path / "0.tar").read_bytes()
        (tmp_path / "0.tar").write_bytes(data[:cut])
        with pytest.raises(DataError, match=r"0\.tar' is (damaged or )?truncated"):
            ShardSource(tmp_path)

    @pytest.mark.parametrize("at", [512 + 1024, 3 * 512])
    def test_a_damaged_header(self, tmp_path, at):
        """It does not end the shard: what lies behind it would be lost."""
        write_tar(tmp_path / "0.tar", {"1.jpg": bytes(600), "1.cls": b"0", "2.jpg": b"x", "2.cls": b"1"})
        data = bytearray((tmp_path / "0.tar").read_bytes())
        data[at : at + 8] = b"\xff" * 8
        (tmp_path / "0.tar").write_bytes(data)
        with pytest.raises(DataError, match=rf"0\.tar' is damaged: expected the header of a file at {at}"):
            ShardSource(tmp_path)

    def test_a_name_that_comes_twice(self, tmp_path):
        with tarfile.open(tmp_path / "0.tar", "w") as tar:
            for name in ("1.jpg", "1.cls", "1.jpg"):
                tar.addfile(tarfile.TarInfo(name))
        with pytest.raises(DataError, match=r"0\.tar' has '1.jpg' twice"):
            ShardSource(tmp_path)

    def test_a_shard_that_shrinks_later(self, root):
        source = ShardSource(root)
        os.truncate(root / "a-0.tar", 1000)
        with pytest.raises(DecodeError, match=r"a-0.tar: 0001': expected 3 bytes at \d+, found 0"):
            source.read(0)

    def test_a_damaged_index(self, root):
        ShardSource(root)
        (root / "index.npz").write_bytes(b"PK\x03\x04nonsense")
        with pytest.raises(DataError, match=r"cannot read the index '.*index.npz'"):
            ShardSource(root)


@pytest.mark.parametrize("change, words", [
    ({"offset": [2**40]}, "lies outside"), ({"offset": [-1]}, "lies outside"), ({"shard": [3]}, "file numbers"),
    ({"label": [5]}, "labels from 5 to 5 of 2 classes"), ({"label": [0, 1]}, "columns"),
])  # fmt: skip
def test_an_index_that_cannot_be(tmp_path, change, words):
    meta = {"format": "shards", "classes": ["a", "b"], "files": [{"name": "0.tar", "size": 100, "mtime_ns": 0}]}
    columns = {name: np.array(value) for name, value in ({"size": [5]} | change).items()}
    Index(meta, ["x"], columns).save(tmp_path / "index.npz")
    with pytest.raises(DataError, match=rf"index.npz' is damaged: .*{words}"):
        Index.load(tmp_path / "index.npz")


class TestRaw:
    def test_arrays_of_ones_own(self, tmp_path):
        images = np.arange(3 * 4 * 5 * 3, dtype=np.uint8).reshape(3, 4, 5, 3)
        np.save(tmp_path / "images.npy", images)
        np.save(tmp_path / "labels.npy", np.array([1, 0, 1]))
        source = RawSource(tmp_path)
        assert isinstance(source.images, np.memmap) and not source.images.flags.writeable
        assert (source.images == images).all() and source.labels.tolist() == [1, 0, 1] and len(source) == 3
        assert source.where(2) == f"{tmp_path}/images.npy: image 2"
        assert source.take([2]).where(0).endswith("image 2") and (source.take([2]).images[0] == images[2]).all()
        assert len(pickle.dumps(source)) < 2000 and isinstance(pickle.loads(pickle.dumps(source)).images, np.memmap)
        assert (pickle.loads(pickle.dumps(source.take([2]))).images[0] == images[2]).all()

    @pytest.mark.parametrize("images, labels, words", [
        (np.zeros((2, 4, 4, 3), np.float32), [0, 0], "expected uint8"),
        (np.zeros((2, 4, 4), np.uint8), [0, 0], "expected uint8"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0], "2 images and 1 labels"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0.0, 1.0], "expected class numbers"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0, -1], "expected class numbers"),
    ])  # fmt: skip
    def test_faults(self, tmp_path, images, labels, words):
        np.save(tmp_path / "images.npy", images)
        np.save(tmp_path / "labels.npy", np.array(labels))
        with pytest.raises(DataError, match=words):
            RawSource(tmp_path)

    def test_a_file_that_is_cut(self, tmp_path):
        np.save(tmp_path / "images.npy", np.zeros((9, 40, 40, 3), np.uint8))
        np.save(tmp_path / "labels.npy", np.zeros(9, int))
        os.truncate(tmp_path / "images.npy", 1000)
        with pytest.raises(
            DataError, match=r"cannot read '.*images.npy': it has 1,000 bytes, fewer than its header says"
        ):
            RawSource(tmp_path)


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


class TestCifar:
    """Pickles of the protocol, and with the names of NumPy, that the published ones have."""

    @staticmethod
    def dump(path, value):
        path.write_bytes(pickle.dumps(value, 2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))

    @pytest.fixture
    def pixels(self):
        return np.random.default_rng(1).integers(0, 256, (6, 4, 3, 32, 32), dtype=np.uint8)

    @pytest.fixture
    def ten(self, tmp_path, pixels):
        for number in range(6):
            name = "test_batch" if number == 5 else f"data_batch_{number + 1}"
            batch = {"data": pixels[number].reshape(4, -1), "labels": [0, 1, 2, number % 3], "batch_label": "x"}
            self.dump(tmp_path / name, batch)
        self.dump(tmp_path / "batches.meta", {"label_names": ["cat", "dog", "eel"], "num_vis": 3072})
        return tmp_path

    def test_ten(self, ten, pixels):
        source = CifarSource(ten)
        assert source.classes == ("cat", "dog", "eel") and source.images.shape == (20, 32, 32, 3)
        assert (source.images == pixels[:5].reshape(20, 3, 32, 32).transpose(0, 2, 3, 1)).all()
        assert source.labels.tolist() == [0, 1, 2, 0, 0, 1, 2, 1, 0, 1, 2, 2, 0, 1, 2, 0, 0, 1, 2, 1]
        assert (CifarSource(ten, part="test").images == pixels[5].transpose(0, 2, 3, 1)).all()
        assert (CifarSource(ten, batches=(2, 4)).images == source.images[[*range(4, 8), *range(12, 16)]]).all()
        assert CifarSource(ten, classes=("eel", "cat", "dog")).labels[:4].tolist() == [1, 2, 0, 1]

    def test_columns_of_cuda_convnet(self, ten, pixels):
        for path in ten.glob("*_batch*"):
            batch = pickle.loads(path.read_bytes())
            self.dump(path, batch | {"data": np.ascontiguousarray(batch["data"].T)})
        assert (CifarSource(ten).images == pixels[:5].reshape(20, 3, 32, 32).transpose(0, 2, 3, 1)).all()

    def test_hundred_in_an_archive(self, tmp_path, pixels):
        folder = tmp_path / "cifar-100-python"
        folder.mkdir()
        for number, part in enumerate(("train", "test")):
            batch = {"data": pixels[number].reshape(4, -1), "fine_labels": [3, 2, 1, 0], "coarse_labels": [1, 1, 0, 0]}
            self.dump(folder / part, batch)
        self.dump(folder / "meta", {"fine_label_names": list("abcd"), "coarse_label_names": list("xy")})
        with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as tar:
            tar.add(folder, "cifar-100-python")
        source = CifarSource(tmp_path / "c.tar.gz", part="test")
        assert source.classes == tuple("abcd") and source.labels.tolist() == [3, 2, 1, 0]
        assert (source.images == pixels[1].transpose(0, 2, 3, 1)).all()
        assert CifarSource(tmp_path / "c.tar.gz", labels="coarse").labels.tolist() == [1, 1, 0, 0]
        with pytest.raises(DataError, match="one training batch"):
            CifarSource(tmp_path / "c.tar.gz", batches=(1,))

    def test_a_pickle_that_would_run_something(self, ten, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        (ten / "data_batch_2").write_bytes(pickle.dumps({"data": Trap(), "labels": []}, 2))
        with pytest.raises(DataError, match=r"data_batch_2' is not a CIFAR batch: it names posix.mkdir"):
            CifarSource(ten)
        assert not os.path.exists("trapped")

    @pytest.mark.parametrize("change, words", [
        ({"data": np.zeros((4, 3072))}, "expected pixels uint8"), ({"labels": [0]}, "expected a list of 4 labels"),
        ({"labels": [0, 1, 2, 9]}, "labels from 0 to 9 of 3 classes"), ({"data": None}, "expected pixels"),
    ])  # fmt: skip
    def test_faults(self, ten, change, words):
        self.dump(ten / "data_batch_1", pickle.loads((ten / "data_batch_1").read_bytes()) | change)
        with pytest.raises(DataError, match=words):
            CifarSource(ten)

    def test_files_that_are_missing_or_cut(self, ten):
        (ten / "data_batch_3").write_bytes((ten / "data_batch_3").read_bytes()[:100])
        with pytest.raises(DataError, match="data_batch_3' is not a CIFAR batch"):
            CifarSource(ten)
        (ten / "data_batch_3").unlink()
        with pytest.raises(DataError, match="has no data_batch_3"):
            CifarSource(ten)
        with pytest.raises(DataError, match="is CIFAR-10, which has no coarse labels"):
            CifarSource(ten, part="test", labels="coarse")


class TestSynthetic:
    def test_patterns_of_the_classes(self):
        source = SyntheticSource(20, 4, (8, 12, 3), noise=0.25)
        assert source.images.shape == (20, 8, 12, 3) and source.labels.tolist() == [0, 1, 2, 3] * 5
        means = [source.images[source.labels == label].mean(0) for label in range(4)]
        nearest = [int(np.argmin([np.abs(image - mean).mean() for mean in means])) for image in source.images]
        assert nearest == source.labels.tolist()
        assert len({image.tobytes() for image in source.images}) == 20

    def test_another_seed_has_the_same_patterns(self):
        one, other = (SyntheticSource(4, 2, (8, 8, 1), noise=0.5, seed=seed).images.astype(float) for seed in (0, 1))
        assert (one != other).any() and np.abs(one - other).max() <= 128
        pure = [SyntheticSource(4, 2, (8, 8, 1), noise=0, seed=seed).images for seed in (0, 1)]
        assert (pure[0] == pure[1]).all()

    def test_samples_do_not_depend_on_their_number(self):
        few, many = SyntheticSource(3, 2, (5, 7, 3)), SyntheticSource(9, 2, (5, 7, 3))
        assert (many.images[:3] == few.images).all()

    def test_other_classes_than_the_models(self):
        with pytest.raises(DataError, match="expected 3 classes, as the model has, found 2"):
            SyntheticSource(4, 2, (8, 8, 3), names=("a", "b", "c"))


class TestListing:
    """The list of a large folder is kept, and not used once any folder has changed."""

    @pytest.fixture
    def root(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CONVNET_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(listing, "LARGE", 3)
        root = tmp_path / "train"
        for name in ("cat/1.jpg", "cat/deep/2.jpg", "dog/3.jpg", "dog/notes.txt"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"x")
        self.age(root)
        return root

    @staticmethod
    def age(root):
        """As if all was made some time ago."""
        for folder, *_ in os.walk(root):
            os.utime(folder, ns=(time.time_ns() - 10**11,) * 2)

    @staticmethod
    def walks(monkeypatch):
        walked = []
        walk = listing.walk
        monkeypatch.setattr(listing, "walk", lambda *args: walked.append(args[0]) or walk(*args))
        return walked

    def test_is_used(self, root, monkeypatch, caplog):
        first, walked = FolderSource(root), self.walks(monkeypatch)
        again = FolderSource(root)
        assert not walked and again.paths == first.paths and (again.labels == first.labels).all()
        assert caplog.messages[0] == caplog.messages[1]  # of what is ignored

    @pytest.mark.parametrize("change", ["cat/4.jpg", "cat/deep/4.jpg", "eel/4.jpg"])
    def test_is_made_again_after_a_change(self, root, change):
        FolderSource(root)
        (root / change).parent.mkdir(exist_ok=True)
        (root / change).write_bytes(b"x")
        assert str(root / change) in FolderSource(root).paths

    def test_is_not_kept_of_a_folder_that_is_still_changing(self, root, monkeypatch):
        (root / "cat" / "5.jpg").write_bytes(b"x")
        FolderSource(root)
        walked = self.walks(monkeypatch)
        FolderSource(root)
        assert walked

    def test_is_not_kept_of_a_folder_that_changed_behind_the_walk(self, root, monkeypatch):
        """Seconds ago, when a long walk ends."""
        walk = listing.walk

        def slow(folder, *args):
            yield from walk(folder, *args)
            (root / "cat" / "6.jpg").write_bytes(b"x")
            os.utime(root / "cat", ns=(now[0], now[0]))
            now[0] += 10**11

        now = [time.time_ns()]
        with monkeypatch.context() as patch:
            patch.setattr(listing, "walk", slow)
            patch.setattr(listing.time, "time_ns", lambda: now[0])
            FolderSource(root)
        assert str(root / "cat" / "6.jpg") in FolderSource(root).paths

    def test_damage_does_no_harm(self, root, tmp_path):
        first = FolderSource(root).paths
        (kept,) = (tmp_path / "cache" / "listings").iterdir()
        head, _, names = kept.read_text().partition("\n")
        for text in ("", "nonsense", head, json.dumps(json.loads(head) | {"places": 3}) + "\n" + names):
            kept.write_text(text)
            assert FolderSource(root).paths == first

    def test_a_home_that_may_not_be_written(self, root, monkeypatch):
        monkeypatch.setenv("CONVNET_CACHE", "/proc/none")
        assert len(FolderSource(root)) == 3
