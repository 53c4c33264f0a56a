"""The machine's clock was set: Unix times in the state move with it, so that spans stay what really passed.

Without this a clock set forward would end a quiet time at once and forget relapses, and one set back would make either
last for as long as it was wrong.
"""

from __future__ import annotations

from reactor.events import Event
from reactor.model.condition import Condition
from reactor.model.value import replace
from reactor.state import State

STEP = 1.0
"""Seconds from which on the difference of the two clocks counts; slewing gets there in half an hour."""


def follow(state: State, event: Event) -> State:
    """The state as this event's clock would have timed it; the same object unless that was set."""
    if state.clock is None:
        return state
    offset = event.wall - event.at
    by = offset - state.clock
    if abs(by) < STEP:
        return state
    return replace(
        state,
        clock=offset,
        conditions={
            gpu: tuple(_moved(condition, by) for condition in found) for gpu, found in state.conditions.items()
        },
        relapses={gpu: tuple(at + by for at in times) for gpu, times in state.relapses.items()},
        holds={key: replace(hold, since=hold.since + by) for key, hold in state.holds.items()},
        faults={name: replace(fault, since=fault.since + by) for name, fault in state.faults.items()},
        driver=replace(state.driver, since=state.driver.since + by),
    )


def _moved(condition: Condition, by: float) -> Condition:
    return replace(condition, since=condition.since + by, last=condition.last + by)
