"""State and Snapshot -> the document of ``/debug/state``. Pure.

What the kubelet was told comes from the snapshot and the plugins' reports, what ought to be from the plan, and why the
two differ from conditions and holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from reactor.model.condition import Condition, FaultClass
from reactor.model.gpu import Gpu
from reactor.model.hold import Hold
from reactor.model.ids import DeviceId, GpuUuid, ResourceName, parse_device_id
from reactor.model.snapshot import Offer, Snapshot
from reactor.plan import PlannedResource
from reactor.state import ConfigState, Fault, Plugin, State
from reactor.status.document import (
    VERSION,
    AgentDoc,
    ConditionDoc,
    ConfigDoc,
    DeviceDoc,
    Document,
    DriverDoc,
    FaultDoc,
    GpuDoc,
    HoldDoc,
    KubeletDoc,
    ProblemDoc,
    ResourceDoc,
    SentDoc,
)
from reactor.status.ready import why_unready


def describe(state: State, snapshot: Snapshot, tasks: Mapping[str, int] | None = None) -> Document:
    holds = sorted(state.holds.values(), key=lambda hold: (hold.resource, hold.id))
    return Document(
        v=VERSION,
        agent=_agent(state, tasks or {}),
        driver=_driver(state),
        config=_config(state.config, state),
        gpus=_gpus(state, holds),
        resources=_resources(state, snapshot, holds),
        kubelet=_kubelet(state),
        faults=[_fault(fault) for _, fault in sorted(state.faults.items())],
        holds=[_hold(hold) for hold in holds],
        leaving=[
            {"resource": key.resource, "id": key.id, "reason": leave.reason, "sent": leave.sent_at is not None}
            for key, leave in state.leaving.items()
        ],
        refused=[{"resource": key.resource, "id": key.id, "reason": reason} for key, reason in state.refused.items()],
        deadlines=dict(state.deadlines),
    )


def describe_device(name: str, state: State, snapshot: Snapshot) -> DeviceDoc:
    """One id as the kubelet sees it, in every list that has it."""
    one = DeviceId(name)
    ref = parse_device_id(name)
    planned = {plan.name for plan in state.plan.resources if ref and _is_planned(ref.gpu, ref.share, _shares(plan))}
    found = {offer.resource: offer.by_id[one] for offer in snapshot.offers.values() if one in offer.by_id}
    return DeviceDoc(
        id=name,
        gpu=ref.gpu if ref else None,
        share=ref.share if ref else None,
        planned=sorted(planned),
        listed=[
            {"resource": resource, "healthy": listed.healthy, "reason": listed.reason}
            for resource, listed in sorted(found.items())
        ],
        holds=[_hold(hold) for key, hold in state.holds.items() if key.id == one],
    )


def _agent(state: State, tasks: Mapping[str, int]) -> AgentDoc:
    unready = why_unready(state)
    return AgentDoc(
        version=state.version,
        run=state.run,
        boot=state.boot,
        simulated=state.simulated,
        started=state.started_wall,
        stopping=state.stopping,
        revision=state.revision,
        reloads=state.reloads,
        ready=not unready,
        unready=list(unready),
        tasks=dict(tasks),
    )


def _driver(state: State) -> DriverDoc:
    status = state.driver
    cuda = status.driver.cuda if status.driver else None
    return DriverDoc(
        state=status.state.value,
        error=status.error,
        version=status.driver.version if status.driver else "",
        cuda=f"{cuda[0]}.{cuda[1]}" if cuda else "",
        generation=status.generation,
        since=status.since,
    )


def _config(config: ConfigState, state: State) -> ConfigDoc:
    problems = [
        ProblemDoc(
            line=problem.line,
            column=problem.column,
            path=problem.path,
            message=problem.message,
            text=problem.render(config.rejected_path),
        )
        for problem in config.problems
    ]
    oversize = [
        f"{large.resource}: {large.replicas} replicas make a list of {large.bytes} bytes, the kubelet takes "
        f"{large.limit}; {large.largest} replicas fit"
        for large in state.plan.oversize
    ]
    unserved = config.config.unserved if config.config else ()
    return ConfigDoc(
        in_force=config.config is not None,
        origin=config.origin.value if config.origin else "",
        path=config.path,
        digest=config.digest,
        accepted=config.accepted_wall,
        rejected={"digest": config.rejected_digest, "path": config.rejected_path, "problems": problems}
        if problems
        else None,
        settings=[
            {"path": one.path, "value": one.value, "source": one.source.value, "name": one.name}
            for one in (config.config.settings if config.config else ())
        ],
        unserved=[{"path": key.path, "message": key.message} for key in unserved],
        notices=[*config.notes, *state.plan.notices, *oversize],
    )


def _gpus(state: State, holds: list[Hold]) -> list[GpuDoc]:
    """GPUs in index order, then those that are gone but still have a fault or a holder."""
    present = {gpu.uuid: gpu for gpu in state.gpus}
    gone = {hold.gpu for hold in holds if hold.gpu is not None} | {
        uuid for uuid, all_ in state.conditions.items() if all_
    }
    planned = {group.gpu: (plan.name, group.replicas) for plan in state.plan.resources for group in plan.groups}
    ordered: list[Gpu | GpuUuid] = [
        *sorted(present.values(), key=lambda gpu: gpu.index),
        *sorted(gone - present.keys()),
    ]
    return [_gpu(one, state, holds, planned) for one in ordered]


def _gpu(
    one: Gpu | GpuUuid, state: State, holds: list[Hold], planned: dict[GpuUuid, tuple[ResourceName, int]]
) -> GpuDoc:
    gpu, uuid = (one, one.uuid) if isinstance(one, Gpu) else (None, one)
    conditions = state.conditions.get(uuid, ())
    resource, replicas = planned.get(uuid, (None, 0))
    return GpuDoc(
        index=gpu.index if gpu else None,
        uuid=uuid,
        pci=gpu.pci if gpu else state.pci.get(uuid),
        minor=gpu.minor if gpu else None,
        product=gpu.product if gpu else "",
        memory=gpu.memory if gpu else None,
        numa=gpu.numa if gpu else None,
        mig=gpu.mig.value if gpu else "",
        recovery=gpu.recovery.value if gpu and gpu.recovery else None,
        monitored=gpu.monitored if gpu else False,
        health=health(conditions) if gpu else GONE,
        reasons=[condition.message for condition in conditions],
        conditions=[_condition(condition) for condition in conditions],
        resource=resource,
        replicas=replicas,
        unlisted=state.plan.unlisted.get(uuid, ""),
        holds=[_hold(hold) for hold in holds if hold.gpu == uuid],
    )


GONE = "gone"
"""In place of a health: the GPU is not there, and still has a fault or a holder."""
HEALTHS = ("healthy", "suspect", "unhealthy", "unknown")


def health(conditions: tuple[Condition, ...]) -> str:
    """One of ``HEALTHS``: suspect if only a part of the GPU has a fault, unknown if a call to it hangs."""
    whole = [condition for condition in conditions if condition.placement.whole]
    if not whole:
        return "suspect" if conditions else "healthy"
    hangs = all(condition.fault is FaultClass.UNREACHABLE and condition.reason == "hung" for condition in whole)
    return "unknown" if hangs else "unhealthy"


def _condition(condition: Condition) -> ConditionDoc:
    return ConditionDoc(
        fault=condition.fault.value,
        reason=condition.reason,
        message=condition.message,
        gi=condition.placement.gi,
        ci=condition.placement.ci,
        xid=condition.xid,
        since=condition.since,
        last=condition.last,
        count=condition.count,
        sticky=condition.sticky,
        needs_person=condition.needs_person,
        synthetic=condition.synthetic,
    )


def _resources(state: State, snapshot: Snapshot, holds: list[Hold]) -> list[ResourceDoc]:
    plans = {plan.name: plan for plan in state.plan.resources}
    held = Counter(hold.resource for hold in holds)
    names = sorted({*plans, *snapshot.offers, *state.kubelet.plugins})
    return [_resource(name, plans.get(name), snapshot.offers.get(name), state, held[name]) for name in names]


def _resource(
    name: ResourceName, plan: PlannedResource | None, offer: Offer | None, state: State, held: int
) -> ResourceDoc:
    shares = _shares(plan) if plan else {}
    devices = list(offer.devices()) if offer else []
    unhealthy = [device for device in devices if not device.healthy]
    plugin = state.kubelet.plugins.get(name)
    return ResourceDoc(
        name=name,
        planned=sum(max(replicas, 1) for replicas in shares.values()),
        healthy=len(devices) - len(unhealthy),
        unhealthy=len(unhealthy),
        tombstones=sum(not _is_planned(device.gpu, device.share, shares) for device in unhealthy),
        held=held,
        reasons=dict(Counter(device.reason for device in unhealthy if device.reason)),
        registered=plugin is not None and state.kubelet.took(plugin),
        socket=plugin.socket if plugin else "",
        streams=len(plugin.streams) if plugin else 0,
        sent=_sent(plugin),
        current=_current(plugin, offer),
    )


def _shares(plan: PlannedResource) -> Mapping[GpuUuid, int]:
    """How many shares of each GPU are planned, 0: the GPU as a whole."""
    return {group.gpu: group.replicas for group in plan.groups}


def _is_planned(gpu: GpuUuid | None, share: int | None, shares: Mapping[GpuUuid, int]) -> bool:
    replicas = shares.get(gpu) if gpu else None
    if replicas is None:
        return False
    return replicas == 0 if share is None else share < replicas


def _sent(plugin: Plugin | None) -> SentDoc | None:
    if plugin is None or plugin.sent_revision is None:
        return None
    return SentDoc(healthy=plugin.sent_healthy, unhealthy=plugin.sent_unhealthy, revision=plugin.sent_revision)


def _current(plugin: Plugin | None, offer: Offer | None) -> bool:
    if plugin is None or plugin.sent_revision is None or offer is None:
        return False
    return bool(plugin.streams) and plugin.sent_revision >= offer.revision


def _kubelet(state: State) -> KubeletDoc:
    kubelet, books = state.kubelet, state.books
    return KubeletDoc(
        registration=kubelet.registration.value,
        up=kubelet.there,
        reason="" if kubelet.there else kubelet.reason,
        life=kubelet.life,
        inode=kubelet.identity.inode if kubelet.identity else None,
        pods=len(books.pods),
        checkpoint_error=books.checkpoint_error,
        list_error=books.list_error,
    )


def _fault(fault: Fault) -> FaultDoc:
    return FaultDoc(name=fault.name, message=fault.message, since=fault.since, count=fault.count)


def _hold(hold: Hold) -> HoldDoc:
    return HoldDoc(
        resource=hold.resource,
        id=hold.id,
        gpu=hold.gpu,
        identity=hold.identity.value,
        pod=str(hold.pod) if hold.pod else None,
        pod_uid=hold.pod_uid,
        since=hold.since,
        ours=hold.ours,
        suspended=hold.suspended,
    )
