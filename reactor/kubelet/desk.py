"""The desk that faces the kubelet: what it is told and what it asks, without a transport.

It holds the snapshot in force. Streams take the newest offer of their resource, Allocate is answered from memory. All
of it is synchronous and belongs to one thread: the asyncio one, or that of a test.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from reactor.kubelet.groups import Group, PerGroup
from reactor.model.ids import GpuUuid, Identity, ResourceName, parse_device_id
from reactor.model.kubelet import Answer, Refusal, StreamId
from reactor.model.snapshot import Offer, Snapshot

log = logging.getLogger(__name__)

Requests = Sequence[Sequence[str]]
Answerer = Callable[[Snapshot, ResourceName, Requests], tuple[Answer, ...] | Refusal]
Preferrer = Callable[[Snapshot, ResourceName, Sequence[str], Sequence[str], int], tuple[str, ...]]


class Reports(Protocol):
    """Who is told what happens at the desk. Called in the desk's thread; must neither wait nor raise."""

    def stream_opened(self, resource: ResourceName, socket: str, stream: StreamId) -> None: ...

    def stream_ended(self, resource: ResourceName, socket: str, stream: StreamId) -> None: ...

    def sent(
        self,
        resource: ResourceName,
        stream: StreamId,
        revision: int,
        nudge: int,
        healthy: int,
        unhealthy: int,
        size: int,
        *,
        standing: bool,
    ) -> None:
        """``standing``: the kubelet has this very list from before, nothing went out."""

    def granted(self, number: int, resource: ResourceName, ids: tuple[str, ...], took: float) -> None: ...

    def refused(
        self, resource: ResourceName, ids: tuple[str, ...], message: str, faulty: tuple[str, ...], took: float
    ) -> None: ...


Report = Callable[[float], None]
"""Tells what became of an Allocate, given the seconds it took."""


def _at_once(report: Report) -> None:
    report(0.0)


class Stream:
    """One ListAndWatch: a slot that holds the newest offer not yet taken. Made by ``Desk.open``."""

    def __init__(
        self, desk: Desk, resource: ResourceName, socket: str, number: StreamId, wake: Callable[[], object]
    ) -> None:
        self.id = number
        self.resource = resource
        self.socket = socket
        self._desk = desk
        self._wake = wake
        self._slot: Offer | None = None
        self._taken: Offer | None = None
        self._sent: tuple[Offer, int] | None = None
        """What went out last, and its size."""
        self._healthy = PerGroup(_count_healthy)

    def take(self) -> Offer | None:
        """The newest offer, once; None while there is nothing newer than what was taken."""
        offer, self._slot = self._slot, None
        if offer is not None:
            self._taken = offer
        return offer

    def put(self, offer: Offer) -> None:
        """Make this the newest offer; wakes the stream if it reads otherwise than what was taken, nudge included.

        A reason or an index that changed is for Allocate: the kubelet is not told of it, and its list stands.
        """
        sent = self._sent
        if offer is self._taken or offer == self._taken:
            self._slot = None
        elif sent is not None and sent[0] is self._taken and _alike(offer, sent[0]):
            self._slot, self._taken = None, offer
            self._report(offer, sent[1], standing=True)
        elif offer is not self._slot:
            self._slot = offer
            self._wake()

    def sent(self, offer: Offer, size: int) -> None:
        """Report that this offer, ``size`` bytes of it, went out."""
        self._report(offer, size, standing=False)

    def _report(self, offer: Offer, size: int, *, standing: bool) -> None:
        self._sent = (offer, size)
        healthy = sum(self._healthy.of(offer))
        total = sum(map(len, offer.groups))
        self._desk.settle()
        self._desk.reports.sent(
            self.resource, self.id, offer.revision, offer.nudge, healthy, total - healthy, size, standing=standing
        )

    def close(self) -> None:
        """The stream has ended, on whichever side. Can be repeated."""
        self._desk.leave(self)


class Desk:
    def __init__(self, *, answer: Answerer, prefer: Preferrer, reports: Reports) -> None:
        self.reports = reports
        self._answer = answer
        self._prefer = prefer
        self._snapshot = Snapshot()
        self._streams: dict[StreamId, Stream] = {}
        self._opened = 0
        self._grants = 0
        # Grants that no snapshot has folded in yet: number of the newest, by GPU and the identity it went out under.
        self._unfolded: dict[GpuUuid, dict[Identity, int]] = {}
        self._owed: deque[Callable[[], None]] = deque()

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    @property
    def streams(self) -> tuple[Stream, ...]:
        return tuple(self._streams.values())

    def post(self, snapshot: Snapshot) -> None:
        """Put a snapshot in force. Streams whose offer did not change are not woken."""
        self._snapshot = snapshot
        for gpu, grants in tuple(self._unfolded.items()):
            later = {identity: number for identity, number in grants.items() if number > snapshot.grants}
            if later:
                self._unfolded[gpu] = later
            else:
                del self._unfolded[gpu]
        for stream in self._streams.values():
            offer = snapshot.offers.get(stream.resource)
            if offer is not None:
                stream.put(offer)

    def open(self, resource: ResourceName, socket: str, wake: Callable[[], object] = lambda: None) -> Stream:
        """Begin a stream; it holds the list in force at once. ``wake`` is called when there is something to take."""
        self._opened += 1
        stream = Stream(self, resource, socket, StreamId(self._opened), wake)
        self._streams[stream.id] = stream
        self.settle()
        self.reports.stream_opened(resource, socket, stream.id)
        offer = self._snapshot.offers.get(resource)
        if offer is not None:
            stream.put(offer)
        return stream

    def leave(self, stream: Stream) -> None:
        if self._streams.pop(stream.id, None) is not None:
            self.settle()
            self.reports.stream_ended(stream.resource, stream.socket, stream.id)

    def allocate(
        self, resource: ResourceName, requests: Requests, soon: Callable[[Report], object] = _at_once
    ) -> tuple[Answer, ...] | Refusal:
        """Answer Allocate from the snapshot in force; a repeat gets the same answer. ``soon``: when to report it."""
        ids = tuple(one for request in requests for one in request)
        outcome = self._race(ids) or self._answer(self._snapshot, resource, requests)
        if isinstance(outcome, Refusal):
            soon(partial(self.reports.refused, resource, ids, outcome.message, outcome.faulty))
            return outcome
        self._grants += 1
        for one in ids:
            ref = parse_device_id(one)
            if ref is not None:
                self._unfolded.setdefault(ref.gpu, {})[ref.identity] = self._grants
        soon(partial(self.reports.granted, self._grants, resource, ids))
        return outcome

    def owe(self, report: Callable[[], None]) -> bool:
        """Keep a report for ``settle``; whether it is the first, so that somebody is to see to that."""
        self._owed.append(report)
        return len(self._owed) == 1

    def settle(self) -> None:
        """Make the reports that are owed. Any other report comes after them."""
        while self._owed:
            self._owed.popleft()()

    def preferred(
        self, resource: ResourceName, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> tuple[str, ...]:
        """Which of the available ids to take first; empty when there is no opinion."""
        try:
            return self._prefer(self._snapshot, resource, available, must_include, size)
        except Exception:  # an error here would reject the pod; the kubelet tops an empty answer up
            log.exception("preference.failed")
            return ()

    def _race(self, ids: tuple[str, ...]) -> Refusal | None:
        """Refuse a GPU that was granted under another identity after the snapshot in force was made.

        That snapshot does not know the grant yet, so it may still offer the GPU under both identities.
        """
        if not self._snapshot.guard:
            return None
        for one in ids:
            ref = parse_device_id(one)
            if ref is not None and self._unfolded.get(ref.gpu, {}).keys() - {ref.identity}:
                return Refusal(message=f"{one}: its GPU was just given to another pod; try again")
        return None


def _alike(one: Offer, other: Offer) -> bool:
    """Whether two offers come to the same list, in whichever order, and the kubelet is asked for nothing by it."""
    if one.nudge != other.nudge or one.topology is not other.topology or len(one.groups) != len(other.groups):
        return False
    there = {group[0].id: group for group in other.groups if group}
    return all(_alike_groups(group, there.get(group[0].id, ())) for group in one.groups if group)


def _alike_groups(one: Group, other: Group) -> bool:
    if one is other:
        return True
    return len(one) == len(other) and all(
        this.id == that.id and this.healthy is that.healthy and this.numa == that.numa
        for this, that in zip(one, other, strict=True)
    )


def _count_healthy(group: Group) -> int:
    return sum(listed.healthy for listed in group)
