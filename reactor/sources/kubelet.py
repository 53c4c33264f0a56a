"""Whether the kubelet is there, which life of it, and whether our own socket files still are.

Three signals: a stream of ours ends (the state then doubts the kubelet), the socket's (inode, ctime) changes, our own
file disappears. The first comes at once and starts a fast probe; the directory watch is the net for the others. The
kubelet is up when its socket accepts a connection.

Where its plugin watcher finds us, a stream of a new life may be there before its socket was looked at; and a kubelet
whose socket is not to be seen at all still serves. Which life it is nobody but that socket tells.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from reactor.events import Fact, KubeletDown, KubeletUp, PluginDirectoryGone, PluginSocketGone
from reactor.kubelet import presence
from reactor.model.ids import ResourceName
from reactor.model.kubelet import Registration, SocketIdentity
from reactor.state import Kubelet, State
from reactor.watch import watch as watch_directory

Until = Callable[[Callable[[State], bool]], Awaitable[State]]

FAST = 0.008
"""Seconds between looks while the kubelet is away or doubted."""
FAST_FOR = 60.0
"""Seconds of fast looks after the kubelet went."""
DYING = 0.2
"""Seconds for which a kubelet that is ending may still accept after its streams ended (seen on a real 1.37: 10 ms)."""
CALM_AFTER = 5.0
"""Seconds of fast looks after a doubt was answered: the kubelet may have been dying when it answered."""
SLOW = 1.0
NET = 10.0
"""Seconds after which everything is looked at although nothing was heard."""
STEP = 0.5
"""How coarse the directory watch is: it is the net. A finer one costs idle CPU, a coarser one holds up our end."""


class Watch(Protocol):
    async def __call__(
        self,
        directory: Path,
        changed: Callable[[], None],
        *,
        poll: float,
        step: float,
        names: Callable[[str], bool] | None,
        task_status: trio.TaskStatus[None] = ...,
    ) -> None: ...


def _doubtful(state: State) -> bool:
    kubelet = state.kubelet
    return kubelet.doubted or (kubelet.identity is None and kubelet.there)


def _moved(before: Kubelet, state: State) -> bool:
    return state.kubelet is not before


class KubeletSource:
    name = "kubelet"

    def __init__(
        self,
        directory: Path,
        kubelet_socket: Path,
        sockets: Callable[[], Mapping[ResourceName, str]],
        *,
        publish: Callable[[Fact], object],
        until: Until,
        state: Callable[[], State],
        look: Callable[[Path], SocketIdentity | str] = presence.look,
        identity: Callable[[Path], SocketIdentity | None] = presence.identity,
        watch: Watch = watch_directory,
        exists: Callable[[Path], bool] = Path.is_socket,
        deleted: Callable[[Path], bool] = presence.deleted,
        pins_cpus: Callable[[], bool] = bool,
    ) -> None:
        """``pins_cpus``: whether the kubelet gives containers CPUs of their own; asked whenever it came up."""
        self._directory = directory
        self._socket = kubelet_socket
        self._sockets = sockets
        self._publish = publish
        self._until = until
        self._state = state
        self._look = look
        self._identity = identity
        self._watch = watch
        self._exists = exists
        self._deleted = deleted
        self._pins_cpus = pins_cpus
        self._woken = trio.Event()
        self._told: SocketIdentity | str = ""
        """What was published last: an identity, or why there is none; empty: nothing yet."""
        self._gone: frozenset[str] = frozenset()
        self._fast_until = -math.inf
        self._accepted_at: float | None = None
        """When a doubted kubelet accepted for the first time since it is doubted."""
        self._connected_at = -math.inf

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self._told, self._gone = "", frozenset()
        self._hurry(FAST_FOR)
        async with trio.open_nursery() as nursery:
            for directory in {self._directory, self._socket.parent}:
                await nursery.start(self._watch_directory, directory)
            nursery.start_soon(self._attend_doubts)
            task_status.started()
            while True:
                self._check()
                with trio.move_on_after(self._pause()):
                    await self._woken.wait()
                self._woken = trio.Event()

    async def _watch_directory(
        self, directory: Path, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await self._watch(directory, self._wake, poll=NET, step=STEP, names=self._concerns_us, task_status=task_status)

    def _concerns_us(self, name: str) -> bool:
        """The kubelet's checkpoint is rewritten in the same directory with every list and every Allocate."""
        return name == self._socket.name or name in self._sockets().values()

    async def _attend_doubts(self) -> None:
        while True:
            doubting = (await self._until(_doubtful)).kubelet
            self._hurry(FAST_FOR)
            self._wake()
            # Any change counts, not only that the doubt is over: it may be back before this task runs again.
            await self._until(partial(_moved, doubting))

    def _wake(self) -> None:
        self._woken.set()

    def _hurry(self, seconds: float) -> None:
        self._fast_until = trio.current_time() + seconds

    def _pause(self) -> float:
        if self._proven():
            return math.inf
        if trio.current_time() < self._fast_until:
            return FAST
        known = isinstance(self._told, SocketIdentity) and self._identity(self._socket) == self._told
        return math.inf if known and not self._state().kubelet.doubted else SLOW

    def _check(self) -> None:
        """Publish what changed since the last look. Own sockets come first: they are needed when the kubelet is up."""
        if not self._state().kubelet.doubted:
            self._accepted_at = None
        if not self._needs_a_look():
            self._check_sockets()
            return
        self._connected_at = trio.current_time()
        found = self._look(self._socket)
        if isinstance(found, str) and self._deleted(self._directory):
            self._strand()
            return
        self._check_sockets()
        if isinstance(found, str):
            self._went(found)
        elif found != self._told:
            self._came(found)
        elif self._state().kubelet.doubted:
            self._confirm(found)

    def _needs_a_look(self) -> bool:
        """A connect disturbs the kubelet, if only a little."""
        if self._proven():
            return False
        if self._identity(self._socket) != self._told or self._state().kubelet.doubted:
            return True
        return trio.current_time() - self._connected_at >= SLOW

    def _proven(self) -> bool:
        """A stream of ours lives and none has ended: the kubelet is there, whatever became of its socket's file."""
        kubelet = self._state().kubelet
        return self._streams() and not kubelet.doubted and kubelet.identity is not None

    def _streams(self) -> bool:
        return any(plugin.streams for plugin in self._state().kubelet.plugins.values())

    def _went(self, reason: str) -> None:
        if isinstance(self._told, SocketIdentity):
            self._hurry(FAST_FOR)
        if self._told != reason:
            self._told = reason
            self._publish(KubeletDown(reason=reason))

    def _strand(self) -> None:
        if not self._state().stranded:
            self._publish(PluginDirectoryGone(directory=str(self._directory)))

    def _came(self, found: SocketIdentity) -> None:
        if self._streams() and self._state().kubelet.registration is Registration.SOCKET:
            return  # the old life's streams end first; each end is a doubt, and a doubt looks again
        self._told = found
        self._publish(KubeletUp(identity=found, pins_cpus=self._pins_cpus()))
        self._hurry(CALM_AFTER)

    def _confirm(self, found: SocketIdentity) -> None:
        """Answer a doubt once the kubelet has gone on accepting for longer than one that is ending does."""
        if self._accepted_at is None:
            self._accepted_at = trio.current_time()
        elif trio.current_time() - self._accepted_at >= DYING:
            self._accepted_at = None
            self._publish(KubeletUp(identity=found, pins_cpus=self._pins_cpus()))
            self._hurry(CALM_AFTER)

    def _check_sockets(self) -> None:
        sockets = self._sockets()
        missing = {name: resource for resource, name in sockets.items() if not self._exists(self._directory / name)}
        for name in missing.keys() - self._gone:
            self._publish(PluginSocketGone(resource=missing[name], socket=name))
        self._gone = frozenset(missing)
