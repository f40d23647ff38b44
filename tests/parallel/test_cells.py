"""Images that come in cells and are resized by the device: training has the bits of one whose host resizes, by whatever
ranks; and what is measured, or predicted, is this kind of training."""

import numpy as np
import pytest

from convnet import session
from convnet.bench.measure import measure
from convnet.bench.scaling import Asked, Bench
from convnet.cli import main
from convnet.config import load_config
from convnet.data.fill import choose_form
from convnet.data.transform import Transform
from convnet.device import Planner
from convnet.graph.engine import Engine
from convnet.graph.feed import Feed
from convnet.parallel import choose, devices
from convnet.parallel.control import Control
from convnet.parallel.model import Links
from convnet.parallel.world import World
from convnet.summary import choice_table
from kernels.backend import NumPy
from kernels.image import HEAD, MOST, RESAMPLE, Resample
from tests.convnet.networks import wire
from tests.convnet.test_data_streams import AUGMENTED, LikeCUDA
from tests.convnet.toy import last_files, results
from tests.parallel.curves import bits, state, table
from tests.parallel.threads import together

CONFIG = """
name: toy
seed: 3
data:
  mean: 100
  std: 60
  train: {type: synthetic, samples: 13, classes: 2, size: 24, crop: resized, mirror: true}
layers:
  data: {type: data, size: 10}
  conv: {type: conv, filters: 4, size: 3, pad: 1, neuron: relu}
  drop: {type: dropout, keep: 0.8}
  fc1: {type: fc, outputs: 6, neuron: tanh}
  fc2: {type: fc, outputs: 2}
  cost: {type: logreg, inputs: [fc2, labels]}
solver: {lr: 0.02, momentum: 0.9}
train: {batch_size: 6, epochs: 2, last_batch: keep}
"""


@pytest.fixture
def config(tmp_path):
    """A function of overrides."""
    (tmp_path / "toy.yaml").write_text(CONFIG)
    return lambda *overrides: load_config(tmp_path / "toy.yaml", overrides)


# Training


def trained(config, backend, ranks):
    """Sums of results of this rank at each step of two epochs, its state after them, and the shape of a sample."""
    network, source = session.make_network(config), session.make_source(config, "train")
    forms, control = session.make_forms(config, network, backend, source), Control(World(ranks.rank, ranks.size))
    engine = session.make_engine(config, network, backend, ranks, forms=forms)
    engine.initialize()
    step, options = 0, {"train": True, "form": forms[0]}
    with session.make_pipeline(config, network, config.data.train, source, backend, control, **options) as pipeline:
        for epoch in (0, 1):
            for batch in pipeline.batches(epoch):
                engine.train(**batch.inputs, step=step, rates=table(engine, step), total=batch.total)
                step += 1
    return engine.history(0, step), state(engine), pipeline.shape


@pytest.mark.parametrize("more", [(), tuple(f"data.train.{option}" for option in AUGMENTED)], ids=["plain", "mixed"])
@pytest.mark.parametrize(
    "size, how",
    [
        (1, ()),
        (1, ("train.accumulate=3",)),  # micro-batches of two
        (2, ()),
        (2, ("train.accumulate=3", "parallel.update=sharded")),
        (2, ("parallel={fc: model, scheme: B}",)),
        (3, ("parallel={fc: model, scheme: C}", "layers.fc1.outputs=9")),
    ],
    ids=str,
)
def test_training_has_the_bits_of_one_whose_host_resizes(config, size, how, more):
    """The last batch of an epoch is one image: other ranks have none."""
    of_device, of_host = (
        together(size, lambda ranks, backend=backend: trained(config(*how, *more), backend, ranks))
        for backend in (LikeCUDA(), NumPy())
    )
    for (history, held, shape), (expected, arrays, plain) in zip(of_device, of_host, strict=True):
        assert len(shape) == 1 and plain == (10, 10, 3)
        assert np.array_equal(history, expected) and bits(held) == bits(arrays)
    assert np.ptp(sum(history for history, *_ in of_host)[0]) > 0


def test_a_run_has_the_files_of_one_whose_host_resizes(config, tmp_path, monkeypatch):
    """As the command makes it, with evaluations between."""
    config()
    monkeypatch.chdir(tmp_path)
    ops, inner = set(), NumPy.bind
    monkeypatch.setattr(LikeCUDA, "bind", lambda self, op, *given: ops.add(op) or inner(self, op, *given))
    val = "data.val={type: synthetic, samples: 8, classes: 2, size: 24, resize: none}"
    for name, backend in (("cells", LikeCUDA()), ("plain", NumPy())):
        monkeypatch.setattr(devices, "open_device", lambda _, backend=backend: backend)
        assert main(["train", "toy.yaml", val, f"run.dir={name}", "train.accumulate=3"]) == 0
    assert last_files("cells") == last_files("plain")
    assert results("cells") == results("plain")
    assert RESAMPLE in ops


# Measurements and predictions


def resamples(steps):
    """Whether a step list resizes images, once, that come in cells of the size that they have in training."""
    return [step.geometry.cell for step in steps if step.op is RESAMPLE] == [HEAD + 912]


@pytest.fixture
def planned(monkeypatch):
    """The step lists of training that are timed or predicted."""
    found, inner = [], choose.steps_of
    monkeypatch.setattr(choose, "steps_of", lambda engine: found.append(inner(engine)) or found[-1])
    return found


def test_what_each_division_costs_is_predicted_with_the_resizing(config, planned):
    made = config()
    table = choice_table(made, session.make_network(made), Planner(90), Links(gpus=2))
    assert "hybrid, scheme B" in table and len(planned) > 1 and all(map(resamples, planned))


def test_scaling_is_measured_and_predicted_with_the_resizing(config, planned):
    asked = Asked(counts=[1], batches=[2], whole=3, larger=[Links(gpus=2, bandwidth=1e9)])
    found = Bench(config(), asked, LikeCUDA(), Control()).run()
    assert len(found.rows) == 2 and len(found.larger) == 1
    assert len(planned) == 3 and all(map(resamples, planned))


@pytest.mark.parametrize("height, width, channels", [(10, 10, 3), (7, 12, 1), (3, 40, 3), (40, 2, 3), (1, 1, 1)])
def test_images_to_measure_with_lie_within_their_cells(height, width, channels):
    cell = choose_form(None, Transform(channels, height, width, crop="resized"), cells=True).cell
    engine = made(height, width, channels, Feed(cell=cell))
    inputs = choose.noise(engine)
    assert inputs.keys() == engine.blank().keys() and inputs["cells"].shape == (4, cell)
    for tall, wide in inputs["cells"][:, :8].view(np.int32).tolist():
        assert 0 < tall <= MOST * height and 0 < wide <= MOST * width
        assert height * width <= tall * wide <= (cell - HEAD) / channels
    pixels = np.zeros((4, height, width, channels), np.uint8)
    RESAMPLE.reference(Resample(channels, height, width, 4, cell), inputs["cells"], pixels)
    assert len(np.unique(pixels)) > 1


@pytest.mark.parametrize(
    "feed", [Feed(), Feed(cell=HEAD + 912), Feed(source=(12, 11))], ids=["plain", "cells", "uncut"]
)
def test_a_step_is_timed_whatever_its_images_come_as(feed):
    """With images of content, in either measurement."""
    engine = made(10, 10, 3, feed)
    found = measure(engine, silent=True)
    assert found.total > 0
    filled(engine)
    assert choose.measure(engine) > 0
    filled(engine)


def filled(engine):
    """Assert that the network has seen other values in each image, and forget them."""
    y = session.make_input(engine, 4)
    assert (np.ptp(y, axis=(0, 1, 2)) > 50).all()
    for name in {"pixels", "cells"} & engine.arrays.keys():
        engine.arrays[name][...] = 0


def made(height, width, channels, feed):
    """An engine for batches of 4."""
    data = {"type": "data", "channels": channels, "size": [height, width]}
    cost = {"type": "logreg", "inputs": ["fc", "labels"]}
    network = wire(data=data, fc={"type": "fc", "outputs": 2}, cost=cost)
    return Engine(network, NumPy(), batch_size=4, feeds=(feed, Feed()))
