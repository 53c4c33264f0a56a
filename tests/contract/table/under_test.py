"""What a row may do to a kubelet and see of it, be it simulated or real.

Everything waits for what it names: ``run`` for the pod to be settled, ``counts`` for the node to say so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import grpc
import trio

from reactor.kubelet._pb import podresources_pb2 as pr
from reactor.simulate.kubelet.topology import Policy
from reactor.simulate.kubelet.version import Version


@dataclass(frozen=True)
class Shape:
    """One container: what it wants, and how it lives."""

    name: str
    limits: Mapping[str, int] = field(default_factory=dict)
    kind: str = "app"
    """``app``, ``init``, or ``sidecar``."""
    finishes: bool = False
    """It ends at once and well, rather than run on."""
    image: str = ""
    """Another than the usual one."""


@dataclass(frozen=True)
class PodSeen:
    name: str
    phase: str
    reason: str = ""
    message: str = ""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Why containers wait, by name."""


Counts = tuple[int, int]
"""Capacity and allocatable."""


class Kubelet(Protocol):
    version: Version
    directory: Path
    pod_resources: Path
    registry: Path
    """Where plugins lie that are found rather than register."""
    quiet: float
    """Seconds after which what has not happened will not happen."""
    dial_timeout: float
    grace: float

    def name(self, stem: str) -> str:
        """A pod's name that no other row has."""
        ...

    # pods

    async def run(self, name: str, *shapes: Shape, settled: bool = True) -> PodSeen:
        """Bind a pod to the node; with ``settled``, wait until it runs, is over, or waits for a reason."""
        ...

    async def until_pod(self, name: str, said: Callable[[PodSeen], bool]) -> PodSeen: ...

    async def delete(self, name: str) -> None:
        """Gone from the API server, and its containers ended."""
        ...

    async def environment(self, pod: str, container: str) -> Mapping[str, str]:
        """What the container was started with."""
        ...

    async def restart_container(self, pod: str, container: str) -> PodSeen:
        """The container ends and is started again in place; returns once it was, or waits for a reason."""
        ...

    async def retried(self, pod: str) -> None:
        """The kubelet tries again to start what waits (each by itself, where there is a clock for it)."""
        ...

    async def health(self, pod: str) -> Mapping[str, Mapping[str, str]]:
        """``allocatedResourcesStatus`` by resource and id."""
        ...

    async def until_health(self, pod: str, health: Mapping[str, Mapping[str, str]]) -> bool: ...

    # the node

    async def counts(self, resource: str) -> Counts | None:
        """What the node says now."""
        ...

    async def until_counts(self, resource: str, counts: Counts | None, seconds: float = 0) -> Counts | None:
        """Wait until the node says so, ``seconds`` if that is longer than patience; what it says at last."""
        ...

    def checkpoint(self) -> Mapping[str, object]:
        """``Data`` of the checkpoint file; empty if there is none."""
        ...

    async def until_checkpoint(self, said: Callable[[Mapping[str, object]], bool]) -> bool: ...

    def spec(self, kind: str, names: Mapping[str, Mapping[str, str]]) -> AbstractAsyncContextManager[None]:
        """A CDI spec of this kind lies on the node: environment by device name."""
        ...

    # lives

    @property
    def ended(self) -> str | None:
        """Why the kubelet ended by itself; None: it did not."""
        ...

    async def until_ended(self) -> bool: ...

    async def kill(self) -> None: ...

    async def stop(self) -> None: ...

    async def start(self, *, api_silent: bool = False, policy: Policy | None = None) -> None:
        """Start, and wait until kubelet.sock accepts (and the node is ready, unless the API server is silent)."""
        ...

    async def api_answers(self) -> None: ...

    async def reboot(self) -> None:
        """While it is down: no container is left."""
        ...


def entries(data: Mapping[str, object], resource: str) -> list[tuple[str, list[str]]]:
    found = data.get("PodDeviceEntries") or ()
    return sorted(
        (each["ContainerName"], sorted(one for ids in each["DeviceIDs"].values() for one in ids))
        for each in found
        if each["ResourceName"] == resource
    )


def parse_checkpoint(path: Path) -> Mapping[str, object]:
    try:
        return json.loads(path.read_bytes())["Data"]
    except FileNotFoundError:
        return {}


_CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
"""A connection of its own, for answers of any length: another row may list as many devices as a list can have."""


class Lister:
    """podresources by grpcio."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._path = kubelet.pod_resources

    def _call(self, method: str, request: object, reply: type) -> object:
        with grpc.insecure_channel(f"unix:{self._path}", options=_CHANNEL) as channel:
            call = channel.unary_unary(
                method, request_serializer=lambda m: m.SerializeToString(), response_deserializer=reply.FromString
            )
            return call(request, timeout=10)

    async def raw_list(self, service: str = "v1") -> pr.ListPodResourcesResponse:
        method = f"/{service}.PodResourcesLister/List"
        return await trio.to_thread.run_sync(
            self._call, method, pr.ListPodResourcesRequest(), pr.ListPodResourcesResponse
        )

    async def pods(self) -> dict[str, dict[str, list[str]]]:
        """By pod and container: the ids, each once."""
        return {
            pod.name: {
                container.name: sorted({one for each in container.devices for one in each.device_ids})
                for container in pod.containers
            }
            for pod in (await self.raw_list()).pod_resources
        }

    async def pod(self, name: str) -> dict[str, list[str]] | None:
        """Ids by container; None: not listed."""
        return (await self.pods()).get(name)

    def hammer(self, times: int) -> list[str]:
        """So many Lists on one connection, without a pause: what each was answered."""
        with grpc.insecure_channel(f"unix:{self._path}", options=_CHANNEL) as channel:
            call = channel.unary_unary("/v1.PodResourcesLister/List")
            futures = [call.future(b"", timeout=10) for _ in range(times)]
            failed = [each.exception() for each in futures]
        return ["OK" if each is None else f"{each.code().name}: {each.details()}" for each in failed]

    async def until(self, name: str, ids: dict[str, list[str]] | None) -> bool:
        """Whether the pod is listed with these ids in time. The service has no watch, so it is asked."""
        with trio.move_on_after(30):
            while True:
                if await self.pod(name) == ids:
                    return True
                await trio.sleep(0.1)
        return False

    async def get(self, name: str, namespace: str = "default") -> pr.GetPodResourcesResponse:
        request = pr.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        return await trio.to_thread.run_sync(
            self._call, "/v1.PodResourcesLister/Get", request, pr.GetPodResourcesResponse
        )

    async def allocatable(self, resource: str) -> list[str]:
        reply = await trio.to_thread.run_sync(
            self._call,
            "/v1.PodResourcesLister/GetAllocatableResources",
            pr.AllocatableResourcesRequest(),
            pr.AllocatableResourcesResponse,
        )
        return sorted(one for each in reply.devices if each.resource_name == resource for one in each.device_ids)
