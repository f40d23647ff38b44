"""Every reference, and every CUDA variant with every combination of its tunables, against the float64 reference."""

import numpy as np
import pytest

from tests.kernels import harness
from tests.kernels.arguments import arguments, optionals
from tests.kernels.cases import CASES

cases = pytest.mark.parametrize("case", CASES, ids=str)


def runs(op):
    """(beta, optional arguments given) to test: beta 0 first, where results may not be read."""
    betas = (0.0, 1.0, -0.5) if op.accumulates else (0.0,)
    return [(beta, True) for beta in betas] + [(0.0, False)] * bool(optionals(op))


def values_of(op, g, optional=True):
    return arguments(op, g, np.random.default_rng(1), optional)


@cases
def test_reference(case):
    """The reference in float32 and in any layout gives what it gives in float64, and touches nothing else."""
    op, g = case
    for beta, optional in runs(op):
        values = values_of(op, g, optional)
        expected = harness.reference(op, g, values, np.float64, "chwn", beta)
        for layout in harness.LAYOUTS:
            harness.compare(op, harness.reference(op, g, values, np.float32, layout, beta), expected)


@pytest.mark.parametrize("case", [case for case in CASES if case.op.accumulates], ids=str)
def test_reference_accumulates(case):
    """With beta the result is beta times what was there plus the result without."""
    op, g = case
    values = values_of(op, g)
    fresh = harness.reference(op, g, values, np.float64, "hcwn", 0.0)
    both = harness.reference(op, g, values, np.float64, "hcwn", -0.5)
    for name, result in both.items():
        untouched = np.isnan(fresh[name])  # eltwise.copy leaves other channels as they are
        expected = np.where(untouched, values[name], -0.5 * values[name] + fresh[name])
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12, err_msg=name)


@cases
@pytest.mark.gpu
def test_variants(case, cuda):
    op, g = case
    for beta, optional in runs(op):
        values = values_of(op, g, optional)
        expected = harness.reference(op, g, values, np.float64, "chwn", beta)
        for chosen in op.candidates(g, cuda.arch):
            for layout in harness.LAYOUTS:
                got = harness.on_gpu(op, g, values, layout, beta, cuda, chosen)
                harness.compare(op, got, expected)
                again = got if harness.SANITIZE else harness.on_gpu(op, g, values, layout, beta, cuda, chosen)
                for name in got:
                    assert got[name].tobytes() == again[name].tobytes(), f"{op} {chosen[0].name}: '{name}' varies"


@pytest.mark.parametrize("case", [case for case in CASES if case.op.inplace], ids=str)
def test_in_place(case):
    """Results are the same where a written argument takes the place of a read one."""
    check_in_place(case, lambda values, shared: harness.reference(*case, values, np.float64, "hcwn", 0.0, shared))


@pytest.mark.gpu
@pytest.mark.parametrize("case", [case for case in CASES if case.op.inplace], ids=str)
def test_in_place_on_gpu(case, cuda):
    for chosen in case.op.candidates(case.geometry, cuda.arch):
        check_in_place(
            case, lambda values, shared, c=chosen: harness.on_gpu(*case, values, "hcwn", 0.0, cuda, c, shared)
        )


def check_in_place(case, start):
    op, g = case
    values = values_of(op, g)
    expected = harness.reference(op, g, values, np.float64, "hcwn", 0.0)
    for read, written in op.inplace:
        harness.compare(op, start(values, {written: read}), expected)
