"""Short pods on eight GPUs for minutes while everything moves: XIDs, hot plug, config edits, kubelet restarts."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from reactor.events import Granted
from reactor.record.journal import Head, Recorded, read
from reactor.simulate.nvml.hardware import Hardware
from tests.e2e.agent import Agent
from tests.e2e.node import GPU, Node, phase, reason
from tests.e2e.witness import witnessed

GPUS, PODS, SECONDS = 8, 200, 300.0
WARM = PODS // 3
"""Pods after which the agent's memory is to stay as it is."""
LEAST = 10
"""Events, or it was no churn. Each waits until the kubelet has felt it: beside four other nodes there were 16."""
FLAT = 4.0
"""MB."""
LATER = 5.0
"""Seconds that an event may still be felt after its end."""
FATAL = 79
LONG = 400.0
UUIDS = [gpu.uuid for gpu in Hardware(f"{GPUS}xH100").gpus]
"""The last one is unplugged, the one before it excluded."""
SIX = "version: v1\nselect: {exclude: {indices: [6]}}\n"
ALL = "version: v1\n"


@dataclass
class Churn:
    node: Node
    agent: Agent
    chance: random.Random
    moved: list[tuple[float, float]] = field(default_factory=list)
    """From when to when something was done to node or GPUs."""
    sick: list[tuple[str, float, float]] = field(default_factory=list)
    """GPU, and from when to when nobody was to get it."""
    unexplained: list[str] = field(default_factory=list)
    refused: int = 0
    done: int = 0
    warm: trio.Event = field(default_factory=trio.Event)

    async def pods(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(PODS):
                nursery.start_soon(self.pod, f"p{number}", self.chance.choice((1, 1, 1, 2)), self.chance.uniform(1, 4))
                await trio.sleep(SECONDS / PODS)  # their rate is what is meant

    async def pod(self, name: str, gpus: int, seconds: float) -> None:
        begun = trio.current_time()
        await self.node.create_pod(name, {GPU: gpus}, command=f"sleep {seconds:.1f}")
        ended = await self.node.pod(name, lambda pod: phase(pod) in ("Succeeded", "Failed"), within=LONG)
        if phase(ended) == "Failed":
            self.refused += 1
            if "UnexpectedAdmissionError" not in reason(ended) or not self.explained(begun, trio.current_time()):
                self.unexplained.append(f"{name}: {reason(ended)}")
        self.done += 1
        if self.done == WARM:
            self.warm.set()
        await self.node.delete_pod(name, within=LONG)

    def explained(self, begun: float, ended: float) -> bool:
        return any(start <= ended and begun <= end + LATER for start, end in self.moved)

    async def events(self) -> None:
        while True:
            await trio.sleep(self.chance.uniform(2, 6))  # as seeded
            does = self.chance.choices((self.fault, self.plug, self.edit, self.restart), weights=(6, 3, 3, 1))[0]
            async with self.moving():
                await does()

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        place = len(self.moved)
        self.moved.append((trio.current_time(), float("inf")))
        yield
        self.moved[place] = (self.moved[place][0], trio.current_time())

    async def offered(self, gpu: str, *, so: bool) -> None:
        await self.node.podresources.shows(GPU, lambda ids: (gpu in ids) == so, within=LONG)

    async def fault(self) -> None:
        gpu = self.chance.choice(UUIDS[:-2])
        await self.agent.gpus("xid", gpu, FATAL)
        await self.offered(gpu, so=False)
        begun = time.time()
        await trio.sleep(self.chance.uniform(0, 3))  # as seeded
        self.sick.append((gpu, begun, time.time()))
        await self.agent.inject("clear", f"gpu={gpu}", "reason=mended")
        await self.offered(gpu, so=True)

    async def plug(self) -> None:
        await self.agent.gpus("unplug", UUIDS[-1])
        await self.offered(UUIDS[-1], so=False)
        await self.agent.gpus("plug", UUIDS[-1])
        await self.offered(UUIDS[-1], so=True)

    async def edit(self) -> None:
        for text, so in ((SIX, False), (ALL, True)):
            self.agent.write_config(text)
            await self.offered(UUIDS[-2], so=so)

    async def restart(self) -> None:
        mark = self.node.kubelet.log.mark()
        await self.node.kubelet.restart()
        await self.node.kubelet.log.until("Got registration request from device plugin", since=mark, within=LONG)


def memory(agent: Agent) -> float:
    """What it has in memory, in MB."""
    assert agent.process is not None
    return int(Path(f"/proc/{agent.process.pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1000


def grants(agent: Agent) -> list[tuple[float, Granted]]:
    """Every grant, with its Unix time. Of the journal: the log folds what comes often."""
    found = []
    for name in ("journal.1", "journal"):
        with suppress(FileNotFoundError), (agent.folder / name).open("rb") as file:
            for line in file:
                record = read(line)
                assert not isinstance(record, Head) or not record.lost
                if isinstance(record, Recorded) and isinstance(record.event.fact, Granted):
                    found.append((record.event.wall, record.event.fact))
    return found


def while_unhealthy(churn: Churn, granted: list[tuple[float, Granted]]) -> list[str]:
    """Grants of GPUs that were sick then."""
    return [
        f"{at} {gpu}"
        for at, grant in granted
        for gpu, begun, ended in churn.sick
        if gpu in grant.ids and begun < at < ended
    ]


@pytest.mark.long
async def test_pods_come_and_go_by_the_hundred_while_everything_moves(node: Node):
    agent = await node.start_agent(f"{GPUS}xH100")
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    churn = Churn(node, agent, random.Random(11))
    warm = 0.0
    async with witnessed(node), trio.open_nursery() as others:
        others.start_soon(churn.events)
        async with trio.open_nursery() as pods:
            pods.start_soon(churn.pods)
            await churn.warm.wait()
            warm = memory(agent)
        others.cancel_scope.cancel()
    print(f"{churn.refused} of {PODS} pods refused, {len(churn.moved)} events, memory {warm} -> {memory(agent)} MB")
    assert len(churn.moved) >= LEAST
    assert churn.unexplained == []
    granted = grants(agent)
    assert len(granted) >= PODS - churn.refused
    assert while_unhealthy(churn, granted) == []
    assert memory(agent) - warm < FLAT
    assert node.kubelet.log.find("panic:|nil pointer dereference") == []
    assert node.kubelet.alive
