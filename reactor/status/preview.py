"""What a config would do to this node now: the live state, with the text folded in by the real reducer. Pure.

Nothing is changed: the state that comes out is compared with the one that went in, and dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from reactor import view
from reactor.config import Accepted
from reactor.events import ConfigRead, Event
from reactor.model.config import Config, HoldsPolicy
from reactor.model.hold import Hold
from reactor.model.ids import GpuUuid, Identity, ResourceName
from reactor.model.snapshot import Offer, Snapshot
from reactor.record.changes import config_changes
from reactor.reducer import reduce
from reactor.state import State
from reactor.status.document import VERSION, CountsDoc, MoveDoc, PodMattersDoc, PreviewDoc, ResourceChangeDoc

_NOT_SERVED = "this version"
"""In every reason of ``plan`` for which a GPU that the config wants cannot be handed out as it wants."""


def preview(state: State, snapshot: Snapshot, accepted: Accepted, *, at: float, wall: float) -> PreviewDoc:
    fact = ConfigRead(config=accepted.config, digest=accepted.digest, path=accepted.path, text=accepted.text)
    event = Event(seq=state.revision + 1, cause=None, at=at, wall=wall, fact=fact)
    after = reduce(state, event)
    shown = view.snapshot(after, snapshot)
    pods = list(_pods(after))
    return PreviewDoc(
        v=VERSION,
        changes=[
            {"path": change.path, "before": change.before, "after": change.after}
            for change in config_changes(state.config.config, accepted.config)
        ],
        resources=list(_resources(snapshot, shown)),
        gpus=list(_moves(state, after)),
        waits=[] if _shared_at_once(after) else pods,
        disturbs=pods if _shared_at_once(after) else [],
        impossible=[*_oversize(after), *_unserved(state, after)],
        notes=[*after.plan.notices, *accepted.notes],
        unserved=[{"path": key.path, "message": key.message} for key in accepted.config.unserved],
    )


def _resources(before: Snapshot, after: Snapshot) -> Iterator[ResourceChangeDoc]:
    for name in sorted({*before.offers, *after.offers}):
        old, new = before.offers.get(name), after.offers.get(name)
        if old is new or (old is not None and new is not None and old.groups == new.groups):
            continue
        ids_before = {one.id for one in old.devices()} if old else set()
        ids_after = {one.id for one in new.devices()} if new else set()
        yield ResourceChangeDoc(
            name=name,
            before=_counts(old),
            after=_counts(new),
            added=len(ids_after - ids_before),
            removed=len(ids_before - ids_after),
            reasons=dict(Counter(one.reason for one in new.devices() if not one.healthy) if new else {}),
        )


def _counts(offer: Offer | None) -> CountsDoc | None:
    if offer is None:
        return None
    healthy = sum(one.healthy for one in offer.devices())
    return CountsDoc(healthy=healthy, unhealthy=len(list(offer.devices())) - healthy)


def _moves(before: State, after: State) -> Iterator[MoveDoc]:
    """GPUs that are handed out otherwise than now."""
    homes_before, homes_after = _homes(before), _homes(after)
    for gpu in after.gpus:
        old, new = homes_before.get(gpu.uuid, "not listed"), homes_after.get(gpu.uuid, "not listed")
        if old != new:
            yield MoveDoc(index=gpu.index, uuid=gpu.uuid, product=gpu.product, before=old, after=new)


def _homes(state: State) -> Mapping[GpuUuid, str]:
    homes = {uuid: f"not listed: {reason}" for uuid, reason in state.plan.unlisted.items()}
    for resource in state.plan.resources:
        for group in resource.groups:
            homes[group.gpu] = f"{resource.name} x{group.replicas}" if group.replicas else str(resource.name)
    return homes


def _pods(after: State) -> Iterator[PodMattersDoc]:
    """Pods that hold a GPU under another identity or name than the config gives it, once for each GPU."""
    indices = {gpu.uuid: gpu.index for gpu in after.gpus}
    planned = {group.gpu: (plan.name, group.replicas) for plan in after.plan.resources for group in plan.groups}
    seen: set[tuple[str, str]] = set()
    for hold in sorted(after.holds.values(), key=lambda hold: (hold.resource, hold.id)):
        if hold.gpu is None or not _otherwise(hold, planned.get(hold.gpu)):
            continue
        pod = str(hold.pod or hold.pod_uid or "a pod not known yet")
        if (pod, hold.gpu) not in seen:
            seen.add((pod, hold.gpu))
            yield PodMattersDoc(
                pod=pod, index=indices.get(hold.gpu), uuid=hold.gpu, resource=hold.resource, held=hold.identity.value
            )


def _otherwise(hold: Hold, planned: tuple[ResourceName, int] | None) -> bool:
    if planned is None:
        return True
    name, replicas = planned
    return name != hold.resource or hold.identity is not (Identity.SHARED if replicas else Identity.WHOLE)


def _shared_at_once(after: State) -> bool:
    """holds: allow. New ids are handed out while pods hold the GPU under the old ones."""
    config: Config | None = after.config.config
    return config is not None and config.holds is HoldsPolicy.ALLOW


def _oversize(after: State) -> Iterator[str]:
    for over in after.plan.oversize:
        yield (
            f"{over.resource}: {over.replicas} replicas make a list of {over.bytes} bytes, the kubelet takes "
            f"{over.limit}; {over.largest} replicas fit"
        )


def _unserved(before: State, after: State) -> Iterator[str]:
    indices = {gpu.uuid: gpu.index for gpu in after.gpus}
    for uuid, reason in after.plan.unlisted.items():
        if _NOT_SERVED in reason and before.plan.unlisted.get(uuid) != reason:
            yield f"GPU {indices.get(uuid, uuid)} would not be listed: {reason}"
