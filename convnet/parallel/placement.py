"""Which ranks compute which layers, and which rows of which parameters each of them holds. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from convnet.graph.net import Network, Node
from convnet.parallel.shares import share
from layers.base import LABELS, Param
from layers.options import ConfigError

ELEMENTWISE = ("neuron", "dropout")  # layers of which each rank computes the channels that it has of their input
Rows = tuple[int, int]


@dataclass(frozen=True)
class Home:
    """How a map lies on the ranks, and so who computes the layer it comes from.

    kind: data, each rank has its own samples; shard, each has its own channels, of all samples; full, each has the
    whole map; one, `rank` alone has it.
    """

    kind: str
    rank: int = 0

    def __str__(self) -> str:
        return f"rank {self.rank}" if self.kind == "one" else self.kind


DATA, SHARD, FULL = Home("data"), Home("shard"), Home("full")


def divides(count: int, size: int) -> bool:
    """Whether each of `size` ranks gets a row."""
    return share(count, size, size - 1)[0] < count


def homes(network: Network, size: int, *, sharded: bool) -> dict[str, Home]:
    """The home of each node. sharded: fully connected layers are divided by their outputs.

    A layer with `ranks` is computed there. Without, one that reads maps of one rank alone is computed there too, and
    what reads a map that is not divided by samples, but no single rank's, runs on every rank. Raises ConfigError where
    something cannot be placed.
    """
    found: dict[str, Home] = {}
    for node in network.nodes.values():
        try:
            home = found[node.name] = _home(node, found, size, sharded)
            _check(node, home)
            for owner in {name.rpartition(".")[0] for name in node.shared.values()}:
                if found[owner] != home:
                    raise ConfigError(f"expected the ranks of '{owner}', whose weights it shares", ("ranks",))
        except ConfigError as error:
            raise error.under("layers", node.name) from None
    return found


def _home(node: Node, found: Mapping[str, Home], size: int, sharded: bool) -> Home:
    above = {found[name] for name in node.inputs if name != LABELS}
    if node.layer.is_cost:
        return DATA if above == {DATA} else FULL
    if node.ranks is not None:
        return _named(node.ranks, size)
    if sharded and node.layer.type == "fc":
        return SHARD if divides(node.shape.channels, size) else FULL
    if len(above) == 1 and (home := next(iter(above))).kind in ("data", "one"):
        return home
    if above == {SHARD} and node.layer.type in ELEMENTWISE:
        return SHARD
    return FULL if above & {SHARD, FULL} else DATA


def _named(ranks: tuple[int, ...], size: int) -> Home:
    if max(ranks) >= size:
        raise ConfigError(f"expected ranks below {size}, the number of them, found {max(ranks)}", ("ranks",))
    if len(ranks) == 1:
        return Home("one", ranks[0]) if size > 1 else DATA
    if set(ranks) != set(range(size)):
        raise ConfigError(f"expected one rank, or all {size}, found {', '.join(map(str, ranks))}", ("ranks",))
    return DATA


def _check(node: Node, home: Home) -> None:
    if home.kind in ("one", "shard") and node.states:
        raise ConfigError(f"a {node.layer.type} layer keeps statistics: it must run on all ranks; expected no `ranks`")
    if home != DATA and (node.layer.type in ("data", "rscale")):
        raise ConfigError(f"a {node.layer.type} layer runs on all ranks, for the samples of each; expected no `ranks`")


@dataclass(frozen=True)
class Placement:
    """The homes of a network's nodes, as `rank` of `size` ranks sees them."""

    network: Network
    homes: Mapping[str, Home]
    rank: int
    size: int

    @property
    def divided(self) -> bool:
        """Whether anything but the batch is divided."""
        return any(home != DATA for home in self.homes.values())

    @property
    def region(self) -> list[Node]:
        """The nodes that are not computed for a rank's own samples."""
        return [node for node in self.network.nodes.values() if self.homes[node.name] != DATA]

    @property
    def exchanged(self) -> set[str]:
        """Parameters of which each rank has the gradient of its own samples alone."""
        return {name for node in self.network.nodes.values() if self.homes[node.name] == DATA for name in node.params}

    def channels(self, node: Node, rank: int | None = None) -> Rows:
        """Those of a node's map that a rank, by default this one, has."""
        return self._held(self.homes[node.name], node.shape.channels, rank)

    def rows(self, name: str, rank: int | None = None) -> Rows:
        """Those of a parameter that a rank, by default this one, holds."""
        return self._held(self.homes[name.rpartition(".")[0]], self.network.params[name].shape[0], rank)

    def _held(self, home: Home, count: int, rank: int | None) -> Rows:
        of = self.rank if rank is None else rank
        if home == SHARD:
            return share(count, self.size, of)
        return (0, count) if home.kind != "one" or home.rank == of else (0, 0)

    def whole(self, name: str) -> bool:
        """Whether every rank holds all of a parameter."""
        return self.homes[name.rpartition(".")[0]].kind in ("data", "full")

    @property
    def params(self) -> dict[str, Param]:
        """The network's parameters, with the shapes of what this rank holds of them."""
        return {name: replace(param, shape=self._local(name, param)) for name, param in self.network.params.items()}

    def _local(self, name: str, param: Param) -> tuple[int, ...]:
        begin, end = self.rows(name)
        return (end - begin, *param.shape[1:])

    def check(self, scheme: str) -> None:
        """Raise ConfigError where a scheme that computes a batch in passes is not possible."""
        if scheme == "A":
            return
        for node in self.network.nodes.values():
            home, above = self.homes[node.name], [self.homes[name] for name in node.inputs if name != LABELS]
            path = "layers", node.name
            if home.kind == "one":
                raise ConfigError(f"scheme {scheme} is for layers on all ranks; expected parallel.scheme A", path)
            if home == DATA and any(other != DATA for other in above):
                raise ConfigError(f"scheme {scheme} needs all layers behind fc layers in its passes", path)
            if home != DATA and node.states:
                raise ConfigError(f"{node.layer.type} needs the batch at once; expected parallel.scheme A", path)
