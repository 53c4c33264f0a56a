"""Work done once for each group of an offer and kept while the group stays the same object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from reactor.model.snapshot import Listed, Offer

T = TypeVar("T")
Group = tuple[Listed, ...]


class PerGroup(Generic[T]):
    """Remembers what ``compute`` made of each group of the newest offer; a changed GPU costs its own group only."""

    def __init__(self, compute: Callable[[Group], T]) -> None:
        self._compute = compute
        # Keyed by id(): hashing a group would cost as much as computing. The group is held, so its id stays its own.
        self._known: dict[int, tuple[Group, T]] = {}

    def of(self, offer: Offer) -> list[T]:
        known = self._known
        fresh: dict[int, tuple[Group, T]] = {}
        values: list[T] = []
        for group in offer.groups:
            entry = known.get(id(group))
            if entry is None:
                entry = (group, self._compute(group))
            fresh[id(group)] = entry
            values.append(entry[1])
        self._known = fresh
        return values
