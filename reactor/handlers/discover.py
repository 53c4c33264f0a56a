"""Looks at driver and GPUs again whenever something may have moved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from reactor import events as e
from reactor.bus import Mail
from reactor.model.gpu import Inventory
from reactor.nvml import NvmlUnavailable
from reactor.state import State

NOW = "now"
FLURRY = "flurry"
"""Several facts of one cause come close together: they are one scan."""

_AT_ONCE = (e.StateRestored, e.GpuLost, e.FaultUnattributed, e.FaultCleared)
_IN_A_MOMENT = (e.DevicesChanged, e.RecoveryActionChanged, e.WorkerLost)
_DEADLINES = ("resync", "quiet")


class Discover:
    name = "discover"
    ceiling = 60.0

    def __init__(self, scan: Callable[[], Awaitable[Inventory]]) -> None:
        self._scan = scan

    def settle(self, lane: str) -> float:
        return 0.2 if lane == FLURRY else 0.0

    def wakes(self, event: e.Event, before: State, after: State) -> Iterable[str]:
        fact = event.fact
        due = isinstance(fact, e.DeadlinePassed) and fact.name in _DEADLINES
        if due or isinstance(fact, _AT_ONCE) or after.reloads != before.reloads:
            return (NOW,)
        return (FLURRY,) if isinstance(fact, _IN_A_MOMENT) else ()

    async def run(self, lane: str, state: State, mail: Mail) -> Iterable[e.Fact]:
        """A failed scan is an outcome, not a failure: the state says when to scan again."""
        try:
            return (e.InventoryTaken(inventory=await self._scan()),)
        except NvmlUnavailable as exc:
            return (e.InventoryFailed(state=exc.state, error=str(exc)),)
