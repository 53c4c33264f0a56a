"""What an inotify watcher of a directory hears."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio

_CREATE, _DELETE, _MOVED_TO = 0x100, 0x200, 0x80
_WHAT = {_CREATE: "create", _DELETE: "delete", _MOVED_TO: "moved to"}
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Ear:
    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._found: list[tuple[str, str]] = []

    def heard(self) -> list[tuple[str, str]]:
        """(what, name) of everything since the last time, in order."""
        self._listen()
        found, self._found = self._found, []
        return found

    async def until(self, what: str, name: str, seconds: float = 30) -> None:
        """Wait until this is among what ``heard`` would return."""
        with trio.fail_after(seconds):
            while (what, name) not in self._found:
                await trio.lowlevel.wait_readable(self._handle)
                self._listen()

    def _listen(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self._handle, 1 << 16):
                while data:
                    _, mask, _, length = _HEAD.unpack_from(data)
                    name = data[_HEAD.size : _HEAD.size + length].rstrip(b"\0").decode()
                    data = data[_HEAD.size + length :]
                    self._found.append((_WHAT[mask & sum(_WHAT)], name))


@contextmanager
def listening(directory: Path) -> Iterator[Ear]:
    handle = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if handle < 0 or _libc.inotify_add_watch(handle, os.fsencode(directory), sum(_WHAT)) < 0:
        raise OSError(ctypes.get_errno(), f"cannot watch {directory}")
    try:
        yield Ear(handle)
    finally:
        os.close(handle)
