"""The other side in grpcio: a kubelet's client of our plugin, and a kubelet's servers for our clients."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from reactor.aio import Door, open_door
from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet._pb import podresources_pb2 as pr
from reactor.kubelet.desk import Desk
from reactor.kubelet.servers import PluginServers
from tests.kubelet.fakes import Log, desk

UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


class Client:
    """Calls a plugin as the kubelet does."""

    def __init__(self, channel: grpc.Channel) -> None:
        service = "/v1beta1.DevicePlugin/"

        def unary(name: str, reply: type) -> grpc.UnaryUnaryMultiCallable:
            return channel.unary_unary(
                service + name,
                request_serializer=lambda m: m.SerializeToString(),
                response_deserializer=reply.FromString,
            )

        self._options = unary("GetDevicePluginOptions", pb.DevicePluginOptions)
        self._allocate = unary("Allocate", pb.AllocateResponse)
        self._preferred = unary("GetPreferredAllocation", pb.PreferredAllocationResponse)
        self._start = unary("PreStartContainer", pb.PreStartContainerResponse)
        self._watch = channel.unary_stream(
            service + "ListAndWatch",
            request_serializer=pb.Empty.SerializeToString,
            response_deserializer=pb.ListAndWatchResponse.FromString,
        )

    def options(self) -> pb.DevicePluginOptions:
        return self._options(pb.Empty(), timeout=5)

    def watch(self) -> grpc.UnaryStreamMultiCallable:
        return self._watch(pb.Empty(), timeout=10)

    def allocate(self, *requests: list[str]) -> pb.AllocateResponse:
        asked = [pb.ContainerAllocateRequest(devices_ids=ids) for ids in requests]
        return self._allocate(pb.AllocateRequest(container_requests=asked), timeout=5)

    def preferred(self, available: list[str], must: list[str], size: int) -> list[str]:
        one = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        reply = self._preferred(pb.PreferredAllocationRequest(container_requests=[one]), timeout=20)
        return list(reply.container_responses[0].deviceIDs)

    def start(self, *ids: str) -> pb.PreStartContainerResponse:
        return self._start(pb.PreStartContainerRequest(devices_ids=ids), timeout=5)


@contextmanager
def client(path: Path) -> Iterator[Client]:
    with grpc.insecure_channel(f"unix:{path}", options=UNLIMITED) as channel:
        yield Client(channel)


def health(message: pb.ListAndWatchResponse) -> dict[str, str]:
    return {device.ID: device.health for device in message.devices}


@dataclass
class Node:
    """A plugin directory with our servers in it."""

    directory: Path
    door: Door
    desk: Desk
    log: Log
    servers: PluginServers

    def path(self, socket: str) -> Path:
        return self.directory / socket


@contextmanager
def short_directory() -> Iterator[Path]:
    """pytest's own directories are too long for the path of a unix socket."""
    with tempfile.TemporaryDirectory(prefix="gr-") as name:
        yield Path(name)


@asynccontextmanager
async def node(directory: Path | None = None) -> AsyncIterator[Node]:
    one, log = desk()
    with short_directory() as own:
        where = directory or own
        async with open_door() as door:
            servers = PluginServers(door, one, directory=where, kubelet_socket=where / "kubelet.sock")
            try:
                yield Node(where, door, one, log, servers)
            finally:
                await servers.aclose(1)


Register = Callable[[pb.RegisterRequest, grpc.ServicerContext], pb.Empty]


@contextmanager
def serving(path: Path, service: str, methods: dict[str, tuple[type, Callable[..., object]]]) -> Iterator[grpc.Server]:
    pool = ThreadPoolExecutor(4)
    server = grpc.server(pool, options=UNLIMITED)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            behaviour, request_deserializer=request.FromString, response_serializer=lambda m: m.SerializeToString()
        )
        for name, (request, behaviour) in methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield server
    finally:
        server.stop(0).wait()
        pool.shutdown()


def registration(path: Path, register: Register):
    return serving(path, "v1beta1.Registration", {"Register": (pb.RegisterRequest, register)})


def podresources(path: Path, reply: Callable[[], pr.ListPodResourcesResponse]):
    methods = {"List": (pr.ListPodResourcesRequest, lambda request, context: reply())}
    return serving(path, "v1.PodResourcesLister", methods)
