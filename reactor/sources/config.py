"""The config file as facts: read when it changes, told of when its content says something new.

The directory is watched (a ConfigMap is swapped there, and editors rename), with a slow poll as the net. Content counts
once two readings in a row agree, so that a file caught between truncate and write is nobody's config. A text that was
told of already is not told again; a rejected text changes nothing of what is in force, which the reducer sees to. So
does a file that goes, cannot be read or is emptied, also while the agent is away: what was accepted last stays.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from reactor.config import Accepted, Fetch, parse
from reactor.events import ConfigOrigin, ConfigRead, ConfigRejected, Fact
from reactor.model.config import ConfigProblem, Setting
from reactor.model.errors import Transient
from reactor.state import State
from reactor.watch import is_mount_point, watch

log = logging.getLogger(__name__)

STEP = 0.125
"""How coarse the directory watch is: an edit is told of 0.15 to 0.3 s later; finer costs CPU while idle."""
POLL = 10.0
GAP = 0.02
"""Seconds between two readings that must agree: longer than a truncate and the write after it take."""

FIXED = "no edit of a ConfigMap ever reaches it: mount its directory instead"

Until = Callable[[Callable[[State], bool]], Awaitable[State]]
Reading = bytes | str
"""The bytes of the file, or why it cannot be read."""


class ConfigSource:
    name = "config"

    def __init__(
        self,
        path: Path | None,
        *,
        publish: Callable[[Fact], object],
        until: Until,
        state: Callable[[], State],
        overrides: Sequence[Setting] = (),
        poll: float = POLL,
        step: float = STEP,
        fetch: Callable[[Path], Awaitable[bytes]] | None = None,
    ) -> None:
        """``path`` None: no file is read, the defaults are in force. ``overrides`` go before either."""
        self._fetch = fetch or Fetch()
        self._path = path and path.absolute()
        self._publish = publish
        self._until = until
        self._state = state
        self._overrides = overrides
        self._poll = poll
        self._step = step
        self._woken = trio.Event()
        self._asked = False
        """Whether a person waits for what is said of the file, known or not."""
        self._told: Reading | None = None
        """The reading that was told of last."""
        self._fixed = False
        """Whether the file is mounted alone, as it was when the source began."""
        self._real = False
        """Whether a text with content was accepted in this life."""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        if self._path is None:
            self._publish(self._defaults())
            task_status.started()
            await trio.sleep_forever()
        else:
            await self._follow(self._path, task_status)

    def _defaults(self) -> Fact:
        found = parse(b"", path="", overrides=self._overrides)
        if not isinstance(found, Accepted):
            return ConfigRejected(digest=found.digest, path=found.path, problems=found.problems)
        return ConfigRead(config=found.config, digest=found.digest, origin=ConfigOrigin.DEFAULT)

    async def _follow(self, path: Path, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(watch, path.parent, self._wake, poll=self._poll, step=self._step))
            nursery.start_soon(self._attend_reloads)
            self._fixed = is_mount_point(path)
            if self._fixed:
                log.warning("%s is a mount of its own (subPath): %s", path, FIXED)
            await self._look(path)
            task_status.started()
            while True:
                await self._woken.wait()
                self._woken = trio.Event()
                await self._look(path)

    def _wake(self) -> None:
        self._woken.set()

    async def _attend_reloads(self) -> None:
        """A person asked to read again (SIGHUP). A refusal is then told once more, anything else only if it is new."""
        seen = self._state().reloads
        while True:
            state = await self._until(partial(_reloaded_since, seen))
            seen = state.reloads
            if state.config.problems:
                self._told, self._asked = None, True
            self._wake()

    async def _look(self, path: Path) -> None:
        reading = await self._read(path)
        while reading != self._told:
            await trio.sleep(GAP)
            again = await self._read(path)
            if again == reading:
                self._told = reading
                self._publish(self._judge(reading, path))
                self._asked = False
                return
            reading = again

    async def _read(self, path: Path) -> Reading:
        try:
            return await self._fetch(path)
        except Transient as exc:
            return str(exc)

    def _judge(self, reading: Reading, path: Path) -> Fact:
        if isinstance(reading, str):
            return self._rejected("", path, reading)
        if not reading.strip() and (self._real or self._state().config.text.strip()):
            return self._rejected(
                _digest(reading), path, "the file is empty now, and was not before: for the defaults write version: v1"
            )
        found = parse(reading, path=str(path), overrides=self._overrides)
        if not isinstance(found, Accepted):
            return ConfigRejected(digest=found.digest, path=found.path, problems=found.problems, asked=self._asked)
        for note in found.notes:
            log.warning("%s: %s", path, note)
        self._real = self._real or bool(reading.strip())
        notes = (*found.notes, f"the file is a mount of its own (subPath): {FIXED}") if self._fixed else found.notes
        return ConfigRead(config=found.config, digest=found.digest, path=found.path, text=found.text, notes=notes)

    def _rejected(self, digest: str, path: Path, message: str) -> ConfigRejected:
        problem = ConfigProblem(line=0, column=0, path="", message=message)
        return ConfigRejected(digest=digest, path=str(path), problems=(problem,), asked=self._asked)


def _reloaded_since(seen: int, state: State) -> bool:
    return state.reloads > seen


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
