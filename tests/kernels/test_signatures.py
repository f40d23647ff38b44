"""What every operation of the registry promises: it is documented and covered, and its kernels take its arguments."""

import inspect
import re

import pytest

from kernels.op import FOLDER, REGISTRY, Launch, Op
from tests.kernels.cases import CASES

SOURCES = sorted(FOLDER.glob("*/*.cu"))
KERNEL = r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?%s\(([^)]*)\)'
LAUNCHES = sorted(
    {
        (case.op.name, variant.source, launch.kernel or case.op.entry, bool(plan.workspace))
        for case in CASES
        for variant in case.op.variants.values()
        if not variant.misfit(case.geometry, 90)
        for plan in variant.plans(case.geometry)
        for launch in plan.launches
        if isinstance(launch, Launch)
    }
)

ops = pytest.mark.parametrize("op", REGISTRY.values(), ids=str)


def parameters(source: str, kernel: str) -> list[str]:
    found = re.findall(KERNEL % kernel, source)
    assert len(found) == 1, f"expected one kernel '{kernel}', found {len(found)}"
    return [re.sub(r"\s+", " ", parameter).strip() for parameter in found[0].split(",")]


def expected(op: Op, name: str) -> str:
    """A pattern for the declaration of one argument; what is only read is const."""
    const = "" if name in op.writes else "const "
    kinds = {"map": rf"(const )?Map<{const}\w+>&? {name}", "array": rf"{const}[\w ]+\*( __restrict__)? {name}"}
    kind = op.arguments[name]
    return kinds.get(kind, f"{kind} {name}")


@pytest.mark.parametrize("name, source, kernel, workspace", LAUNCHES)
def test_kernel_takes_the_arguments_of_the_reference(name, source, kernel, workspace):
    op = REGISTRY[name]
    found = parameters((FOLDER / op.family / source).read_text(), kernel)
    patterns = [
        rf"(const )?(__grid_constant__ )?(const )?{op.geometry.__name__} g",
        *(expected(op, n) for n in op.arguments),
    ]
    patterns += [r".*\* \w+"] * workspace
    assert len(found) == len(patterns), f"{source}: {kernel} takes {found}, the reference takes {list(op.arguments)}"
    for parameter, pattern in zip(found, patterns, strict=True):
        assert re.fullmatch(pattern, parameter), f"{source}: {kernel}: found '{parameter}', expected '{pattern}'"


def test_a_wrong_signature_is_found():
    op = REGISTRY["neuron.backward"]
    assert re.fullmatch(expected(op, "dy"), "Map<const float> dy")
    assert not re.fullmatch(expected(op, "dy"), "Map<float> dy")
    assert not re.fullmatch(expected(op, "dx"), "Map<const float> dx")
    assert not re.fullmatch(expected(op, "beta"), "double beta")


@ops
def test_operation(op):
    assert inspect.getdoc(op.reference), "the reference has no docstring"
    assert op.variants, "no variant"
    covered = {variant.name for case in CASES if case.op is op for variant, _ in op.candidates(case.geometry, 90)}
    assert covered == op.variants.keys(), "variants that no case starts"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_source(path):
    """Each .cu begins with a comment (see kernels/README.md) and is used."""
    header = re.match(r"(//.*\n){2,}", path.read_text())
    assert header, "no header comment"
    assert re.search(r"[Gg]rid|Rows launch", header[0]), "the header does not say how the kernel is launched"
    assert any(v.path == path for op in REGISTRY.values() for v in op.variants.values()), "no variant uses it"
