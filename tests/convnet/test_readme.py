"""What the README shows is what works."""

import re
import shlex
from pathlib import Path

import pytest

from convnet.cli import main, parse
from convnet.config import load_config
from convnet.session import make_network

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
COMMANDS = re.findall(r"(?:^    |`)convnet (\w+ [\w./= -]*\w)", README, re.MULTILINE)


def test_the_config_trains_as_shown(tmp_path):
    (config,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "photos.yaml").write_text(config, "utf-8")
    loaded = load_config(tmp_path / "photos.yaml")
    assert loaded.run.dir == "runs/photos"
    assert make_network(loaded).outputs == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_are_understood(command):
    assert len(COMMANDS) >= 8
    parse(shlex.split(command))


def test_the_error_is_the_one_that_comes(tmp_path, monkeypatch, capsys):
    (shown,) = re.findall(r"`(quick\.yaml:.*)`", README)
    text = (ROOT / "configs/cifar10/quick.yaml").read_text("utf-8")
    wrong = text.replace("mode: max, size: 2}", "mode: max, stridde: 2}", 1)
    (tmp_path / "quick.yaml").write_text(wrong, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["summary", "quick.yaml"]) == 2
    assert capsys.readouterr().err.startswith(shown)
