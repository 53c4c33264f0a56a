"""NVML calls made in place, in the trio thread: for simulated functions, which answer at once.

Calls that hang are played: the function raises ``Stuck`` and the scan waits as long as a real one would, in trio's
time, so that a test with the autojump clock sees deadlines pass without waiting for them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from reactor.model.gpu import Inventory
from reactor.nvml import wire
from reactor.nvml.library import Library, Record, Stuck
from reactor.nvml.loading import NvmlFailed
from reactor.nvml.notes import Note, WorkerGone, WorkerUp
from reactor.nvml.outlook import Outlook
from reactor.nvml.skips import Skips
from reactor.nvml.watch import Watch


class Functions(Protocol):
    """C functions by attribute, as nvidia-ml-py looks them up, that can be called from the trio thread."""

    def on_event(self, wake: Callable[[], None] | None) -> None:
        """``wake`` is called, in the trio thread, when a wait for events would not time out."""
        ...

    def close(self) -> None:
        """The process that had loaded them is over."""
        ...


class DirectNvml:
    def __init__(
        self,
        functions: Callable[[], Functions],
        *,
        dev_root: Path = Path("/nonexistent"),
        sys_root: Path = Path("/nonexistent"),
        scan_deadline: float = 5.0,
        init_deadline: float = 120.0,
    ) -> None:
        self._load = functions
        self._functions: Functions | None = None
        self._running = False
        self._roots = (str(dev_root), str(sys_root))
        self._scan_deadline = scan_deadline
        self._init_deadline = init_deadline
        self._outlook = Outlook()
        self._skips = Skips()
        self._touched: int | None = None
        self._scanning: trio.Event | None = None
        self._result: Inventory | Exception | None = None
        self._woken = trio.Event()
        self._lives = 0
        self._renew()

    @property
    def notes(self) -> trio.MemoryReceiveChannel[Note]:
        return self._outlook.notes

    @property
    def beats(self) -> int:
        return self._watch.beats

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self._running = True
        self._listen(self._wake)
        self._outlook.tell(WorkerUp(pid=self._lives))
        task_status.started()
        try:
            while True:
                await self._woken.wait()
                self._woken = trio.Event()
                await self._drain()
        finally:
            self._running = False
            self._listen(None)

    async def scan(self) -> Inventory:
        if self._scanning is not None:
            return await self._share(self._scanning)
        done = self._scanning = trio.Event()
        self._result = self._outlook.unavailable("failed", "the scan was given up")
        try:
            self._result = await self._scan()
        except NvmlFailed as exc:
            if self._opened and exc.state == "absent":
                await self.renew(str(exc))
            self._result = self._outlook.unavailable(exc.state, str(exc))
        finally:
            self._scanning = None
            done.set()
        return self._taken(self._result)

    async def renew(self, reason: str) -> None:
        self._renew()
        self._outlook.tell(WorkerUp(pid=self._lives))

    # ------------------------------------------------------------

    def _renew(self) -> None:
        dev_root, sys_root = self._roots
        if self._functions is not None:
            self._functions.close()
        self._functions = self._load()
        if self._running:
            self._functions.on_event(self._wake)
        self._lives += 1
        self._opened = False
        self._library = Library(
            self._functions, dev_root=dev_root, sys_root=sys_root, touching=self._touching, watching=self._wake
        )
        self._watch = Watch(self._library, self._outlook.plain_event)

    def _touching(self, index: int | None) -> None:
        self._touched = index

    def _listen(self, wake: Callable[[], None] | None) -> None:
        if self._functions is not None:
            self._functions.on_event(wake)

    def _wake(self) -> None:
        self._woken.set()

    async def _drain(self) -> None:
        while self._opened:
            try:
                pause = self._watch.turn(0)
            except Stuck:
                return  # a wait that hangs is seen by the real client only
            if pause is None:
                return
            if pause:
                await trio.sleep(pause)

    async def _share(self, done: trio.Event) -> Inventory:
        await done.wait()
        return self._taken(self._result)

    @staticmethod
    def _taken(result: Inventory | Exception | None) -> Inventory:
        if isinstance(result, Inventory):
            return result
        assert result is not None
        raise result

    async def _scan(self) -> Inventory:
        if self._opened and self._library.moved():
            self._skips.clear()
            await self.renew("devices moved")
        tried = False
        while True:
            try:
                found = self._outlook.scanned(msgspec.convert(self._look(), wire.RawScan))
                self._skips.answered(gpu.index for gpu in found.gpus)
                return found
            except Stuck as stuck:
                await self._wait_out(stuck)
            except NvmlFailed as exc:
                if exc.state != "mismatch":
                    raise
                self._renew()  # the library may be of before an upgrade
                if tried:
                    raise
                tried = True

    def _look(self) -> Record:
        skip = self._skips.now(trio.current_time())
        self._watch.skip = skip
        if not self._opened:
            self._library.open()
            self._opened = True
        return self._library.scan(skip)

    async def _wait_out(self, stuck: Stuck) -> None:
        """Wait for a call that hangs, or until its deadline; then its GPU is left alone and NVML begun anew."""
        index = self._touched
        deadline = self._scan_deadline if self._opened or index is not None else self._init_deadline
        if stuck.seconds is not None and stuck.seconds <= deadline:
            await trio.sleep(stuck.seconds)
            stuck.served()
            return
        await trio.sleep(deadline)
        error = f"no answer within {deadline:g} s"
        self._outlook.tell(WorkerGone(hung=True, error=error, gpu_index=index))
        await self.renew(error)
        if index is None:
            raise NvmlFailed("hung", f"NVML gave {error}") from stuck
        self._skips.hung(index, trio.current_time())
