"""What the kubelet tests share: offers and a desk whose reports are kept in a list."""

from __future__ import annotations

from collections.abc import Sequence

from reactor.kubelet.desk import Desk, Requests
from reactor.model.ids import DeviceId, GpuUuid, ResourceName, device_id
from reactor.model.kubelet import Answer, Refusal, StreamId
from reactor.model.snapshot import Listed, Offer, Snapshot

GPU = ResourceName("nvidia.com/gpu")


def uuid(index: int) -> GpuUuid:
    return GpuUuid(f"GPU-00000000-0000-0000-0000-{index:012x}")


def group(index: int, *, replicas: int = 0, healthy: bool = True, numa: tuple[int, ...] = ()) -> tuple[Listed, ...]:
    shares: Sequence[int | None] = range(replicas) if replicas else [None]
    return tuple(
        Listed(
            id=device_id(uuid(index), share),
            gpu=uuid(index),
            index=index,
            minor=index,
            share=share,
            healthy=healthy,
            numa=numa,
        )
        for share in shares
    )


def offer(
    *groups: tuple[Listed, ...], revision: int = 1, resource: ResourceName = GPU, nudge: int = 0, topology: bool = False
) -> Offer:
    return Offer(
        resource=resource,
        groups=groups,
        revision=revision,
        nudge=nudge,
        topology=topology,
        by_id={listed.id: listed for one in groups for listed in one},
    )


def snapshot(*offers: Offer, grants: int = 0, guard: bool = True) -> Snapshot:
    return Snapshot(
        revision=max((one.revision for one in offers), default=0),
        offers={one.resource: one for one in offers},
        grants=grants,
        guard=guard,
    )


def answer(snap: Snapshot, resource: ResourceName, requests: Requests) -> tuple[Answer, ...] | Refusal:
    known = snap.offers[resource].by_id if resource in snap.offers else {}
    faulty = [one for request in requests for one in request if one in known and not known[DeviceId(one)].healthy]
    if faulty:
        return Refusal(message=f"{faulty[0]} is not healthy", faulty=tuple(faulty))
    unknown = [one for request in requests for one in request if one not in known]
    if unknown:
        return Refusal(message=f"{unknown[0]} is not one of {resource}")
    return tuple(Answer(envs=(("NVIDIA_VISIBLE_DEVICES", ",".join(request) or "void"),)) for request in requests)


def prefer(
    snap: Snapshot, resource: ResourceName, available: Sequence[str], must: Sequence[str], size: int
) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*must, *sorted(available)]))[:size]


class Log:
    """Reports, as a list of tuples."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []
        self.took: list[float] = []
        """Seconds of each Allocate."""

    def stream_opened(self, resource: ResourceName, socket: str, stream: StreamId) -> None:
        self.lines.append(("opened", resource, socket, stream))

    def stream_ended(self, resource: ResourceName, socket: str, stream: StreamId) -> None:
        self.lines.append(("ended", resource, socket, stream))

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
        self.lines.append(
            ("standing" if standing else "sent", resource, stream, revision, nudge, healthy, unhealthy, size)
        )

    def granted(self, number: int, resource: ResourceName, ids: tuple[str, ...], took: float) -> None:
        self.lines.append(("granted", number, resource, ids))
        self.took.append(took)

    def refused(
        self, resource: ResourceName, ids: tuple[str, ...], message: str, faulty: tuple[str, ...], took: float
    ) -> None:
        self.lines.append(("refused", resource, ids, message, faulty))
        self.took.append(took)


def desk() -> tuple[Desk, Log]:
    log = Log()
    return Desk(answer=answer, prefer=prefer, reports=log), log
