"""Errors of data tell the option that named it, with its place in the config."""

from pathlib import Path

import pytest

from convnet import session
from convnet.config import ConfigError, load_config
from convnet.data import DataError
from convnet.parallel.control import Control
from convnet.parallel.world import World
from convnet.session import make_network, make_pipeline, make_source
from kernels.backend import NumPy
from tests.convnet.toy import CONFIG, convnet, rows, write_images, write_toy


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_toy(tmp_path)


def fault(key, *overrides, classes=None):
    with pytest.raises(DataError) as caught:
        make_source(load_config("toy.yaml", overrides), key, classes)
    return str(caught.value)


def test_a_folder_that_is_not_there(tmp_path):
    Path("toy.yaml").write_text(CONFIG.replace("images/val", "images/vall"))
    told = "'images/vall' does not exist; expected a folder with one folder of images per class"
    assert fault("val") == f"toy.yaml:9:23: data.val.path: {told}; 'images/vall' is relative to {tmp_path}"
    override = "data.train.path=/none"
    assert fault("train", override).startswith(f"command line: {override}: data.train.path: '/none' does not exist")
    assert "relative" not in fault("train", override)


def test_a_class_list_that_is_not_there(tmp_path):
    override = "data.train.class_list=names.txt"
    text = fault("train", override)
    assert text.startswith(f"command line: {override}: data.train.class_list: cannot read class list 'names.txt'")
    assert text.endswith(f"; 'names.txt' is relative to {tmp_path}")
    Path("names.txt").write_text("a\nb\nc\nd\n")
    assert "data.train.class_list: 'images/train' has no folder for 1 of the 4 classes" in fault("train", override)


def test_classes_that_are_not_the_models():
    assert fault("val", classes=("a", "b")).startswith("toy.yaml:9:23: data.val.path: 'images/val' has folders")


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("more, least", [("", 10), (", pad: 1", 8)])
def test_images_smaller_than_what_is_cut_out(split, more, least):
    """No network should be trained on frames of zeros by a slip."""
    override = f"data.{split}={{path: images/{split}, resize: {least - 1}{more}}}"
    config = load_config("toy.yaml", [override])
    with pytest.raises(ConfigError) as caught:
        session.make_transform(config, getattr(config.data, split), make_network(config))
    told = f"data.{split}.resize: expected at least {least}, since 10x10 are cut out, found {least - 1}"
    assert str(caught.value) == f"command line: {override}: {told}"


def test_a_cache_that_nobody_keeps():
    with pytest.raises(ConfigError, match=r"data.cache: processes that decode keep no images; .*, found 50"):
        load_config("toy.yaml", ["data.workers=processes", "data.cache=50"])


def test_a_folder_in_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("names.txt").write_text("c\nb\na\n")
    config = load_config("toy.yaml", ["data.train.path=~/images/train", "data.train.class_list=~/names.txt"])
    source = make_source(config, "train")
    assert source.classes == ("c", "b", "a") and len(source) == 21
    assert source.paths[0].startswith(str(tmp_path))


def test_one_class_cannot_be_trained():
    write_images("alone", classes=("cat",))
    _, err = convnet("train", "toy.yaml", "data.train.path=alone", "--device", "cpu", cwd=".", code=1)
    place = "error: command line: data.train.path=alone: data.train.path: "
    assert err == place + "expected two classes or more, found 'cat' alone in 'alone'\n"
    assert not Path("runs").exists()


def test_names_that_are_no_utf8_and_a_terminal_without_them():
    Path("images/train/a").rename(b"images/train/\xff".decode("utf-8", "surrogateescape"))
    Path("images/val/a").rename(b"images/val/\xff".decode("utf-8", "surrogateescape"))
    Path("images/train/b").rename("images/train/é")
    Path("images/val/b").rename("images/val/é")
    out, err = convnet("train", "toy.yaml", "--device", "cpu", cwd=".", PYTHONIOENCODING="ascii:strict")
    assert "c, \\xe9, \\udcff" in out and err == ""
    assert "c, é, \\udcff" in Path("runs/toy/log.txt").read_text("utf-8")
    assert rows("runs/toy", "run")[0]["classes"] == 3
    out, _ = convnet("eval", "runs/toy", "--device", "cpu", cwd=".", PYTHONIOENCODING="ascii:strict")
    assert "\\udcff" in out


@pytest.mark.parametrize(
    "launcher, local, allowed, expected",
    [("", 1, 16, 16), ("", 1, 6, 6), ("convnet", 4, 16, 4), ("convnet", 4, 6, 1), ("torchrun", 2, 6, 3),
     ("openmpi", 4, 16, 4), ("openmpi", 4, 6, 6), ("slurm", 32, 16, 1)],
)  # fmt: skip
def test_ranks_of_a_machine_divide_its_processors(monkeypatch, launcher, local, allowed, expected):
    """Of 16; a launcher that has done so leaves each rank fewer."""
    monkeypatch.setattr(session, "available_cpus", lambda: allowed)
    monkeypatch.setattr(session.os, "cpu_count", lambda: 16)
    config, control = load_config("toy.yaml"), Control(World(1, 2 * local, local - 1, local, launcher))
    source, network = make_source(config, "train"), make_network(config)
    for given, threads in (("auto", expected), (5, 5)):
        config = load_config("toy.yaml", [f"data.threads={given}"])
        with make_pipeline(config, network, config.data.train, source, NumPy(), control, train=True) as pipeline:
            assert (pipeline.threads, pipeline.rank, pipeline.world) == (threads, 1, 2 * local)
