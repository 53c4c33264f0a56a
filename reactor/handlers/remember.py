"""Keeps on disk what must outlive the agent: the last accepted config, holds, sticky conditions.

One file, written whole beside itself and renamed. Anything wrong with it costs memory over restarts only.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import msgspec
import trio
from msgspec import Struct, field

from reactor.bus import Mail
from reactor.events import Event, Fact, Remembered, StateRestored
from reactor.model.condition import Condition
from reactor.model.config import Config
from reactor.model.errors import Transient
from reactor.model.hold import Hold, HoldKey
from reactor.model.ids import GpuUuid, PciAddress
from reactor.model.kubelet import SocketIdentity
from reactor.model.value import replace
from reactor.state import State

FILE = "state.json"
EARLY = "early"
"""The lane of a config that was just accepted: pods may be given shares of it at once, so it is written at once."""
VERSION = 1


class Memory(Struct, frozen=True, kw_only=True):
    """The file's content. A field that is missing has its default: older files stay readable."""

    v: int = VERSION
    config_text: str = ""
    config_digest: str = ""
    config_path: str = ""
    boot: str = ""
    holds: tuple[Hold, ...] = ()
    freed: tuple[tuple[HoldKey, str], ...] = ()
    conditions: Mapping[GpuUuid, tuple[Condition, ...]] = field(default_factory=dict)
    relapses: Mapping[GpuUuid, tuple[float, ...]] = field(default_factory=dict)
    pci: Mapping[GpuUuid, PciAddress] = field(default_factory=dict)
    kubelet: SocketIdentity | None = None


def memory(state: State) -> Memory:
    """What of ``state`` is worth keeping."""
    sticky = {
        uuid: kept
        for uuid, found in state.conditions.items()
        if (kept := tuple(condition for condition in found if condition.sticky))
    }
    return Memory(
        config_text=state.config.text,
        config_digest=state.config.digest,
        config_path=state.config.path.encode(errors="replace").decode(),  # a file's name may be no Unicode
        boot=state.boot,
        holds=tuple(_lasting(hold) for hold in state.holds.values()),
        freed=tuple(state.freed.items()),
        conditions=sticky,
        relapses=state.relapses,
        pci={uuid: place for uuid, place in state.pci.items() if uuid in sticky},
        kubelet=state.kubelet.last,
    )


def _lasting(hold: Hold) -> Hold:
    """A hold without what only counts in this run: grant numbers and times of the monotonic clock."""
    return replace(
        hold, grant=0, granted_at=None, in_checkpoint=False, lacked_at=None, resent_at=None, pod_gone_at=None
    )


def recall(data: bytes | None, parse: Callable[[str, str], Config | None]) -> StateRestored:
    """The fact that a state file comes to. ``parse`` reads (text, path) of the config, None if it is refused now."""
    if data is None:
        return StateRestored()
    try:
        kept = msgspec.json.decode(data, type=Memory)
    except msgspec.MsgspecError as exc:
        return StateRestored(problem=f"the state file is damaged ({exc}); it was set aside, nothing is remembered")
    if kept.v > VERSION:
        return StateRestored(
            problem=f"the state file is of version {kept.v}, this agent reads up to {VERSION}; nothing is remembered"
        )
    config = parse(kept.config_text, kept.config_path) if kept.config_digest else None
    return StateRestored(
        config=config,
        config_digest=kept.config_digest if config else "",
        config_text=kept.config_text if config else "",
        boot=kept.boot,
        holds=kept.holds,
        freed=dict(kept.freed),
        conditions=kept.conditions,
        relapses=kept.relapses,
        pci=kept.pci,
        kubelet=kept.kubelet,
    )


class Remember:
    name = "remember"
    ceiling = 60.0

    def __init__(self, save: Callable[[bytes], Awaitable[None]]) -> None:
        self._save = save
        self._saved = b""
        self._revision = 0
        self._turn = trio.Lock()

    def settle(self, lane: str) -> float:
        return 0.0 if lane == EARLY else 0.05

    def wakes(self, event: Event, before: State, after: State) -> Iterable[str]:
        if after.config.text is not before.config.text:
            return ("", EARLY)
        moved = (
            after.holds is not before.holds
            or after.freed is not before.freed
            or after.conditions is not before.conditions
            or after.relapses is not before.relapses
            or after.kubelet.last != before.kubelet.last
        )
        return ("",) if moved else ()

    async def run(self, lane: str, state: State, mail: Mail) -> Iterable[Fact]:
        async with self._turn:
            data = msgspec.json.encode(memory(state))
            if data == self._saved or state.revision < self._revision:
                return ()
            try:
                await self._save(data)
            except Transient:
                if lane == EARLY:
                    return ()  # the other lane, which comes after it, fails for the same reason and says so
                raise
            self._saved, self._revision = data, state.revision
        return (Remembered(revision=state.revision),)


class StateFile:
    """The file itself: read once at the start, written whole."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE

    def read(self) -> tuple[bytes | None, str]:
        """(content, problem); None without a problem where there is no file."""
        try:
            return self._path.read_bytes(), ""
        except FileNotFoundError:
            return None, ""
        except OSError as exc:
            return None, f"the state file {self._path} cannot be read: {exc.strerror}; nothing is remembered"

    def set_aside(self) -> None:
        """Keep a damaged file for a person, out of the way of the next one."""
        try:
            os.replace(self._path, self._path.with_suffix(".damaged"))
        except OSError:
            return  # it is overwritten then

    async def save(self, data: bytes) -> None:
        try:
            await trio.to_thread.run_sync(self._write, data)
        except OSError as exc:
            raise Transient(
                f"writing {self._path}: {exc.strerror}; over a restart, holds and faults will not be known"
            ) from exc

    def _write(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".new")
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._path)
