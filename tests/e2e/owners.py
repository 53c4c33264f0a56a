"""Who has which GPU, as the containers themselves see it: what a test holds on to while everything around them ends."""

from __future__ import annotations

import os
from dataclasses import dataclass

import trio

from tests.e2e.agent import Agent
from tests.e2e.api import Object
from tests.e2e.logs import PATIENCE
from tests.e2e.node import GPU, Node

GPUS = 4


@dataclass(frozen=True)
class Owner:
    container: str
    pid: int
    """Of its main process."""
    gpus: frozenset[str]

    async def ended(self, *, within: float = PATIENCE) -> None:
        """Wait until its main process is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            with trio.fail_after(within):
                await trio.lowlevel.wait_readable(handle)
        finally:
            os.close(handle)


async def owner(node: Node, pod: str) -> Owner:
    (status,) = (await node.api.get("Pod", pod))["status"]["containerStatuses"]
    seen = await node.inside(pod)
    return Owner(status["containerID"], seen.pid, frozenset(seen.environment["NVIDIA_VISIBLE_DEVICES"].split(",")))


def _runs_in_another(pod: Object, container: str) -> bool:
    (status,) = pod["status"]["containerStatuses"]
    return bool(status["ready"]) and status["containerID"] != container


class Owners:
    """Pods that run and are to go on as they are, whatever happens to the node."""

    def __init__(self, node: Node, agent: Agent) -> None:
        self._node = node
        self.agent = agent
        self.pods: dict[str, Owner] = {}

    async def add(self, name: str, gpus: int) -> Owner:
        """Run a pod with so many GPUs that no other pod has."""
        await self._node.run_pod(name, {GPU: gpus})
        self.pods[name] = added = await owner(self._node, name)
        assert len(added.gpus) == gpus
        await self.stand()
        return added

    def gpus(self, *names: str) -> set[str]:
        return {gpu for name in names or self.pods for gpu in self.pods[name].gpus}

    async def stand(self) -> None:
        """Every pod is Running in the same process with the same GPUs, and no GPU is with two of them."""
        for name, known in self.pods.items():
            await self._node.running(name)
            assert await owner(self._node, name) == known
        assert sum(len(each.gpus) for each in self.pods.values()) == len(self.gpus())

    async def start_again(self) -> None:
        """Wait until every container has been started anew, with the same GPUs."""
        for name, before in self.pods.items():
            await before.ended()
            await self._node.pod(name, lambda pod, old=before.container: _runs_in_another(pod, old))
            self.pods[name] = after = await owner(self._node, name)
            assert after.gpus == before.gpus

    async def known(self, *, within: float = PATIENCE) -> None:
        """Wait until the agent knows of every pod with its GPUs, and of no other any more. It tells of changes only."""
        held = {"not asked yet"}
        with trio.move_on_after(within):
            while held != self.gpus():
                await trio.sleep(0.05)
                held = {hold["id"] if hold["pod"] else "nobody's" for hold in (await self.agent.state())["holds"]}
            return
        raise AssertionError(f"to the agent these are held: {held}")

    async def listed(self, *, within: float = PATIENCE) -> None:
        """Wait until the kubelet lists every pod with its GPUs."""
        wanted = {name: set(each.gpus) for name, each in self.pods.items()}
        await self._node.podresources.held_as(GPU, wanted, within=within)


async def with_pods(node: Node, **pods: int) -> Owners:
    """An agent over four GPUs, and pods that have so many of them."""
    agent = await node.start_agent(f"{GPUS}xH100")
    await agent.event("agent.settled")
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    owners = Owners(node, agent)
    await owners.known()  # what the pods of the test before had is free
    for name, number in pods.items():
        await owners.add(name, number)
    await owners.listed()
    await owners.known()
    return owners
