"""What `convnet bench scaling` has found, as tables and as JSON."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from convnet import __version__
from convnet.bench.measure import Measured
from convnet.parallel.model import Links, Times
from convnet.summary import table


@dataclass
class Row:
    """A measurement: a step of so many images on so many ranks; seconds.

    efficiency: the speed over that of one rank times the ranks; None where one has not been measured. predicted: by
    the time line, from the steps and links measured here. supposed: what would be exposed if the step took as long as
    was asked for.
    """

    scaling: str
    divided: str
    ranks: int
    images: int
    measured: Measured
    predicted: float
    supposed: float | None = None
    efficiency: float | None = None

    @property
    def speed(self) -> float:
        """Images per second."""
        return self.images / self.measured.total

    def as_json(self) -> dict[str, Any]:
        """Milliseconds."""
        m = self.measured
        times = {
            "step_ms": m.total,
            "silent_ms": m.silent,
            "exchange_ms": m.exchange,
            "exposed_ms": m.exposed,
            "predicted_ms": self.predicted,
            "exposed_if_ms": self.supposed,
        }
        about = {"scaling": self.scaling, "divided": self.divided, "ranks": self.ranks, "images": self.images}
        found = {name: None if seconds is None else 1e3 * seconds for name, seconds in times.items()}
        return about | {"images_per_second": self.speed, "efficiency": self.efficiency} | found


@dataclass(frozen=True)
class Larger:
    """A prediction for a world that is not here. efficiency: over what one rank alone computes."""

    links: Links
    divided: str
    images: int
    times: Times
    efficiency: float

    def as_json(self) -> dict[str, Any]:
        """Milliseconds."""
        t, links = self.times, self.links
        times = {"step_ms": t.total, "compute_ms": t.compute, "exchange_ms": t.exchange, "exposed_ms": t.exposed}
        about = {"nodes": links.nodes, "gpus": links.gpus, "divided": self.divided, "images": self.images}
        return about | {"efficiency": self.efficiency} | {name: 1e3 * seconds for name, seconds in times.items()}


@dataclass
class Findings:
    """All of them. buses: seconds of all-reduces by bytes, by ranks."""

    device: str
    rows: list[Row] = field(default_factory=list)
    buses: dict[int, dict[int, float]] = field(default_factory=dict)
    larger: list[Larger] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For a file, with what made it."""
        buses = {
            str(ranks): [{"bytes": size, "us": 1e6 * t, "bus_gb_s": bus(size, t, ranks)} for size, t in found.items()]
            for ranks, found in self.buses.items()
        }
        made = {
            "date": date.today().isoformat(),
            "command": " ".join(["convnet", *sys.argv[1:]]),
            "version": __version__,
        }
        rows, larger = ([item.as_json() for item in items] for items in (self.rows, self.larger))
        return {"device": self.device, **made, "scaling": rows, "all_reduce": buses, "simulated": larger}

    def text(self) -> str:
        """For people."""
        parts = [table(list(_rows(self.rows)), right=10)] if self.rows else []
        for ranks, found in self.buses.items():
            cells = [(f"{s / 1e6:g}", f"{1e6 * t:.1f}", f"{bus(s, t, ranks):.1f}") for s, t in found.items()]
            parts.append(table([(f"all-reduce of {ranks} ranks, MB", "us", "bus GB/s"), *cells], right=2))
        parts += [table(list(_larger(self.larger)), right=8)] if self.larger else []
        return "\n\n".join([*parts, f"on {self.device}"])


def bus(nbytes: int, seconds: float, ranks: int) -> float:
    """GB/s that each rank sends in an all-reduce: what NCCL's own tests call bus bandwidth."""
    return nbytes / seconds * 2 * (ranks - 1) / ranks / 1e9


def _rows(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    times = "step ms", "silent ms", "exchange ms", "exposed ms", "predicted ms", "exposed if ms"
    yield "scaling", "divided", "ranks", "images", "images/s", "efficiency", *times
    for row in rows:
        m = row.measured
        seconds = m.total, m.silent, m.exchange, m.exposed, row.predicted, row.supposed
        speed = f"{row.speed:,.0f}", "" if row.efficiency is None else f"{100 * row.efficiency:.1f}%"
        cells = ("" if t is None else f"{1e3 * t:.3f}" for t in seconds)
        yield row.scaling, row.divided, str(row.ranks), str(row.images), *speed, *cells


def _larger(found: Sequence[Larger]) -> Iterator[tuple[str, ...]]:
    times = "step ms", "compute ms", "exchange ms", "exposed ms"
    yield "simulated", "nodes", "GPUs each", "images", "efficiency", *times
    for item in found:
        t, links = item.times, item.links
        cells = (f"{1e3 * seconds:.3f}" for seconds in (t.total, t.compute, t.exchange, t.exposed))
        counts = str(links.nodes), str(links.gpus), str(item.images)
        yield item.divided, *counts, f"{100 * item.efficiency:.1f}%", *cells
