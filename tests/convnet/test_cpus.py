"""Processors, and the threads of BLAS that follow from them."""

import os
import subprocess
import sys

import pytest

from convnet import cpus
from tests.convnet.toy import environment


@pytest.mark.parametrize(
    ("quota", "count"),
    [("max 100000\n", 8), ("200000 100000\n", 2), ("150000 100000\n", 1), ("50000 100000\n", 1), ("9900000 100000", 8)],
)
def test_a_container_has_no_more_than_its_share(quota, count, tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(cpus, "QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    assert cpus.available_cpus() == count


def test_without_a_quota(tmp_path, monkeypatch):
    monkeypatch.setattr(cpus, "QUOTA", tmp_path / "none")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    assert cpus.available_cpus() == 8


@pytest.mark.parametrize(
    ("processors", "given", "expected"),
    [
        (1, {}, "1"),
        (2, {}, "1"),
        (16, {}, "8"),
        (16, {"OPENBLAS_NUM_THREADS": "3"}, "3"),
        (16, {"OMP_NUM_THREADS": "5"}, "None"),
    ],
)
def test_threads_of_blas(processors, given, expected):
    """Half as many as processors, set before NumPy is there; a number that the user gave stays."""
    code = f"""
import os, pathlib, sys
os.sched_getaffinity = lambda process: range({processors})
pathlib.Path.read_text = lambda path, *more: "max 100000"  # no limit of this machine
import convnet
assert "numpy" not in sys.modules
print(os.environ.get("OPENBLAS_NUM_THREADS"))
"""
    unset = {k: v for k, v in environment(**given).items() if k in given or not k.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], env=unset, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
