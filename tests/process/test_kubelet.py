"""The kubelet's own life around the process: many restarts, and another plugin that takes the resource."""

from __future__ import annotations

import os
from dataclasses import dataclass

import trio

from reactor.aio import open_door
from reactor.kubelet.servers import PluginServers
from reactor.model.ids import ResourceName
from tests.process.agent import Agent
from tests.process.node import GPU, Node, shared
from tests.simulate.kubelet.agent import Notes, desk, snapshot

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


async def test_a_foreign_plugin_with_the_same_resource_is_named_and_not_fought(node: Node) -> None:
    """KBL-06"""
    resource = ResourceName(GPU)
    async with open_door() as door:
        foreign = PluginServers(
            door, desk(Notes()), directory=node.kubelet.directory, kubelet_socket=node.kubelet.socket
        )
        foreign.post(snapshot("nvidia0", "nvidia1", "nvidia2"))
        await foreign.register(resource, await foreign.serve(resource))
        await node.seen.until("listed", resource=GPU, healthy=3)
        agent = await node.start()
        await node.seen.until("listed", resource=GPU, healthy=2)
        await agent.settled()
        foreign.post(snapshot("nvidia0", revision=2))  # another one than before, or it would not be sent
        await node.seen.until("listed", resource=GPU, healthy=1)

        why = await node.allocate("unlucky", 1)
        assert "InvalidArgument" in why
        assert f"unknown device nvidia0: does another device plugin register {GPU} as well?" in why
        await agent.log.until("allocation.refused", ids=["nvidia0"], faulty=0)

        node.config.write_text(shared(2))  # its next list takes the resource over, on the stream that it has
        await node.seen.until("listed", resource=GPU, healthy=4)
        assert await node.allocate("lucky", 1) == ""
        assert len(node.seen.of("registered")) == 2, "each registered once"
        assert node.seen.of("stream.ended") == []
        await foreign.aclose(1)
    # A kubelet up to 1.36 takes down whoever has the place by now: the agent comes back by itself.
    await node.seen.until("registered", count=3)
    await node.seen.until("listed", healthy=4, unhealthy=0)
