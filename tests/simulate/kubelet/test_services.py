from __future__ import annotations

import asyncio
import gc
import socket
import tempfile
from pathlib import Path

import pytest

from reactor.simulate.kubelet.directory import listen
from reactor.simulate.kubelet.services import KillableServer


@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_is_being_accepted_ends_with_the_server(turns: int) -> None:
    """The loop may have come to any point of the accept; a connection left open would be a warning here."""

    async def connect_and_kill(path: Path) -> socket.socket:
        server = KillableServer([], listen(path))
        await server.listen()
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.connect(str(path))
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.kill()
        return peer

    with tempfile.TemporaryDirectory(prefix="gr-") as root:
        peer = asyncio.run(connect_and_kill(Path(root) / "s.sock"))
        gc.collect()
        peer.settimeout(1)
        with peer:
            try:
                while peer.recv(1 << 12):  # its greeting, if it came so far
                    pass
            except ConnectionResetError:
                pass


def test_a_server_can_be_killed_before_it_listens() -> None:
    """A signal may end the kubelet while it begins."""

    async def make_and_kill(sock: socket.socket) -> None:
        await KillableServer([], sock).kill()

    with tempfile.TemporaryDirectory(prefix="gr-") as root:
        sock = listen(Path(root) / "s.sock")
        asyncio.run(make_and_kill(sock))
        assert sock.fileno() == -1
