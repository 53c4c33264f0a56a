"""One connection of the kubelet to a plugin's socket, by grpclib: asyncio side.

It behaves as the kubelet's Go client does where plugins can see it: ``:authority`` localhost, small flow-control
windows, messages of more than 4 MiB refused, and a list that arrives together with the stream's end is read before it
(grpclib drops it). ``break_by`` ends it in the rude ways that real peers find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from grpclib.client import Channel, Stream, UnaryStreamMethod
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.protocol import H2Protocol
from grpclib.protocol import Stream as H2Stream
from grpclib.utils import Wrapper

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet._pb.deviceplugin_grpc import DevicePluginStub
from reactor.simulate.kubelet import texts
from reactor.simulate.kubelet.plugin import MESSAGE_LIMIT, ContainerAnswer, KubeletGone, Options, PluginError
from reactor.simulate.kubelet.registration import BACKOFF, RegisterError
from reactor.simulate.kubelet.wire import answer_of, options_of, preferred_request

T = TypeVar("T")
_WINDOW = 64 * 1024
_PRE_START = 30.0
_HEADER = 9
"""Bytes before the payload of an HTTP/2 frame: length (3), type, flags, stream (4); RFC 9113 4.1."""
_GOAWAY = 7


class Break(StrEnum):
    RST = "rst"
    """The stream is reset, the connection stays until the kubelet closes it."""
    GOAWAY = "goaway"
    """The connection is said farewell and closed."""
    ABORT = "abort"
    """The connection is cut wherever it is, be it within a message."""


@dataclass
class SocketWeather:
    """What goes wrong between the kubelet and its plugins; belongs to the asyncio side."""

    register_delay: float = 0.0
    refuse_register: int = 0
    read_delay: float = 0.0
    """Seconds before each list is read off the stream."""
    calm: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear while nothing is read: the flow-control window fills up and shuts."""
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear while answers to Allocate are on their way and do not arrive."""

    def __post_init__(self) -> None:
        self.calm.set()
        self.answers.set()


@dataclass(frozen=True, slots=True)
class _Raw:
    """A ListAndWatchResponse as it came, for its length matters."""

    data: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that gRPC calls
        return self.data

    @classmethod
    def FromString(cls, data: bytes) -> _Raw:  # noqa: N802
        return cls(data)


class _Protocol(H2Protocol):
    """Says when the peer has spoken: a Go client takes a connection for made once it has the peer's SETTINGS.

    For h2 a connection is over with GOAWAY. To a Go client it says that new calls want another one; what lives on it
    goes on until it is closed. So h2 does not get to see it.
    """

    def __init__(self, plain: H2Protocol, heard: asyncio.Event) -> None:
        super().__init__(plain.handler, plain.config, plain.h2_config)
        self._heard = heard
        self._rest = bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if isinstance(transport, asyncio.Transport):
            self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while len(self._rest) >= _HEADER:
            size = _HEADER + int.from_bytes(self._rest[:3])
            if len(self._rest) < size or self.connection.is_closing():
                break
            frame = bytes(self._rest[:size])
            del self._rest[:size]
            if frame[3] != _GOAWAY:
                super().data_received(frame)
        self._heard.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._heard.set()


class _ToTheEnd(Wrapper):
    """What ends a stream in grpclib cancels its reader. With this one the reader first gets all that had come."""

    def __init__(self, stream: H2Stream) -> None:
        super().__init__()
        self._stream = stream
        self.cut: Exception | None = None
        """Why the stream ended before the plugin had finished it."""

    def cancel(self, error: Exception) -> None:
        if not self._stream.headers_received.is_set():
            super().cancel(error)
        elif self.cut is None:
            self.cut = error
            self._stream.buffer._ack_callback = _ignore  # the connection is closed: what is read frees no window
            self._stream.buffer.eof()


def _ignore(size: int) -> None:
    pass


class _Channel(Channel):
    def __init__(self, path: str) -> None:
        window = Configuration(http2_connection_window_size=_WINDOW, http2_stream_window_size=_WINDOW)
        super().__init__(path=path, config=window)
        self._authority = "localhost"
        self._heard = asyncio.Event()
        self.made: _Protocol | None = None

    def _protocol_factory(self) -> H2Protocol:
        self.made = _Protocol(super()._protocol_factory(), self._heard)
        return self.made

    async def dial(self) -> None:
        await self.__connect__()
        await self._heard.wait()
        if self.made is None or self.made.transport is None or self.made.transport.is_closing():
            raise ConnectionResetError("closed by the plugin")


class SocketLink:
    """An ``Endpoint`` behind a socket."""

    def __init__(self, resource: str, path: str, weather: SocketWeather) -> None:
        self.resource = resource
        self.ended = False
        self.gone = False
        """The kubelet's process ended, so nobody is there to be told of an error."""
        self.streaming = False
        self._path = path
        self._weather = weather
        self._channel: _Channel | None = None
        self._stream: Stream[pb.Empty, _Raw] | None = None
        self._over = asyncio.Event()

    async def dial(self, patience: float) -> None:
        """Connect as grpc-go does: blocking, with back-off, until the peer speaks HTTP/2."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                for pause in BACKOFF:
                    await asyncio.sleep(pause)
                    self._channel = channel = _Channel(self._path)
                    try:
                        await channel.dial()
                    except OSError:
                        channel.close()
                        continue
                    return
        self.end()
        raise RegisterError(texts.dial_failed())

    def end(self) -> None:
        """Close the connection. Can be repeated."""
        self.ended = True
        self._over.set()
        if self._channel is not None:
            self._channel.close()

    def break_by(self, how: Break) -> None:
        made = self._channel.made if self._channel is not None else None
        if made is None or made.transport is None:
            return
        if how is Break.ABORT:
            made.transport.abort()
        elif how is Break.GOAWAY:
            made.connection._connection.close_connection()
            made.connection.flush()
            self.end()
        elif self._stream is not None and self._stream._stream.closable:
            self._stream._stream.reset_nowait()
            self.end()

    # ------------------------------------------------------------ ListAndWatch

    async def watch(self, receive: Callable[[bytes], None]) -> None:
        """Read lists until the stream ends, whichever side ends it; then close the connection."""
        try:
            await self._watch(receive)
        except (GRPCError, StreamTerminatedError, ProtocolError, OSError, AssertionError, PluginError):
            pass  # how it ended is nothing to the kubelet; AssertionError is grpclib's word for a cut reply
        finally:
            self.streaming = False
            self.end()

    async def _watch(self, receive: Callable[[bytes], None]) -> None:
        method = UnaryStreamMethod(self._alive(), "/v1beta1.DevicePlugin/ListAndWatch", pb.Empty, _Raw)
        async with method.open() as stream:
            self._stream = stream
            await stream.send_message(pb.Empty(), end=True)
            stream._wrapper = stream._stream.wrapper = end = _ToTheEnd(stream._stream)
            self.streaming = True
            while True:
                await self._weather.calm.wait()
                if self._weather.read_delay:
                    await asyncio.sleep(self._weather.read_delay)
                message = await stream.recv_message()
                if end.cut is not None and (message is None or self.ended):
                    raise end.cut
                if message is None or len(message.data) > MESSAGE_LIMIT:
                    self.end()
                    return
                receive(message.data)

    # ------------------------------------------------------------ calls

    async def options(self, left: float | None = None) -> Options:
        """``left``: seconds that the plugin's Register still has, where they bound this call too."""
        return options_of(await self._call(lambda stub: stub.GetDevicePluginOptions(pb.Empty(), timeout=left)))

    async def allocate(self, ids: Sequence[str]) -> tuple[ContainerAnswer, ...]:
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        reply = await self._call(lambda stub: stub.Allocate(request))
        await self._arrival()
        size = reply.ByteSize()
        if size > MESSAGE_LIMIT:
            text = f"grpc: received message larger than max ({size} vs. {MESSAGE_LIMIT})"
            raise PluginError(texts.rpc_error("ResourceExhausted", text))
        return tuple(answer_of(each) for each in reply.container_responses)

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> tuple[str, ...]:
        request = preferred_request(available, must_include, size)
        reply = await self._call(lambda stub: stub.GetPreferredAllocation(request))
        return tuple(reply.container_responses[0].deviceIDs) if reply.container_responses else ()

    async def pre_start(self, ids: Sequence[str]) -> None:
        request = pb.PreStartContainerRequest(devices_ids=ids)
        await self._call(lambda stub: stub.PreStartContainer(request, timeout=_PRE_START))

    async def _call(self, ask: Callable[[DevicePluginStub], Awaitable[T]]) -> T:
        try:
            return await ask(DevicePluginStub(self._alive()))
        except GRPCError as error:
            raise PluginError(texts.rpc_error(_go_name(error.status), error.message or "")) from error
        except (StreamTerminatedError, ProtocolError, OSError, AssertionError) as error:
            self._alive()
            text = f'connection error: desc = "transport: {error}"'
            raise PluginError(texts.rpc_error("Unavailable", text)) from error

    async def _arrival(self) -> None:
        if not self._weather.answers.is_set():
            events = (self._weather.answers, self._over)
            waiting = [asyncio.get_running_loop().create_task(each.wait()) for each in events]
            _, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in left:
                each.cancel()
        self._alive()

    def _alive(self) -> _Channel:
        if self.gone:
            raise KubeletGone
        if self.ended or self._channel is None:
            raise PluginError(texts.CONNECTION_CLOSING)
        return self._channel


def _go_name(status: Status) -> str:
    return "Canceled" if status is Status.CANCELLED else status.name.title().replace("_", "")
