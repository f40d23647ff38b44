"""Hybrids as a user runs them, under `mpirun -n 2` on CPUs; and `convnet bench scaling`."""

import json

import pytest

from convnet.bench import options
from convnet.errors import UserError
from tests.convnet.toy import CONFIG, convnet, write_toy
from tests.parallel.test_mpi import CONVNET, MPIRUN, assert_same_run, mpirun, train

pytestmark = pytest.mark.skipif(MPIRUN is None, reason="needs mpirun")
HEAD = "fc0: {type: fc, outputs: 16, neuron: tanh}\n  drop0: {type: dropout, keep: 0.6}\n  fc1:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The toy with a hidden layer and without batch normalisation, and runs/one, trained by one process."""
    made = tmp_path_factory.mktemp("hybrid")
    write_toy(made, CONFIG.replace("fc1:", HEAD, 1).replace("{type: batch_norm,", "{type: conv, filters: 4, size: 1,"))
    convnet("train", "toy.yaml", "--device", "cpu", "train.last_batch=keep", "run.dir=runs/one", cwd=made)
    return made


@pytest.fixture
def toy(folder, tmp_path):
    (tmp_path / "images").symlink_to(folder / "images")
    (tmp_path / "toy.yaml").write_bytes((folder / "toy.yaml").read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    "ranks, how",
    [
        (2, ["parallel={conv: data, fc: model, scheme: B}"]),
        (3, ["parallel=hybrid"]),
        (2, ["layers.conv1.ranks=[1]", "layers.fc0.ranks=[0]"]),
    ],
)
def test_ranks_train_as_one_process_does(folder, toy, ranks, how):
    """The last batch of an epoch is one image: the other ranks have none."""
    _, err = train(ranks, "train.last_batch=keep", "run.dir=runs/all", *how, cwd=toy)
    assert not err
    assert_same_run(toy / "runs/all", folder / "runs/one")


def test_what_cannot_be_divided_is_told_with_its_place(toy):
    _, err = train(2, "layers.conv1.ranks=[2]", cwd=toy, code=None)
    assert "layer 'conv1': ranks: expected ranks below 2" in err
    _, err = train(2, "parallel=hybrid", "solver.clip_norm=1", cwd=toy, code=None)
    assert "clip_norm: the norm of all gradients" in err


def test_bench_scaling(toy):
    words = ["bench", "scaling", "toy.yaml", "--device", "cpu", "--gpus", "1,2", "--if-step-ms", "3", "-o", "out.json"]
    more = ["--batch", "4", "--global", "6", "--simulate", "nodes=2,gpus=4,bandwidth=10", "parallel=auto"]
    out, err = mpirun("-n", 2, *CONVNET, *words, *more, cwd=toy)
    assert not err and out.count("hybrid, scheme A") == 3
    found = json.loads((toy / "out.json").read_text())
    rows = {(r["scaling"], r["divided"], r["ranks"]): r for r in found["scaling"]}
    hybrids = [f"hybrid, scheme {name}" for name in "ABC"]
    assert list(rows) == [
        (kind, how, ranks)
        for kind in ("weak", "strong")
        for ranks, ways in ((1, ["one rank"]), (2, ["data", *hybrids]))
        for how in ways
    ]
    assert [rows["weak", how, ranks]["images"] for how, ranks in (("one rank", 1), ("data", 2))] == [4, 8]
    for (kind, _, ranks), row in rows.items():
        one = rows[kind, "one rank", 1]
        assert row["efficiency"] == pytest.approx(row["images_per_second"] / one["images_per_second"] / ranks)
        assert row["images_per_second"] == pytest.approx(1e3 * row["images"] / row["step_ms"])
        assert row["exposed_ms"] == pytest.approx(max(row["step_ms"] - row["silent_ms"], 0)) and row["step_ms"] > 0
        assert (row["exchange_ms"] > 0) == (row["exposed_if_ms"] is not None) == (ranks == 2)
    for simulated in found["simulated"]:
        assert (simulated["nodes"], simulated["gpus"], simulated["images"]) == (2, 4, 32)
        assert simulated["step_ms"] == pytest.approx(simulated["compute_ms"] + simulated["exposed_ms"])
    assert [s["divided"] for s in found["simulated"]] == ["data", *hybrids]
    assert {entry["bytes"] for entry in found["all_reduce"]["2"]} >= {4000, 1_000_000}


def test_bench_options():
    assert options.numbers("--gpus", "1, 2") == [1, 2]
    (links,) = options.links(["nodes=4,gpus=8,bandwidth=50"])
    assert (links.nodes, links.gpus, links.between, links.bandwidth) == (4, 8, 50e9, 0)
    for wrong in ("", "1,0", "a"):
        with pytest.raises(UserError, match="--gpus: expected numbers"):
            options.numbers("--gpus", wrong)
    for wrong in ("nodes=0", "gpus=1.5", "speed=3", "nodes"):
        with pytest.raises(UserError, match="--simulate: expected figures above 0"):
            options.links([wrong])
    _, err = convnet("bench", "scaling", "missing.yaml", cwd=".", code=2)
    assert "missing.yaml" in err


def test_the_summary_of_several_ranks_tells_what_each_way_costs(toy):
    one, _ = convnet("summary", "toy.yaml", "--device", "sm_90", cwd=toy)
    assert "hybrid" not in one
    two, _ = convnet(
        "summary", "toy.yaml", "--device", "sm_90", "--world", "2", "parallel=hybrid", "--explain", cwd=toy
    )
    rows = [line.split("  ")[0] for line in two.splitlines() if line.endswith("*") or " scheme " in line]
    assert {"hybrid, scheme A", "hybrid, scheme B", "hybrid, scheme C"} <= set(rows)
    assert sum(line.endswith("*") for line in two.splitlines()) == 1
    assert "300 GB/s" in two and "drop0 exchange" in two
    _, err = convnet("summary", "toy.yaml", "--world", "0", cwd=toy, code=1)
    assert "--world: expected 1 or more, found 0" in err


def test_training_explains_the_choice(toy):
    out, err = train(2, "train.epochs=1", "solver.schedule=constant", "parallel=auto", "--explain", cwd=toy)
    assert not err and out.count("hybrid, scheme B") == 1 and "2 GB/s" in out
