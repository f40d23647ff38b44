"""`convnet check-data`: what it finds in both sets, when it says that training would fail, and the statistics."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from convnet.cli import main
from convnet.data.inspect import Sums
from convnet.data.sources import RawSource
from convnet.data.statistics import Statistics
from tests.convnet.pictures import encoded, picture, write_classes

CONFIG = """
name: checked
data:
  train: {type: folder, path: data/train, resize: 20, crop: random}
  val: {type: folder, path: data/val, resize: 20}
layers:
  data: {type: data, size: 16}
  fc: {type: fc, outputs: 2}
  cost: {type: logreg, inputs: [fc, labels]}
train: {batch_size: 4, epochs: 1}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_classes("data/train", images=6)
    for i, name in enumerate(("cat", "dog")):
        (tmp_path / "data/val" / name).mkdir(parents=True)
        (tmp_path / "data/val" / name / "v.jpg").write_bytes(encoded(500 + i))
    Path("c.yaml").write_text(CONFIG)


@pytest.fixture
def check(capsys):
    def run(*options, code=0):
        assert main(["check-data", "c.yaml", "--workers", "1", *options]) == code
        return capsys.readouterr().out

    return run


def images():
    """What evaluation would see of the training images, by Pillow alone."""
    for path in sorted(Path("data/train").rglob("*.jpg")):
        image = Image.open(path).resize((26, 20), Image.Resampling.BILINEAR)  # 48 x 36
        yield np.asarray(image.crop((3, 0, 23, 20)))


def test_a_good_dataset(check):
    out = check()
    assert out.splitlines()[:3] == [
        "data.train: 12 images of 2 classes, 6 of each, 'data/train'",
        "data.val: 2 images of 2 classes, 1 of each, 'data/val'",
        "no image of data.val is in data.train",
    ]
    assert out.splitlines()[3].startswith("statistics: data/train/statistics.npz, of 12 images of 20x20: mean ")
    assert len(out.splitlines()) == 4


def test_statistics(check):
    check()
    found, pixels = Statistics.load("data/train/statistics.npz", 3), np.stack(list(images())).astype(float)
    flat = pixels.reshape(-1, 3)
    assert found.mean_image == pytest.approx(pixels.mean(0), abs=1e-4)
    assert found.mean == pytest.approx(flat.mean(0), abs=1e-4) and found.std == pytest.approx(flat.std(0), abs=1e-4)
    covariance = np.cov(flat.T, bias=True)
    assert found.pca_std == pytest.approx(np.sqrt(np.linalg.eigvalsh(covariance)), rel=1e-5)
    assert (np.diff(found.pca_std) > 0).all()
    rebuilt = found.components @ found.components.T
    assert rebuilt == pytest.approx(covariance, abs=1e-2)


def test_statistics_do_not_depend_on_processes(check, monkeypatch):
    from convnet.data import inspect

    check("-o", "one.npz")
    monkeypatch.setattr(inspect, "PIECE", 5)
    assert main(["check-data", "c.yaml", "--workers", "2", "-o", "two.npz"]) == 0
    with np.load("one.npz") as one, np.load("two.npz") as two:
        assert one.files == two.files and all((one[name] == two[name]).all() for name in one.files)


def test_where_statistics_go(check):
    assert "statistics: y.npz" in check("-o", "y.npz", "data.statistics=x.npz") and not Path("x.npz").exists()
    assert "statistics: x.npz" in check("data.statistics=x.npz", "data.mean=image")
    assert Path("x.npz").exists() and not Path("data/train/statistics.npz").exists()


def test_a_place_that_cannot_be_written(capsys):
    """It is said before the work."""
    assert main(["check-data", "c.yaml", "--workers", "1", "-o", "none/x.npz"]) == 1
    out, err = capsys.readouterr()
    assert err == "error: none/x.npz: cannot write to 'none'; --output names another file\n" and not out


def test_a_folder_in_place_of_the_statistics(capsys):
    Path("folder").mkdir()
    assert main(["check-data", "c.yaml", "--workers", "1", "-o", "folder"]) == 1
    out, err = capsys.readouterr()
    assert err == "error: folder: is a folder; expected the name of a file\n" and not out


def test_links_that_lead_nowhere(check, capsys):
    Path("data/train/cat/x").symlink_to("gone")
    Path("data/train/dog/x.jpg").symlink_to("gone")
    assert main(["check-data", "c.yaml", "--workers", "1"]) == 1
    out, err = capsys.readouterr()
    assert "'data/train': 2 symbolic links lead nowhere; the first: 'data/train/cat/x'" in err
    assert "  broken: data/train/dog/x.jpg: No such file or directory\n" in out


def test_a_number_of_processes_that_cannot_be(capsys):
    assert main(["check-data", "c.yaml", "--workers", "-1"]) == 1
    assert capsys.readouterr().err == "error: --workers: expected 0 or more, found -1\n"


def test_sums_of_one_image():
    sums = Sums.of(np.full((1, 2, 2, 3), 7, np.uint8)).statistics()
    assert sums.mean.tolist() == [7, 7, 7] and sums.std.tolist() == sums.pca_std.tolist() == [0, 0, 0]


def test_broken_images(check):
    Path("data/train/cat/0.jpg").write_bytes(b"")
    Path("data/train/dog/1.jpg").write_bytes(encoded(1)[:-40])
    Path("data/val/dog/v.jpg").write_bytes(b"<html>")
    out = check(code=1)
    assert "  broken: data/train/cat/0.jpg: the file is empty\n" in out
    assert "  broken: data/train/dog/1.jpg: image file is truncated" in out
    assert "  broken: data/val/dog/v.jpg: not an image in JPEG" in out
    assert "of 10 images of 20x20" in out
    assert out.endswith(
        "training would fail: data.train has 2 broken images; data.train.on_error: skip leaves them out\n"
        "training would fail: data.val has 1 broken images; data.val.on_error: skip leaves them out\n"
    )
    assert "training would fail" not in check("data.train.on_error=skip", "data.val.on_error=skip")


def test_nothing_that_can_be_read(check):
    for path in Path("data/val").rglob("*.jpg"):
        path.write_bytes(b"")
    out = check("data.val.on_error=skip", code=1)
    assert out.endswith("training would fail: none of the images of data.val can be read\n")


def test_images_in_both_sets_and_copies(check):
    first = Path("data/train/cat/0.jpg").read_bytes()
    Path("data/val/cat/w.jpg").write_bytes(first)
    Path("data/train/cat/9.jpg").write_bytes(first)
    Path("data/train/dog/9.jpg").write_bytes(first)
    out = check()
    assert "1 of 3 images of data.val are in data.train as well: 'data/val/cat/w.jpg'\n" in out
    assert "  1 copies of another image of the same class: 'data/train/cat/9.jpg = data/train/cat/0.jpg'\n" in out
    assert "  1 copies of an image of another class: 'data/train/dog/9.jpg = data/train/cat/0.jpg'\n" in out


def test_odd_images(check):
    def save(name, image, form="JPEG", **options):
        buffer = io.BytesIO()
        image.save(buffer, form, **options)
        Path("data/train/cat", name).write_bytes(buffer.getvalue())

    save("png.jpg", picture(1), "PNG")
    save("cmyk.jpg", picture(2).convert("CMYK"))
    save("grey.jpg", picture(3).convert("L"))
    exif = Image.Exif()
    exif[0x112] = 6
    save("turned.jpg", picture(4), exif=exif)
    save("deep.png", Image.fromarray(np.arange(48 * 36, dtype=np.uint16).reshape(36, 48)), "PNG")
    out = check()
    for kind, name in {
        "PNG files by another name": "png.jpg",
        "CMYK, converted to RGB": "cmyk.jpg",
        "grey among colours": "grey.jpg",
        "with an EXIF tag that would turn them": "turned.jpg",
        "16-bit, of which the high byte is used": "deep.png",
    }.items():
        assert f"  1 {kind}: 'data/train/cat/{name}'\n" in out
    assert "EXIF" not in check("data.exif_orientation=true")
    kept = ["data.train.resize=none", "data.val.resize=none"]
    assert "17 smaller than the network's input" in check(*kept, "layers.data.size=64")


def test_balance(check):
    for k in range(10, 20):
        Path(f"data/train/dog/{k}.jpg").write_bytes(encoded(k))
    assert "12 images" not in (out := check())
    assert "data.train: 22 images of 2 classes, 6 to 16 of each (median 11; fewest: 'cat', 'dog'), 'data/train'" in out


@pytest.mark.parametrize(
    "option, words",
    [
        ("data.train.path=none", "'none' does not exist"),
        ("data.val.path=none", "'none' does not exist"),
        ("layers.fc.outputs=3", "expected 2 outputs, one for each class of 'data/train', found 3"),
        ("train.batch_size=13", "expected at most 12, the number of training images, found 13"),
    ],
)
def test_what_stops_training_at_its_start(option, words, capsys):
    more = ["train.last_batch=drop"] if "batch" in option else []
    assert main(["check-data", "c.yaml", option, *more]) in (1, 2)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("form", ["shards", "raw"])
def test_prepared_data(check, form, capsys):
    assert (
        main(["prepare", "folder", "data", "-o", "out", "--format", form, "--short-side", "20", "--workers", "1"]) == 0
    )
    capsys.readouterr()
    out = check(*(f"data.{key}.{name}" for key in ("train", "val") for name in (f"type={form}", f"path=out/{key}")))
    size = 20 if form == "raw" else 16  # all of a raw image; what is cut of others, whose size is not known
    assert f"statistics: out/train/statistics.npz, of 12 images of {size}x{size}" in out
    found = Statistics.load("out/train/statistics.npz", 3)
    middle = slice((20 - size) // 2, (20 + size) // 2)
    expected = np.stack([image[middle, middle] for image in images()]).mean((0, 1, 2))
    assert found.mean == pytest.approx(expected, abs=1)


def test_raw_images_that_are_resized(check, capsys):
    """Their statistics are of what the network sees, too."""
    assert main(["prepare", "folder", "data", "-o", "out", "--format", "raw", "--short-side", "36"]) == 0
    capsys.readouterr()
    given = (f"data.{key}.{name}" for key in ("train", "val") for name in ("type=raw", f"path=out/{key}", "resize=18"))
    assert "of 12 images of 18x18" in check(*given)
    found = Statistics.load("out/train/statistics.npz", 3)
    small = [
        Image.fromarray(image).resize((18, 18), Image.Resampling.BILINEAR) for image in RawSource("out/train").images
    ]
    np.testing.assert_allclose(found.mean_image, np.stack(small).mean(0), atol=1e-3)


def test_synthetic_data(check):
    made = "{type: synthetic, classes: 2, size: 20, samples: 9, seed: %d}"
    out = check(f"data.train={made % 0}", f"data.val={made % 1}")
    assert "data.train: 9 images of 2 classes, 4 to 5 of each, the synthetic data" in out
    assert "no image of data.val is in data.train" in out and Path("statistics.npz").exists()
