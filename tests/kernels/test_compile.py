"""Every kernel that any case can start compiles for sm_80 and sm_90a; no GPU is needed."""

import pytest

from kernels.compile import cubin
from kernels.op import Call
from tests.kernels.cases import CASES

OPS = sorted({case.op.name for case in CASES})


@pytest.mark.parametrize("arch, target", [(80, "80"), (90, "90a")], ids=["sm_80", "sm_90a"])
@pytest.mark.parametrize("op", OPS)
def test_compiles(op, arch, target):
    pytest.importorskip("cupy", reason="CuPy brings the compiler")
    built = set()
    for case in CASES:
        if case.op.name == op:
            for variant, plan in case.op.candidates(case.geometry, arch):
                kernels = [launch for launch in plan.launches if not isinstance(launch, Call)]
                built |= {cubin(variant, launch, target) for launch in kernels}
                assert kernels or plan.launches, f"{variant.name} starts nothing"
    assert all(path.stat().st_size for path in built)
