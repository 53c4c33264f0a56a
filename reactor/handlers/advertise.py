"""Hands the newest snapshot to the gRPC side, the moment that anything in it moved.

A grant can wait a little: until it is folded in, the desk that gave it guards its GPU itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reactor import view
from reactor.bus import Mail
from reactor.events import Event, Fact, Granted
from reactor.model.snapshot import Snapshot
from reactor.state import State

GRANTS = "grants"


class Advertise:
    name = "advertise"
    ceiling = 1.0

    def __init__(self, post: Callable[[Snapshot], None]) -> None:
        self._post = post
        self._snapshot = Snapshot()

    @property
    def snapshot(self) -> Snapshot:
        """What was posted last."""
        return self._snapshot

    def settle(self, lane: str) -> float:
        return 0.02 if lane == GRANTS else 0.0

    def wakes(self, event: Event, before: State, after: State) -> Iterable[str]:
        if not view.moved(before, after):
            return ()
        return (GRANTS,) if isinstance(event.fact, Granted) else ("",)

    async def run(self, lane: str, state: State, mail: Mail) -> Iterable[Fact]:
        self._snapshot = view.snapshot(state, self._snapshot)
        self._post(self._snapshot)
        return ()
