"""The one door between trio and asyncio.

trio is the agent. What needs asyncio (gRPC, the Kubernetes client) runs on a stock asyncio loop in one worker thread.
Only immutable values cross, by three primitives:

* ``call``  trio awaits a coroutine on the asyncio side; cancellation is passed over and its cleanup awaited;
* ``post``  trio -> asyncio without a wait, in order;
* ``emit``  asyncio -> trio without a wait, in order, never failing.

Results of ``call`` travel through the same queue as ``emit``: a call returns after everything that the asyncio side
emitted before its end was delivered.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Generic, NoReturn, TypeVar, TypeVarTuple

import trio

from reactor.model.errors import Transient

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DoorClosed(Transient):
    """The asyncio side is not there (any more)."""


class Door:
    """Made by ``open_door``; ``call`` and ``post`` belong to the trio thread, ``emit`` to the asyncio thread."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._stop = asyncio.Event()
        self._queue: deque[Callable[[], object]] = deque()
        self._woken = trio.Event()
        self._waking = False
        """The asyncio side is about to wake the trio side, or has and it did not look yet."""
        self._started = trio.Event()
        self._ended = trio.Event()
        self._waiting: set[Callable[[], None]] = set()
        """How to wake the callers that wait for a result."""
        self._wanted = True
        # Both outlive a cancelled body, whose cleanup still calls through the door; open_door ends them.
        self._drain_scope = trio.CancelScope(shield=True)
        self._thread_scope = trio.CancelScope(shield=True)

    async def call(self, fn: Callable[[*Ts], Coroutine[object, object, T]], *args: *Ts) -> T:
        """Run ``fn(*args)`` on the asyncio side and return or raise what it does.

        When cancelled, the coroutine is cancelled and waited for; what it returns in spite of that is returned.
        Has no deadline of its own: the caller's scope gives it one.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        ticket = _Ticket(self, partial(fn, *args))
        if not self._submit(ticket.begin):
            raise DoorClosed("the asyncio side has ended")
        return await ticket.wait()

    def post(self, fn: Callable[[*Ts], object], *args: *Ts) -> None:
        """Have the asyncio side run ``fn(*args)`` soon; lost if it has ended. An error in ``fn`` ends the door."""
        self._submit(partial(self._run_posted, partial(fn, *args)))

    def emit(self, fn: Callable[[*Ts], object], *args: *Ts) -> None:
        """Have a trio task run ``fn(*args)`` soon. Never raises; an error in ``fn`` ends the door, as a bug should."""
        self._queue.append(partial(fn, *args))
        if self._loop is None or self._loop.is_closed() or threading.get_ident() != self._thread:
            self._knock()
        elif not self._waking:
            # To wake trio's thread gives the interpreter away: what is ready on the asyncio side goes first, such as
            # the bytes of a list whose sending is what is told here.
            self._waking = True
            self._loop.call_soon(self._knock)

    def _knock(self) -> None:
        try:
            self._token.run_sync_soon(self._wake)
        except trio.RunFinishedError:
            self._queue.clear()

    def _submit(self, thunk: Callable[[], object]) -> bool:
        if self._loop is None or self._ended.is_set():
            return False
        try:
            self._loop.call_soon_threadsafe(thunk)
        except RuntimeError:  # the loop is closed: its thread is about to say so
            return False
        return True

    def _run_posted(self, thunk: Callable[[], object]) -> None:
        try:
            thunk()
        except Exception as exc:  # noqa: BLE001 - asyncio would only log it; raised again where it ends the agent
            self.emit(_fail, exc)

    def _wake(self) -> None:
        self._waking = False  # before the queue is looked at: what comes from now on wakes anew
        self._woken.set()

    async def _drain(self) -> None:
        """Deliver what was emitted. Not done in the callback itself: an error there would take trio down with it."""
        try:
            with self._drain_scope:
                while True:
                    await self._woken.wait()
                    self._woken = trio.Event()
                    self._deliver()
        finally:
            # After an error nobody delivers the results of calls any more, so the other side has to end as well.
            self._wanted = False
            self._submit(self._stop.set)
            self._thread_scope.cancel()

    def _deliver(self) -> None:
        for _ in range(len(self._queue)):
            self._queue.popleft()()

    async def _run_thread(self) -> None:
        try:
            with self._thread_scope:
                limiter = trio.CapacityLimiter(1)
                await trio.to_thread.run_sync(self._run_loop, abandon_on_cancel=True, limiter=limiter)
        finally:
            self._ended.set()
            self._waking = False  # a knock that its loop did not come to is none
            try:
                self._deliver()
            finally:
                for wake in tuple(self._waiting):
                    wake()
        if self._wanted:
            raise RuntimeError("the asyncio side ended although nobody asked it to")

    def _run_loop(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._token.run_sync_soon(self._started.set)
        if self._wanted:
            await self._stop.wait()

    async def _close(self, grace: float) -> None:
        """asyncio.run cancels what still runs and waits for it; a side that is stuck is left behind after ``grace``."""
        self._wanted = False
        with trio.move_on_after(grace, shield=True):
            self._submit(self._stop.set)
            await self._ended.wait()
        self._thread_scope.cancel()
        self._drain_scope.cancel()


async def living() -> int:
    """Tasks on the asyncio side, the one that asks included: ``door.call(living)``."""
    return len(asyncio.all_tasks())


def _fail(error: Exception) -> NoReturn:
    raise error


class _Ticket(Generic[T]):
    """One call under way. ``begin`` and ``cancel`` run on the asyncio side, the rest on trio's."""

    def __init__(self, door: Door, make: Callable[[], Coroutine[object, object, T]]) -> None:
        self._door = door
        self._make = make
        self._caller = trio.lowlevel.current_task()
        self._running: asyncio.Task[T] | None = None
        self._raise_cancel: Callable[[], NoReturn] | None = None

    async def wait(self) -> T:
        self._door._waiting.add(self.wake)
        await trio.lowlevel.wait_task_rescheduled(self._abort)
        running = self._running
        if running is not None and running.done() and not running.cancelled():
            return running.result()
        if self._raise_cancel is not None:
            self._raise_cancel()
        raise DoorClosed("the asyncio side ended during the call")

    def _abort(self, raise_cancel: Callable[[], NoReturn]) -> trio.lowlevel.Abort:
        """Pass the cancellation over; the caller goes on when the coroutine has really ended."""
        self._raise_cancel = raise_cancel
        self._door._submit(self.cancel)
        return trio.lowlevel.Abort.FAILED

    def begin(self) -> None:
        self._running = asyncio.get_running_loop().create_task(self._make())
        self._running.add_done_callback(lambda _: self._door.emit(self.wake))

    def cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def wake(self) -> None:
        if self.wake in self._door._waiting:
            self._door._waiting.remove(self.wake)
            trio.lowlevel.reschedule(self._caller)


@asynccontextmanager
async def open_door(*, grace: float = 1.0) -> AsyncIterator[Door]:
    """Open the door for the body; afterwards the asyncio side is ended, within ``grace`` seconds or left behind.

    Its death before that is an error that cancels the body.
    """
    door = Door(trio.lowlevel.current_trio_token())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door._run_thread)
        try:
            await door._started.wait()
            nursery.start_soon(door._drain)
            yield door
        finally:
            await door._close(grace)
