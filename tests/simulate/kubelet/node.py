"""A kubelet in memory with the agent's desk and servers beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from reactor.simulate.kubelet.memory import MemoryKubelet, MemoryServers, Traits
from reactor.simulate.kubelet.version import Version
from tests.simulate.kubelet.agent import GPU, Notes, desk, snapshot


class Node:
    def __init__(self, nursery: trio.Nursery, version: str, **traits) -> None:
        self.notes = Notes()
        self.kubelet = MemoryKubelet(nursery, Traits(version=Version.parse(version), **traits))
        self.servers = MemoryServers(self.kubelet, desk(self.notes))

    async def serve(self, *names: str, **how) -> str:
        """Show these ids and register on a fresh socket; returns when the list has arrived."""
        self.servers.post(snapshot(*names, **how))
        socket = await self.servers.serve(GPU)
        await self.servers.register(GPU, socket)
        await wait_all_tasks_blocked()
        return socket

    async def show(self, *names: str, **how) -> None:
        self.servers.post(snapshot(*names, **how))
        await wait_all_tasks_blocked()

    def counts(self) -> tuple[int, int]:
        return self.kubelet.allocatable(GPU), self.kubelet.capacity(GPU)


@asynccontextmanager
async def node(version: str = "1.34", **traits) -> AsyncIterator[Node]:
    async with trio.open_nursery() as nursery:
        made = Node(nursery, version, **traits)
        await made.kubelet.start()
        yield made
        nursery.cancel_scope.cancel()
