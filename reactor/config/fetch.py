"""The bytes of the config file, whatever stands in its place."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import trio

from reactor.config.document import MAX_BYTES
from reactor.model.errors import Transient

DEADLINE = 10.0
"""Seconds after which a file that does not answer (a dead mount) counts as one that cannot be read."""

_KINDS = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


class Fetch:
    """Reads a file, one reading at a time: one that hangs is left behind and the next waits for it."""

    def __init__(self, deadline: float = DEADLINE) -> None:
        self._deadline = deadline
        self._one = trio.CapacityLimiter(1)

    async def __call__(self, path: Path) -> bytes:
        """One reading, at most one byte more than is accepted. Transient: it cannot be read now."""
        with trio.move_on_after(self._deadline):
            # Abandoned when cancelled: a file on a dead mount must not keep the agent from its end.
            return await trio.to_thread.run_sync(read, path, abandon_on_cancel=True, limiter=self._one)
        raise Transient(f"the config file cannot be read: no answer within {self._deadline:g} s")


def read(path: Path) -> bytes:
    """The bytes, at most one more than is accepted. A device such as /dev/null is read; a pipe would never end."""
    try:
        # Without O_NONBLOCK a pipe that nobody writes to would hold us in open().
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(file).st_mode
            kind = next((name for is_kind, name in _KINDS if is_kind(mode)), None)
            if kind is not None:
                raise Transient(f"the config file cannot be read: {path} is {kind}")
            with open(file, "rb", closefd=False) as stream:
                return stream.read(MAX_BYTES + 1)
        finally:
            os.close(file)
    except OSError as exc:
        raise Transient(f"the config file cannot be read: {_why(path, exc)}") from exc


def _why(path: Path, exc: OSError) -> str:
    why = exc.strerror or str(exc)
    if isinstance(exc, FileNotFoundError) and path.is_symlink():
        return f"{why}: it is a link to {os.readlink(path)}"
    return why
