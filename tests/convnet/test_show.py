"""The picture of a run."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import convnet.session
import convnet.show
from convnet.cli import main
from convnet.run import find_checkpoint
from convnet.show import filter_images, mosaic, predictions
from kernels.backend import NumPy
from tests.convnet import toy
from tests.convnet.toy import train_toy


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the toy, and its run."""
    return train_toy(tmp_path_factory.mktemp("show"), "train.epochs=1")


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs/toy"


def test_the_picture_is_in_the_run_folder(run, capsys):
    pytest.importorskip("matplotlib")
    assert main(["show", "runs/toy"]) == 0
    assert capsys.readouterr().out == "runs/toy/overview.png\n"
    with Image.open(run / "overview.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    assert image.format == "PNG" and pixels.shape == (1200, 1300, 3)
    quarters = [pixels[:500, :740], pixels[:500, 760:], pixels[520:]]  # curve, filters, predictions
    assert all(part.std() > 10 for part in quarters)


def test_matplotlib_says_nothing_of_its_own_folders(run):
    """It warns where it cannot write to its folder in the home."""
    pytest.importorskip("matplotlib")
    out, err = toy.convnet("show", "runs/toy", cwd=run.parents[1], MPLCONFIGDIR="/dev/null/no")
    assert (out, err) == ("runs/toy/overview.png\n", "")


def test_predictions_name_the_true_class_of_each_image(run):
    shown = predictions(find_checkpoint(run, print), NumPy(), print)
    assert len(shown) == 12
    assert all(f"/val/{truth}/" in prediction.path for truth, prediction, _ in shown)
    assert {truth for truth, *_ in shown} == {"a", "b", "c"}


def test_without_the_validation_images_the_rest_is_drawn(run, capsys):
    pytest.importorskip("matplotlib")
    shutil.rmtree("images/val")
    assert main(["show", "runs/toy", "-o", "other.png"]) == 0
    assert "images/val" in capsys.readouterr().err
    with Image.open("other.png") as image:
        assert image.format == "PNG"


def test_without_matplotlib_the_message_says_what_to_install(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["show", "runs/toy"]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


def test_a_folder_that_is_no_run(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert main(["show", str(tmp_path / "none")]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, words",
    [
        ("x.xyz", "x.xyz: expected a name that ends in one of .png, .jpg, "),
        ("x", "x: expected a name that ends in one of .png, .jpg, "),
        ("none/x.png", "none/x.png: there is no folder 'none'"),
        ("runs.png", "runs.png: is a folder; expected the name of a file"),
    ],
)
@pytest.mark.parametrize("command", [["show", "runs/toy"], ["plot", "samples", "toy.yaml"]])
def test_a_file_that_cannot_be_written_is_told_before_the_work(run, command, name, words, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    Path("runs.png").mkdir()
    monkeypatch.setattr(convnet.session, "make_source", lambda *args, **options: pytest.fail("worked"))
    monkeypatch.setattr(convnet.show, "make_source", lambda *args, **options: pytest.fail("worked"))
    assert main([*command, "--device", "cpu", "-o", name]) == 1
    assert capsys.readouterr().err.startswith(f"error: {words}")


@pytest.mark.parametrize("name", ["x.png", "x.JPG", "x.pdf", "x.svg"])
def test_names_of_classes_are_neither_formulas_nor_need_every_letter(run, name, capsys):
    pytest.importorskip("matplotlib")
    for folder in Path("images/train").iterdir():
        folder.rename(folder.with_name({"a": "$\\frac$", "b": "犬"}.get(folder.name, folder.name)))
    command = ["plot", "samples", "toy.yaml", "data.val=null", "--device", "cpu", "--count", "9", "-o", name]
    assert main(command) == 0
    assert capsys.readouterr() == (f"{name}\n", "") and Path(name).stat().st_size > 1000


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_filters_are_stretched_to_the_full_range(channels):
    weights = np.random.default_rng(0).normal(size=(6, channels, 3, 4)).astype(np.float32)
    weights[2] = 0.25
    images = filter_images(weights)
    assert images.shape == (6, 3, 4, 3)
    others = np.delete(images, 2, axis=0)
    assert (others.min(axis=(1, 2, 3)) == 0).all() and (others.max(axis=(1, 2, 3)) == 1).all()
    assert (images[2] == 0).all()
    if channels == 3:
        assert np.argmax(images[0]) == np.argmax(weights[0].transpose(1, 2, 0))


def test_mosaic_places_tiles_row_by_row():
    tiles = np.arange(3)[:, None, None, None] * np.full((3, 2, 4, 3), 0.1)
    image = mosaic(tiles, 2)
    assert image.shape == (5, 9, 3)
    assert [image[0, 0, 0], image[0, 5, 0], image[3, 0, 0]] == [0, 0.1, 0.2]
    assert (image[2] == 1).all() and (image[:2, 4] == 1).all() and (image[3:, 5:] == 1).all()
