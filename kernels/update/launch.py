"""The update operations and their CUDA variants."""

from kernels.op import Launch, Op, Plan, ceil_div
from kernels.update import reference
from kernels.update.geometry import Magnitude, Sgd

SGD = Op("update.sgd", reference.sgd, writes=("w", "v"))
MAGNITUDE = Op("update.magnitude", reference.magnitude, writes=("out",))

SPLITS = 64  # shares of a span


@SGD.variant("sgd.cu")
def blocks(g: Sgd) -> Launch:
    return Launch((g.blocks,), (256,))


@MAGNITUDE.variant("magnitude.cu")
def shares(g: Magnitude) -> Plan:
    define = (("SPLITS", SPLITS),)
    return Plan(
        (
            Launch((g.parameters * SPLITS,), (1, 256), define=define),
            Launch((ceil_div(g.parameters, 256),), (256,), define=define, kernel="magnitude_finish"),
        ),
        workspace=g.parameters * SPLITS * 16,
    )
