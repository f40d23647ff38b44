"""Folders of images: which are found, in which order, with which label, and what is said when something is wrong."""

import os
import re

import numpy as np
import pytest

from convnet.data import DataError, DecodeError, FileSource, FolderSource
from convnet.data.sources import listing


def tree(root, *files):
    """Make files; what is in them does not matter to a source."""
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return root


def found(source, root):
    """{path below root: class name}, in order."""
    return {
        os.path.relpath(path, root): source.classes[label]
        for path, label in zip(source.paths, source.labels, strict=True)
    }


def test_classes_are_in_code_point_order(tmp_path):
    names = ["a", "2", "é", "10", "B", "1"]
    source = FolderSource(tree(tmp_path, *(f"{name}/1.jpg" for name in names)))
    assert source.classes == ("1", "10", "2", "B", "a", "é")
    assert source.labels.dtype == np.int32
    assert found(source, tmp_path) == {f"{name}/1.jpg": name for name in source.classes}


def test_number_names_are_not_sorted_by_value(tmp_path):
    source = FolderSource(tree(tmp_path, *(f"{n}/1.jpg" for n in range(12))))
    assert source.classes == ("0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9")


def test_imagenet_labels_are_ranks_of_wnids(tmp_path):
    """Not ILSVRC2012 ids, where 1, 2, 3 are n03, n01, n02 in this toy."""
    source = FolderSource(tree(tmp_path, "n03/x.JPEG", "n01/x.JPEG", "n02/x.JPEG"))
    assert [source.classes.index(wnid) for wnid in ("n03", "n01", "n02")] == [2, 0, 1]


def test_extensions_in_any_case_each_file_once(tmp_path):
    images = ["a/1.JPG", "a/2.JpEg", "a/3.jpg", "a/4.PNG", "a/5.tif", "a/6.TIFF", "a/7.webp", "a/8.bmp", "a/9.pgm"]
    source = FolderSource(tree(tmp_path, *images, "a/notes.txt", "a/jpg", "a/x.jpg.md5"))
    assert list(found(source, tmp_path)) == images


def test_a_folder_of_datasets(tmp_path):
    for part in ("val", "train"):
        tree(tmp_path / part, "cat/1.jpg", "dog/1.jpg")
    expected = f"one folder for each class, as in '{tmp_path}/train'"
    told = f"'{tmp_path}': expected {expected}, found the datasets 'train', 'val'"
    with pytest.raises(DataError, match=f"^{re.escape(told)}$"):
        FolderSource(tmp_path)


def test_hidden_files_and_folders_are_skipped(tmp_path):
    tree(tmp_path, "cat/1.jpg", "cat/._1.jpg", "cat/.jpg", "cat/.thumbnails/1.jpg", ".cache/1.jpg", "._x.jpg")
    assert found(FolderSource(tmp_path), tmp_path) == {"cat/1.jpg": "cat"}


def test_order_below_a_class_is_by_folder_path_then_name(tmp_path):
    expected = ["c/b.jpg", "c/z.jpg", "c/a/1.jpg", "c/a-b/1.jpg", "c/a/x/0.jpg"]  # "c/a" < "c/a-b" < "c/a/x"
    source = FolderSource(tree(tmp_path, *reversed(expected)))
    assert list(found(source, tmp_path)) == expected


def test_class_without_images(tmp_path):
    tree(tmp_path, "a/1.jpg", "a/2.jpg", "b/readme.txt", "c/1.jpg")
    with pytest.raises(DataError, match=r"no images for class 'b' .*allow_empty"):
        FolderSource(tmp_path)
    source = FolderSource(tmp_path, allow_empty=True)
    assert source.classes == ("a", "b", "c") and source.labels.tolist() == [0, 0, 2]


def test_images_without_class_folders(tmp_path):
    tree(tmp_path, *(f"ILSVRC2012_val_{n:08}.JPEG" for n in range(1, 8)))
    with pytest.raises(DataError) as error:
        FolderSource(tmp_path)
    assert str(error.value) == (
        f"'{tmp_path}': expected one folder of images for each class, such as '{tmp_path}/cat/1.jpg', "
        "found 7 images and no folders; `convnet prepare imagenet` puts the images of ImageNet's archives into their "
        "classes"
    )


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda root: None, "does not exist"),
        (lambda root: root.write_text(""), "is not a folder"),
        (lambda root: root.mkdir(), "no folders"),
        (lambda root: tree(root, "a/1.txt", "b/2.gz"), "no images in any of the 2 class folders"),
    ],
)
@pytest.mark.parametrize("allow_empty", [False, True])
def test_nothing_to_read(tmp_path, make, words, allow_empty):
    root = tmp_path / "train"
    make(root)
    with pytest.raises(DataError, match=words) as error:
        FolderSource(root, allow_empty=allow_empty)
    assert str(root) in str(error.value)


class TestClassList:
    @pytest.fixture
    def root(self, tmp_path):
        return tree(tmp_path / "train", "a b/1.jpg", "c/1.jpg", "n01/1.jpg")

    @pytest.fixture
    def listed(self, tmp_path, root):
        def read(text, **options):
            (tmp_path / "names.txt").write_bytes(text)
            return FolderSource(root, class_list=tmp_path / "names.txt", **options)

        return read

    def test_gives_the_order(self, listed):
        source = listed(b"n01\na b\nc\n")
        assert source.classes == ("n01", "a b", "c")
        assert [os.path.basename(os.path.dirname(path)) for path in source.paths] == ["n01", "a b", "c"]
        assert source.labels.tolist() == [0, 1, 2]

    def test_as_other_systems_write_it(self, listed):
        assert listed(b"\xef\xbb\xbfn01 tench, Tinca tinca\r\na b\r\n\r\nc see\r\n").classes == ("n01", "a b", "c")

    def test_folder_that_is_not_listed(self, listed):
        with pytest.raises(DataError, match=r"not among the 2 classes of class list .*names.txt': 'n01'"):
            listed(b"c\na b\n")

    def test_listed_class_without_a_folder(self, listed):
        with pytest.raises(DataError, match=r"no folder for 1 of the 4 classes of .*: 'great dane'"):
            listed(b"great dane\nc\na b\nn01\n")
        assert listed(b"great dane\nc\na b\nn01\n", allow_empty=True).labels.tolist() == [1, 2, 3]

    def test_twice(self, listed):
        with pytest.raises(DataError, match=r"names.txt:3: class 'c' is listed twice"):
            listed(b"c\nn01\nc\n")

    def test_no_such_file(self, root, tmp_path):
        with pytest.raises(DataError, match="cannot read class list"):
            FolderSource(root, class_list=tmp_path / "none.txt")

    def test_must_agree_with_the_model(self, listed):
        assert listed(b"n01\nc\na b", classes=("n01", "c", "a b")).classes == ("n01", "c", "a b")
        with pytest.raises(DataError, match="has 'n01' as class 0, the model 'c'"):
            listed(b"n01\nc\na b", classes=("c", "n01", "a b"))
        with pytest.raises(DataError, match="has 3 classes, the model 2"):
            listed(b"n01\nc\na b", classes=("c", "n01"))


class TestModelClasses:
    """Validation folders are indexed by the classes of training, never by their own."""

    def test_order(self, tmp_path):
        source = FolderSource(tree(tmp_path, "a/1.jpg", "b/1.jpg"), classes=("b", "a"))
        assert found(source, tmp_path) == {"b/1.jpg": "b", "a/1.jpg": "a"} and source.labels.tolist() == [0, 1]

    def test_fewer_folders(self, tmp_path):
        tree(tmp_path, "a/1.jpg", "c/1.jpg")
        with pytest.raises(DataError, match="no folder for 1 of the 3 classes of the model: 'b'"):
            FolderSource(tmp_path, classes=("a", "b", "c"))
        assert FolderSource(tmp_path, classes=("a", "b", "c"), allow_empty=True).labels.tolist() == [0, 2]

    @pytest.mark.parametrize("allow_empty", [False, True])
    def test_other_folders(self, tmp_path, allow_empty):
        tree(tmp_path, *(f"{n}/1.jpg" for n in range(9)))
        with pytest.raises(DataError, match=r"not among the 2 classes of the model: '2', '3', .* and 2 more"):
            FolderSource(tmp_path, classes=("0", "1"), allow_empty=allow_empty)


class TestLinks:
    def test_labels_come_from_the_link_not_its_target(self, tmp_path):
        store = tree(tmp_path / "store", "dog/123.jpg", "more/4.jpg", "more/deep/5.jpg")
        root = tree(tmp_path / "train", "cat/1.jpg")
        (root / "cat" / "x.jpg").symlink_to("../../store/dog/123.jpg")
        (root / "cat" / "more").symlink_to(store / "more")
        (root / "bird").symlink_to(store / "more")
        assert found(FolderSource(root), root) == {
            "bird/4.jpg": "bird",
            "bird/deep/5.jpg": "bird",
            "cat/1.jpg": "cat",
            "cat/x.jpg": "cat",
            "cat/more/4.jpg": "cat",
            "cat/more/deep/5.jpg": "cat",
        }

    @pytest.mark.parametrize("target", [".", "..", "../../cat", "../../dog"])
    def test_loops_end(self, tmp_path, target):
        """Links at depth 1 and 2 that lead back up, or across to where a link leads back."""
        root = tree(tmp_path, "cat/1.jpg", "cat/deep/2.jpg", "dog/3.jpg")
        (root / "cat" / "deep" / "loop").symlink_to(target)
        (root / "dog" / "cat").symlink_to("../cat")
        source = FolderSource(root)
        paths = [os.path.relpath(path, root) for path in source.paths]
        assert len(paths) == len(set(paths)) < 12
        assert {"cat/1.jpg", "cat/deep/2.jpg", "dog/3.jpg", "dog/cat/1.jpg", "dog/cat/deep/2.jpg"} <= set(paths)

    def test_loop_through_the_root_brings_no_other_class(self, tmp_path):
        root = tree(tmp_path, "cat/1.jpg", "dog/2.jpg")
        (root / "cat" / "all").symlink_to("..")
        assert found(FolderSource(root), root) == {"cat/1.jpg": "cat", "dog/2.jpg": "dog"}

    @pytest.mark.parametrize("target, reason", [("gone.jpg", "No such file"), ("x.jpg", "symbolic links")])
    def test_link_to_nothing_is_an_unreadable_image(self, tmp_path, target, reason):
        root = tree(tmp_path, "cat/1.jpg")
        (root / "cat" / "x.jpg").symlink_to(target)
        source = FolderSource(root)
        assert len(source) == 2 and source.read(0) == b"x"
        with pytest.raises(DecodeError, match=reason) as error:
            source.read(1)
        assert error.value.path == str(root / "cat" / "x.jpg")

    def test_dead_links_are_counted_and_the_first_is_named(self, tmp_path, caplog):
        """Whatever they are called; links that lead somewhere are not among them."""
        root = tree(tmp_path / "train", "cat/1.jpg", "cat/deep/2.jpg", "dog/3.jpg")
        for name in ("cat/more", "cat/deep/0.jpg", "dog/label.txt", "bird"):
            (root / name).symlink_to("gone")
        (root / "dog" / "loop.jpg").symlink_to("loop.jpg")
        (root / "dog" / "4.jpg").symlink_to("3.jpg")
        assert len(FolderSource(root)) == 6
        told = [
            f"'{root}': 1 symbolic links among the class folders lead nowhere; the first: '{root}/bird'",
            f"'{root}': 4 symbolic links lead nowhere; the first: '{root}/cat/deep/0.jpg'",
        ]
        assert caplog.messages == told
        FileSource([root / "cat"])
        assert caplog.messages[2:] == [
            f"'{root}/cat': 2 symbolic links lead nowhere; the first: '{root}/cat/deep/0.jpg'"
        ]

    def test_a_list_is_not_kept_while_links_lead_nowhere(self, tmp_path, monkeypatch, caplog):
        """Where they lead can change, and no folder with it."""
        monkeypatch.setenv("CONVNET_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(listing, "LARGE", 1)
        root = tree(tmp_path / "train", "cat/1.jpg", "dog/3.jpg")
        (root / "cat" / "more").symlink_to(tmp_path / "store")
        for folder in (root, root / "cat", root / "dog"):
            os.utime(folder, (1, 1))
        assert len(FolderSource(root)) == 2
        tree(tmp_path / "store", "2.jpg")
        assert len(FolderSource(root)) == 3 and len(caplog.messages) == 1

    def test_dead_link_in_place_of_a_class_is_no_class(self, tmp_path):
        root = tree(tmp_path, "cat/1.jpg")
        (root / "dog").symlink_to("gone")
        (root / "eel").symlink_to("eel")
        assert FolderSource(root).classes == ("cat",)


def test_neither_pipes_nor_folders_are_images(tmp_path):
    root = tree(tmp_path, "cat/1.jpg", "cat/album.jpg/2.jpg")
    os.mkfifo(root / "cat" / "pipe.jpg")
    assert list(found(FolderSource(root), root)) == ["cat/1.jpg", "cat/album.jpg/2.jpg"]


@pytest.mark.parametrize("target", ["/dev/zero", "pipe"])
def test_a_link_to_what_is_no_file_is_no_image(tmp_path, target):
    """Reading one could last for ever."""
    root = tree(tmp_path, "cat/1.jpg", "cat/2.jpg")
    (root / "cat/2.jpg").rename(root / "file")
    os.mkfifo(root / "cat/pipe")
    (root / "cat/2.jpg").symlink_to("../file")
    (root / "cat/3.jpg").symlink_to(target)
    assert list(found(FolderSource(root), root)) == ["cat/1.jpg", "cat/2.jpg"]
    with pytest.raises(DataError, match=r"3.jpg': expected a file or folder, found a pipe or device"):
        FileSource([root / "cat/3.jpg"])


def test_ignored_files_are_told(tmp_path, caplog):
    tree(tmp_path, "cat/1.jpg", "cat/2.avi", "cat/deep/3.txt", "dog/4.jpg", "dog/5.txt", "dog/README", "dog/.hidden")
    tree(tmp_path, "loose.jpg", "notes.txt")
    FolderSource(tmp_path)
    assert caplog.messages == [
        f"'{tmp_path}': ignored 4 files that are not images by name (.avi, .txt, no extension)",
        f"'{tmp_path}': ignored 1 images beside the class folders",
    ]


def test_nothing_is_told_where_nothing_is_ignored(tmp_path, caplog):
    FolderSource(tree(tmp_path, "cat/1.jpg", "dog/2.jpg", "notes.txt"))
    assert not caplog.messages


def test_folder_that_may_not_be_read(tmp_path, monkeypatch):
    tree(tmp_path, "cat/1.jpg")
    scandir = os.scandir

    def guarded(path):
        if path.endswith("cat"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(DataError, match=r"cannot list .*cat': Permission denied"):
        FolderSource(tmp_path)


def test_files_and_folders_to_predict(tmp_path):
    tree(tmp_path, "z.jpg", "d/b/2.jpg", "d/a.jpg", "d/.hidden.jpg", "odd-name")
    source = FileSource([tmp_path / "z.jpg", str(tmp_path / "d"), tmp_path / "odd-name"])
    assert [os.path.relpath(path, tmp_path) for path in source.paths] == ["z.jpg", "d/a.jpg", "d/b/2.jpg", "odd-name"]
    assert source.labels.tolist() == [-1] * 4 and source.classes == ()


@pytest.mark.parametrize("name, words", [("gone.jpg", "does not exist"), ("empty", "no images below")])
def test_nothing_to_predict(tmp_path, name, words):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=words):
        FileSource([tmp_path / name])
