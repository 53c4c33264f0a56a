"""A storm of everything at once: nothing grows with it, nothing is lost that matters, and the log stays readable."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import trio

from reactor.events import FaultCleared
from reactor.record.recorder import Recorder
from reactor.simulate.kubelet.core import Traits
from reactor.simulate.node import GPU, SimNode, sim_node
from tests.loglines import LogLines

BROKEN = "version: [\n"
CODES = (13, 31, 45, 79, 999)


class Storm:
    """Events in a fixed random order, two thousand a second."""

    def __init__(self, node: SimNode, *, restarts: bool = True) -> None:
        self.node = node
        self.random = random.Random(7)
        self.deepest = 0
        """The most mail that a lane held."""
        self.xids = 0
        self.granted = 0
        self._restarts = restarts

    async def blow(self, events: int) -> None:
        for number in range(events):
            await self._one(number, self.random.randrange(200))
            self.deepest = max(self.deepest, *(len(lane.mail) for lane in self.node.bus._lanes.values()), 0)
            if number % 10 == 0:
                await trio.sleep(0.005)

    async def _one(self, number: int, kind: int) -> None:
        node = self.node
        if kind < 120:
            self.xids += 1
            node.hardware.xid(self.random.randrange(8), self.random.choice(CODES))
        elif kind < 150:
            node.share(self.random.choice((0, 2, 4)))
        elif kind < 170:
            node.edit_config(BROKEN)
        elif kind < 199:
            name = f"pod-{number}"
            await node.kubelet.run_pod(name, {GPU: 1})
            node.kubelet.delete_pod(name)
        elif self._restarts:
            await node.kubelet.restart()

    async def calm(self) -> None:
        """Whatever was wrong is mended, and time passes: ids that the kubelet lost in a restart are held 300 s."""
        await self.node.settle()
        self.node.share(2)
        for index in range(8):
            self.node.publish(FaultCleared(gpu=self.node.gpu(index), reason="the storm is over"))
        await self.node.settle(400)


@contextmanager
def counted() -> Iterator[Callable[[], float]]:
    """Memory that is in use, in MB."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0] / 1e6
    finally:
        tracemalloc.stop()


async def test_after_a_storm_the_list_is_right_and_every_line_was_told_or_counted(
    recorder: Recorder, log: LogLines, autojump_clock: trio.testing.MockClock
) -> None:
    """XTR-06, XTR-09"""
    async with sim_node(recorder, gpus="8xH100") as node:
        storm = Storm(node)
        await storm.blow(1500)
        await storm.calm()
        assert node.kubelet.panicked is None
        assert node.healthy() == node.shares(*range(8), replicas=2)
        assert node.unhealthy() == set()
        assert node.state.holds == {}
        assert not any(name.startswith(("handler.", "source.")) for name in node.state.faults)
        assert storm.deepest <= 8 * len(CODES) + 20, "a lane holds one of a kind, whatever comes"
    recorder.flush()
    shown = len(log.of("xid.reported"))
    hidden = sum(int(str(line["hidden"])) for line in log.of("xid.coalesced"))
    assert shown + hidden >= storm.xids


async def test_ten_thousand_events_make_under_a_hundred_lines_a_minute(
    log: LogLines, autojump_clock: trio.testing.MockClock
) -> None:
    """XTR-09: at the level that is shown."""
    async with sim_node(Recorder(log, node="node-1"), gpus="8xH100") as node:
        before, begun = len(log), trio.current_time()
        storm = Storm(node)
        for _ in range(4):
            await storm.blow(500)
            await trio.sleep(10)
        assert trio.current_time() - begun < 60
        assert len(log) - before < 100


async def test_memory_is_the_same_after_one_storm_and_after_three(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """XTR-06"""
    async with sim_node(Recorder(lambda line: None, node="node-1"), gpus="8xH100", traits=Traits()) as node:
        storm = Storm(node, restarts=False)  # the simulated kubelet remembers its lives
        await storm.blow(300)
        await storm.calm()
        with counted() as used:
            await storm.blow(300)
            await storm.calm()
            once = used()
            await storm.blow(400)
            await storm.calm()
            assert used() < once + 1.0


@pytest.mark.parametrize("kind", ["granted", "refused"])
async def test_a_pod_is_answered_in_the_midst_of_it(
    recorder: Recorder, autojump_clock: trio.testing.MockClock, kind: str
) -> None:
    async with sim_node(recorder, gpus="8xH100") as node:
        storm = Storm(node, restarts=False)
        await storm.blow(300)
        if kind == "refused":
            for index in range(8):
                node.hardware.xid(index, 79)
            await node.settle()
        pod = await node.kubelet.run_pod("amid", {GPU: 1})
        assert bool(pod.message) == (kind == "refused" or not node.healthy())
