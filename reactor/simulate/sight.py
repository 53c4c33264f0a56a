"""What the kubelet has of the node at one moment, held against what a script expects, and told to people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from reactor.model.ids import parse_device_id
from reactor.simulate import steps as do

ABSENT, HEALTHY, UNHEALTHY, MIXED = "absent", "healthy", "unhealthy", "mixed"


@dataclass(frozen=True, slots=True)
class Sight:
    cards: tuple[str, ...]
    """UUID of each card of the node, in order; also of those that are not plugged in."""
    listed: Mapping[str, Mapping[str, bool]]
    """By resource: id and whether it is healthy, as in the newest list that the kubelet has."""
    used: Mapping[str, frozenset[str]]
    """By resource: ids that the kubelet counts as in use."""
    pods: Mapping[str, str]
    """By name: Pending, Running, Failed, Succeeded."""

    def counts(self, resource: str) -> tuple[int, int]:
        """(healthy, unhealthy)"""
        ids = self.listed.get(resource, {})
        healthy = sum(ids.values())
        return healthy, len(ids) - healthy

    def of_card(self, card: int) -> Iterator[tuple[str, str, bool]]:
        """(resource, id, healthy) of every id of this card."""
        for resource, ids in self.listed.items():
            for each, healthy in ids.items():
                ref = parse_device_id(each)
                if ref is not None and ref.gpu == self.cards[card]:
                    yield resource, each, healthy

    def card(self, card: int) -> str:
        found = {healthy for _, _, healthy in self.of_card(card)}
        return {(): ABSENT, (True,): HEALTHY, (False,): UNHEALTHY}.get(tuple(found), MIXED)


Seen = do.Counts | do.CardIs | do.PodIs


def holds(check: Seen, sight: Sight) -> bool:
    match check:
        case do.Counts():
            pairs = zip((check.healthy, check.unhealthy), sight.counts(check.resource), strict=True)
            return all(wanted is None or wanted == found for wanted, found in pairs)
        case do.CardIs():
            return sight.card(check.card) == check.state
        case do.PodIs():
            return _STATES.get(sight.pods.get(check.name, ""), "") == check.state
        case _:
            assert_never(check)


_STATES = {"Running": "running", "Failed": "rejected"}


def instead(check: Seen, sight: Sight) -> str:
    """What is so in place of what was expected."""
    match check:
        case do.Counts():
            return f"{check.resource} has {_count(sight, check.resource)}"
        case do.CardIs():
            return f"card {check.card} is {sight.card(check.card)}"
        case do.PodIs():
            return f"pod {check.name} is {sight.pods.get(check.name, ABSENT)}"
        case _:
            assert_never(check)


def sentence(sight: Sight) -> str:
    """One line of all resources that have ids."""
    parts = [f"{resource} {_count(sight, resource)}" for resource, ids in sight.listed.items() if ids]
    return ", ".join(parts) or "no device at all"


def _count(sight: Sight, resource: str) -> str:
    healthy, unhealthy = sight.counts(resource)
    used = len(sight.used.get(resource, ()))
    return (
        f"{healthy} healthy"
        + (f" + {unhealthy} unhealthy" if unhealthy else "")
        + (f" ({used} in use)" if used else "")
    )


def table(sight: Sight) -> list[str]:
    """The closing summary: resources, cards, pods."""
    resources = [("RESOURCE", "HEALTHY", "UNHEALTHY", "IN USE")]
    for resource in sight.listed:
        healthy, unhealthy = sight.counts(resource)
        resources.append((resource, str(healthy), str(unhealthy), str(len(sight.used.get(resource, ())))))
    cards = [("CARD", "UUID", "IDS")]
    for number, uuid in enumerate(sight.cards):
        cards.append((str(number), uuid, _ids(sight, number)))
    pods = [("POD", "PHASE"), *sight.pods.items()]
    return [*_columns(resources), "", *_columns(cards), *(["", *_columns(pods)] if sight.pods else ())]


def _ids(sight: Sight, card: int) -> str:
    parts: list[str] = []
    for resource in sight.listed:
        found = [(each, healthy) for where, each, healthy in sight.of_card(card) if where == resource]
        used = sum(each in sight.used.get(resource, ()) for each, _ in found)
        healthy = sum(healthy for _, healthy in found)
        states = (f"{healthy} healthy", healthy), (f"{len(found) - healthy} unhealthy", len(found) - healthy)
        told = ", ".join([text for text, count in (*states, (f"{used} in use", used)) if count])
        if found:
            parts.append(f"{resource}: {told}")
    return "; ".join(parts) or "none listed"


def _columns(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Text to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if _numeric(rows, column) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def _numeric(rows: Sequence[Sequence[str]], column: int) -> bool:
    return column > 0 and len(rows) > 1 and all(row[column].isdecimal() for row in rows[1:])
