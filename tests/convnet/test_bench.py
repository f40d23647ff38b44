"""`convnet bench data`: a figure for each stage, of every kind of source."""

import os

import pytest

from convnet.cli import main
from tests.convnet.pictures import write_classes

LAYERS = """
layers:
  data: {type: data, size: 8}
  fc: {type: fc, outputs: 2}
  cost: {type: logreg, inputs: [fc, labels]}
"""


@pytest.mark.parametrize(
    "data, decoding",
    [
        ("{type: folder, path: images, crop: resized, mirror: true, on_error: skip}", True),
        ("{type: synthetic, samples: 40, classes: 2, size: 8}", False),
    ],
)
def test_stages(tmp_path, monkeypatch, capsys, data, decoding):
    monkeypatch.chdir(tmp_path)
    write_classes("images", images=8)
    (tmp_path / "images/cat/gone.jpg").symlink_to("nowhere")
    config = f"name: toy\nseed: 1\ndata:\n  train: {data}\ntrain: {{batch_size: 8, epochs: 1, accumulate: 2}}\n"
    (tmp_path / "toy.yaml").write_text(config + "solver: {type: sgd, lr: 0.1}\n" + LAYERS)
    assert main(["bench", "data", "toy.yaml", "--seconds", "0.05", "--device", "cpu"]) == 0
    rows = dict(line.rsplit(None, 2)[:2] for line in capsys.readouterr().out.splitlines())
    expected = ["batches", "upload", "input kernel", "together"]
    if decoding:
        expected = ["read", next(name for name in rows if name.startswith("decode (")), "crop", *expected]
    assert list(rows) == expected and all(int(rate.replace(",", "")) > 0 for rate in rows.values())
    assert sorted(os.listdir(tmp_path)) == ["images", "toy.yaml"]  # it leaves nothing behind


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_time_that_is_none(tmp_path, seconds, capsys):
    assert main(["bench", "data", str(tmp_path / "toy.yaml"), "--seconds", seconds, "--device", "cpu"]) == 1
    assert f"--seconds: expected more than 0, and a finite time, found {seconds}" in capsys.readouterr().err
