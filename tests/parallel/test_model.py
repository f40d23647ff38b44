"""The model of links and time lines, passes over a batch, and what is chosen by them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convnet.device import Planner
from convnet.graph.engine import Engine
from convnet.graph.steps import Step, Value, exchange
from convnet.parallel import choose
from convnet.parallel.communicator import Solo
from convnet.parallel.model import CPU, Links, Times, machine, operations, simulate, starts
from convnet.parallel.passes import passes
from convnet.parallel.shares import longest, share
from kernels import conv, eltwise
from kernels.backend import NumPy
from tests.convnet.networks import wire
from tests.parallel.threads import together

MB = 250_000  # numbers of float32


def step():
    """One that computes."""
    maps = {name: Value(name, (1, 1, 1, 1), np.dtype(np.float32)) for name in "xy"}
    return Step("a", "forward", eltwise.SUM, eltwise.Sum(1, 1, 1, 1), {**maps, "beta": 0.0})


def transfer(kind="all_reduce", numbers=MB):
    value = Value("v", (numbers,), np.dtype(np.float32))
    return exchange("a", "exchange", kind, value, value)


class TestLinks:
    def test_bytes_over_bandwidth(self):
        links = Links(gpus=4, bandwidth=1e9, latency=1e-3)
        assert links.seconds("all_reduce", 1e9) == pytest.approx(1e-3 + 1.5)
        assert links.seconds("all_gather", 1e9) == links.seconds("reduce_scatter", 1e9) == pytest.approx(1e-3 + 0.75)
        assert links.seconds("broadcast", 1e9) == pytest.approx(1e-3 + 1)

    def test_one_rank_moves_nothing(self):
        assert Links().seconds("all_reduce", 1e9) == 0

    def test_machines_add_their_links(self):
        links = Links(nodes=2, gpus=4, bandwidth=1e9, between=1e8, latency=0, latency_between=1e-3)
        assert links.seconds("all_reduce", 1e9) == pytest.approx(1.5 + 2e-3 + 10)

    def test_figures_from_measured_times(self):
        truth = Links(gpus=2, bandwidth=3e11, latency=1e-5)
        times = {size: truth.seconds("all_reduce", size) for size in (4000, 1_000_000, 244_000_000)}
        found = Links(gpus=2).fitted(times)
        assert found.latency == pytest.approx(1e-5, rel=2e-3) and found.bandwidth == pytest.approx(3e11, rel=1e-3)


class TestTimeLine:
    links = Links(gpus=2, bandwidth=1e9, latency=0.0, contention=0.0)  # an all-reduce of 1 MB takes 1 ms

    def times(self, *steps, seconds, **links):
        found = Links(**{**vars(self.links), **links})
        return simulate(
            steps, [0.0 if isinstance(s.geometry, type(transfer()[0].geometry)) else seconds for s in steps], found
        )

    def test_a_transfer_behind_computation_is_hidden(self):
        start, wait = transfer()
        times = self.times(start, step(), wait, step(), seconds=2e-3)
        assert times.total == pytest.approx(4e-3) and times.exposed == pytest.approx(0, abs=1e-12)
        assert times.exchange == pytest.approx(1e-3)

    def test_what_is_waited_for_is_exposed(self):
        start, wait = transfer()
        times = self.times(step(), start, wait, step(), seconds=2e-3)
        assert times.exposed == pytest.approx(1e-3)

    def test_transfers_queue(self):
        (a, wait_a), (b, wait_b) = transfer(), transfer(numbers=2 * MB)
        times = self.times(a, b, step(), wait_b, wait_a, seconds=1e-3)
        assert times.total == pytest.approx(3e-3)

    def test_transfers_slow_computation_down(self):
        start, wait = transfer()
        times = self.times(start, step(), step(), wait, seconds=2e-3, contention=0.5)
        assert times.total == pytest.approx(4.5e-3)  # in the first millisecond, half of one was done
        assert times.compute == pytest.approx(4e-3)

    @given(st.lists(st.integers(0, 2), max_size=12))
    def test_never_faster_than_either_queue(self, kinds):
        steps = []
        for kind in kinds:
            start, wait = transfer()
            steps += {0: [step()], 1: [start, step(), wait], 2: [start, wait]}[kind]
        times = self.times(*steps, seconds=7e-4)
        assert max(times.compute, times.exchange) <= times.total + 1e-12
        assert times.total <= times.compute + times.exchange + 1e-12


class TestPasses:
    @given(st.sampled_from("ABC"), st.integers(1, 60), st.integers(1, 6), st.integers(0, 9))
    def test_every_sample_is_in_one_pass_and_at_its_place(self, scheme, count, size, further):
        found, distance = passes(scheme, count, size), longest(count, size) + further
        visited, own = [], {rank: [] for rank in range(size)}
        for turn in found:
            places = [turn.first(distance) + n // turn.run * distance + n % turn.run for n in range(turn.count)]
            assert sum(piece.count for piece in turn.pieces) == turn.count > 0
            for rank, piece in enumerate(turn.pieces):
                mine = places[piece.column : piece.column + piece.count]
                assert mine == [rank * distance + piece.own + i for i in range(piece.count)]
                own[rank] += range(piece.own, piece.own + piece.count)
                visited += mine
        for rank in range(size):
            begin, end = share(count, size, rank)
            assert own[rank] == list(range(end - begin))
        assert len(set(visited)) == count

    def test_schemes(self):
        assert [len(passes(scheme, 12, 3)) for scheme in "ABC"] == [1, 3, 2]
        assert [turn.root for turn in passes("B", 12, 3)] == [0, 1, 2]
        assert [turn.count for turn in passes("C", 12, 3)] == [6, 6]  # two of each rank's four
        assert [turn.count for turn in passes("B", 2, 3)] == [1, 1]


def network(outputs=4096, features=64):
    return wire(
        data={"type": "data", "size": 16},
        conv={"type": "conv", "filters": features, "size": 3},
        fc1={"type": "fc", "outputs": outputs},
        fc2={"type": "fc", "outputs": 10},
        cost={"type": "logreg", "inputs": ["fc2", "labels"]},
    )


def maker(network, **options):
    def make(backend, communicator, division):
        return Engine(network, backend, batch_size=8, communicator=communicator, division=division, **options)

    return make


class TestChoices:
    def names(self, *arguments, network=network()):  # noqa: B008
        return [choice.name for choice in choose.choices(network, 0, 2, *arguments)]

    def test_what_the_config_allows(self):
        hybrids = [f"hybrid, scheme {name}" for name in "ABC"]
        assert self.names("data", "auto") == ["data"]
        assert self.names("model", "auto") == hybrids
        assert self.names("model", "C") == hybrids[2:]
        assert self.names("auto", "auto") == ["data", *hybrids]
        assert [c.division for c in choose.choices(network(), 0, 1, "model", "A")] == [None]

    def test_auto_leaves_out_what_divides_nothing(self):
        only = wire(data={"type": "data", "size": 4}, fc={"type": "fc", "outputs": 1}, cost={"type": "sum2"})
        assert self.names("auto", "auto", network=only) == ["data"]

    def test_large_layers_are_divided_and_small_ones_not(self):
        """Gradients of 200 MB against maps of 0.4 MB; and the other way round."""
        links = Links(gpus=2, bandwidth=1e10, latency=1e-5)
        for net, hybrid in (network(), True), (network(outputs=4, features=4), False):
            found = choose.choices(net, 0, 2, "auto", "auto")
            predictions = choose.predict(found, maker(net), Planner(90), links)
            best = min(predictions, key=lambda p: p.times.total)
            assert (best.choice.division is not None) == hybrid
            assert (predictions[0].nbytes > 50 * best.nbytes) == hybrid

    def test_all_ranks_take_the_same(self):
        def best(communicator):
            found = choose.choices(network(64, 4), communicator.rank, 2, "auto", "auto")
            return choose.best(found, maker(network(64, 4)), Planner(None), NumPy(), communicator).name

        assert len(set(together(2, best))) == 1

    def test_measured_steps_take_time(self):
        assert choose.measure(maker(network(16, 2))(NumPy(), Solo(), None)) > 0


def test_operations_are_those_that_papers_count():
    net = network()
    steps = choose.steps_of(maker(net)(Planner(90), Solo(), None))
    forward = sum(operations(step) for step in steps if step.phase == "forward")
    assert forward == 2 * 8 * sum(node.layer.multiply_adds(*node.in_shapes) for node in net.nodes.values())
    (first,) = (s for s in steps if s.op is conv.FORWARD)
    assert machine(90).seconds(first) < CPU.seconds(first) and machine(103) == machine(90)
    assert not any(starts(step) for step in steps)


def test_times_are_exposed_where_the_step_is_longer_than_its_computation():
    assert Times(total=3.0, compute=2.0, exchange=5.0).exposed == 1.0
