"""How late the loops are is found at each heartbeat."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from reactor.status.loops import ASYNCIO, HEARTBEAT, TRIO, Loops


async def test_each_heartbeat_tells_how_late_each_loop_is(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    told: list[tuple[str, float]] = []

    async def living() -> int:
        await trio.sleep(0.25)
        return 4

    loops = Loops(living, lambda loop, seconds: told.append((loop, seconds)))
    nursery.start_soon(loops.watch)
    for seconds in (0.25, HEARTBEAT + 0.5, 0.25):
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()
    assert told == [(ASYNCIO, pytest.approx(0.25)), (TRIO, pytest.approx(0.5)), (ASYNCIO, pytest.approx(0.25))]
    assert loops.tasks()[ASYNCIO] == 4


async def test_a_loop_that_does_not_answer_grows_old(mock_clock: trio.testing.MockClock, nursery: trio.Nursery) -> None:
    loops = Loops(trio.sleep_forever, lambda loop, seconds: None)
    nursery.start_soon(loops.watch)
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(HEARTBEAT + 60)
    assert loops.ages() == {TRIO: 0.0, ASYNCIO: pytest.approx(60)}
