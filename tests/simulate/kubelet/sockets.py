"""A kubelet on real sockets with the agent's plugin servers, or a careless plugin, beside it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio
from grpclib.const import Cardinality, Handler

from reactor.aio import Door, open_door
from reactor.kubelet import calls
from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet._pb.deviceplugin_grpc import DevicePluginBase
from reactor.kubelet.encode import EncodedList
from reactor.kubelet.listener import Listener
from reactor.kubelet.servers import PluginServers
from reactor.simulate.kubelet.grpc import GrpcKubelet, Traits, open_kubelet
from reactor.simulate.kubelet.version import Version
from tests.simulate.kubelet.agent import GPU, Notes, desk, snapshot


class Node:
    def __init__(self) -> None:
        self.notes = Notes(moved=self.moved)
        self.heard = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self.kubelet: GrpcKubelet
        self.servers: PluginServers
        self.door: Door

    def moved(self, *told: object) -> None:
        """Called from the threads of kubelet and plugins whenever something happened there."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._stir)

    def _stir(self) -> None:
        self.heard.set()
        self.heard = trio.Event()

    async def serve(self, *names: str, **how) -> str:
        self.servers.post(snapshot(*names, **how))
        made = await self.servers.serve(GPU)
        await self.servers.register(GPU, made)
        await self.until(bool)
        return made

    async def granted(self) -> list[tuple[str, ...]]:
        return self.notes.granted_ids

    async def until(self, true: Callable[[dict[str, bool]], bool]) -> None:
        await self.eventually(lambda: self.kubelet.devices(GPU), true)

    async def parted(self) -> None:
        """Wait until no stream lives at the desk."""
        await self.eventually(self.live, lambda live: not live)

    async def live(self) -> int:
        return self.notes.live

    async def eventually(self, ask: Callable[[], Awaitable], true: Callable) -> None:
        """Ask again whenever the kubelet or the desk has told of anything."""
        with trio.fail_after(3):
            while True:
                heard = self.heard
                if true(await ask()):
                    return
                await heard.wait()


@asynccontextmanager
async def node(version: str = "1.34", **traits) -> AsyncIterator[Node]:
    one = Node()
    told = Traits(version=Version.parse(version), **traits)
    with tempfile.TemporaryDirectory(prefix="gr-") as root:  # pytest's own paths are too long for unix sockets
        async with open_kubelet(Path(root), told, seen=one.moved) as one.kubelet:
            await one.kubelet.start()
            async with open_door() as one.door:
                one.servers = PluginServers(
                    one.door,
                    desk(one.notes),
                    directory=one.kubelet.directory,
                    kubelet_socket=one.kubelet.socket,
                )
                yield one
                await one.servers.aclose(1)


class Careless(DevicePluginBase):
    """Sends whatever it is given, however long."""

    def __init__(self, *messages: pb.ListAndWatchResponse | EncodedList) -> None:
        self.messages = messages

    def __mapping__(self):
        watch = Handler(self.ListAndWatch, Cardinality.UNARY_STREAM, pb.Empty, object)
        return {**super().__mapping__(), "/v1beta1.DevicePlugin/ListAndWatch": watch}

    async def GetDevicePluginOptions(self, stream):  # noqa: N802
        await stream.recv_message()
        await stream.send_message(pb.DevicePluginOptions())

    async def ListAndWatch(self, stream):  # noqa: N802
        await stream.recv_message()
        for message in self.messages:
            await stream.send_message(message)
        await asyncio.Event().wait()

    async def Allocate(self, stream):  # noqa: N802
        await stream.recv_message()
        await stream.send_message(pb.AllocateResponse())

    async def GetPreferredAllocation(self, stream):  # noqa: N802
        await stream.recv_message()

    async def PreStartContainer(self, stream):  # noqa: N802
        await stream.recv_message()


def list_of(device: str) -> pb.ListAndWatchResponse:
    return pb.ListAndWatchResponse(devices=[pb.Device(ID=device, health="Healthy")])


@asynccontextmanager
async def careless(one: Node, *messages, service: type[Careless] | None = None) -> AsyncIterator[None]:
    async def start() -> Listener:  # grpclib binds a server to the loop that is current when it is made
        made = Listener((service or Careless)(*messages), str(one.kubelet.directory / "careless.sock"))
        await made.start()
        return made

    listener = await one.door.call(start)
    try:
        await one.door.call(calls.register, str(one.kubelet.socket), GPU, "careless.sock", 5.0)
        yield
    finally:
        await one.door.call(listener.stop)
