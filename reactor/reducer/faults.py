"""Faults of the agent itself: begun once, counted while they last, ended once."""

from __future__ import annotations

from reactor.events import Event
from reactor.model.value import replace
from reactor.state import Fault, State


def begin(state: State, event: Event, name: str, message: str, *, count: int | None = None) -> State:
    """Have the fault ``name`` stand; a repetition with the same text only counts if ``count`` says so."""
    known = state.faults.get(name)
    if known is None:
        fault = Fault(name=name, message=message, since=event.wall, count=count or 1)
    else:
        fault = replace(known, message=message, count=count or known.count)
    if fault == known:
        return state
    return replace(state, faults={**state.faults, name: fault})


def end(state: State, name: str) -> State:
    """The fault is over; nothing happens if there was none."""
    if name not in state.faults:
        return state
    return replace(state, faults={key: fault for key, fault in state.faults.items() if key != name})


def stand(state: State, event: Event, name: str, message: str) -> State:
    """Begin the fault if there is a message, end it if there is none."""
    return begin(state, event, name, message) if message else end(state, name)
