"""The kubelet's own life around the process: many restarts, and another plugin that takes the resource."""

from __future__ import annotations

import os
from dataclasses import dataclass

import trio

from tests.process.agent import Agent
from tests.process.node import GPU, Node

APART = float(os.environ.get("REACTOR_KUBELET_RESTARTS_APART", "0.2"))
"""Seconds between restarts; ``.ci/run`` sets 1, as the case says."""
RESTARTS = 50


@dataclass(frozen=True)
class Use:
    descriptors: list[str]
    trio: int
    """Tasks."""
    asyncio: int
    """Tasks, as the agent counts them every three seconds."""
    threads: int


async def use_at_rest(agent: Agent) -> Use:
    """The least within a few seconds: now and then it asks the kubelet, or is still busy with our own question."""
    descriptors, tasks, counted = agent.descriptors(), 1 << 16, {}
    with trio.move_on_after(3.5):
        while True:
            descriptors = min(descriptors, agent.descriptors(), key=len)
            counted = (await agent.state())["agent"]["tasks"]
            tasks = min(tasks, counted["trio"])
            await trio.sleep(0.1)
    return Use(descriptors, tasks, counted["asyncio"], agent.threads())


async def test_fifty_restarts_leave_nothing_behind(node: Node) -> None:
    """KBL-21"""
    agent = await node.settled()
    await one_restart(node)  # whatever is made once is made by now
    before = await use_at_rest(agent)
    for _ in range(RESTARTS):
        await one_restart(node)
    after = await use_at_rest(agent)
    assert (after.descriptors, after.trio) == (before.descriptors, before.trio)
    assert after.asyncio <= before.asyncio + 1, "it may have been counted during a call"
    assert after.threads <= before.threads + 3, "trio keeps idle ones for ten seconds"
    assert await node.kubelet.devices(GPU) == {gpu.uuid: True for gpu in node.gpus.gpus}
    assert await node.kubelet.streams(GPU) == 1
    assert len(node.plugin_sockets()) == 1
    assert await node.allocate("a", 2) == ""


async def one_restart(node: Node) -> None:
    """Down and up again, until the full list is there; the next one not sooner than ``APART`` after this one."""
    begun, seen = trio.current_time(), node.seen.now
    await node.kubelet.restart()
    await node.seen.until("listed", after=seen, resource=GPU, healthy=2)
    await trio.sleep_until(begun + APART)
