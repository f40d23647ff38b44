"""Every kind of source, by threads and by processes, cut on the host or on the device: the same samples, from any
place of an epoch on."""

import pickle
import signal

import numpy as np
import pytest
from PIL import Image

from convnet import session
from convnet.cli import main
from convnet.config import load_config
from convnet.data import fill
from convnet.graph.engine import Engine
from convnet.samples import data_layer
from kernels.backend import Cuda, NumPy
from tests.convnet.pictures import write_classes
from tests.convnet.toy import last_files

CONFIG = """
name: toy
seed: 3
data:
  train: {type: synthetic, samples: 20, classes: 2, size: 36}
layers:
  data: {type: data, size: 30}
  fc: {type: fc, outputs: 2}
  cost: {type: logreg, inputs: [fc, labels]}
solver: {lr: 0.001}
train: {batch_size: 6, epochs: 2, last_batch: keep}
"""
SOURCES = {
    "folder": "{type: folder, path: images}",
    "list": "{type: list, path: list.txt}",
    "shards": "{type: shards, path: shards}",
    "raw": "{type: raw, path: raw}",
    "cifar": "{type: cifar, path: cifar, part: train, batches: [1]}",
    "synthetic": "{type: synthetic, samples: 20, classes: 2, size: 36}",
}
AT_HAND = ("raw", "cifar", "synthetic")
AUGMENTED = ("mirror=true", "mixup=0.4", "cutmix=1", "random_erasing=0.5", "color_jitter=0.4")


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A folder that holds 20 images of two classes in every form."""
    root = tmp_path_factory.mktemp("sources")
    write_classes(root / "images", images=10, width=50, height=37)
    for form in ("shards", "raw"):
        options = ["--format", form, "--short-side", "37", "--workers", "1"]
        options += ["--size", "37"] if form == "raw" else []
        assert main(["prepare", "folder", str(root / "images"), "-o", str(root / form), *options]) == 0
    lines = [f"images/{name}/{k}.jpg {label}\n" for label, name in enumerate(("cat", "dog")) for k in range(10)]
    (root / "list.txt").write_text("".join(lines))
    (root / "cifar").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3072), np.uint8)
    batch = {"data": pixels, "labels": [k % 2 for k in range(20)]}
    for name, value in (("data_batch_1", batch), ("batches.meta", {"label_names": ["cat", "dog"]})):
        (root / "cifar" / name).write_bytes(pickle.dumps(value, 2))
    (root / "toy.yaml").write_text(CONFIG)
    return root


@pytest.fixture(autouse=True)
def here(everything, monkeypatch):
    monkeypatch.chdir(everything)


def options(source, *more):
    return [f"data.train={SOURCES[source]}", *(f"data.train.{option}" for option in more)]


class LikeCUDA(NumPy):
    """On the host, with samples in the form that a GPU gets them in."""

    arch = 90


def opened(overrides, backend=None):
    """Engine and pipeline of the training images, as training has them."""
    config = load_config("toy.yaml", overrides)
    network, backend = session.make_network(config), backend or NumPy()
    source = session.make_source(config, "train")
    forms = session.make_forms(config, network, backend, source)
    engine = session.make_engine(config, network, backend, forms=forms)
    given = {"train": True, "form": forms[0]}
    return engine, session.make_pipeline(config, network, config.data.train, source, backend, **given)


def stream(overrides, epoch=1, start=0):
    """What is fed, batch by batch."""
    _, pipeline = opened(overrides)
    with pipeline:
        return [{k: v.copy() for k, v in batch.inputs.items()} for batch in pipeline.batches(epoch, start)]


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("crop", ["random", "resized"])
@pytest.mark.parametrize("source", SOURCES)
def test_from_the_middle_of_an_epoch(source, crop):
    given = options(source, f"crop={crop}", *AUGMENTED)
    straight = stream([*given, "data.threads=1", "data.cache=off"])
    assert len(straight) == 4 and any(one["patch"].any() for one in straight)
    for workers in ("threads", "processes"):
        assert_same(stream([*given, "data.threads=2", f"data.workers={workers}"], start=12), straight[2:])


@pytest.mark.parametrize("workers", ["threads", "processes"])
@pytest.mark.parametrize("source", ["shards", "raw"])
def test_a_resumed_run_has_the_same_bits(source, workers, tmp_path, monkeypatch, capsys):
    """Stopped in the second of four steps of the first epoch."""
    inner = Engine.train

    def train(self, *args, **options):
        if options["step"] == 1:
            signal.raise_signal(signal.SIGTERM)
        inner(self, *args, **options)

    given = [*options(source, "crop=random", *AUGMENTED), f"data.workers={workers}", "data.threads=1"]
    run = ["train", "toy.yaml", "--device", "cpu", *given]
    assert main([*run, f"run.dir={tmp_path}/whole"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "train", train)
        assert main([*run, f"run.dir={tmp_path}/part"]) == 128 + signal.SIGTERM
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume", f"{tmp_path}/part"]) == 0
    assert last_files(tmp_path / "whole") == last_files(tmp_path / "part")


CUTS = {
    "a centre": ["crop=center"],
    "a random place": ["crop=random", "mirror=true"],
    "a padded image": ["crop=random", "pad=3"],
    "a small image": ["crop=random", "pad=1"],
    "with everything": ["crop=random", *AUGMENTED],
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("source", AT_HAND)
def test_cut_on_the_device_as_on_the_host(source, cut, monkeypatch):
    """The network's input has the same bits."""
    given = [*options(source, "resize=none", *CUTS[cut]), *(["layers.data.size=40"] if cut == "a small image" else [])]
    found = []
    for most in (2, 0):
        monkeypatch.setattr(fill, "MOST_UNCUT", most)
        engine, pipeline = opened(given)
        with pipeline:
            batches = [(batch.pixels.shape[1], data_layer(engine, batch)) for batch in pipeline.batches(1)]
        found.append(batches)
    stored, cut_to = pipeline.source.images.shape[1], pipeline.transform.height
    assert {side for side, _ in found[0]} == {stored} and {side for side, _ in found[1]} == {cut_to}
    for (_, ours), (_, theirs) in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("room", [3, 1])
@pytest.mark.parametrize("source", SOURCES)
def test_resized_on_the_device_as_on_the_host(source, room, monkeypatch):
    """The network's input has the same bits, of parts that fit in their cells and of those that do not."""
    monkeypatch.setattr(fill, "ROOM", room)
    given = options(source, "crop=resized", *AUGMENTED)
    for more in (["data.cache=off"], ["data.workers=processes"], ["data.decoder=pillow", "data.train.resize=32"]):
        found = []
        for backend in (LikeCUDA(), NumPy()):
            engine, pipeline = opened([*given, *more], backend)
            with pipeline:
                batches = (batch for epoch in (0, 1) for batch in pipeline.batches(epoch))
                found.append([(batch.pixels.shape[1:], data_layer(engine, batch)) for batch in batches])
        assert {shape for shape, _ in found[0]} == {pipeline_cell(room)}
        assert {shape for shape, _ in found[1]} == {(30, 30, 3)}
        for (_, ours), (_, theirs) in zip(*found, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.gpu
@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_resized_by_a_gpu(workers):
    """What the host makes of the same samples."""
    given = [*options("folder", "crop=resized", "mirror=true"), f"data.workers={workers}", "data.cache=off"]
    found = []
    for backend in (Cuda(0), NumPy()):
        engine, pipeline = opened(given, backend)
        with pipeline:
            found.append([data_layer(engine, batch) for epoch in (0, 1) for batch in pipeline.batches(epoch)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def pipeline_cell(room):
    """Bytes: a head of 16, and so many times the network's input."""
    return (16 + 16 * -(-room * 30 * 30 * 3 // 16),)


@pytest.mark.parametrize(
    "more", [["crop=resized"], ["crop=random", "auto_augment=trivial"], ["crop=random", "resize=33"]], ids=str
)
def test_what_the_device_cannot_cut(more):
    _, pipeline = opened(options("raw", *more))
    with pipeline:
        assert next(pipeline.batches()).pixels.shape[1:] == (30, 30, 3)


def test_a_small_part_of_large_images_is_cut_before_the_upload():
    _, pipeline = opened([*options("raw", "crop=random"), "layers.data.size=26"])
    with pipeline:
        assert next(pipeline.batches()).pixels.shape[1:] == (26, 26, 3)


@pytest.mark.parametrize("validated", ["raw", "folder"])
def test_training_and_evaluation_cut_where_each_can(validated, tmp_path, monkeypatch, capsys):
    """A run in which both are cut on the device, or training alone, has the bits and results of one without."""
    val = f"data.val={SOURCES[validated]}"
    for most in (2, 0):
        monkeypatch.setattr(fill, "MOST_UNCUT", most)
        run = ["train", "toy.yaml", "--device", "cpu", *options("raw", "crop=random"), val]
        assert main([*run, f"run.dir={tmp_path}/{most}"]) == 0
    assert last_files(tmp_path / "2") == last_files(tmp_path / "0")
    results = [line for line in capsys.readouterr().out.splitlines() if " eval " in line]
    assert len(results) == 4 and [line.split("eval")[1] for line in results[:2]] == [
        line.split("eval")[1] for line in results[2:]
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_samples_of_every_source(source, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    target = tmp_path / "samples.png"
    given = [*options(source, "crop=random", *AUGMENTED), "data.threads=1", "data.workers=processes"]
    assert main(["plot", "samples", "toy.yaml", "--device", "cpu", "--count", "6", "-o", str(target), *given]) == 0
    with Image.open(target) as image:
        assert np.asarray(image.convert("L")).std() > 10
