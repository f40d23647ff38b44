"""What is installed: every module, every CUDA source and every config, so that convnet runs from any folder."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("kernels", "layers", "convnet")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing is left in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    copy.mkdir()
    for name in (*PACKAGES, "configs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("convnet-*.whl")
    return found


def files(folder, *suffixes):
    """Paths in the tree."""
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.*") if path.suffix in suffixes}


def test_the_wheel_holds_every_source(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    expected = set().union(*(files(name, ".py", ".cu", ".cuh") for name in PACKAGES))
    assert expected and expected <= packed
    assert {path.split("/")[0] for path in packed if ".dist-info/" not in path and ".data/" not in path} == set(
        PACKAGES
    )


def test_the_wheel_holds_every_config(wheel):
    packed = {path.partition(".data/data/share/convnet/")[2] for path in zipfile.ZipFile(wheel).namelist()}
    expected = files("configs", ".yaml")
    assert expected and packed - {""} == expected


def test_an_installed_convnet_finds_its_configs(wheel, tmp_path):
    """In an environment of its own, and far from the tree."""
    place = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--prefix", str(place), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (packages,) = place.rglob("site-packages")
    code = "from convnet.formats.torchvision import *; print(*{default_config(arch) for arch in ARCHITECTURES})"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {Path(path).resolve() for path in done.stdout.split()}
    configs = place / "share/convnet/configs/imagenet"
    names = ("alexnet-owt", "vgg16", "resnet18", "resnet50", "resnet152", "squeezenet1_1")
    assert found == {(configs / f"{name}.yaml").resolve() for name in names}
