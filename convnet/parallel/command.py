"""A command of the command line on several ranks: it starts them, or is one of them, or is alone."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from convnet.console import Console
from convnet.device import gpu_count
from convnet.errors import UserError
from convnet.parallel.control import Control
from convnet.parallel.devices import open_rank
from convnet.parallel.join import Explain, join, same
from convnet.parallel.launch import check_gpus, launch, parse_gpus
from convnet.parallel.world import World, from_environment

Body = Callable[[Any, Control], int]  # backend, control


def on_ranks(
    body: Body,
    words: Sequence[str],
    asked: Mapping[str, str],
    console: Console,
    explain: Explain,
    *,
    device: str = "auto",
    gpus: str | None = None,
) -> int:
    """The exit status of a command. body: what each rank does; words: the command line, which starts the ranks.

    asked: what the command lines of all ranks must have in common. explain: makes the message of an error. device,
    gpus: as the command line has them.
    """
    world = from_environment(os.environ)
    chosen = choose(gpus, device, world)
    if chosen and not world.launcher:
        check_gpus(chosen, gpu_count())
        if len(chosen) > 1:
            return launch(len(chosen), words)
    with join(world, explain, console.warn) as control:
        same(control, "command", {"it": words[0]})
        same(control, "command line", asked)
        if control.rank:
            console.relay = control.warn
        return body(open_rank(device, chosen, control), control)


def choose(gpus: str | None, device: str, world: World) -> tuple[int, ...] | None:
    """What --gpus asks for; UserError where --device, or the launcher that started this process, says otherwise."""
    if gpus is None:
        return None
    chosen = parse_gpus(gpus)
    if device not in ("auto", "cuda"):
        raise UserError(f"--gpus {gpus} and --device {device} do not go together")
    if world.launcher and len(chosen) != (world.local_size or world.size):
        here = f"{world.local_size or world.size} of them on this machine"
        raise UserError(f"--gpus {gpus} asks for {len(chosen)} ranks, but {world.launcher} has started {here}")
    return chosen
