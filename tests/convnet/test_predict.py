"""The predict command: order, names, probabilities, and images that cannot be read."""

import csv
import io
import json

import pytest

from convnet.cli import main
from tests.convnet.toy import train_toy


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the toy, and its run."""
    return train_toy(tmp_path_factory.mktemp("predict"))


@pytest.fixture
def predict(trained, monkeypatch, capsys):
    """`convnet predict runs/toy PATH...`; (stdout, stderr)."""
    monkeypatch.chdir(trained)
    capsys.readouterr()

    def run(*args, code=0):
        assert main(["predict", "runs/toy", "--device", "cpu", *args]) == code
        return capsys.readouterr()

    return run


def as_json(captured):
    return json.loads(captured.out)


def test_the_order_is_the_one_given(predict):
    """Files as given, folders sorted and to any depth, one image twice if it is named twice."""
    paths = ["images/val/c/002.jpg", "images/val/a", "images/val/c/002.jpg", "images/val/b/000.jpg"]
    expected = [paths[0], *(f"images/val/a/{i:03}.jpg" for i in range(4)), paths[2], paths[3]]
    found = as_json(predict(*paths, "--format", "json"))
    assert [row["path"] for row in found] == expected
    first, again = found[0]["top"], found[5]["top"]  # in another place of a batch: to rounding
    assert [entry["class"] for entry in first] == [entry["class"] for entry in again]
    assert first[0]["probability"] == pytest.approx(again[0]["probability"], rel=1e-5)
    assert len(as_json(predict("images", "--format", "json"))) == 33


def test_probabilities(predict):
    for row in as_json(predict("images/val", "--top", "3", "--format", "json")):
        values = [entry["probability"] for entry in row["top"]]
        assert {entry["class"] for entry in row["top"]} == {"a", "b", "c"}
        assert sum(values) == pytest.approx(1, abs=1e-5)
        assert values == sorted(values, reverse=True)


def test_they_agree_with_the_evaluation(predict, capsys):
    found = as_json(predict("images/val", "--top", "1", "--format", "json"))
    right = sum(row["top"][0]["class"] == row["path"].split("/")[2] for row in found)
    assert main(["eval", "runs/toy", "--json", "--device", "cpu"]) == 0
    assert right / 12 == json.loads(capsys.readouterr().out)["top1_accuracy"]


def test_formats(predict):
    rows = list(csv.DictReader(io.StringIO(predict("images/val/b", "--top", "2", "--format", "csv").out)))
    assert len(rows) == 4 and list(rows[0]) == ["path", "class1", "probability1", "class2", "probability2"]
    assert float(rows[0]["probability1"]) >= float(rows[0]["probability2"])
    lines = predict("images/val/b", "--top", "1").out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("images/val/b/000.jpg  ") and lines[0].endswith("%")


def test_odd_names_are_quoted_in_csv(predict, trained, tmp_path):
    name = 'a, "b"\nc.jpg'
    (tmp_path / name).write_bytes((trained / "images/val/a/000.jpg").read_bytes())
    rows = list(csv.DictReader(io.StringIO(predict(str(tmp_path), "--format", "csv").out)))
    assert [row["path"] for row in rows] == [f"{tmp_path}/{name}"]


def test_a_line_break_in_a_name_does_not_break_the_table(predict, trained, tmp_path):
    (tmp_path / "a\nb\x1b.jpg").write_bytes((trained / "images/val/a/000.jpg").read_bytes())
    (line,) = predict(str(tmp_path)).out.splitlines()
    assert line.startswith(f"{tmp_path}/a\\nb\\x1b.jpg  ")


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(predict, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut")
    (tmp_path / "empty").mkdir()
    args = [
        "none.jpg",
        "images/val/a/000.jpg",
        str(tmp_path / "broken.jpg"),
        str(tmp_path / "empty"),
        "images/val/b/000.jpg",
    ]
    captured = predict(*args, "--format", "json", code=1)
    assert [row["path"] for row in as_json(captured)] == ["images/val/a/000.jpg", "images/val/b/000.jpg"]
    errors = captured.err.splitlines()
    assert len(errors) == 3
    for name in ("none.jpg", "broken.jpg", "empty"):
        assert sum(name in line and line.startswith("error: ") for line in errors) == 1


def test_nothing_readable(predict):
    assert predict("none.jpg", code=1).out == ""
    assert predict("none.jpg", "--format", "json", code=1).out == "[]\n"


def test_top_is_at_least_one(predict):
    assert "--top: expected 1 or more, found 0" in predict("images", "--top", "0", code=1).err


def test_a_folder_that_is_no_run(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    assert main(["predict", "images", "images/val"]) == 1
    assert "images: neither a run with checkpoints nor a checkpoint" in capsys.readouterr().err
