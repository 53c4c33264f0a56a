"""State -> the Snapshot that is advertised and allocated from. Pure.

Every planned id and every leaving id is listed. An id is Healthy only if its GPU has no condition, it is not withheld,
was not refused for its own fault, and is wanted. Ids are unique over resources: one that is still listed elsewhere
(renamed while held) is absent from its new resource until it is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from reactor.allocate import missing_node
from reactor.model.config import AllocationPolicy, Config, DeviceIdStrategy, DeviceListStrategy, HoldsPolicy
from reactor.model.gpu import DriverState, Gpu
from reactor.model.hold import Hold, HoldKey
from reactor.model.ids import DeviceId, GpuUuid, Identity, ResourceName, device_id, parse_device_id
from reactor.model.snapshot import AnswerPolicy, ById, Group, Listed, Offer, Snapshot
from reactor.model.value import replace
from reactor.plan import PlannedGroup, PlannedResource
from reactor.state import Leaving, State

NOTHING = Snapshot()


def moved(before: State, after: State) -> bool:
    """Whether a snapshot of ``after`` may differ from one of ``before``."""
    pairs = zip(_inputs(before), _inputs(after), strict=True)
    return any(one is not other for one, other in pairs) or _closing(before) != _closing(after)


def ready(state: State) -> bool:
    """Whether enough is known for a first list: a list that lacks what an earlier life offered would take it away.

    The config text of this life, who holds what, and whether NVML answers at all.
    """
    judged = state.config.config is not None and state.config.judged
    return judged and state.books.checkpoint_known and state.driver.state is not DriverState.UNKNOWN


def names(state: State) -> set[ResourceName]:
    """Resources that are listed: planned, with ids that still leave, or owing the kubelet an empty list."""
    if not ready(state):
        return set()
    planned = {resource.name for resource in state.plan.resources}
    return planned | {key.resource for key in state.leaving} | _closing(state)


def snapshot(state: State, previous: Snapshot = NOTHING) -> Snapshot:
    """What the kubelet shall see now. Offers and groups that did not change are the same objects as in ``previous``."""
    config = state.config.config
    if config is None or not ready(state):
        return Snapshot(revision=state.revision, grants=state.grants)
    lister = _Lister.of(state, config, previous)
    offers: dict[ResourceName, Offer] = {}
    for name in sorted(names(state)):
        offer, known = lister.offer(name), previous.offers.get(name)
        offers[name] = known if known is not None and replace(offer, revision=known.revision) == known else offer
    return Snapshot(
        revision=state.revision,
        grants=state.grants,
        offers=offers,
        answers=answers(state, config),
        guard=config.holds is HoldsPolicy.WAIT,
    )


def answers(state: State, config: Config) -> AnswerPolicy:
    flags = config.flags
    modes = (("GDRCOPY", flags.gdrcopy_enabled), ("GDS", flags.gds_enabled), ("MOFED", flags.mofed_enabled))
    return AnswerPolicy(
        envvar=DeviceListStrategy.ENVVAR in flags.device_list_strategy,
        volume_mounts=DeviceListStrategy.VOLUME_MOUNTS in flags.device_list_strategy,
        indices=flags.device_id_strategy is DeviceIdStrategy.INDEX,
        modes=tuple(f"NVIDIA_{mode}" for mode, on in modes if on),
        channels=config.imex.channels,
        channels_required=config.imex.required,
        packed=flags.shared_devices_allocation_policy is AllocationPolicy.PACKED,
        device_specs=flags.pass_device_specs,
        dev_root=flags.dev_root,
        nodes=state.nodes,
        nodes_known=state.scanned_at is not None,
    )


def trouble(state: State, gpu: GpuUuid) -> str:
    """Why a GPU's ids are not healthy, in a few words; empty if it has no condition."""
    conditions = state.conditions.get(gpu, ())
    return "; ".join(condition.message for condition in conditions[:2])


def withheld(state: State, gpu: GpuUuid, identity: Identity) -> str:
    """Why ids of ``identity`` of this GPU wait: a pod holds it under another one. Empty: nothing is in the way."""
    if state.config.config is None or state.config.config.holds is HoldsPolicy.ALLOW:
        return ""
    return _conflict(identity, (hold for hold in state.holds.values() if hold.gpu == gpu))


def waiting(state: State) -> bool:
    """Whether anything waits for the kubelet's books: a grant to be shown, or an id that a pod is to let go of.

    An id whose pod is still there is waited for if it keeps something back: it is no longer planned, or its GPU is
    planned under another identity. And any that this life of the kubelet has lost, or is about to write down.
    """
    planned = {group.gpu: group.replicas for resource in state.plan.resources for group in resource.groups}
    unwritten = state.kubelet.told is not None and not state.kubelet.wrote(state.books.looked_at)
    for key, hold in state.holds.items():
        if hold.granted_at is not None or key in state.leaving or pending(state, hold):
            return True
        if hold.suspended or (unwritten and not hold.in_checkpoint):
            return True
        if hold.gpu in planned and hold.identity is not (Identity.SHARED if planned[hold.gpu] else Identity.WHOLE):
            return True
    return False


def pending(state: State, hold: Hold) -> bool:
    """Whether the kubelet seems to be done with it, so that its books are worth asking for.

    An id of a plain init container is never in a List; the checkpoint has it as long as its pod is there.
    """
    if hold.granted_at is not None or hold.lacked_at is None or hold.suspended:
        return False
    return hold.key not in state.books.checkpoint_ids or hold.pod is None or hold.pod not in state.books.pods


def _inputs(state: State) -> tuple[object, ...]:
    """The parts of the state that a snapshot is made from."""
    return (
        state.plan,
        state.holds,
        state.leaving,
        state.refused,
        state.conditions,
        state.gpus,
        state.nodes,
        state.nudges,
        ready(state),
        state.config.config,
    )


def _conflict(identity: Identity, holds: Iterable[Hold]) -> str:
    for hold in holds:
        if hold.identity is not identity:
            who = f"pod {hold.pod}" if hold.pod else f"a pod ({hold.resource} {hold.id})"
            kind = "whole" if hold.identity is Identity.WHOLE else "in shares"
            return f"the GPU is held {kind} by {who} until that ends"
    return ""


def _closing(state: State) -> frozenset[ResourceName]:
    """Resources that nothing is planned in any more while the kubelet was last told of ids: they owe an empty list."""
    planned = {resource.name for resource in state.plan.resources}
    return frozenset(
        name
        for name, plugin in state.kubelet.plugins.items()
        if name not in planned and plugin.streams and plugin.sent_healthy + plugin.sent_unhealthy > 0
    )


class _Lister(Struct, frozen=True):
    """The parts of one state, looked up by GPU and by resource."""

    state: State
    planned: Mapping[ResourceName, PlannedResource]
    gpus: Mapping[GpuUuid, Gpu]
    holds: Mapping[GpuUuid, list[Hold]]
    leaving: Mapping[ResourceName, list[tuple[HoldKey, Leaving]]]
    elsewhere: Mapping[GpuUuid | None, Mapping[DeviceId, ResourceName]]
    """Where each held or leaving id of a GPU is listed: it is in no other resource meanwhile."""
    refused: Mapping[GpuUuid, list[HoldKey]]
    wait: bool
    answers: AnswerPolicy
    made: Mapping[object, Group]
    """Groups of the snapshot before, by what they were made of."""

    @classmethod
    def of(cls, state: State, config: Config, previous: Snapshot) -> _Lister:
        leaving: dict[ResourceName, list[tuple[HoldKey, Leaving]]] = {}
        elsewhere: dict[GpuUuid | None, dict[DeviceId, ResourceName]] = {}
        for key, leave in state.leaving.items():
            elsewhere.setdefault(leave.gpu, {})[key.id] = key.resource
            leaving.setdefault(key.resource, []).append((key, leave))
        holds: dict[GpuUuid, list[Hold]] = {}
        for key, hold in state.holds.items():  # after the leaving ones: a held id is listed where it is held
            elsewhere.setdefault(hold.gpu, {})[key.id] = key.resource
            if hold.gpu is not None:
                holds.setdefault(hold.gpu, []).append(hold)
        refused: dict[GpuUuid, list[HoldKey]] = {}
        for key in state.refused:
            ref = parse_device_id(key.id)
            if ref is not None:
                refused.setdefault(ref.gpu, []).append(key)
        return cls(
            state=state,
            planned={resource.name: resource for resource in state.plan.resources},
            gpus={gpu.uuid: gpu for gpu in state.gpus},
            holds=holds,
            leaving=leaving,
            elsewhere=elsewhere,
            refused=refused,
            wait=config.holds is HoldsPolicy.WAIT,
            answers=answers(state, config),
            made={
                group.made_of: group
                for offer in previous.offers.values()
                for group in offer.groups
                if isinstance(group, Group)
            },
        )

    def offer(self, name: ResourceName) -> Offer:
        resource = self.planned.get(name)
        groups = [self._planned(name, group) for group in resource.groups] if resource else []
        groups += self._tombstones(name)
        listed = tuple(group for group in groups if group)
        nudge = self.state.nudges.get(name)
        return Offer(
            resource=name,
            groups=listed,
            revision=self.state.revision,
            single=resource.single if resource else False,
            nudge=nudge.count if nudge else 0,
            topology=bool(listed) and all(group.placed for group in listed),
            by_id=ById(listed),
        )

    def _planned(self, name: ResourceName, group: PlannedGroup) -> Group:
        gpu = self.gpus[group.gpu]
        identity = Identity.SHARED if group.replicas else Identity.WHOLE
        reason = trouble(self.state, gpu.uuid) or self._missing_node(gpu)
        if not reason and self.wait:
            reason = _conflict(identity, self.holds.get(gpu.uuid, ()))
        recipe = _Recipe(
            resource=name,
            gpu=gpu.uuid,
            index=gpu.index,
            minor=gpu.minor,
            replicas=group.replicas,
            reason=reason,
            numa=() if gpu.numa is None else (gpu.numa,),
            strays=frozenset(one for one, home in self.elsewhere.get(gpu.uuid, {}).items() if home != name),
            faulty=tuple(
                (key.id, self.state.refused[key]) for key in self.refused.get(gpu.uuid, ()) if key.resource == name
            ),
            kept=self._kept(name, gpu.uuid),
        )
        return self.made.get(recipe) or recipe.make()

    def _kept(self, name: ResourceName, gpu: GpuUuid) -> tuple[tuple[DeviceId, str], ...]:
        """Ids of pods that the kubelet forgot."""
        if not self.wait:
            return ()
        return tuple(
            (hold.id, f"pod {hold.pod or hold.pod_uid or '?'} has it, which the kubelet's books have lost")
            for hold in self.holds.get(gpu, ())
            if hold.suspended and hold.resource == name
        )

    def _missing_node(self, gpu: Gpu) -> str:
        """Why a pod could not be given this GPU's device nodes, if it is to be given any."""
        node = missing_node(self.answers, gpu.minor)
        return f"{node} is missing on this node" if node else ""

    def _tombstones(self, name: ResourceName) -> list[Group]:
        left: dict[GpuUuid | None, list[_Left]] = {}
        for key, leave in sorted(self.leaving.get(name, ()), key=lambda pair: pair[0].id):
            hold = self.state.holds.get(key)
            held = f" and is held by pod {hold.pod}" if hold and hold.pod else " and is held" if hold else ""
            left.setdefault(leave.gpu, []).append((key.id, f"{leave.reason}{held}", leave.numa))
        return [self._left(name, uuid, tuple(ids)) for uuid, ids in left.items()]

    def _left(self, name: ResourceName, uuid: GpuUuid | None, ids: tuple[_Left, ...]) -> Group:
        gpu = self.gpus.get(uuid) if uuid else None
        place = (gpu.index, gpu.minor, gpu.numa) if gpu else None
        made_of = (name, uuid, place, ids)
        known = self.made.get(made_of)
        if known is not None:
            return known
        here = (gpu.numa,) if gpu and gpu.numa is not None else ()
        return Group(
            (
                Listed(
                    id=one,
                    gpu=uuid,
                    index=gpu.index if gpu else None,
                    minor=gpu.minor if gpu else None,
                    share=ref.share if (ref := parse_device_id(one)) else None,
                    healthy=False,
                    reason=reason,
                    numa=numa or here,
                )
                for one, reason, numa in ids
            ),
            made_of,
        )


_Left = tuple[DeviceId, str, tuple[int, ...]]
"""A tombstone: its id, why it is there, its NUMA nodes if they are known from when it was listed."""


class _Recipe(Struct, frozen=True, kw_only=True):
    """What a planned group is made of: the same recipe gives the same ids."""

    resource: ResourceName
    gpu: GpuUuid
    index: int
    minor: int
    replicas: int
    reason: str
    """Why none of the ids is healthy; empty: they are."""
    numa: tuple[int, ...]
    strays: frozenset[DeviceId]
    """Ids that another resource still lists."""
    faulty: tuple[tuple[DeviceId, str], ...]
    """Ids that were refused for their own fault, each with the reason."""
    kept: tuple[tuple[DeviceId, str], ...]
    """Ids that are healthy and not handed out, each with the reason."""

    def make(self) -> Group:
        faulty, kept = dict(self.faulty), dict(self.kept)
        shares = range(self.replicas) if self.replicas else (None,)
        ids = ((device_id(self.gpu, share), share) for share in shares)
        return Group(
            (
                Listed(
                    id=one,
                    gpu=self.gpu,
                    index=self.index,
                    minor=self.minor,
                    share=share,
                    healthy=not (self.reason or one in faulty),
                    reason=self.reason or faulty.get(one, "") or kept.get(one, ""),
                    kept=one in kept,
                    numa=self.numa,
                )
                for one, share in ids
                if one not in self.strays
            ),
            self,
        )
