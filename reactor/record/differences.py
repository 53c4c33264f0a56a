"""What changed between two states, told whoever changed it: config, driver, GPUs, plan, holds. Pure.

A slice that is the same object did not change, so that an event that moved nothing costs a dozen comparisons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from reactor.events import Event
from reactor.model.condition import Condition, FaultClass
from reactor.model.gpu import DriverState
from reactor.model.hold import Hold, HoldKey
from reactor.model.ids import GpuUuid, ResourceName
from reactor.record import catalogue, served
from reactor.record.changes import config_changes
from reactor.record.line import SHOWN, Level, Line
from reactor.record.look import address, cut, many, name
from reactor.state import State


def differences(event: Event, before: State, after: State) -> Iterator[Line]:
    """Every difference that is worth a line."""
    yield from _config(before, after)
    yield from _driver(before, after)
    if before.gpus is not after.gpus:
        yield from _gpus(before, after)
    if before.conditions is not after.conditions:
        yield from _conditions(event, before, after)
    if before.plan is not after.plan:
        yield from _plan(before, after)
    if before.holds is not after.holds or before.books.looked_life != after.books.looked_life:
        yield from _holds(event, before, after)
    if not _settled(before) and _settled(after):
        count = len(after.plan.resources)
        yield catalogue.AgentSettled(count=count, msg=f"{many(count, 'resource')} registered and listed")


def _config(before: State, after: State) -> Iterator[Line]:
    new = after.config
    if new.config is None or new.config is before.config.config:
        return
    changes = config_changes(before.config.config, new.config)
    if not changes and before.config.config is not None:
        return
    told = ", ".join(change.path for change in changes[:SHOWN]) or "the defaults"
    yield catalogue.ConfigApplied(
        digest=new.digest, changes=changes[:SHOWN], count=len(changes), msg=f"config in force: {told}"
    )


def _driver(before: State, after: State) -> Iterator[Line]:
    old, new = before.driver.state, after.driver.state
    if new is old:
        return
    error = after.driver.error
    if new is DriverState.READY:
        version = after.driver.driver.version if after.driver.driver else ""
        yield catalogue.DriverFound(
            driver=version, generation=after.driver.generation, msg=f"NVML answers, driver {version or 'unknown'}"
        )
    elif new is DriverState.MISMATCH:
        yield catalogue.DriverMismatched(error=error, msg=f"driver library and module disagree: {error}")
    elif old is DriverState.READY:
        yield catalogue.DriverLost(state=new.value, error=error, msg=f"NVML no longer answers ({new.value}): {error}")


# ---------------------------------------------------------------- GPUs


def _gpus(before: State, after: State) -> Iterator[Line]:
    old = {gpu.uuid: gpu for gpu in before.gpus}
    new = {gpu.uuid: gpu for gpu in after.gpus}
    added = [uuid for uuid in new if uuid not in old]
    removed = [uuid for uuid in old if uuid not in new]
    changed = [uuid for uuid, gpu in new.items() if uuid in old and gpu != old[uuid]]
    if not (added or removed or changed):
        return
    told = f"{many(len(new), 'GPU')}: {len(added)} new, {len(removed)} gone, {len(changed)} changed"
    yield catalogue.InventoryTaken(
        gpus_added=cut(added), gpus_removed=cut(removed), gpus_changed=cut(changed), count=len(new), msg=told
    )
    for uuid in added:
        gpu = new[uuid]
        yield catalogue.GpuAdded(
            gpu=uuid,
            pci=gpu.pci,
            index=gpu.index,
            product=gpu.product,
            memory=gpu.memory,
            msg=f"GPU {gpu.index} is here: {gpu.product} at {gpu.pci}",
        )
    for uuid in removed:
        yield catalogue.GpuRemoved(gpu=uuid, pci=old[uuid].pci, msg=f"GPU {old[uuid].index} is gone: {uuid}")
    for uuid, gpu in new.items():
        if not gpu.monitored and (uuid not in old or old[uuid].monitored):
            told = f"GPU {gpu.index} reports no XIDs: only scans show its faults"
            yield catalogue.GpuUnmonitored(gpu=uuid, pci=gpu.pci, msg=told)


def _conditions(event: Event, before: State, after: State) -> Iterator[Line]:
    for gpu in dict.fromkeys((*before.conditions, *after.conditions)):
        old, new = before.conditions.get(gpu, ()), after.conditions.get(gpu, ())
        if old is new:
            continue
        known = {condition.key: condition for condition in old}
        for condition in new:
            was = known.pop(condition.key, None)
            if was is None or (condition.needs_person and not was.needs_person):
                yield _condemned(gpu, condition, before, after)
        if known:
            yield _recovered(gpu, tuple(known.values()), len(new), event, before, after)


def _condemned(gpu: GpuUuid, condition: Condition, before: State, after: State) -> Line:
    pci, who = address(gpu, after, before), name(gpu, after, before)
    person = ", only a person lifts it" if condition.needs_person else ""
    if condition.fault is FaultClass.UNREACHABLE and condition.reason == "lost":
        return catalogue.GpuLost(
            gpu=gpu,
            pci=pci,
            fault=condition.fault.value,
            reason=condition.reason,
            error=condition.message,
            needs_person=condition.needs_person,
            synthetic=condition.synthetic,
            msg=f"{who} cannot be reached{person}: {condition.message}",
        )
    return catalogue.GpuCondemned(
        gpu=gpu,
        pci=pci,
        fault=condition.fault.value,
        reason=condition.reason,
        error=condition.message,
        xid=condition.xid,
        gi=condition.placement.gi,
        ci=condition.placement.ci,
        needs_person=condition.needs_person,
        synthetic=condition.synthetic,
        msg=f"{who} is unhealthy ({condition.fault.value}{person}): {condition.message}",
    )


def _recovered(
    gpu: GpuUuid, lifted: tuple[Condition, ...], remaining: int, event: Event, before: State, after: State
) -> Line:
    seconds = max(event.wall - min(condition.since for condition in lifted), 0.0)
    state = f"{many(remaining, 'reason')} left" if remaining else f"healthy again after {seconds:.0f} s"
    return catalogue.GpuRecovered(
        gpu=gpu,
        pci=address(gpu, after, before),
        reasons=cut(dict.fromkeys(condition.reason for condition in lifted)),
        remaining=remaining,
        seconds=round(seconds, 3),
        synthetic=event.fact.synthetic,
        msg=f"{name(gpu, after, before)}: {state}",
    )


# ---------------------------------------------------------------- plan, holds


def _plan(before: State, after: State) -> Iterator[Line]:
    plan = after.plan
    if plan == before.plan or after.scanned_at is None:
        return  # before the first scan a plan says only that nothing is known
    resources = tuple(
        catalogue.PlannedShare(
            resource=resource.name,
            gpus=len(resource.groups),
            devices=sum(max(group.replicas, 1) for group in resource.groups),
        )
        for resource in plan.resources
    )
    oversize = tuple(
        f"{over.resource}: {over.replicas} replicas make {over.bytes} bytes, at most {over.largest} fit"
        for over in plan.oversize
    )
    told = ", ".join(f"{share.resource} {share.devices} on {many(share.gpus, 'GPU')}" for share in resources[:SHOWN])
    yield catalogue.PlanMade(
        level=Level.WARNING if oversize else Level.INFO,
        resources=resources[:SHOWN],
        count=len(resources),
        unlisted=len(plan.unlisted),
        oversize=cut(oversize),
        notices=cut(plan.notices),
        msg=f"planned: {told or 'nothing'}",
    )


def _holds(event: Event, before: State, after: State) -> Iterator[Line]:
    begun = [hold for key, hold in after.holds.items() if key not in before.holds]
    ended = [hold for key, hold in before.holds.items() if key not in after.holds]
    for (resource, pod), holds in _grouped(begun).items():
        yield served.HoldBegun(
            resource=resource,
            ids=cut(hold.id for hold in holds),
            count=len(holds),
            pod=pod,
            msg=f"{many(len(holds), 'id')} of {resource} held" + (f" by {pod}" if pod else ""),
        )
    for (resource, pod), holds in _grouped(ended).items():
        seconds = max(event.wall - min(hold.since for hold in holds), 0.0)
        yield served.HoldEnded(
            resource=resource,
            ids=cut(hold.id for hold in holds),
            count=len(holds),
            pod=pod,
            seconds=round(seconds, 3),
            msg=f"{many(len(holds), 'id')} of {resource} free" + (f", {pod} had them" if pod else ""),
        )
    known = _forgotten(before)
    for (resource, pod), holds in _grouped(h for key, h in _forgotten(after).items() if key not in known).items():
        told = f"{many(len(holds), 'id')} of {resource}"
        yield served.HoldSuspended(
            resource=resource,
            ids=cut(hold.id for hold in holds),
            count=len(holds),
            pod=pod,
            msg=f"kubelet forgot who has {told}: kept for {pod or 'the pod'} until that ends",
        )


def _forgotten(state: State) -> dict[HoldKey, Hold]:
    """Suspended holds, once the books of this life of the kubelet were looked at: they might have shown them."""
    if state.books.looked_life != state.kubelet.life:
        return {}
    return {key: hold for key, hold in state.holds.items() if hold.suspended}


def _grouped(holds: Iterable[Hold]) -> dict[tuple[ResourceName, str], list[Hold]]:
    groups: dict[tuple[ResourceName, str], list[Hold]] = defaultdict(list)
    for hold in holds:
        groups[hold.resource, str(hold.pod or "")].append(hold)
    return groups


def _settled(state: State) -> bool:
    kubelet = state.kubelet
    if not kubelet.there or not state.plan.resources:
        return False
    return all(
        (plugin := kubelet.plugins.get(resource.name)) is not None
        and kubelet.took(plugin)
        and plugin.sent_revision is not None
        for resource in state.plan.resources
    )
