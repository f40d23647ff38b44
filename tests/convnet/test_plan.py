"""Plans of whole networks: no value is overwritten, by another or by a workspace, while something still reads it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convnet.device import Planner
from convnet.graph.engine import Engine
from convnet.graph.memory import ALIGNMENT
from convnet.graph.plan import ProgramPlan
from convnet.graph.steps import Value
from kernels.op import ceil_div
from tests.convnet.networks import small, wire

SHAPE = {"filters": 4, "size": 3, "pad": 1}

# Layers that make a map of 4 x 5 x 4 from one such map; and from several.
ONE = (
    {"type": "conv", **SHAPE},
    {"type": "conv", **SHAPE, "neuron": "relu"},
    {"type": "batch_norm"},
    {"type": "neuron", "kind": "tanh"},
    {"type": "neuron", "kind": "relu"},
    {"type": "dropout"},
    {"type": "cmrnorm", "size": 3},
    {"type": "pool", "size": 3, "stride": 1, "pad": 1},
    {"type": "softmax"},
)
MANY = ({"type": "eltsum"}, {"type": "concat"})


@st.composite
def networks(draw):
    """Random wiring: layers that read any earlier ones, some of them twice; one cost or two."""
    layers = {"data": {"type": "data", "channels": 4, "size": [5, 4]}}
    maps, loose = ["data"], {"data"}
    for i in range(draw(st.integers(1, 8))):
        section, most = draw(st.sampled_from([*((one, 1) for one in ONE), *((many, 3) for many in MANY)]))
        inputs = draw(st.lists(st.sampled_from(maps), min_size=min(most, 2), max_size=most))
        layers[f"l{i}"] = {**section, "inputs": inputs}
        if section["type"] == "concat":  # back to four channels
            layers[f"c{i}"] = {"type": "conv", **SHAPE}
        maps.append(list(layers)[-1])
        loose = loose - set(inputs) | {maps[-1]}
    layers["all"] = {"type": "concat", "inputs": [*sorted(loose), maps[-1]]}
    for k in range(draw(st.integers(1, 2))):
        layers[f"fc{k}"] = {"type": "fc", "outputs": 3, "inputs": ["all"]}
        layers[f"cost{k}"] = {"type": "logreg", "inputs": [f"fc{k}", "labels"]}
    return wire(**layers)


def check(plan: ProgramPlan, outputs: Sequence[Value] = ()) -> None:
    """Follow the arena through the steps: what a step reads is what was last written there, under the same name."""
    memory = np.full(units(0, plan.peak).stop, -1)  # which value was last written to each unit
    marks: dict[Value, int] = {}
    for step, choice in zip(plan.steps, plan.choices, strict=True):
        arena = {key: v for key, v in step.arguments.items() if isinstance(v, Value) and v.arena}
        spans = {key: units(plan.offsets[v], v.nbytes) for key, v in arena.items()}
        work = units(choice.workspace, choice.plan.workspace)
        for key, value in arena.items():
            here = memory[spans[key]]
            first = key in step.op.writes and value not in marks
            assert first or (here == marks[value]).all(), f"{step}: '{key}' was overwritten"
            assert not overlap(spans[key], work), f"{step}: the workspace lies on '{key}'"
            others = {k for k, v in arena.items() if v is not value and overlap(spans[k], spans[key])}
            allowed = {a for pair in step.op.inplace if key in pair for a in pair}
            assert others <= allowed, f"{step}: {others} lie on '{key}'"
        memory[work] = -1
        for key in step.op.writes:
            if key in arena:
                memory[spans[key]] = marks.setdefault(arena[key], len(marks))
    for value in outputs:
        assert (memory[units(plan.offsets[value], value.nbytes)] == marks[value]).all(), f"{value} is gone at the end"


def units(offset: int, size: int) -> slice:
    """The aligned pieces of the arena that hold so many bytes; blocks never share one."""
    assert offset % ALIGNMENT == 0
    return slice(offset // ALIGNMENT, ceil_div(offset + size, ALIGNMENT))


def overlap(a: slice, b: slice) -> bool:
    return max(a.start, b.start) < min(a.stop, b.stop)


@settings(deadline=None, max_examples=30)
@given(networks(), st.sampled_from([1, 3, 8]))
def test_nothing_is_overwritten_while_it_is_needed(network, size):
    engine = Engine(network, Planner(90), batch_size=size)
    for kind in ("train", "more"):
        check(engine.plan(kind, size)[1])
    evaluation, plan = engine.plan("eval", size)
    check(plan, evaluation.outputs)


def test_what_is_overwritten_is_found():
    """The check notices values, and a workspace, that lie where something is still needed."""
    _, plan = Engine(small(), Planner(90), batch_size=8).plan("train", 8)
    check(plan)
    with pytest.raises(AssertionError, match=r"lie on|overwritten"):
        check(replace(plan, offsets=dict.fromkeys(plan.offsets, 0)))
    i = next(i for i, step in enumerate(plan.steps) if (step.layer, step.op.name) == ("conv2", "conv.wgrad"))
    misplaced = replace(plan.choices[i], workspace=plan.offsets[plan.steps[i].arguments["dy"]])
    with pytest.raises(AssertionError, match="the workspace lies on 'dy'"):
        check(replace(plan, choices=[*plan.choices[:i], misplaced, *plan.choices[i + 1 :]]))
