"""A plugin server as the kubelet finds it, and a client that speaks HTTP/2 as badly as it is told to."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from h2.connection import H2Connection
from h2.events import ConnectionTerminated, Event, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError

from reactor import allocate
from reactor.aio import living
from reactor.kubelet import calls
from reactor.kubelet.desk import Desk
from reactor.kubelet.listener import Listener
from reactor.kubelet.service import PluginService
from tests.kubelet import fakes

T = TypeVar("T")
SERVICE = "/v1beta1.DevicePlugin/"
PATIENCE = 5.0


class Plugin:
    """A listener in a loop of its own, as behind the agent's door. ``complaints``: errors that nobody caught."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.complaints: list[dict[str, object]] = []
        self.log = fakes.Log()
        self.desk = Desk(answer=allocate.answer, prefer=allocate.prefer, reports=self.log)
        self.desk.post(fakes.snapshot(fakes.offer(fakes.group(0, replicas=4), fakes.group(1, replicas=4))))
        self._listener: Listener
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: self.complaints.append(context))
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Plugin:
        self._thread.start()
        self.run(self._start())
        return self

    async def _start(self) -> None:
        """A server belongs to the loop that it was made in."""
        self._listener = Listener(PluginService(self.desk, fakes.GPU, "a.sock"), str(self.path))
        await self._listener.start()

    def __exit__(self, *exc: object) -> None:
        self.run(self._listener.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def serves(self) -> bool:
        """Whether a well-behaved client is answered."""
        self.run(calls.probe(str(self.path), PATIENCE))
        return True

    def at_rest(self) -> tuple[int, int, int]:
        """(tasks, descriptors, streams) once every connection was taken in and has ended."""

        async def rest() -> int:
            async with asyncio.timeout(PATIENCE):
                while _waiting(self.path) or self._listener.connections:  # noqa: ASYNC110 - nobody tells of that
                    await asyncio.sleep(0.001)
                for _ in range(5):  # handlers that were cancelled get to their end
                    await asyncio.sleep(0)
            self.desk.settle()  # what is put off for a moment is told
            return await living()

        tasks = self.run(rest())
        return tasks, len(os.listdir("/proc/self/fd")), len(self.desk.streams)


def _waiting(path: Path) -> int:
    """Connections to this socket that are open or wait to be accepted."""
    return sum(line.endswith(str(path)) for line in Path("/proc/net/unix").read_text().splitlines()) - 1


@contextmanager
def plugin() -> Iterator[Plugin]:
    with tempfile.TemporaryDirectory(prefix="gr-") as name, Plugin(Path(name) / "a.sock") as served:
        yield served


def request(method: str, payload: bytes, *, end: bool = True) -> bytes:
    """What a client sends to call ``method`` with these bytes in the DATA frames."""
    peer = H2Connection()
    peer.initiate_connection()
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    peer.send_headers(1, list(headers.items()), end_stream=end and not payload)
    for start in range(0, len(payload), 16_384):
        piece = payload[start : start + 16_384]
        peer.send_data(1, piece, end_stream=end and start + len(piece) == len(payload))
    return peer.data_to_send()


def message(body: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """A gRPC message, whose length may be a lie."""
    return bytes([compressed]) + (len(body) if length is None else length).to_bytes(4, "big") + body


def speak(path: Path, data: bytes, *, listen: bool = False, end_well: bool = False) -> bytes:
    """Send these bytes and leave. ``listen``: read until the answer has ended, or the other side hangs up."""
    heard = b""
    with socket.socket(socket.AF_UNIX) as client, suppress(BrokenPipeError, ConnectionResetError):
        client.connect(str(path))  # without a time limit, which would refuse to wait for a place in the queue
        client.settimeout(PATIENCE)
        client.sendall(data)
        if end_well:
            client.shutdown(socket.SHUT_WR)
        while listen:
            piece = client.recv(65_536)
            heard += piece
            listen = bool(piece) and not _ended(heard)
    return heard


def _ended(heard: bytes) -> bool:
    """Whether the answer on the first stream is complete, or the server said goodbye."""
    try:
        return any(isinstance(event, StreamEnded | StreamReset | ConnectionTerminated) for event in _events(heard))
    except ProtocolError:
        return True


def _events(heard: bytes) -> list[Event]:
    peer = H2Connection()
    peer.initiate_connection()
    peer.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "x")])
    return peer.receive_data(heard)


def status_of(heard: bytes) -> str:
    """The gRPC status that an answer ended with."""
    headers = [event.headers for event in _events(heard) if isinstance(event, ResponseReceived | TrailersReceived)]
    (status,) = [value for each in headers for name, value in each if name in ("grpc-status", b"grpc-status")]
    return status.decode() if isinstance(status, bytes) else status
