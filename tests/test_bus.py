"""The bus: what wakes whom, what is folded, what a failure leaves behind."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from reactor import events as e
from reactor.bus import Bus, Mail
from reactor.model.condition import WHOLE_GPU
from reactor.model.errors import Transient
from reactor.model.ids import GpuUuid
from reactor.state import State

A = GpuUuid("GPU-aaaaaaaa-0000-0000-0000-000000000000")


class Silent:
    def __init__(self) -> None:
        self.events: list[e.Event] = []

    def record(self, event: e.Event, before: State, after: State) -> None:
        self.events.append(event)


class Worker:
    """A handler that does what the test tells it."""

    ceiling = 60.0

    def __init__(self, name: str = "worker", *, settle: float = 0.0, on: type[e.Fact] = e.SignalReceived) -> None:
        self.name = name
        self.on = on
        self.mails: list[Mail] = []
        self.at: list[float] = []
        self.failures = 0
        self.outcomes: list[e.Fact] = []
        self.gate = trio.Event()
        self.gate.set()
        self._settle = settle

    def settle(self, lane: str) -> float:
        return self._settle

    def wakes(self, event: e.Event, before: State, after: State) -> Iterable[str]:
        return ("",) if isinstance(event.fact, self.on) else ()

    async def run(self, lane: str, state: State, mail: Mail) -> Iterable[e.Fact]:
        self.mails.append(mail)
        self.at.append(trio.current_time())
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise Transient("not now")
        outcomes, self.outcomes = self.outcomes, []
        return outcomes


def bus_of(*workers: Worker) -> tuple[Bus, Silent]:
    recorder = Silent()
    return Bus(workers, recorder=recorder, clock=trio.current_time, wall=lambda: 0.0), recorder


def hup() -> e.Fact:
    return e.SignalReceived(name="HUP")


async def test_facts_are_numbered_and_an_outcome_names_its_cause(autojump_clock: MockClock) -> None:
    worker = Worker()
    worker.outcomes = [e.Remembered(revision=7)]
    bus, recorder = bus_of(worker)
    bus.publish(hup())
    bus.publish(hup())
    await bus.drain()
    assert [event.seq for event in recorder.events] == [1, 2, 3]
    assert recorder.events[2].cause == 2  # the newest mail that was folded into the run


async def test_mail_of_one_key_folds_and_is_counted(autojump_clock: MockClock) -> None:
    worker = Worker(on=e.XidReported)
    bus, _ = bus_of(worker)
    for _ in range(5000):
        bus.publish(e.XidReported(gpu=A, placement=WHOLE_GPU, xid=45))
    bus.publish(e.XidReported(gpu=A, placement=WHOLE_GPU, xid=79))
    await bus.drain()
    assert [(len(mail.events), mail.count) for mail in worker.mails] == [(2, 5001)]


async def test_a_fact_that_changes_nothing_keeps_the_state_object(autojump_clock: MockClock) -> None:
    bus, _ = bus_of()
    before = bus.state
    bus.publish(e.FaultCleared(gpu=A, reason="mended"))  # of a GPU that nobody holds anything against
    assert bus.state is before


async def test_mail_that_comes_while_a_handler_runs_is_not_lost(autojump_clock: MockClock) -> None:
    worker = Worker()
    worker.gate = trio.Event()
    bus, _ = bus_of(worker)
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.run)
        bus.publish(hup())
        await wait_all_tasks_blocked()
        bus.publish(hup())
        worker.gate.set()
        await bus.quiet()
        nursery.cancel_scope.cancel()
    assert [mail.cause for mail in worker.mails] == [1, 2]


async def test_a_flurry_settles_from_its_first_fact_and_is_never_put_off(autojump_clock: MockClock) -> None:
    worker = Worker(settle=0.2)
    bus, _ = bus_of(worker)
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.run)
        for _ in range(5):
            bus.publish(hup())
            await trio.sleep(0.15)
        await bus.quiet()
        nursery.cancel_scope.cancel()
    assert [round(at - begun, 2) for at in worker.at] == [0.2, 0.5, 0.8]


async def test_a_failure_is_a_fact_and_is_repeated_with_growing_delays(autojump_clock: MockClock) -> None:
    worker = Worker()
    worker.failures = 3
    bus, recorder = bus_of(worker)
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.run)
        bus.publish(hup())
        await bus.quiet()
        nursery.cancel_scope.cancel()
    failed = [event.fact for event in recorder.events if isinstance(event.fact, e.HandlerFailed)]
    assert [fact.attempt for fact in failed] == [1, 2, 3]
    assert failed[0].error == "not now"
    assert [0.4 <= fact.retry_in / 2**power <= 0.5 for power, fact in enumerate(failed)] == [True] * 3
    assert isinstance(recorder.events[-1].fact, e.HandlerRecovered)
    assert not bus.state.faults
    assert all(mail.cause == 1 for mail in worker.mails)


async def test_fresh_mail_cuts_a_wait_short_but_not_below_the_floor(autojump_clock: MockClock) -> None:
    worker = Worker()
    worker.failures = 5
    bus, _ = bus_of(worker)
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.run)
        bus.publish(hup())
        await bus.until(lambda state: bool(state.faults) and next(iter(state.faults.values())).count == 5)
        before = trio.current_time()
        await trio.sleep(0.1)
        bus.publish(hup())
        await bus.quiet()
        nursery.cancel_scope.cancel()
    assert 0.4 <= worker.at[-1] - before <= 0.6


async def test_one_handler_that_hangs_keeps_no_other_waiting(autojump_clock: MockClock) -> None:
    stuck, quick = Worker("stuck"), Worker("quick")
    stuck.gate = trio.Event()
    bus, _ = bus_of(stuck, quick)
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.run)
        bus.publish(hup())
        await wait_all_tasks_blocked()
        bus.publish(hup())
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(quick.mails) == 2
    assert len(stuck.mails) == 1


async def test_drain_tells_handlers_that_never_come_to_rest(autojump_clock: MockClock) -> None:
    class Restless(Worker):
        async def run(self, lane: str, state: State, mail: Mail) -> Iterable[e.Fact]:
            return (hup(),)

    bus, _ = bus_of(Restless())
    bus.publish(hup())
    with pytest.raises(RuntimeError, match="not quiet after 100 rounds: worker"):
        await bus.drain()


async def test_a_bug_in_the_reducer_is_not_contained(autojump_clock: MockClock) -> None:
    class Strange(e.Fact):
        pass

    bus, _ = bus_of()
    with pytest.raises(TypeError, match="Strange"):
        bus.publish(Strange())


class Flaky:
    name = "flaky"

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.up = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no such thing")
        task_status.started()
        self.up.set()
        await trio.sleep_forever()


async def test_a_source_that_fails_is_a_visible_fault_until_it_runs_again(autojump_clock: MockClock) -> None:
    bus, recorder = bus_of()
    source = Flaky(failures=2)
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.supervise, source)
        await bus.until(lambda state: "source.flaky" in state.faults)
        await source.up.wait()
        await bus.until(lambda state: not state.faults)
        nursery.cancel_scope.cancel()
    assert [type(event.fact) for event in recorder.events] == [e.SourceFailed, e.SourceFailed, e.SourceRecovered]
    assert recorder.events[0].fact.error == "OSError: no such thing"


async def test_the_load_of_a_handler_is_its_mail_and_its_failures_and_a_meter_hears_of_each_run() -> None:
    class Meter:
        def __init__(self) -> None:
            self.runs: list[tuple[str, bool]] = []

        def ran(self, handler: str, seconds: float, *, ok: bool) -> None:
            self.runs.append((handler, ok))

    meter, worker = Meter(), Worker()
    worker.failures = 1
    bus = Bus((worker,), recorder=Silent(), meter=meter)
    assert bus.load() == {"worker": (0, 0)}
    bus.publish(e.SignalReceived(name="HUP"))
    await bus.step()
    assert bus.load() == {"worker": (1, 1)}
    await bus.step()
    assert bus.load() == {"worker": (0, 0)}
    assert meter.runs == [("worker", False), ("worker", True)]


async def test_who_waits_is_woken_for_its_own_state_alone() -> None:
    bus = Bus((), recorder=Silent())
    asked: list[int] = []

    def third(state: State) -> bool:
        asked.append(state.revision)
        return state.reloads == 3

    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            assert (await bus.until(third)).reloads == 3

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        for _ in range(3):
            bus.publish(e.SignalReceived(name="HUP"))
            await wait_all_tasks_blocked()
    assert len(asked) == 5  # at first, at each change, and once more in the woken task


async def test_an_error_of_a_predicate_is_the_waiters() -> None:
    bus = Bus((), recorder=Silent())

    def broken(state: State) -> bool:
        if state.reloads:
            raise LookupError("nothing there")
        return False

    async def wait() -> None:
        with pytest.raises(LookupError):
            await bus.until(broken)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        bus.publish(e.SignalReceived(name="HUP"))
