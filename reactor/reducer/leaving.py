"""The plan, and the ids that leave it: listed Unhealthy until no pod holds them and the kubelet has had time to see it.

An id that was listed and is no longer planned becomes ``leaving``. It goes when it is not held and 5 s have passed
since a live stream carried it as Unhealthy (the kubelet picks an id before its Allocate arrives); without a live
stream nobody was told of it and it goes at once. A held id that is not planned is always leaving: that is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from reactor import plan as planning
from reactor.events import Advertised, Event, Refused
from reactor.model.hold import Hold, HoldKey
from reactor.model.ids import GpuUuid, ResourceName, device_id, parse_device_id
from reactor.model.value import replace
from reactor.plan import Plan, PlannedGroup
from reactor.reducer import faults
from reactor.state import Leaving, State

DROP_AFTER = 5.0
DEADLINE = "leaving"

Planned = Mapping[GpuUuid, tuple[ResourceName, int]]
"""For each planned GPU its resource and its replicas (0: whole)."""


def index(plan: Plan) -> Planned:
    return {group.gpu: (resource.name, group.replicas) for resource in plan.resources for group in resource.groups}


def is_planned(planned: Planned, key: HoldKey) -> bool:
    ref = parse_device_id(key.id)
    if ref is None:
        return False
    resource, replicas = planned.get(ref.gpu, (None, 0))
    if resource != key.resource:
        return False
    return replicas == 0 if ref.share is None else ref.share < replicas


def serves(state: State, resource: ResourceName) -> bool:
    """Whether ``resource`` is ours to list: planned, or already served."""
    return resource in state.kubelet.plugins or any(planned.name == resource for planned in state.plan.resources)


def settle(before: State, after: State, event: Event) -> State:
    """Let plan and leaving ids follow from whatever changed."""
    if after is before:
        return after
    inputs = after.config.config is not before.config.config or after.gpus is not before.gpus
    if inputs or (after.plan.oversize and after.leaving is not before.leaving):
        after = _replan(after, event)
    after = _claim(before, after)
    if (
        after.plan is not before.plan
        or after.holds is not before.holds
        or after.leaving is not before.leaving
        or after.kubelet.plugins is not before.kubelet.plugins
        or after.deadlines is not before.deadlines
    ):
        after = _settle_leaving(before, after, event)
    return after


def advertised(state: State, event: Event, fact: Advertised) -> State:
    """A list went out: ids that were already leaving when it was made have been seen Unhealthy now."""
    plugin = state.kubelet.plugins.get(fact.resource)
    if plugin is None or fact.stream not in plugin.streams:
        return state
    marked: dict[int, Leaving] = {}  # by id(): ids that began to leave together share one object
    seen: dict[HoldKey, Leaving] = {}
    for key, leave in state.leaving.items():
        if key.resource == fact.resource and leave.sent_at is None and fact.revision >= leave.revision:
            if id(leave) not in marked:
                marked[id(leave)] = replace(leave, sent_at=event.at)
            seen[key] = marked[id(leave)]
    return replace(state, leaving={**state.leaving, **seen}) if seen else state


def refused(state: State, event: Event, fact: Refused) -> State:
    """The kubelet still picked an id that leaves: its time starts anew."""
    again = {
        key: replace(state.leaving[key], sent_at=event.at)
        for key in (HoldKey(fact.resource, one) for one in fact.ids)
        if key in state.leaving and state.leaving[key].sent_at is not None
    }
    return replace(state, leaving={**state.leaving, **again}) if again else state


def _claim(before: State, after: State) -> State:
    """Holds of planned resources are ours, also those that the kubelet's books told of before there was a plan."""
    if after.plan is before.plan and after.holds is before.holds:
        return after
    planned = {resource.name for resource in after.plan.resources}
    claimed = {
        key: replace(hold, ours=True) for key, hold in after.holds.items() if not hold.ours and key.resource in planned
    }
    return replace(after, holds={**after.holds, **claimed}) if claimed else after


def _replan(state: State, event: Event) -> State:
    if state.config.config is None:
        return state
    reserved: dict[ResourceName, list[str]] = {}
    for key in state.leaving:
        reserved.setdefault(key.resource, []).append(key.id)
    sizes = {name: planning.tombstone_size(ids, numa=True) for name, ids in reserved.items()}
    plan = planning.make_plan(state.config.config, state.gpus, sizes)
    for over in plan.oversize:
        text = (
            f"{over.resource}: {over.replicas} replicas make a list of {over.bytes} bytes, the kubelet takes"
            f" {over.limit}; the largest number that fits is {over.largest}; the list before stays"
        )
        state = faults.begin(state, event, f"plan.oversize:{over.resource}", text)
    large = {f"plan.oversize:{over.resource}" for over in plan.oversize}
    for name in [name for name in state.faults if name.startswith("plan.oversize:") and name not in large]:
        state = faults.end(state, name)
    plan = _keep_oversize(state, plan)
    return state if plan == state.plan else replace(state, plan=plan)


def _keep_oversize(state: State, plan: Plan) -> Plan:
    """GPUs whose new resource would not fit stay in the one that they were in."""
    left = {gpu for over in plan.oversize for gpu in over.gpus}
    if not left:
        return plan
    resources = {resource.name: resource for resource in plan.resources}
    kept: set[GpuUuid] = set()
    for before in state.plan.resources:
        groups = tuple(group for group in before.groups if group.gpu in left)
        if not groups:
            continue
        kept.update(group.gpu for group in groups)
        now = resources.get(before.name)
        resources[before.name] = replace(now or before, groups=(now.groups if now else ()) + groups)
    return replace(
        plan,
        resources=tuple(resources[name] for name in sorted(resources)),
        unlisted={gpu: reason for gpu, reason in plan.unlisted.items() if gpu not in kept},
    )


def _settle_leaving(before: State, after: State, event: Event) -> State:
    planned = index(after.plan)
    leaving = dict(after.leaving)
    if after.plan is not before.plan:
        for key in [key for key in leaving if is_planned(planned, key)]:
            del leaving[key]
        leaving.update(_dropped(before, after, planned, leaving, event))
    for key, hold in _doubtful(before, after):
        if key in leaving or is_planned(planned, key):
            continue
        if serves(after, key.resource) or hold.ours:
            leaving[key] = Leaving(gpu=hold.gpu, numa=hold.numa, revision=event.seq, reason="is no longer offered")
    due: list[float] = []
    for key, leave in list(leaving.items()):
        if key in after.holds:
            continue
        plugin = after.kubelet.plugins.get(key.resource)
        live = plugin is not None and bool(plugin.streams)
        if not live or (leave.sent_at is not None and event.at >= leave.sent_at + DROP_AFTER):
            del leaving[key]
        elif leave.sent_at is not None:
            due.append(leave.sent_at + DROP_AFTER)
    if leaving != after.leaving:
        after = replace(after, leaving=leaving)
    return _with_deadline(after, min(due, default=None))


def _doubtful(before: State, after: State) -> Iterable[tuple[HoldKey, Hold]]:
    """Holds that may not be planned: after another plan all of them, else those that moved."""
    if after.plan is not before.plan or after.kubelet.plugins.keys() != before.kubelet.plugins.keys():
        return after.holds.items()
    if after.holds is before.holds:
        return ()
    return ((key, hold) for key, hold in after.holds.items() if before.holds.get(key) is not hold)


def _dropped(
    before: State, after: State, planned: Planned, leaving: Mapping[HoldKey, Leaving], event: Event
) -> Iterator[tuple[HoldKey, Leaving]]:
    """Ids of the plan before that the plan now lacks and that a live stream may have shown."""
    known = {gpu.uuid: gpu for gpu in before.gpus}
    # What another resource still lists is absent from this one (see view): it was never shown here, and is not to go.
    elsewhere = {key.id: key.resource for key in (*before.leaving, *before.holds, *leaving)}
    for resource in before.plan.resources:
        plugin = after.kubelet.plugins.get(resource.name)
        if plugin is None or not plugin.streams or plugin.sent_revision is None:
            continue
        for group in resource.groups:
            now, replicas = planned.get(group.gpu, (None, 0))
            gpu = known.get(group.gpu)
            numa = () if gpu is None or gpu.numa is None else (gpu.numa,)
            leave = Leaving(gpu=group.gpu, numa=numa, revision=event.seq, reason="is no longer offered")
            for share in _lost_shares(group, replicas if now == resource.name else None):
                key = HoldKey(resource.name, device_id(group.gpu, share))
                if key not in leaving and elsewhere.get(key.id, key.resource) == key.resource:
                    yield key, leave


def _lost_shares(group: PlannedGroup, replicas: int | None) -> Sequence[int | None]:
    """Shares of a group that are planned no more. ``replicas``: what its GPU has in that resource, None: nothing."""
    if replicas == group.replicas:
        return ()
    if not group.replicas:
        return (None,)
    return range(replicas or 0, group.replicas)


def _with_deadline(state: State, due: float | None) -> State:
    if state.deadlines.get(DEADLINE) == due:
        return state
    deadlines = {name: at for name, at in state.deadlines.items() if name != DEADLINE}
    if due is not None:
        deadlines[DEADLINE] = due
    return replace(state, deadlines=deadlines)
