"""The door between trio and asyncio, with the real loop in its thread."""

from __future__ import annotations

import asyncio
import time

import pytest
import trio

from reactor.aio import DoorClosed, open_door


async def _double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


async def test_a_call_returns_the_coroutine_result() -> None:
    async with open_door() as door:
        assert await door.call(_double, 21) == 42


async def test_what_is_ready_on_the_asyncio_side_goes_before_trio_is_woken() -> None:
    log: list[str] = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(log.append, "ready")
        for number in range(3):
            door.emit(log.append, f"told {number}")

    async with open_door() as door:
        await door.call(work)
        assert log == ["ready", "told 0", "told 1", "told 2"]


async def test_an_exception_crosses_with_its_own_type() -> None:
    async def fail() -> None:
        raise LookupError("no such thing")

    async with open_door() as door:
        with pytest.raises(LookupError, match="no such thing"):
            await door.call(fail)


async def test_cancelling_a_call_awaits_the_cleanup_of_its_coroutine() -> None:
    log: list[str] = []

    async def slow() -> None:
        try:
            log.append("begun")
            door.emit(scope.cancel)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.005)
            log.append("cleaned")

    async with open_door() as door:
        with trio.CancelScope() as scope:
            await door.call(slow)
        assert scope.cancelled_caught
        assert log == ["begun", "cleaned"]


async def test_a_coroutine_that_swallows_the_cancel_still_gives_its_value() -> None:
    async def stubborn() -> str:
        try:
            door.emit(scope.cancel)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "kept"
        return "slept"

    async with open_door() as door:
        with trio.CancelScope() as scope:
            assert await door.call(stubborn) == "kept"
        assert not scope.cancelled_caught


async def test_a_call_that_is_cancelled_from_within_asyncio_is_not_a_trio_cancellation() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    async with open_door() as door:
        with pytest.raises(DoorClosed):
            await door.call(give_up)
        assert await door.call(_double, 1) == 2


async def test_posts_and_calls_arrive_in_the_order_they_were_made() -> None:
    seen: list[int] = []

    async def read() -> tuple[int, ...]:
        return tuple(seen)

    async with open_door() as door:
        for n in range(100):
            door.post(seen.append, n)
        assert await door.call(read) == tuple(range(100))


async def test_a_call_returns_after_everything_emitted_before_its_end() -> None:
    received: list[int] = []

    async with open_door() as door:

        async def emit_many() -> None:
            for n in range(500):
                door.emit(received.append, n)
                if n % 50 == 0:
                    await asyncio.sleep(0)

        await door.call(emit_many)
        assert received == list(range(500))


async def test_a_fact_emitted_from_asyncio_wakes_trio() -> None:
    async with open_door() as door:
        arrived = trio.Event()
        door.post(door.emit, arrived.set)
        with trio.fail_after(1):
            await arrived.wait()


async def test_an_error_in_an_emitted_function_ends_the_door_and_its_callers() -> None:
    def bug() -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError):
        async with open_door() as door:
            door.post(door.emit, bug)
            await door.call(asyncio.sleep, 60)


async def test_an_error_in_a_posted_function_ends_the_door() -> None:
    def bug() -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError):
        async with open_door() as door:
            door.post(bug)
            await trio.sleep_forever()


async def test_a_detached_asyncio_task_that_fails_leaves_the_agent_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def detached() -> None:
        async def fail() -> None:
            raise ZeroDivisionError

        task = asyncio.create_task(fail())
        await asyncio.wait([task])

    async with open_door() as door:
        await door.call(detached)
        assert await door.call(_double, 2) == 4


async def test_the_death_of_the_loop_cancels_the_body_and_frees_callers() -> None:
    def stop() -> None:
        asyncio.get_running_loop().stop()

    begun = time.perf_counter()
    with pytest.RaisesGroup(RuntimeError, DoorClosed):
        async with open_door() as door:
            door.post(stop)
            await door.call(asyncio.sleep, 60)
    assert time.perf_counter() - begun < 1


async def test_a_blocked_loop_does_not_hold_the_exit_beyond_the_grace() -> None:
    begun = time.perf_counter()
    async with open_door(grace=0.05) as door:
        door.post(time.sleep, 0.4)
    assert time.perf_counter() - begun < 0.3


async def test_a_call_blocked_in_the_loop_does_not_hold_trio() -> None:
    async with open_door(grace=0.2) as door:
        door.post(time.sleep, 0.15)
        begun = time.perf_counter()
        await trio.lowlevel.checkpoint()
        assert time.perf_counter() - begun < 0.1


async def test_cleanup_in_a_cancelled_body_can_still_call() -> None:
    result: list[int] = []
    with trio.move_on_after(0.01):
        async with open_door() as door:
            try:
                await trio.sleep_forever()
            finally:
                with trio.move_on_after(1, shield=True):
                    result.append(await door.call(_double, 4))
    assert result == [8]


async def test_tasks_left_running_are_cancelled_and_cleaned_up_at_exit() -> None:
    log: list[str] = []
    held: list[asyncio.Task[None]] = []

    async def run() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            log.append("cleaned")

    async def begin() -> None:
        held.append(asyncio.create_task(run()))
        await asyncio.sleep(0)

    async with open_door() as door:
        await door.call(begin)
    assert log == ["cleaned"]


async def test_a_closed_door_refuses_calls_and_drops_posts() -> None:
    async with open_door() as door:
        pass
    with pytest.raises(DoorClosed):
        await door.call(_double, 1)
    door.post(print)
    door.emit(print)


async def test_a_thousand_calls_at_once_all_return() -> None:
    total: list[int] = []

    async with open_door() as door, trio.open_nursery() as nursery:

        async def one(n: int) -> None:
            total.append(await door.call(_double, n))

        for n in range(1000):
            nursery.start_soon(one, n)
    assert sum(total) == 2 * sum(range(1000))


async def test_cancelling_before_the_coroutine_begins_still_ends_cleanly() -> None:
    async with open_door() as door:
        door.post(time.sleep, 0.02)
        with trio.move_on_after(0.001) as scope:
            await door.call(asyncio.sleep, 60)
        assert scope.cancelled_caught
        assert await door.call(_double, 3) == 6


async def test_emit_after_trio_ended_is_silent() -> None:
    doors = []

    async def inner() -> None:
        async with open_door() as door:
            doors.append(door)

    await trio.to_thread.run_sync(trio.run, inner)
    doors[0].emit(print)
