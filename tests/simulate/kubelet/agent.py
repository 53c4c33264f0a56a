"""A plugin of the agent's own parts (desk, servers) with nothing behind it, to be held against a kubelet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reactor.kubelet.desk import Desk
from reactor.model.ids import DeviceId, GpuUuid, ResourceName
from reactor.model.kubelet import Answer, Refusal
from reactor.model.snapshot import Listed, Offer, Snapshot

GPU = ResourceName("nvidia.com/gpu")


@dataclass
class Notes:
    """Reports, written down."""

    opened: int = 0
    ended: int = 0
    lists: list[tuple[str, int, int]] = field(default_factory=list)
    granted_ids: list[tuple[str, ...]] = field(default_factory=list)
    moved: Callable[[], object] = lambda: None
    """Called after each report, in its thread."""

    @property
    def live(self) -> int:
        return self.opened - self.ended

    def stream_opened(self, resource, socket, stream):
        self.opened += 1
        self.moved()

    def stream_ended(self, resource, socket, stream):
        self.ended += 1
        self.moved()

    def sent(self, resource, stream, revision, nudge, healthy, unhealthy, size, *, standing):
        self.lists.append((resource, healthy, unhealthy))
        self.moved()

    def granted(self, number, resource, ids, took):
        self.granted_ids.append(tuple(ids))
        self.moved()

    def refused(self, resource, ids, message, faulty, took):
        pass


def _answer(snapshot: Snapshot, resource: ResourceName, requests: Sequence[Sequence[str]]):
    offer = snapshot.offers[resource]
    for one in (each for request in requests for each in request):
        if one not in offer.by_id or not offer.by_id[DeviceId(one)].healthy:
            return Refusal(message=f"{one} is withheld", faulty=(one,))
    return tuple(Answer(envs=(("NVIDIA_VISIBLE_DEVICES", ",".join(each)),)) for each in requests)


def _prefer(snapshot, resource, available, must_include, size):
    return tuple(sorted(available))[:size]


def desk(notes: Notes) -> Desk:
    return Desk(answer=_answer, prefer=_prefer, reports=notes)


def offer(*names: str, ill: Sequence[str] = (), revision: int = 1, nudge: int = 0, numa: bool = False) -> Offer:
    """``names`` are ids as they are; with ``numa`` they alternate between node 0 and 1."""
    devices = {
        DeviceId(name): Listed(
            id=DeviceId(name),
            gpu=GpuUuid(name),
            index=number,
            minor=number,
            share=None,
            healthy=name not in ill,
            numa=(number % 2,) if numa else (),
        )
        for number, name in enumerate(names)
    }
    groups = tuple((each,) for each in devices.values())
    return Offer(resource=GPU, groups=groups, revision=revision, nudge=nudge, topology=numa, by_id=devices)


def snapshot(*names: str, **how) -> Snapshot:
    shown = offer(*names, **how)
    return Snapshot(revision=shown.revision, offers={GPU: shown})
