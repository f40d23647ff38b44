"""What a run does about its images: who decodes them, how they are fed, and what it says when it waits."""

import pytest

from convnet.cli import main
from convnet.console import Console
from convnet.results import Results
from convnet.train.extensions.log import Log
from tests.convnet.toy import last_files, rows, write_toy

pytest.importorskip("simplejpeg")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_toy(tmp_path)
    return tmp_path


def train(*options):
    assert main(["train", "toy.yaml", "--device", "cpu", *options]) == 0


@pytest.mark.parametrize("options", [["data.decoder=simplejpeg"], ["data.workers=processes", "data.threads=2"]])
def test_decoders_and_processes_train_the_same_network(folder, options):
    train("data.decoder=pillow", "run.dir=one")
    train(*options, "run.dir=other")
    assert last_files(folder / "one") == last_files(folder / "other")


def test_the_decoder_is_kept_with_the_run(folder, capsys):
    train("data.decoder=pillow", "train.epochs=1")
    assert rows(folder / "runs/toy", "run")[0]["decoder"] == "pillow"
    train("data.decoder=simplejpeg", "train.epochs=2", "--resume")
    assert "images were decoded by pillow, from here on by simplejpeg" in capsys.readouterr().err


def test_much_waiting_is_told_once(tmp_path, capsys):
    def advice(share):
        return f"waits {share:.0%}"

    options = {
        "due": lambda trainer: True,
        "run": {},
        "learning_rate": lambda step: 0.1,
        "results": Results((), "cost"),
    }
    log = Log(tmp_path / "metrics.jsonl", Console(), **options, advice=advice)
    told = []
    for waited, seconds in ((9, 10), (5, 100), (0.9, 1), (6, 100), (9, 10)):  # the first has the start of everything
        log.advise(waited, seconds)
        told.append(capsys.readouterr().err)
    assert told == ["", "", "", "warning: waits 6%\n", ""]
