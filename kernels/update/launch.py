"""The update operations and their CUDA variants."""

from kernels.op import Launch, Op, Plan, ceil_div
from kernels.update import reference
from kernels.update.geometry import Average, Collect, Magnitude, Norm, Rescale, Sgd

SGD = Op("update.sgd", reference.sgd, writes=("w", "v"))
COLLECT = Op("update.collect", reference.collect, writes=("dw", "pending"))
NORM = Op("update.gradient_norm", reference.gradient_norm, writes=("norms",))
RESCALE = Op("update.rescale", reference.rescale, writes=("w",))
AVERAGE = Op("update.average", reference.average, writes=("e",))
MAGNITUDE = Op("update.magnitude", reference.magnitude, writes=("out",))

SPLITS = 64  # shares of a span
PARTS = 512  # shares of the flat gradients, two for each thread of the block that adds them


@SGD.variant("sgd.cu")
def blocks(g: Sgd) -> Launch:
    return Launch((g.blocks,), (256,))


@COLLECT.variant("collect.cu")
def waiting(g: Collect) -> Launch:
    return Launch((g.blocks,), (256,))


@NORM.variant("norm.cu")
def parts(g: Norm) -> Plan:
    define = (("PARTS", PARTS),)
    return Plan(
        (
            Launch((PARTS,), (1, 256), define=define),
            Launch((1,), (1, 256), define=define, kernel="gradient_norm_finish"),
        ),
        workspace=PARTS * 8,
    )


@RESCALE.variant("rescale.cu")
def rows(g: Rescale) -> Launch:
    return Launch((g.rows,), (1, 256))


@AVERAGE.variant("average.cu")
def averages(g: Average) -> Launch:
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
