"""The doctor never fails, and knows what is essential."""

import pytest

from convnet import doctor
from convnet.cli import main
from convnet.doctor import BROKEN, MISSING, OK, Finding, examine, fatal, report


def by_name(findings):
    return {finding.what: finding for finding in findings}


def test_this_machine(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for what in ("Python", "numpy", "pillow", "decoder", "CuPy", "MPI"):
        assert what in out


def test_what_is_missing_comes_with_a_remedy(monkeypatch):
    def no_cupy():
        raise ImportError("No module named 'cupy'")

    monkeypatch.setattr(doctor, "cupy", no_cupy)
    found = by_name(examine())
    assert found["CuPy"].state == MISSING and "pip install '.[cuda13]' in the clone of convnet" in found["CuPy"].remedy
    assert "GPU" not in found
    assert not fatal(list(found.values()))


@pytest.mark.parametrize("check", ["_python", "_packages", "_decoder", "_host", "_cuda", "_ranks"])
def test_a_check_that_fails_is_a_finding(check, monkeypatch):
    def fail():
        raise RuntimeError("driver on fire")

    fail.__name__ = check
    monkeypatch.setattr(doctor, check, fail)
    found = by_name(examine())
    assert found[check.strip("_")].state == BROKEN
    assert "driver on fire" in found[check.strip("_")].detail


def test_an_essential_package_that_is_missing_is_fatal(monkeypatch, capsys):
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name == "safetensors" else version(name))
    assert main(["doctor"]) == 1
    assert "pip install safetensors" in capsys.readouterr().out


def test_pillow_simd_counts_as_pillow(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: {"pillow": "", "pillow-simd": "9.5.0"}.get(name, "1"))
    assert by_name(examine())["pillow"].state == OK


def test_a_compiler_that_fails_is_broken(monkeypatch):
    def cubin(*args):
        raise RuntimeError("nvrtc: error: invalid value")

    monkeypatch.setattr("kernels.compile.cubin", cubin)
    found = by_name(doctor._compiler())
    assert found["compiler"].state == BROKEN and "invalid value" in found["compiler"].detail


@pytest.mark.gpu
def test_the_gpu_is_found():
    assert by_name(examine())["GPU 0"].state == OK


def test_report():
    text = report([Finding("Python", OK, "3.11"), Finding("CuPy", MISSING, "no GPU", "pip install x")])
    assert text.splitlines() == [
        "ok       Python  3.11",
        "missing  CuPy    no GPU",
        "                 -> pip install x",
    ]


def test_what_a_launcher_has_set_is_told(monkeypatch):
    assert by_name(doctor._ranks())["launch"].detail == "a process of its own, of no launcher"
    monkeypatch.setenv("RANK", "1")
    assert by_name(doctor._ranks())["launch"].state == BROKEN
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert by_name(doctor._ranks())["launch"].detail == "RANK and WORLD_SIZE say rank 1 of 2"


def test_a_missing_nccl_comes_with_its_reason_and_the_command_that_cupy_names(monkeypatch):
    def no_nccl():
        raise RuntimeError("nccl: libnccl.so.2: no such file You can install the library by: $ pip install x")

    monkeypatch.setattr(doctor, "nccl", no_nccl)
    found = by_name(doctor._ranks())["NCCL"]
    assert (found.state, found.detail) == (MISSING, "for several GPUs (nccl: libnccl.so.2: no such file)")
    assert found.remedy == "pip install x"
