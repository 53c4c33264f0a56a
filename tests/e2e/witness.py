"""Looks at a node again and again, and holds what it sees against what no config may break.

While a container with GPUs runs, each of them is its own whole, or shared by containers that all have it as a share;
and nothing of it is offered under another identity. Who runs is told by processes, who has which ids by the kubelet's
List; when the kubelet is down, or starts and knows nobody yet, what it said before stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import trio

from reactor.model.ids import Identity, parse_device_id
from tests.e2e.node import GPU, Node

_CONTAINER = re.compile("[0-9a-f]{64}")
_EVERY = 0.2


class Witness:
    def __init__(self, node: Node, resources: Iterable[str]) -> None:
        self.broken: list[str] = []
        self.ids: dict[str, set[str]] = {}
        """Pod that runs -> ids that the kubelet gave it."""
        self.processes: dict[str, frozenset[int]] = {}
        """The same pods -> the main processes of their containers that have GPUs."""
        self.seen: set[str] = set()
        """Every pod that was seen to run with GPUs."""
        self._node = node
        self._resources = tuple(resources)
        self._listed: dict[str, set[str]] = {}

    async def watch(self) -> None:
        while True:
            await self.look()
            await trio.sleep(_EVERY)  # neither processes nor the kubelet's API tell of changes

    async def look(self) -> None:
        offered: set[str] = set()
        with suppress(grpc.RpcError):
            for resource in self._resources:
                offered |= await self._node.podresources.allocatable(resource)
                for pod, ids in (await self._node.podresources.held(resource)).items():
                    self._listed.setdefault(pod, set()).update(ids)
        running = await trio.to_thread.run_sync(self._running)
        for pod in self.ids.keys() - running.keys():
            self._listed.pop(pod, None)  # every pod of these tests runs once
        self.ids = {pod: self._listed[pod] for pod in running if pod in self._listed}
        self.processes = {pod: frozenset(running[pod]) for pod in self.ids}
        self.seen |= self.ids.keys()
        for what in self._judge({pod: set().union(*running[pod].values()) for pod in self.ids}, offered):
            if what not in self.broken:
                self.broken.append(what)

    def _running(self) -> dict[str, dict[int, set[str]]]:
        """Pod -> main process of a container with GPUs -> the GPUs that it was told of."""
        found: dict[str, dict[int, set[str]]] = {}
        for folder, _, _ in os.walk(self._node.world.cgroup_folder("memory")):
            if not _CONTAINER.fullmatch(Path(folder).name):
                continue
            with suppress(OSError, ValueError):  # it ended meanwhile
                main = min(map(int, Path(folder, "cgroup.procs").read_text().split()))
                environment = Path(f"/proc/{main}/environ").read_bytes().split(b"\0")
                told = dict(each.decode().split("=", 1) for each in environment if b"=" in each)
                if "NVIDIA_VISIBLE_DEVICES" in told:
                    gpus = set(told["NVIDIA_VISIBLE_DEVICES"].split(","))
                    found.setdefault(told["HOSTNAME"], {})[main] = gpus
        # Whoever is still there now was there all the while: these were there at once.
        return {
            pod: there
            for pod, mains in found.items()
            if (there := {main: gpus for main, gpus in mains.items() if Path(f"/proc/{main}").exists()})
        }

    def _judge(self, told: dict[str, set[str]], offered: set[str]) -> Iterator[str]:
        owners: dict[str, dict[Identity, set[str]]] = {}
        holders: dict[str, str] = {}
        for pod, ids in self.ids.items():
            refs = [ref for one in ids if (ref := parse_device_id(one)) is not None]
            for ref in refs:
                owners.setdefault(ref.gpu, {}).setdefault(ref.identity, set()).add(pod)
            if not told[pod] <= {ref.gpu for ref in refs}:
                yield f"{pod} has {ids} and was told {told[pod]}"
            for one in ids:
                if holders.setdefault(one, pod) != pod:
                    yield f"{one} is with {pod} and {holders[one]}"
        for gpu, found in owners.items():
            if len(found) > 1 or len(found.get(Identity.WHOLE, ())) > 1:
                yield f"{gpu} is with {found}"
        for one in offered:
            ref = parse_device_id(one)
            if ref is not None and owners.get(ref.gpu, {}).keys() - {ref.identity}:
                yield f"{one} is offered while {ref.gpu} is with {owners[ref.gpu]}"


@asynccontextmanager
async def witnessed(node: Node, *resources: str) -> AsyncIterator[Witness]:
    """Have these resources watched meanwhile; what was broken fails the test at the end."""
    witness = Witness(node, resources or (GPU,))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(witness.watch)
        yield witness
        nursery.cancel_scope.cancel()
    await witness.look()
    assert not witness.broken, witness.broken
    assert witness.seen, "no pod with a GPU was seen"
