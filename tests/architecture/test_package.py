"""What is installed: every module and every CUDA source, so that an installed convnet runs from any folder."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("kernels", "layers", "convnet")


def test_the_wheel_holds_every_source(tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), "."]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("convnet-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    expected = {p.relative_to(ROOT).as_posix() for name in PACKAGES for p in (ROOT / name).rglob("*.*")}
    expected = {path for path in expected if path.endswith((".py", ".cu", ".cuh"))}
    assert expected and expected <= packed
    assert {path.split("/")[0] for path in packed if ".dist-info/" not in path} == set(PACKAGES)
