"""Where the status listeners listen, and how a listener that cannot be opened is tried again.

A taken port or a directory that is missing or read-only is a fault of the agent that people can see, never its end:
GPUs are served all the same. During an upgrade the old agent still has the place, so it is tried until it is free.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio

from reactor.events import Fact, SourceFailed, SourceRecovered

FIRST_RETRY = 0.5
LAST_RETRY = 60.0
BACKLOG = 64

Bind = Callable[[], Awaitable[Sequence[trio.SocketListener]]]


async def bind_patiently(
    source: str,
    bind: Bind,
    publish: Callable[[Fact], object],
    task_status: trio.TaskStatus[None],
) -> Sequence[trio.SocketListener]:
    """Bind, however long it takes. Counts as started after the first try, whether that went well or not."""
    attempt, pause = 0, FIRST_RETRY
    while True:
        try:
            listeners = await bind()
        except OSError as exc:
            attempt += 1
            publish(SourceFailed(source=source, error=str(exc), attempt=attempt, retry_in=pause))
        else:
            if attempt:
                publish(SourceRecovered(source=source, attempts=attempt))
            else:
                task_status.started()
            return listeners
        if attempt == 1:
            task_status.started()
        await trio.sleep(pause)
        pause = min(2 * pause, LAST_RETRY)


async def bind_tcp(host: str, port: int) -> list[trio.SocketListener]:
    """Listeners on every address of ``host``; empty: on all addresses of this machine."""
    try:
        return await trio.open_tcp_listeners(port, host=host or None, backlog=BACKLOG)
    except OSError as exc:
        raise OSError(f"listening on {host or '*'}:{port}: {exc}") from exc


async def bind_unix(path: Path) -> list[trio.SocketListener]:
    """A listener for this user alone. A socket that nobody answers on is replaced, anything else is left alone."""
    try:
        _make_directory(path.parent)
        if _is_socket(path):
            await _refuse_if_answered(path)
            remove_socket(path, inode(path))
        return [await _listen_unix(path)]
    except OSError as exc:
        raise OSError(f"listening on {path}: {exc}") from exc


def inode(path: Path) -> int | None:
    """Which file is there now; None: none."""
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None


def remove_socket(path: Path, ours: int | None) -> None:
    """Remove a socket file if it still is the one that was looked at, and not another agent's by now."""
    if ours is not None and inode(path) == ours:
        path.unlink(missing_ok=True)


async def _listen_unix(path: Path) -> trio.SocketListener:
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        await sock.bind(os.fspath(path))
        _for_owner_only(path)  # Before listen: nobody can connect earlier.
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return trio.SocketListener(sock)


def _make_directory(path: Path) -> None:
    if not path.is_dir():
        path.mkdir(parents=True)
        path.chmod(0o755)


def _for_owner_only(path: Path) -> None:
    path.chmod(0o600)


def _is_socket(path: Path) -> bool:
    """False: nothing is there. OSError: something else is, which is not ours to remove."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(mode):
        raise FileExistsError("what is there is not a socket")
    return True


async def _refuse_if_answered(path: Path) -> None:
    with trio.move_on_after(1.0):  # A full backlog makes connect wait: then somebody is there, too.
        try:
            stream = await trio.open_unix_socket(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        await stream.aclose()
    raise FileExistsError("another agent answers there")
