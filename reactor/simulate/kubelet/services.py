"""The kubelet's own gRPC services, and a server that ends as a killed process ends: asyncio side."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable

from grpclib.const import Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import H2Protocol
from grpclib.server import Server, Stream

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet._pb import podresources_pb2 as v1
from reactor.kubelet._pb.deviceplugin_grpc import RegistrationBase
from reactor.kubelet._pb.podresources_grpc import PodResourcesListerBase
from reactor.model.hold import PodRef
from reactor.simulate.kubelet import podresources, texts
from reactor.simulate.kubelet.core import KubeletCore
from reactor.simulate.kubelet.podresources import PodEntry, RateLimit, Record
from reactor.simulate.kubelet.registration import RegisterError


class _Connection(H2Protocol):
    def __init__(self, plain: H2Protocol, server: KillableServer) -> None:
        super().__init__(plain.handler, plain.config, plain.h2_config)
        self._live = server.live
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if isinstance(transport, asyncio.Transport):
            self._live.add(transport)
            if self._server.killed:  # it was being accepted at that moment
                transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._live.difference_update([each for each in self._live if each.is_closing()])
        super().connection_lost(exc)


class KillableServer(Server):
    """Ends without a word: connections are cut, the socket file is left behind."""

    def __init__(self, services: Iterable[RegistrationBase | PodResourcesListerBase], sock: socket.socket) -> None:
        super().__init__(list(services))
        self._sock = sock
        self.live: set[asyncio.Transport] = set()
        self.killed = False
        self._listens = False

    def _protocol_factory(self) -> H2Protocol:
        return _Connection(super()._protocol_factory(), self)

    async def listen(self) -> None:
        await self.start(sock=self._sock)
        self._listens = True

    async def kill(self) -> None:
        self.killed = True
        for transport in tuple(self.live):
            transport.abort()
        # When its server closes, asyncio (3.11) forgets, open, what it accepted but has not made a connection of yet.
        asyncio.get_running_loop().remove_reader(self._sock)
        await asyncio.sleep(0)
        if self._listens:
            self.close()
        else:  # its kubelet was ended while it began
            self._sock.close()


class Mute(asyncio.Protocol):
    """Accepts a connection and never says anything."""


async def serve_mute(sock: socket.socket) -> asyncio.Server:
    return await asyncio.get_running_loop().create_unix_server(Mute, sock=sock)


class Registration(RegistrationBase):
    def __init__(self, register: Callable[[str, str, str, float | None], Awaitable[None]]) -> None:
        """``register`` is given the version, the resource, the endpoint, and the seconds that the plugin waits."""
        self._register = register

    async def Register(self, stream: Stream[pb.RegisterRequest, pb.Empty]) -> None:  # noqa: N802
        request = await stream.recv_message()
        if request is None:
            raise GRPCError(Status.INTERNAL, "no request")
        left = None if stream.deadline is None else stream.deadline.time_remaining()
        try:
            await self._register(request.version, request.resource_name, request.endpoint, left)
        except RegisterError as error:
            raise GRPCError(Status.UNKNOWN, str(error)) from error
        await stream.send_message(pb.Empty())


class PodResources(PodResourcesListerBase):
    def __init__(self, core: KubeletCore, limit: RateLimit) -> None:
        self._core = core
        self._limit = limit

    def _take(self) -> None:
        if not self._limit.take():
            raise GRPCError(Status.RESOURCE_EXHAUSTED, texts.RATE_LIMITED)

    async def List(self, stream: Stream[v1.ListPodResourcesRequest, v1.ListPodResourcesResponse]) -> None:  # noqa: N802
        await stream.recv_message()
        self._take()
        pods = [_pod(each) for each in self._core.pod_resources()]
        await stream.send_message(v1.ListPodResourcesResponse(pod_resources=pods))

    async def GetAllocatableResources(  # noqa: N802
        self, stream: Stream[v1.AllocatableResourcesRequest, v1.AllocatableResourcesResponse]
    ) -> None:
        await stream.recv_message()
        self._take()
        devices = _devices(podresources.allocatable(self._core.manager))
        await stream.send_message(v1.AllocatableResourcesResponse(devices=devices))

    async def Get(self, stream: Stream[v1.GetPodResourcesRequest, v1.GetPodResourcesResponse]) -> None:  # noqa: N802
        request = await stream.recv_message()
        self._take()
        if not self._core.traits.version.gets_one_pod:
            raise GRPCError(Status.UNKNOWN, texts.GET_DISABLED)
        ref = PodRef("", "") if request is None else PodRef(request.pod_namespace, request.pod_name)
        found = self._core.pod_resources_of(ref)
        if found is None:
            raise GRPCError(Status.UNKNOWN, f"pod {ref.name} in namespace {ref.namespace} not found")
        await stream.send_message(v1.GetPodResourcesResponse(pod_resources=_pod(found)))


class OldPodResources(PodResources):
    """The same as v1alpha1, of which the kubelet still serves List; what it knows of a message is the same."""

    def __mapping__(self) -> dict[str, Handler]:
        (old,) = (each for path, each in super().__mapping__().items() if path.endswith("/List"))
        return {"/v1alpha1.PodResourcesLister/List": old}


def _pod(entry: PodEntry) -> v1.PodResources:
    containers = [v1.ContainerResources(name=name, devices=_devices(records)) for name, records in entry.containers]
    return v1.PodResources(name=entry.pod.name, namespace=entry.pod.namespace, containers=containers)


def _devices(records: Iterable[Record]) -> list[v1.ContainerDevices]:
    return [
        v1.ContainerDevices(
            resource_name=each.resource,
            device_ids=[each.id],
            topology=None if each.node is None else v1.TopologyInfo(nodes=[v1.NUMANode(ID=each.node)]),
        )
        for each in records
    ]
