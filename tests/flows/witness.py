"""Sees every list that the kubelet takes in, and every event; holds them against what no flow may break.

An id never leaves a list while a pod that runs has it, nor sooner than 5 s after the same stream showed it Unhealthy;
no physical GPU is with pods under two identities; no list is sent again unchanged unless the state asked for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

import trio

from reactor.bus import Recorder
from reactor.events import Event, Fact
from reactor.model.ids import Identity, parse_device_id
from reactor.simulate.node import SimNode
from reactor.state import State

F = TypeVar("F", bound=Fact)
DROP_AFTER = 5.0
_SOON = 0.001


@dataclass(frozen=True, slots=True)
class Seen:
    """One list as the kubelet has it."""

    at: float
    life: int
    resource: str
    ids: dict[str, bool]
    connection: object


@dataclass(eq=False)
class Witness:
    """A recorder around the real one."""

    recorder: Recorder
    node: SimNode | None = None
    lists: list[Seen] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Promises that were not kept."""
    again: int = 0
    """Lists that repeated the one before them."""
    nudges: int = 0
    _newest: dict[str, Seen] = field(default_factory=dict)
    _unhealthy_at: dict[tuple[str, str], float] = field(default_factory=dict)
    _owned: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    _health: dict[str, list[bool]] = field(default_factory=dict)

    # ------------------------------------------------------------ a recorder

    def record(self, event: Event, before: State, after: State) -> None:
        self.recorder.record(event, before, after)
        self.facts.append(event.fact)
        count = sum(nudge.count for nudge in after.nudges.values())
        self.nudges += max(0, count - sum(nudge.count for nudge in before.nudges.values()))

    def of(self, kind: type[F]) -> list[F]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    # ------------------------------------------------------------ at the kubelet

    def attend(self, node: SimNode) -> None:
        self.node = node
        node.kubelet.on_list = self._heard

    def _heard(self, resource: str) -> None:
        assert self.node is not None
        kubelet = self.node.kubelet
        seen = Seen(
            trio.current_time(),
            kubelet.lives,
            resource,
            kubelet.devices(resource),
            kubelet.core.manager.current(resource),
        )
        before = self._newest.get(resource)
        self._newest[resource] = seen
        self.lists.append(seen)
        if before is not None and before.connection is seen.connection:
            self._compare(before, seen)
        self._hold_against_pods(seen)
        for one, healthy in seen.ids.items():
            self._health.setdefault(one, []).append(healthy)
            if healthy:
                self._unhealthy_at.pop((resource, one), None)
            else:
                self._unhealthy_at.setdefault((resource, one), seen.at)

    def _compare(self, before: Seen, seen: Seen) -> None:
        if before.ids == seen.ids:
            self.again += 1
        for one in before.ids.keys() - seen.ids.keys():
            since = self._unhealthy_at.pop((seen.resource, one), None)
            if since is None or seen.at - since < DROP_AFTER - _SOON:
                self._break(f"{one} left {seen.resource} after {'nothing' if since is None else seen.at - since}")

    def _own(self) -> None:
        """What pods have, also where the kubelet has lost its books since."""
        assert self.node is not None
        for uid, containers in self.node.kubelet.core.manager.pods.items():
            for resources in containers.values():
                for resource, allocation in resources.items():
                    self._owned.setdefault(uid, set()).update((resource, one) for one in allocation.ids)

    def owned(self) -> set[tuple[str, str]]:
        """(resource, id) of every pod that is neither gone nor over."""
        assert self.node is not None
        self._own()
        live = [pod.uid for pod in self.node.kubelet.api.pods.values() if not pod.over]
        return {each for uid in live for each in self._owned.get(uid, ())}

    def _hold_against_pods(self, seen: Seen) -> None:
        identities: dict[str, set[Identity]] = {}
        for resource, one in self.owned():
            if resource == seen.resource and one not in seen.ids:
                self._break(f"{one} is held and not in the list of {resource}")
            ref = parse_device_id(one)
            if ref is not None:
                identities.setdefault(ref.gpu, set()).add(ref.identity)
        for gpu, found in identities.items():
            if len(found) > 1:
                self._break(f"{gpu} is with pods under two identities")

    def _break(self, what: str) -> None:
        self.broken.append(f"{trio.current_time():.3f}: {what}")

    # ------------------------------------------------------------ for tests

    def history(self, one: str) -> str:
        """How an id was listed over time, such as ``HUH``: repetitions folded."""
        return "".join("H" if healthy else "U" for healthy, _ in groupby(self._health.get(one, ())))

    def sent(self, resource: str) -> int:
        return sum(each.resource == resource for each in self.lists)

    def first(self, resource: str, life: int) -> Seen:
        """The first list of a resource in a life of the kubelet."""
        return next(each for each in self.lists if each.life == life and each.resource == resource)

    def verdict(self, allowed: Iterable[str] = ()) -> None:
        """Asserted at the end of each flow. ``allowed``: faults of handlers and sources that may stand."""
        assert self.node is not None
        assert self.node.kubelet.panicked is None
        assert not self.broken, self.broken
        assert self.again <= self.nudges, "lists were sent that said nothing new"
        if self.node.running:
            standing = [name for name in self.node.state.faults if name.startswith(("handler.", "source."))]
            assert set(standing) <= set(allowed)
