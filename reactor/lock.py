"""One agent a node: a flock on the kubelet's plugin directory itself, so that no file is left there.

The kernel gives it up with the process that has it. Children never inherit it (the descriptor is close-on-exec).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import trio

RETRY = 0.25


async def one_agent(directory: Path, *, waiting: Callable[[str], object], wanted: Callable[[], bool]) -> Lock | None:
    """Take the lock of ``directory``; None once it is not wanted. ``waiting`` is told each new reason why not yet."""
    told = ""
    while wanted():
        descriptor, reason = _take(directory)
        if descriptor is not None:
            return Lock(descriptor)
        if reason != told:
            told = reason
            waiting(reason)
        await trio.sleep(RETRY)
    return None


class Lock:
    """The lock, held until its ``with`` block ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None:
        os.close(self._descriptor)


def _take(directory: Path) -> tuple[int | None, str]:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        return None, f"the kubelet's plugin directory {directory} cannot be opened: {exc.strerror}"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None, f"another agent holds {directory}: this one waits until that one ends"
    return descriptor, ""
