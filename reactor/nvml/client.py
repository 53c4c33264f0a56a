"""The trio side of the NVML worker: keeps one worker, asks it, replaces it when it hangs, dies or is out of date.

One that is out of date because GPUs came or went watches on until its successor does, so that no event is missed.
A worker that hangs is killed; if the kernel does not let it go it is left behind and another takes its place, which
does not touch the GPU where the first one hung. With two left behind no more are started for a good while: each would
hang as well, and none can be ended.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from reactor.model.gpu import Inventory
from reactor.model.value import replace
from reactor.nvml.interface import NvmlUnavailable
from reactor.nvml.link import Died, Hung, Link, Setup
from reactor.nvml.notes import Note, WorkerGone, WorkerUp
from reactor.nvml.outlook import Outlook
from reactor.nvml.skips import Skips

GRACE = 0.5
"""Seconds that a killed worker has to be gone before it counts as left behind."""
FIRST_BAR, LONGEST_BAR = 600.0, 14400.0
MOST_LEFT = 2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_LONG_LIFE = 60.0
OUTLIVE = 2.0
"""Seconds for which a worker that is out of date watches on at the most: it keeps the driver from being unloaded."""
_TRIES = 2
_RENEWALS = 3
"""Workers that one scan may use up by dying and failing, and by being out of date."""


class NvmlClient:
    def __init__(
        self,
        *,
        provider: str = "",
        driver_root: Path = Path("/"),
        dev_root: Path = Path("/"),
        sys_root: Path = Path("/sys"),
        scan_deadline: float = 5.0,
        init_deadline: float = 120.0,
        wait: float = 2.0,
        silence: float = 45.0,
        kill: Callable[[trio.Process], None] = trio.Process.kill,
    ) -> None:
        """``provider``: ``module:function:argument`` giving the C functions; empty: the host's library.

        ``wait``: seconds of one wait for events; an event ends it at once, only bind and unbind of the driver are
        looked at in between. The worker ends by its own exit, whatever waits then, so it need not be short.
        ``silence``: more than the longest pause of a watch that fails, and a beat.
        """
        self._setup = Setup(
            provider=provider,
            driver_root=driver_root,
            dev_root=dev_root,
            sys_root=sys_root,
            scan_deadline=scan_deadline,
            init_deadline=init_deadline,
            wait=wait,
            silence=silence,
        )
        self._kill = kill
        self._outlook = Outlook()
        self._skips = Skips()
        self._nursery: trio.Nursery | None = None
        self._link: Link | None = None
        self._retired: set[Link] = set()
        self._change = trio.Event()
        """Set and replaced when a worker came or went, or one was left behind."""
        self._wanted = trio.Event()
        self._start_error = ""
        self._left: dict[trio.Process, int | None] = {}
        """Workers that hang and cannot be killed, with the GPU where each hangs."""
        self._bar = FIRST_BAR
        self._barred_until = 0.0
        self._scan: _Scan | None = None

    @property
    def notes(self) -> trio.MemoryReceiveChannel[Note]:
        return self._outlook.notes

    @property
    def beats(self) -> int:
        return self._link.beats if self._link else 0

    @property
    def left_behind(self) -> int:
        """Workers that hang in the kernel."""
        return len(self._left)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._keep)
                task_status.started()
        finally:
            self._nursery = None
            for link in (*self._retired, *([self._link] if self._link else ())):
                await link.end(self._kill, GRACE)
            self._link = None

    async def scan(self) -> Inventory:
        if self._scan is None:
            if self._nursery is None:
                raise self._outlook.unavailable("failed", "the NVML client does not run")
            self._scan = _Scan()
            self._nursery.start_soon(self._run_scan, self._scan)
        return await self._scan.result()

    async def renew(self, reason: str) -> None:
        if self._link is not None:
            await self._dismiss(self._link, None, None)

    # ------------------------------------------------------------ keeping a worker

    async def _keep(self) -> None:
        pause = 0.0
        while True:
            await self._rest(pause)
            begun = trio.current_time()
            error = await self._one_life()
            lived = trio.current_time() - begun
            pause = min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE) if error and lived < _LONG_LIFE else 0.0

    async def _rest(self, pause: float) -> None:
        """Wait before the next worker: a little after a crash (less if a scan wants one), long after two were left."""
        if pause:
            await trio.sleep(_FIRST_PAUSE)
            with trio.move_on_after(pause - _FIRST_PAUSE):
                await self._wanted.wait()
        while self._barred():
            with trio.move_on_at(self._barred_until):
                await self._change.wait()

    async def _one_life(self) -> str:
        """Start a worker; returns when its place is free, with how it went wrong; empty if that was wanted."""
        try:
            link = await Link.start(self._setup)
        except OSError as exc:
            self._start_error = f"NVML worker cannot be started: {exc}"
            self._outlook.tell(WorkerGone(hung=False, error=self._start_error))
            self._changed()
            return self._start_error
        self._link = link
        self._start_error = ""
        self._wanted = trio.Event()
        self._changed()
        assert self._nursery is not None
        self._nursery.start_soon(self._attend, link)
        self._nursery.start_soon(self._relieve, link)
        await link.vacated.wait()
        return link.error

    async def _attend(self, link: Link) -> None:
        """Listen to a worker until its end."""
        link.error = await self._end_of(link)
        self._retired.discard(link)
        link.vacated.set()

    async def _end_of(self, link: Link) -> str:
        error = ""
        try:
            await link.listen(lambda pid: self._outlook.tell(WorkerUp(pid=pid)), self._outlook.event)
        except Hung as exc:
            await self._hung(link, exc)
        except Died as exc:
            error = str(exc)
        if link.leaving:
            await link.left.wait()
            return ""
        error = error or await link.epitaph(GRACE)
        await self._dismiss(link, None if link.retired else WorkerGone(hung=False, error=error), None)
        return error

    def _retire(self, link: Link) -> None:
        """Make room for a successor, and have it watch on until that one does."""
        assert self._nursery is not None
        self._link, link.retired = None, True
        self._retired.add(link)
        self._nursery.start_soon(self._outlive, link)
        link.vacated.set()
        self._changed()

    async def _relieve(self, link: Link) -> None:
        """End those that watched for this one, as soon as it does: for a moment events come from both."""
        await link.watching.wait()
        if link.watches:
            for old in self._retired - {link}:
                await self._dismiss(old, None, None)

    async def _outlive(self, link: Link) -> None:
        with trio.move_on_after(OUTLIVE):
            await link.left.wait()
        await self._dismiss(link, None, None)

    def _changed(self) -> None:
        self._change.set()
        self._change = trio.Event()

    def _barred(self) -> bool:
        return len(self._left) >= MOST_LEFT and trio.current_time() < self._barred_until

    async def _hung(self, link: Link, hung: Hung) -> None:
        gone = WorkerGone(hung=True, error=str(hung), gpu_index=hung.index)
        await self._dismiss(link, gone, hung.index)

    async def _dismiss(self, link: Link, gone: WorkerGone | None, index: int | None) -> None:
        """End a worker that nobody shall use any more; if it cannot be ended, leave it behind.

        Whoever comes first says why (None: it is nobody's business), the others wait for the end.
        """
        if link.leaving:
            await link.left.wait()
            return
        link.leaving = True
        if self._link is link:
            self._link = None
        if gone is not None:
            self._outlook.tell(gone)
        if not await link.end(self._kill, GRACE) and self._nursery is not None:
            self._left[link.process] = index
            if len(self._left) >= MOST_LEFT:
                self._barred_until = trio.current_time() + self._bar
                self._bar = min(self._bar * 2, LONGEST_BAR)
            self._nursery.start_soon(self._await_end, link.process)
        link.left.set()
        self._changed()

    async def _await_end(self, process: trio.Process) -> None:
        await process.wait()
        del self._left[process]
        if not self._left:
            self._bar = FIRST_BAR
        self._changed()

    # ------------------------------------------------------------ scanning

    async def _run_scan(self, scan: _Scan) -> None:
        scan.outcome = self._outlook.unavailable("failed", "the NVML client ended during the scan")
        try:
            scan.outcome = await self._look()
        except NvmlUnavailable as exc:
            scan.outcome = exc
        finally:
            self._scan = None
            scan.done.set()

    async def _look(self) -> Inventory:
        """Ask a worker; those that hang at a GPU, die or are out of date are replaced, and the next one is asked."""
        tries = 0
        while True:
            link = await self._worker()
            stuck = frozenset(index for index in self._left.values() if index is not None)
            try:
                answer = await link.ask(self._skips.now(trio.current_time(), stuck))
            except Hung as exc:
                await self._hung(link, exc)
                if exc.index is None:
                    raise self._outlook.unavailable("hung", f"NVML worker: {exc}") from exc
                self._skips.hung(exc.index, trio.current_time())
                continue
            except Died as exc:
                tries += 1
                if tries >= _TRIES:
                    raise self._outlook.unavailable("failed", str(exc)) from exc
                await self._departure(link)
                continue
            for old in tuple(self._retired):
                await self._dismiss(old, None, None)
            if answer.scan is not None:
                found = self._outlook.scanned(answer.scan)
                self._skips.answered(gpu.index for gpu in found.gpus)
                return replace(found, took=answer.took, opened=answer.opened)
            tries += 1
            renew = answer.kind == "renew"
            if renew:
                self._skips.clear()
            if renew and link.watches:
                self._retire(link)
            elif renew or answer.spent:
                await self.renew(answer.error)
            # A driver that left may be back already, and a library that was installed since may match.
            if tries >= (_RENEWALS if renew else _TRIES) or not (renew or answer.spent):
                raise self._outlook.unavailable(answer.state or "failed", answer.error)

    async def _worker(self) -> Link:
        while self._link is None:
            if self._barred():
                wait = self._barred_until - trio.current_time()
                text = f"{len(self._left)} NVML workers hang in the kernel, the next one is started in {wait:.0f} s"
                raise self._outlook.unavailable("hung", text)
            self._wanted.set()
            await self._change.wait()
            if self._start_error:
                raise self._outlook.unavailable("failed", self._start_error)
        return self._link

    async def _departure(self, link: Link) -> None:
        while self._link is link:
            await self._change.wait()


class _Scan:
    """One scan that any number of callers wait for."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.outcome: Inventory | NvmlUnavailable | None = None

    async def result(self) -> Inventory:
        await self.done.wait()
        if isinstance(self.outcome, Inventory):
            return self.outcome
        assert self.outcome is not None
        raise self.outcome
