"""From a step list to a memory plan: which variant runs each step, and where each value lies in the arena."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import kernels.op
from convnet.graph.memory import Block, place
from convnet.graph.steps import Step, Value
from convnet.parallel.collectives import Collective
from kernels.op import Op, Variant

Choose = Callable[[Op, Any], tuple[Variant | None, kernels.op.Plan]]

NOTHING: tuple[Variant | None, kernels.op.Plan] = None, kernels.op.Plan(())


@dataclass(frozen=True)
class Choice:
    """The variant of one step (None: the NumPy reference, or a transfer), and the arena offset of its workspace."""

    variant: Variant | None
    plan: kernels.op.Plan
    workspace: int = 0


@dataclass(frozen=True)
class ProgramPlan:
    """Everything needed to run a step list but the memory itself; `peak` is the arena's size in bytes."""

    steps: Sequence[Step]
    choices: Sequence[Choice]
    offsets: dict[Value, int]
    lifetimes: dict[Value, tuple[int, int]]
    peak: int


def plan_program(steps: Sequence[Step], outputs: Sequence[Value], choose: Choose) -> ProgramPlan:
    """Choose variants and place all values; `outputs` stay valid after the last step."""
    chosen = [NOTHING if isinstance(step.op, Collective) else choose(step.op, step.geometry) for step in steps]
    lifetimes = _lifetimes(steps, outputs)
    blocks = _share_in_place(steps, lifetimes)
    spaces = [Block(plan.workspace, i, i) for i, (_, plan) in enumerate(chosen)]
    offsets, peak = place([*(block for block, _ in blocks), *spaces])
    where = {value: offset for (_, values), offset in zip(blocks, offsets, strict=False) for value in values}
    choices = [Choice(*c, workspace) for c, workspace in zip(chosen, offsets[len(blocks) :], strict=True)]
    return ProgramPlan(steps, choices, where, lifetimes, peak)


def _lifetimes(steps: Sequence[Step], outputs: Sequence[Value]) -> dict[Value, tuple[int, int]]:
    """The first and last step at which each arena value is touched."""
    lifetimes: dict[Value, tuple[int, int]] = {}
    for i, step in enumerate(steps):
        for name, value in step.arguments.items():
            if not isinstance(value, Value) or not value.arena:
                continue
            if value not in lifetimes and name not in step.op.writes:
                raise ValueError(f"{step} reads {value} before anything wrote it")
            lifetimes[value] = (lifetimes.get(value, (i, i))[0], i)
    for value in outputs:
        lifetimes[value] = (lifetimes[value][0], len(steps))
    return lifetimes


def _share_in_place(
    steps: Sequence[Step], lifetimes: dict[Value, tuple[int, int]]
) -> list[tuple[Block, tuple[Value, ...]]]:
    """Blocks and the values in each: a step's result takes the place of an input that dies there, where it may."""
    groups = {value: [value] for value in lifetimes}
    for i, step in enumerate(steps):
        for read, written in step.op.inplace:
            source, target = step.arguments[read], step.arguments[written]
            if not (_alike(source, target) and source in groups and target in groups):
                continue
            dies = max(lifetimes[value][1] for value in groups[source]) == i
            if dies and lifetimes[target][0] == i and len(groups[target]) == 1 and groups[source] is not groups[target]:
                groups[source].append(target)
                groups[target] = groups[source]
    unique = {id(group): group for group in groups.values()}.values()
    return [(_block(group, lifetimes), tuple(group)) for group in unique]


def _alike(a: Any, b: Any) -> bool:
    same_kind = isinstance(a, Value) and isinstance(b, Value)
    return same_kind and (a.shape, a.dtype, a.layout) == (b.shape, b.dtype, b.layout)


def _block(group: Sequence[Value], lifetimes: dict[Value, tuple[int, int]]) -> Block:
    return Block(
        max(value.nbytes for value in group),
        min(lifetimes[value][0] for value in group),
        max(lifetimes[value][1] for value in group),
    )
