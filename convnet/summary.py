"""`convnet summary` and `--explain`: what a network consists of, the memory it takes, and how each step is computed."""

from collections.abc import Sequence
from typing import Any

from convnet import device, session
from convnet.config import Config
from convnet.graph.engine import Engine
from convnet.graph.net import Network, describe, multiply_adds
from convnet.graph.plan import ProgramPlan
from convnet.graph.steps import Step, Value
from convnet.parallel import choose, model
from convnet.parallel.collectives import Collective
from convnet.parallel.communicator import Silent, Solo
from convnet.parallel.model import Links


def summarize(config: Config, backend: Any, *, explained: bool = False, world: int = 1) -> str:
    """The layers, and the memory that training with this config allocates on the backend's device.

    Of several ranks, `world`, also what each way to divide the network among them costs; the memory and the steps are
    those of the first.
    """
    network, ranks = session.make_network(config), Silent(0, world) if world > 1 else Solo()
    engine = session.make_engine(config, network, backend, ranks, forms=session.make_forms(config, network, backend))
    parts = [layer_table(network), "", memory_table(engine)]
    parts += ["", choice_table(config, network, backend, model.links(backend.arch, ranks))] if world > 1 else []
    return "\n".join([*parts, "", explain(engine)] if explained else parts)


def choice_table(config: Config, network: Network, planner: Any, links: Links) -> str:
    """What a step costs for each way in which the network can be divided among ranks, as the model predicts."""
    found = choose.choices(network, 0, links.size, *session.divided(config, fc="auto", scheme="auto"))
    rows = choose.rows(choose.predict(found, session.timed_maker(config, network, planner), planner, links))
    each = f"{links.bandwidth / 1e9:g} GB/s and {links.latency * 1e6:g} us to each other"
    return f"{table(rows, right=6)}\nof {links.size} ranks with {each}, as predicted"


def layer_table(network: Network) -> str:
    """One row a layer: output shape, parameters, and multiply-adds of the forward pass of one image."""
    rows = [("layer", "type", "inputs", "output", "parameters", "multiply-adds")]
    for row in describe(network):
        numbers = f"{row['parameters']:,}", f"{row['multiply_adds']:,}"
        rows.append((row["layer"], row["type"], ", ".join(row["inputs"]), row["output"], *numbers))
    total = sum(row["parameters"] for row in describe(network))
    rows.append(("total", "", "", "", f"{total:,}", f"{multiply_adds(network):,}"))
    return table(rows, right=2)


def memory_table(engine: Engine) -> str:
    """The bytes of each part: exactly what is allocated. The arena is as large as the largest program needs."""
    parts = engine.memory
    rows = [("memory", "bytes", "MiB")]
    names = {
        "arena": "arena (maps, their gradients, workspaces)",
        "parameters": "parameters, gradients, momentum",
        "other": "inputs, statistics, results",
    }
    sizes = {**parts, "arena": engine.planned}
    rows += [(names[key], f"{sizes[key]:,}", f"{sizes[key] / 2**20:.1f}") for key in names]
    total = sum(sizes.values())
    rows.append(("total", f"{total:,}", f"{total / 2**20:.1f}"))
    programs = ", ".join(f"{kind} {plan.peak:,}" for (kind, *_), (_, plan) in engine.plans.items())
    size = f"{engine.batch_size} images" + (f", {engine.micro} at a time" if engine.micro < engine.batch_size else "")
    return "\n".join(
        [table(rows, right=2), f"on {device.describe(engine.backend)}, batches of {size}; arena: {programs}"]
    )


def explain(engine: Engine) -> str:
    """Every step of every program: the variant that computes it, why none before it, and where its results lie."""
    lines = []
    for (kind, batch, *_), (_, plan) in engine.plans.items():
        replay = "replayed as one CUDA graph" if engine.capture else "run step by step"
        lines.append(f"program {kind}, {batch} images, arena {plan.peak:,} bytes, {replay}")
        rows = [_explained(engine.backend, plan, i, step) for i, step in enumerate(plan.steps)]
        lines += ["  " + line for line in table([("step", "operation", "variant", "writes"), *rows]).splitlines()]
    return "\n".join(lines)


def _explained(backend: Any, plan: ProgramPlan, i: int, step: Step) -> tuple[str, ...]:
    choice = plan.choices[i]
    other = "between ranks" if isinstance(step.op, Collective) else "NumPy reference"
    variant = choice.variant.name if choice.variant else other
    if choice.variant:
        preferred = list(reversed(choice.variant.op.variants.values()))
        preferred = preferred[: preferred.index(choice.variant)]
        reasons = [f"{other.name} {other.misfit(step.geometry, backend.arch)}" for other in preferred]
        variant += f" ({'; '.join(reasons)})" if reasons else ""
        variant += f", workspace {choice.plan.workspace:,} at {choice.workspace:,}" if choice.plan.workspace else ""
    written = (step.arguments[name] for name in step.op.writes)
    places = [_place(plan, value) for value in written if isinstance(value, Value)]
    return f"{step.layer} {step.phase}", step.op.name, variant, ", ".join(places)


def _place(plan: ProgramPlan, value: Value) -> str:
    return f"{value} at {plan.offsets[value]:,}" if value in plan.offsets else str(value)


def table(rows: Sequence[tuple[str, ...]], right: int = 0) -> str:
    """Rows in columns two blanks apart, the last `right` columns flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    left = len(widths) - right
    lines = (
        "  ".join(
            f"{cell:{'<' if i < left else '>'}{width}}" for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
