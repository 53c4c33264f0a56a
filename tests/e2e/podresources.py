"""The kubelet's podresources API v1, asked over the socket in the node's folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import grpc
import trio

from reactor.kubelet._pb import podresources_pb2 as pb
from tests.e2e.logs import PATIENCE

T = TypeVar("T")
Holders = dict[str, dict[str, set[str]]]
"""Resource -> "namespace/pod/container" -> device ids."""


class PodResources:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def holders(self) -> Holders:
        """Who holds what, by List."""
        answer = await self._ask("List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse.FromString)
        found: Holders = {}
        for pod in answer.pod_resources:
            for container in pod.containers:
                for each in container.devices:
                    owner = f"{pod.namespace}/{pod.name}/{container.name}"
                    found.setdefault(each.resource_name, {}).setdefault(owner, set()).update(each.device_ids)
        return found

    async def held(self, resource: str) -> dict[str, set[str]]:
        """Pod name -> ids of this resource that any container of it holds."""
        found: dict[str, set[str]] = {}
        for owner, ids in (await self.holders()).get(resource, {}).items():
            found.setdefault(owner.split("/")[1], set()).update(ids)
        return found

    async def allocatable(self, resource: str) -> set[str]:
        """Ids that the kubelet would hand out or has handed out: the healthy ones."""
        request = pb.AllocatableResourcesRequest()
        answer = await self._ask("GetAllocatableResources", request, pb.AllocatableResourcesResponse.FromString)
        return {each for found in answer.devices if found.resource_name == resource for each in found.device_ids}

    async def shows(self, resource: str, holds: Callable[[set[str]], object], *, within: float = PATIENCE) -> set[str]:
        """The allocatable ids once this holds of them."""
        return await self._once(lambda: self.allocatable(resource), holds, f"allocatable ids of {resource}", within)

    async def held_as(self, resource: str, wanted: dict[str, set[str]], *, within: float = PATIENCE) -> None:
        """Wait until List names these pods with these ids of a resource, and nobody else."""
        await self._once(lambda: self.held(resource), lambda held: held == wanted, f"{wanted} of {resource}", within)

    async def _once(self, ask: Callable[[], Awaitable[T]], holds: Callable[[T], object], what: str, within: float) -> T:
        """What is answered once this holds of it. The API has no watch, so it is asked again and again."""
        last: T | None = None
        try:
            with trio.fail_after(within):
                while True:
                    try:
                        if holds(last := await ask()):
                            return last
                    except grpc.RpcError:
                        pass  # the kubelet restarts, or asks for fewer calls
                    await trio.sleep(0.05)
        except trio.TooSlowError:
            raise AssertionError(f"{within} s in vain for {what}; last: {last}") from None

    async def _ask(self, method: str, request: object, parse: Callable[[bytes], T]) -> T:
        def ask() -> T:
            with grpc.insecure_channel(f"unix:{self._path}") as channel:
                call = channel.unary_unary(
                    f"/v1.PodResourcesLister/{method}",
                    request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=parse,
                )
                answer: T = call(request, timeout=10, wait_for_ready=False)
                return answer

        return await trio.to_thread.run_sync(ask)
