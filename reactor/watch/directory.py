"""One directory under watch, re-armed when it is replaced, with a slow poll as the net under lost events."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio
from watchfiles import Change
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

log = logging.getLogger(__name__)

_REARM = 1.0
"""Seconds between tries to arm a watch on a directory that is missing, or while the inotify limits are used up."""


async def watch(
    directory: Path,
    changed: Callable[[], None],
    *,
    poll: float,
    step: float = 0.05,
    names: Callable[[str], bool] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call ``changed`` after each change in ``directory``, after each (re-)arming, and ``poll`` seconds of silence.

    ``directory`` is an absolute path. Runs until cancelled. Started (``await nursery.start(...)``) means armed, so a
    reading taken after that misses nothing; if the directory is missing it is started all the same, and ``changed`` is
    called each second until it can be watched. ``names`` says which file names matter; a change of the directory itself
    always does.

    A change is told one to two ``step`` after it happened, and cancellation takes up to one. watchfiles looks at what
    it heard once a step, so a shorter one costs idle CPU (of a minute, 50 ms: about 85 ms; 250 ms: about 17 ms).
    """
    armed = await trio.to_thread.run_sync(_arm, directory)
    task_status.started()
    while True:
        if isinstance(armed, str):
            log.warning("%s is not watched, only looked at each second: %s", directory, armed)
            while isinstance(armed, str):
                await trio.sleep(min(poll, _REARM))
                armed = await trio.to_thread.run_sync(_arm, directory)
                changed()
            log.info("%s is watched again", directory)
        watcher, identity = armed
        try:
            await _follow(watcher, directory, identity, changed, poll=poll, step=step, names=names)
        finally:
            watcher.close()
        armed = await trio.to_thread.run_sync(_arm, directory)
        changed()


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(directory)
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino)


def _arm(directory: Path) -> tuple[RustNotify, tuple[int, int]] | str:
    """A watch, and the identity of what is watched; or why there is none."""
    before = _identity(directory)
    if before is None:
        return "it is missing"
    try:
        watcher = RustNotify([str(directory)], False, False, 0, False, False)
    except (OSError, WatchfilesRustInternalError) as exc:
        return str(exc)
    except UnicodeEncodeError:
        return "its name is no Unicode"
    if _identity(directory) != before:
        watcher.close()
        return "it was just replaced"
    return watcher, before


async def _follow(
    watcher: RustNotify,
    directory: Path,
    identity: tuple[int, int],
    changed: Callable[[], None],
    *,
    poll: float,
    step: float,
    names: Callable[[str], bool] | None,
) -> None:
    """Tell of changes until the directory is no longer the one that is watched."""
    step_ms = max(1, round(step * 1000))
    stop = threading.Event()
    wait = partial(watcher.watch, step_ms, step_ms, max(1, round(poll * 1000)), stop)
    limiter = trio.CapacityLimiter(1)  # a wait may last for hours: it must not take a token of the default limiter
    async with trio.open_nursery() as nursery:
        # A thread cannot be cancelled: the wait below returns once this sibling, cancelled with it, sets the event.
        nursery.start_soon(_set_when_cancelled, stop)
        while True:
            try:
                found = await trio.to_thread.run_sync(wait, limiter=limiter)
            except WatchfilesRustInternalError:  # anybody may make a file whose name is no Unicode in here
                await trio.sleep(step)
                break
            if isinstance(found, str):
                told, replaced = found == "timeout", False
            else:
                told = any(names is None or _is(path, directory) or names(os.path.basename(path)) for _, path in found)
                # A new directory may have the inode of the deleted one, so the event counts and not the identity.
                replaced = any(kind == Change.deleted and _is(path, directory) for kind, path in found)
            if replaced or (told and _identity(directory) != identity):
                break  # arming again tells of the change
            if told:
                changed()
        nursery.cancel_scope.cancel()


def _is(path: str, directory: Path) -> bool:
    return path.rstrip("/") == str(directory)


async def _set_when_cancelled(stop: threading.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        stop.set()
