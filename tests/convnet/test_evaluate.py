"""Accuracies, losses and confusions, and the eval command."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from convnet import session
from convnet.cli import main
from convnet.device import open_device
from convnet.evaluate import Evaluation, evaluate, score
from convnet.run import find_checkpoint
from tests.convnet.toy import train_toy
from tests.parallel.watched import Watched


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the toy, and its run."""
    return train_toy(tmp_path_factory.mktemp("evaluate"))


@pytest.fixture
def report(trained, monkeypatch, capsys):
    """`convnet eval runs/toy --json`, with further arguments."""
    monkeypatch.chdir(trained)

    def run(*args, model="runs/toy"):
        capsys.readouterr()
        assert main(["eval", model, "--json", "--device", "cpu", *args]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_score():
    probabilities = np.array([[0.5, 0.1, 0.25, 0.0], [0.3, 0.1, 0.25, 1.0], [0.2, 0.8, 0.5, 0.0]])
    loss, top1, top2 = score(probabilities, np.array([0, 1, 1, 0]), (1, 2))
    np.testing.assert_allclose(loss[:3], -np.log([0.5, 0.1, 0.25]))
    assert np.isfinite(loss[3])
    assert top1.tolist() == [0, 1, 1, 1]
    assert top2.tolist() == [0, 1, 1, 0]  # of equal probabilities the lower index ranks higher


def fake(probabilities, labels, more=()):
    """An engine whose answers are given, and one batch of it per view. more: names of results beside the classifier's.

    These are the number of the view, for each sample.
    """
    answers = iter(enumerate(probabilities))

    def answer(pixels, labels, mirror, corner, total):
        view, p = next(answers)
        return p, np.concatenate([score(p, labels, (1,)), np.full((len(more), len(labels)), float(view))])

    network = SimpleNamespace(classifier=SimpleNamespace(name="cost"), main=SimpleNamespace(name="cost"))
    engine = SimpleNamespace(
        network=network,
        results=("cost.loss", "cost.top1_error", *more),
        evaluate=answer,
        counts=lambda evaluated: {},
    )
    batch = {"pixels": 0, "mirror": 0, "corner": 0, "labels": np.array(labels), "total": len(labels)}
    return engine, [SimpleNamespace(**batch, view=view) for view in range(len(probabilities))]


def test_probabilities_are_averaged_over_views():
    """Two views, each wrong about one image; their mean is right about both, and the loss is that of the mean."""
    views = [np.array([[0.9, 0.6], [0.1, 0.4]]), np.array([[0.4, 0.1], [0.6, 0.9]])]
    engine, batches = fake(views, [0, 1])
    found = evaluate(engine, batches, ["a", "b"], views=2)
    assert (found.results["top1_accuracy"], found.images) == (1.0, 2)
    assert found.results["loss"] == pytest.approx(-np.log([0.65, 0.65]).mean())
    assert found.confusion.tolist() == [[1, 0], [0, 1]]


def test_other_results_are_averaged_over_views_themselves():
    engine, batches = fake([np.array([[0.9, 0.2], [0.1, 0.8]])] * 4, [0, -1], more=("aux.loss", "aux.bit_error"))
    found = evaluate(engine, batches, ["a", "b"], views=4).results
    assert (found["aux.loss"], found["aux.bit_accuracy"]) == (1.5, -0.5)
    assert found["loss"] == found["cost.loss"] == pytest.approx(-np.log(0.9))


def test_images_without_a_label_do_not_count():
    engine, batches = fake([np.array([[0.9, 0.9, 0.2], [0.1, 0.1, 0.8]])], [0, -1, 0])
    found = evaluate(engine, batches, ["a", "b"])
    assert (found.images, found.results["top1_accuracy"]) == (2, 0.5)
    assert found.confusion.tolist() == [[1, 1], [0, 0]]
    assert found.per_class()[0] == ("a", 2, 0.5) and np.isnan(found.per_class()[1][2])


def test_where_nothing_can_be_read_there_is_no_result(trained, tmp_path, monkeypatch, capsys):
    """Neither a loss of 0 nor a success."""
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(b"")
    monkeypatch.chdir(trained)
    overrides = [f"data.val.path={tmp_path}", "data.val.on_error=skip"]
    assert main(["eval", "runs/toy", "--json", "--device", "cpu", *overrides]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error: none of the 3 validation images can be read; the first: cannot decode" in captured.err


def test_stopping():
    engine, batches = fake([np.array([[1.0], [0.0]])], [0])
    assert evaluate(engine, batches, ["a", "b"], stop=lambda: True) is None


def test_images_may_take_long():
    control, (engine, batches) = Watched(), fake([np.array([[1.0], [0.0]])] * 2, [0])
    answer, engine.evaluate = engine.evaluate, lambda *_, **__: control.note("network") or answer(*_, **__)
    evaluate(engine, control.noting("images", batches), ["a", "b"], views=2, control=control)
    # Kernels are compiled for the first batch of a size.
    assert control.seen == [("images", True), ("network", True), ("images", True), ("network", False)]


def test_text_with_few_and_with_many_classes():
    def found(n, confusion):
        phrases, images = ("loss 1.5000", "top-1 25.00%", "top-2 50.00%"), int(confusion.sum())
        return Evaluation([f"class{i}" for i in range(n)], {}, phrases, images, 1, confusion, 3, 1.0)

    few = found(3, np.array([[1, 0, 2], [0, 0, 0], [0, 11, 4]])).text()
    assert "top-1 25.00% (5 of 18), top-2 50.00%, loss 1.5000, 3 skipped" in few
    assert "class1       0         -" in few
    assert few.splitlines()[-3:] == ["class0 0  1  .  2", "class1 1  .  .  .", "class2 2  . 11  4"]
    confusion = np.diag(np.arange(30))
    confusion[7, 3], confusion[2, 29] = 5, 9
    assert found(30, confusion).text().splitlines()[-3:] == [
        "commonest confusions",
        "     9  class2 taken for class29",
        "     5  class7 taken for class3",
    ]


def test_text_without_classes():
    assert Evaluation(["a"], {}, ["loss 1.5000", "bit 97.00%"], 12, 1, None, 0, 1.0).text() == (
        "bit 97.00%, loss 1.5000, 12 images"
    )


def test_the_results_are_those_of_training(trained, report):
    """The last row of the log, to the bit; a confusion matrix of 12 images."""
    lines = (trained / "runs/toy/metrics.jsonl").read_text().splitlines()
    row = [row for row in map(json.loads, lines) if row["event"] == "eval"][-1]
    found = report()
    for key in ("loss", "top1_accuracy", "images", "step"):
        assert found[key] == row[key]
    assert np.sum(found["confusion"]) == 12
    assert np.trace(found["confusion"]) / 12 == found["top1_accuracy"]
    assert [(c["class"], c["images"]) for c in found["per_class"]] == [("a", 4), ("b", 4), ("c", 4)]


@pytest.mark.parametrize("size", [1, 2, 5, 7, 12, 100])
def test_batches_of_any_size_give_the_same(size, report):
    expected, found = report(), report(f"train.batch_size={size}")
    assert found["confusion"] == expected["confusion"]
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def test_ten_views(trained, report):
    """As by hand: the mean of the probabilities of ten crops."""
    _, engine = session.open_checkpoint(find_checkpoint(trained / "runs/toy", pytest.fail), open_device("cpu"))
    total, labels = [], []
    for label, name in enumerate("abc"):
        for path in sorted((trained / "images/val" / name).iterdir()):
            image = np.asarray(Image.open(path))
            starts = [(y, x) for y in (0, 2) for x in (0, 2)] + [(1, 1)]
            crops = [image[y : y + 10, x : x + 10] for y, x in starts]
            views = np.stack([view for crop in crops for view in (crop, crop[:, ::-1])])[..., None]
            probabilities, _ = engine.evaluate(views[:5].copy(), np.zeros(5, np.int32))
            more, _ = engine.evaluate(views[5:].copy(), np.zeros(5, np.int32))
            total.append(np.concatenate([probabilities, more], 1).mean(1))
            labels.append(label)
    right = np.argmax(total, 1) == labels
    loss = -np.log(np.array(total)[np.arange(12), labels]).mean()
    found = report("--views", "10")
    assert found["top1_accuracy"] == right.mean() and found["views"] == 10
    assert found["loss"] == pytest.approx(loss, rel=1e-5)


def test_the_class_order_is_the_checkpoints(trained, report, tmp_path, capsys):
    """Validation images of some classes only keep their labels; another class is an error that names it."""
    (tmp_path / "val").mkdir()
    for name in "ca":
        (tmp_path / "val" / name).symlink_to(trained / "images/val" / name)
    part = report(f"data.val.path={tmp_path}/val", "data.val.allow_empty=true")
    whole = report()
    assert part["confusion"] == [whole["confusion"][0], [0, 0, 0], whole["confusion"][2]]
    (tmp_path / "val/z").symlink_to(trained / "images/val/b")
    assert main(["eval", "runs/toy", "--device", "cpu", f"data.val.path={tmp_path}/val"]) == 1
    assert "'z'" in capsys.readouterr().err


def test_a_checkpoint_and_the_best_one(trained, report):
    folder = trained / "runs/toy/checkpoints"
    step = int((folder / "best").read_text().strip().removeprefix("step-"))
    assert report("--best")["step"] == step
    first = sorted(folder.glob("step-*"))[0]
    assert report(model=str(first))["checkpoint"] == str(first)


def test_printed_for_people(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    assert main(["eval", "runs/toy", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "runs/toy/checkpoints/step-00000012" in out and "confusion matrix" in out and "top-1 " in out


def test_skipped_images_are_counted(trained, report, tmp_path):
    shutil.copytree(trained / "images/val", tmp_path / "val")
    (tmp_path / "val/a/001.jpg").write_bytes(b"\xff\xd8 not an image")
    found = report(f"data.val.path={tmp_path}/val", "data.val.on_error=skip")
    assert (found["images"], found["skipped"]) == (11, 1)


def test_nothing_to_evaluate_on(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    assert main(["eval", "runs/toy", "--device", "cpu", "data.val=null"]) == 1
    assert "has no data.val" in capsys.readouterr().err
