"""Reduce, record, then wake.

``publish`` folds a fact into the state, has it recorded, and marks the lanes of every handler whose part of the state
moved. A lane is a handler's mailbox for one thing it works on (most handlers have one; ``register`` has one a
resource): it holds at most one event per key, has its own task while it has mail, its own back-off, and keeps its
mail until a run took it to its end. Handlers act on the state, not on the mail; the mail tells them why.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import trio
from msgspec import Struct, field

from reactor.events import Event, Fact, HandlerFailed, HandlerRecovered, SourceFailed, SourceRecovered
from reactor.model.value import replace
from reactor.reducer import reduce
from reactor.state import State

FLOOR = 0.5
"""Seconds before a failed run is tried again, at the least."""
ROUNDS = 100
"""How often ``drain`` lets handlers answer each other before it calls that a loop."""


class Mail(Struct, frozen=True):
    """What a run is for: the newest event of each key, and how many were folded into them."""

    events: tuple[Event, ...]
    count: int

    @property
    def cause(self) -> int:
        return max(event.seq for event in self.events)


class Handler(Protocol):
    """Makes the world match the state. A run does one step, can be repeated, and returns what it did as facts."""

    name: str
    ceiling: float
    """Longest back-off in seconds."""

    def settle(self, lane: str) -> float:
        """Seconds from the first mail to the run, so that a flurry is one run; never extended."""

    def wakes(self, event: Event, before: State, after: State) -> Iterable[str]:
        """The lanes that have work now. Pure; mostly compares slices of the state with ``is``."""

    async def run(self, lane: str, state: State, mail: Mail) -> Iterable[Fact]:
        """One step towards the state. Raises Exception to be tried again with back-off."""


class Source(Protocol):
    """Turns something outside into facts, for as long as it runs."""

    name: str

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Runs until cancelled; ``started()`` once it senses. Returning or raising Exception has it started anew."""


class Recorder(Protocol):
    def record(self, event: Event, before: State, after: State) -> None: ...


class Meter(Protocol):
    """Who is told how long runs take. Must neither wait nor raise."""

    def ran(self, handler: str, seconds: float, *, ok: bool) -> None: ...


class _Lane(Struct, eq=False):
    handler: Handler
    name: str
    mail: dict[object, Event] = field(default_factory=dict)
    count: int = 0
    first_at: float = 0.0
    attempts: int = 0
    busy: bool = False
    fresh: trio.Event = field(default_factory=trio.Event)

    def put(self, event: Event) -> None:
        if not self.mail:
            self.first_at = event.at
        self.mail.pop(event.fact.key, None)
        self.mail[event.fact.key] = event
        self.count += 1
        self.fresh.set()

    def take(self) -> Mail:
        mail = Mail(tuple(self.mail.values()), self.count)
        self.mail, self.count = {}, 0
        self.fresh = trio.Event()
        return mail

    def put_back(self, mail: Mail) -> None:
        """A failed run's mail stays; what came meanwhile is newer and wins."""
        self.mail = {event.fact.key: event for event in mail.events} | self.mail
        self.count += mail.count


class Bus:
    """One state, its writer and its readers. Used from the trio thread only."""

    def __init__(
        self,
        handlers: Sequence[Handler],
        *,
        recorder: Recorder,
        meter: Meter | None = None,
        clock: Callable[[], float] = trio.current_time,
        wall: Callable[[], float] = time.time,
        state: State | None = None,
    ) -> None:
        self._handlers = tuple(handlers)
        self._recorder = recorder
        self._meter = meter
        self._clock = clock
        self._wall = wall
        self._state = state or State()
        self._seq = 0
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._nursery: trio.Nursery | None = None
        self._waiting: dict[trio.Event, Callable[[State], bool]] = {}
        """Who waits for a state, and for which."""
        self._rested = trio.Event()
        self._random = random.Random()
        self.sources: dict[str, None] = {}
        """Names of the sources that were ever started, in that order."""

    @property
    def state(self) -> State:
        return self._state

    def add(self, handler: Handler) -> None:
        """Join a handler; only before the first fact, since it would have missed what came earlier."""
        if self._seq:
            raise RuntimeError(f"handler {handler.name} joins after the first fact")
        self._handlers = (*self._handlers, handler)

    def publish(self, fact: Fact, cause: int | None = None) -> Event:
        """Take in one fact: synchronous, never waits, never refuses for lack of room."""
        self._seq += 1
        event = Event(seq=self._seq, cause=cause, at=self._clock(), wall=self._wall(), fact=fact)
        before = self._state
        after = reduce(before, event)
        if after is not before:
            after = replace(after, revision=event.seq)
        self._state = after
        self._recorder.record(event, before, after)
        for handler in self._handlers:
            for lane in handler.wakes(event, before, after):
                self._mark(handler, lane, event)
        if after is not before:
            self._wake()
        return event

    def _wake(self) -> None:
        """Only those whose state this is: to run every waiter at every change cost more than the change."""
        for woken, predicate in self._waiting.items():
            if not woken.is_set():
                try:
                    if predicate(self._state):
                        woken.set()
                except Exception:  # noqa: BLE001 - the waiter's own fault: it meets it again in its own task
                    woken.set()

    async def until(self, predicate: Callable[[State], bool]) -> State:
        """Wait for a state of which ``predicate`` is true; at once if it is so now."""
        while not predicate(self._state):
            woken = trio.Event()
            self._waiting[woken] = predicate
            try:
                await woken.wait()
            finally:
                del self._waiting[woken]
        return self._state

    def idle(self) -> bool:
        """Whether no handler has mail or is at work."""
        return not any(lane.mail or lane.busy for lane in self._lanes.values())

    async def quiet(self) -> None:
        """Wait until no handler has mail or is at work."""
        while not self.idle():
            await self._rested.wait()

    def load(self) -> dict[str, tuple[int, int]]:
        """By handler: events that wait for it, and its failed runs since the last good one, the most of any lane."""
        load = {handler.name: (0, 0) for handler in self._handlers}
        for (name, _), lane in self._lanes.items():
            waiting, failures = load[name]
            load[name] = (waiting + len(lane.mail), max(failures, lane.attempts))
        return load

    def _mark(self, handler: Handler, name: str, event: Event) -> None:
        lane = self._lanes.get((handler.name, name))
        if lane is None:
            lane = self._lanes[handler.name, name] = _Lane(handler, name)
        lane.put(event)
        if self._nursery is not None and not lane.busy:
            lane.busy = True
            self._nursery.start_soon(self._work, lane, name=f"{handler.name} {name}".strip())

    # ------------------------------------------------------------ the runner in a nursery

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run handlers as their lanes get mail, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for lane in tuple(self._lanes.values()):
                    if lane.mail and not lane.busy:
                        lane.busy = True
                        nursery.start_soon(self._work, lane)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def _work(self, lane: _Lane) -> None:
        """A lane's task: lives while there is mail."""
        try:
            while lane.mail:
                pause = lane.first_at + lane.handler.settle(lane.name) - self._clock()
                if pause > 0 and not lane.attempts:
                    await trio.sleep(pause)
                delay = await self._attempt(lane)
                if delay is not None:
                    await self._back_off(lane, delay)
        finally:
            lane.busy = False
            self._rested.set()
            self._rested = trio.Event()
            if not lane.mail and not lane.attempts:
                self._lanes.pop((lane.handler.name, lane.name), None)

    async def _attempt(self, lane: _Lane) -> float | None:
        """One run; the delay until the next one if it failed."""
        mail = lane.take()
        begun = self._clock()
        try:
            facts = tuple(await lane.handler.run(lane.name, self._state, mail))
        except Exception as exc:  # noqa: BLE001 - the boundary of design.md 3.6: a handler's failure is a fact
            lane.attempts += 1
            self._ran(lane, begun, ok=False)
            delay = self._delay(lane.attempts, lane.handler.ceiling)
            lane.put_back(mail)
            failed = HandlerFailed(
                handler=lane.handler.name, lane=lane.name, error=describe(exc), attempt=lane.attempts, retry_in=delay
            )
            self.publish(failed, mail.cause)
            return delay
        self._ran(lane, begun, ok=True)
        if lane.attempts:
            recovered = HandlerRecovered(handler=lane.handler.name, lane=lane.name, attempts=lane.attempts)
            lane.attempts = 0
            self.publish(recovered, mail.cause)
        for fact in facts:
            self.publish(fact, mail.cause)
        return None

    def _ran(self, lane: _Lane, begun: float, *, ok: bool) -> None:
        if self._meter is not None:
            self._meter.ran(lane.handler.name, self._clock() - begun, ok=ok)

    async def _back_off(self, lane: _Lane, delay: float) -> None:
        """Wait before a failed run is repeated: fresh mail cuts it short, but never below the floor."""
        lane.fresh = trio.Event()
        begun = self._clock()
        with trio.move_on_after(delay):
            await lane.fresh.wait()
        await trio.sleep(max(0.0, begun + min(FLOOR, delay) - self._clock()))

    def _delay(self, attempts: int, ceiling: float) -> float:
        return min(ceiling, FLOOR * 2.0 ** min(attempts - 1, 16)) * self._random.uniform(0.8, 1.0)

    # ------------------------------------------------------------ the runner without a scheduler

    async def step(self) -> bool:
        """Run every lane that has mail once, in order, without settling or back-off; whether there was any."""
        lanes = [lane for lane in self._lanes.values() if lane.mail]
        for lane in lanes:
            await self._attempt(lane)
        return bool(lanes)

    async def drain(self) -> None:
        """Step until no lane has mail; raises RuntimeError if handlers keep answering each other."""
        for _ in range(ROUNDS):
            if not await self.step():
                return
        busy = ", ".join(
            sorted(f"{lane.handler.name} {lane.name}".strip() for lane in self._lanes.values() if lane.mail)
        )
        raise RuntimeError(f"not quiet after {ROUNDS} rounds: {busy}")

    # ------------------------------------------------------------ sources

    async def supervise(self, source: Source, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a source running: a failure is a fact and is followed by a new start with back-off."""
        attempts = 0
        self.sources[source.name] = None
        task_status.started()
        while True:
            begun = self._clock()
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(source.run)
                    if attempts:
                        self.publish(SourceRecovered(source=source.name, attempts=attempts))
                error = "ended without being asked to"
            except Exception as exc:  # noqa: BLE001 - the boundary of design.md 3.6: a source's failure is a fact
                error = describe(exc)
            if self._clock() - begun > 60.0:
                attempts = 0
            attempts += 1
            delay = self._delay(attempts, 60.0)
            self.publish(SourceFailed(source=source.name, error=error, attempt=attempts, retry_in=delay))
            await trio.sleep(delay)


def describe(exc: BaseException) -> str:
    """An exception in one line: the innermost messages of a group, each once."""
    if isinstance(exc, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(describe(inner) for inner in exc.exceptions))
    text = " ".join(str(exc).split())
    return (
        text if text and type(exc).__module__.startswith("reactor.") else f"{type(exc).__name__}: {text}".rstrip(": ")
    )
