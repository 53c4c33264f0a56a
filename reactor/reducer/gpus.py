"""Facts about GPUs and driver: who is there, what is wrong with whom. Decided by ``conditions``, kept here."""

from __future__ import annotations

from collections.abc import Mapping

from reactor import conditions as rules
from reactor.conditions.classes import in_force
from reactor.events import (
    EccReported,
    Event,
    FaultCleared,
    GpuLost,
    InventoryFailed,
    InventoryTaken,
    RecoveryActionChanged,
    XidReported,
)
from reactor.model.condition import Condition, FaultClass
from reactor.model.gpu import DriverState, FailureKind, Gpu, GpuFailure, Inventory
from reactor.model.ids import GpuUuid
from reactor.model.value import replace
from reactor.reducer import faults
from reactor.state import DriverStatus, State

RESYNC = "resync"
QUIET = "quiet"
MISSING_RESYNC = 2.0
"""Seconds between scans while a driver or a GPU is missing: nothing may tell of its return."""

UNREADABLE = "gpu.unreadable:"
MISSING_FOR = 600.0
"""How long a GPU that is gone is looked for that often; then it may well be gone for good."""

Conditions = Mapping[GpuUuid, tuple[Condition, ...]]


def inventory_taken(state: State, event: Event, fact: InventoryTaken) -> State:
    """A good scan: GPUs that answered may be mended, those that did not are marked, those not counted are gone."""
    inventory = fact.inventory
    rebound = state.driver.driver is not None and inventory.generation != state.driver.generation
    failed = _failed(state, inventory)
    found: dict[GpuUuid, tuple[Condition, ...]] = dict(state.conditions)
    relapses = dict(state.relapses)
    for gpu in inventory.gpus:
        before = found.get(gpu.uuid, ())
        after = rules.after_scan(
            state.policy,
            before,
            gpu,
            wall=event.wall,
            boot=state.boot,
            generation_changed=rebound,
            can_ask=_can_ask(state, inventory, gpu),
        )
        if after and not before:
            after = tuple(_judged(state, event, one, gpu.uuid) for one in after)
        elif before and not after:
            relapses[gpu.uuid] = _recent(state, (*relapses.get(gpu.uuid, ()), event.wall), event.wall)
        found[gpu.uuid] = after
    for known, failure in failed.items():
        condition = rules.judge_failure(failure.kind, failure.error, event.wall, state.boot, fact.synthetic)
        found[known.uuid] = _add(state, event, found.get(known.uuid, ()), condition, known.uuid)
    there = {gpu.uuid for gpu in inventory.gpus} | {gpu.uuid for gpu in failed}
    for gpu in state.gpus:
        if gpu.uuid not in there:
            gone = rules.judge_failure(
                FailureKind.LOST, "NVML does not count it any more", event.wall, state.boot, fact.synthetic
            )
            marked = _add(state, event, found.get(gpu.uuid, ()), gone, gpu.uuid)
            found[gpu.uuid] = rules.after_absence(marked)
    gpus = tuple(sorted((*inventory.gpus, *failed), key=lambda gpu: (gpu.index, gpu.uuid)))
    state = _with(state, found, relapses)
    state = _forget_replaced(state, gpus)
    state = _driver(state, event, DriverState.READY, "", inventory)
    state = replace(
        state,
        gpus=state.gpus if state.gpus == gpus else gpus,
        nodes=state.nodes if state.nodes == inventory.nodes else inventory.nodes,
        scanned_at=event.at,
        refused=state.refused and {},
    )
    state = _forget_strangers(_places(_unreadable(state, event, failed, inventory)), event)
    return _deadlines(state, event)


def _unreadable(state: State, event: Event, failed: Mapping[Gpu, GpuFailure], inventory: Inventory) -> State:
    """A GPU that never answered is no GPU to plan with; it is told of as a fault (NVM-01)."""
    known = set(failed.values())
    strangers = {f"{UNREADABLE}{one.pci or one.index}": one for one in inventory.failures if one not in known}
    for name in [name for name in state.faults if name.startswith(UNREADABLE) and name not in strangers]:
        state = faults.end(state, name)
    for name, one in strangers.items():
        state = faults.begin(state, event, name, f"GPU {one.index} does not answer ({one.kind}): {one.error}")
    return state


def inventory_failed(state: State, event: Event, fact: InventoryFailed) -> State:
    """NVML as a whole did not answer. Only where it said itself that there is no driver are the GPUs gone."""
    state = _driver(state, event, fact.state, fact.error, None)
    if fact.state.definite:
        found = {uuid: rules.after_absence(conditions) for uuid, conditions in state.conditions.items()}
        state = _with(state, found, state.relapses)
        if state.gpus:
            state = replace(state, gpus=())
    return _deadlines(state, event)


def xid_reported(state: State, event: Event, fact: XidReported) -> State:
    condition = rules.judge_xid(
        state.policy, fact.placement, fact.xid, event.wall, state.boot, synthetic=fact.synthetic
    )
    return _mark(state, event, fact.gpu, condition)


def ecc_reported(state: State, event: Event, fact: EccReported) -> State:
    condition = rules.judge_ecc(state.policy, fact.placement, event.wall, state.boot, synthetic=fact.synthetic)
    return _mark(state, event, fact.gpu, condition)


def gpu_lost(state: State, event: Event, fact: GpuLost) -> State:
    condition = rules.judge_failure(FailureKind.LOST, fact.error, event.wall, state.boot, synthetic=fact.synthetic)
    return _mark(state, event, fact.gpu, condition)


def recovery_changed(state: State, event: Event, fact: RecoveryActionChanged) -> State:
    """What the driver asks for is believed at once; that it asks for nothing any more is for the next scan to prove."""
    before = state.conditions.get(fact.gpu, ())
    after = rules.after_action(state.policy, before, fact.action, event.wall, state.boot, synthetic=fact.synthetic)
    if after and not before:
        after = tuple(_judged(state, event, one, fact.gpu) for one in after)
    return _deadlines(_places(_with(state, {**state.conditions, fact.gpu: after}, state.relapses)), event)


def fault_cleared(state: State, fact: FaultCleared) -> State:
    """A person vouches for the GPU: all that is held against it is forgotten, its relapses too."""
    if fact.gpu not in state.conditions and fact.gpu not in state.relapses:
        return state
    found = {uuid: conditions for uuid, conditions in state.conditions.items() if uuid != fact.gpu}
    relapses = {uuid: times for uuid, times in state.relapses.items() if uuid != fact.gpu}
    return _places(replace(state, conditions=found, relapses=relapses))


def rules_changed(state: State, event: Event) -> State:
    """The config may say otherwise what XIDs mean: faults that are none any more are lifted, nothing is judged anew."""
    if state.config.config is None:
        return state
    policy = in_force(state.environment, state.config.config.health)
    if policy == state.policy:
        return state
    found = {uuid: rules.relieved(policy, known) for uuid, known in state.conditions.items()}
    state = _with(replace(state, policy=policy), found, state.relapses)
    return _deadlines(_places(state), event)


def _mark(state: State, event: Event, gpu: GpuUuid, condition: Condition | None) -> State:
    """Also a GPU that no scan has shown yet: it is watched before it is counted, and its first scan is to find this."""
    if condition is None:
        return state
    marked = _add(state, event, state.conditions.get(gpu, ()), condition, gpu)
    return _deadlines(_places(_with(state, {**state.conditions, gpu: marked}, state.relapses)), event)


def _add(
    state: State, event: Event, existing: tuple[Condition, ...], condition: Condition, gpu: GpuUuid
) -> tuple[Condition, ...]:
    """Merge a condition into those that the GPU has."""
    return rules.merge(existing, condition if existing else _judged(state, event, condition, gpu))


def _judged(state: State, event: Event, condition: Condition, gpu: GpuUuid) -> Condition:
    """The first condition after too many lifted ones needs a person."""
    if rules.relapsed(state.policy, state.relapses.get(gpu, ()), event.wall):
        return replace(condition, needs_person=True)
    return condition


def _forget_strangers(state: State, event: Event) -> State:
    """What was told of a GPU that has not shown itself for so long since concerns none of this node."""
    known = {gpu.uuid for gpu in state.gpus} | state.pci.keys()
    void = {
        uuid
        for uuid, found in state.conditions.items()
        if uuid not in known and all(event.wall - one.since > MISSING_FOR for one in found)
    }
    if not void:
        return state
    return replace(state, conditions={uuid: found for uuid, found in state.conditions.items() if uuid not in void})


def _failed(state: State, inventory: Inventory) -> Mapping[Gpu, GpuFailure]:
    """Which known GPU each failure of the scan is about: by UUID, by PCI address, else by its old index."""
    answered = {gpu.uuid for gpu in inventory.gpus}
    silent = [gpu for gpu in state.gpus if gpu.uuid not in answered]
    matched: dict[Gpu, GpuFailure] = {}
    unclear: list[GpuFailure] = []
    for failure in inventory.failures:
        known = next((gpu for gpu in silent if gpu.uuid == failure.uuid or gpu.pci == failure.pci), None)
        if known is not None:
            matched[known] = failure
        elif failure.uuid is None and failure.pci is None:
            unclear.append(failure)
    for failure in unclear:
        known = next((gpu for gpu in silent if gpu not in matched and gpu.index == failure.index), None)
        if known is not None:
            matched[known] = failure
    return matched


def _can_ask(state: State, inventory: Inventory, gpu: Gpu) -> bool:
    """Whether a GPU like this one has answered the question for its recovery action."""
    return any(other.recovery is not None and other.product == gpu.product for other in (*state.gpus, *inventory.gpus))


def _recent(state: State, times: tuple[float, ...], wall: float) -> tuple[float, ...]:
    return tuple(at for at in times if wall - at <= state.policy.relapse_window)


def _with(state: State, conditions: Conditions, relapses: Mapping[GpuUuid, tuple[float, ...]]) -> State:
    """The state with these conditions; the same objects where nothing moved."""
    kept = {uuid: found for uuid, found in conditions.items() if found}
    if kept == state.conditions and all(kept[uuid] is state.conditions[uuid] for uuid in kept):
        kept_or_same: Conditions = state.conditions
    else:
        kept_or_same = kept
    if kept_or_same is state.conditions and relapses == state.relapses:
        return state
    return replace(state, conditions=kept_or_same, relapses=relapses)


def _forget_replaced(state: State, gpus: tuple[Gpu, ...]) -> State:
    """Another GPU sits where one was held to be faulty: what was held against that one is void."""
    void = rules.replaced(state.pci, gpus)
    if not void:
        return state
    return replace(
        state,
        conditions={uuid: found for uuid, found in state.conditions.items() if uuid not in void},
        relapses={uuid: times for uuid, times in state.relapses.items() if uuid not in void},
    )


def _places(state: State) -> State:
    """Keep where GPUs with conditions sit, for the time after they are gone."""
    here = {gpu.uuid: gpu.pci for gpu in state.gpus}
    pci = {uuid: here.get(uuid) or state.pci.get(uuid) for uuid in state.conditions}
    places = {uuid: place for uuid, place in pci.items() if place is not None}
    return state if places == state.pci else replace(state, pci=places)


def _driver(state: State, event: Event, now: DriverState, error: str, inventory: Inventory | None) -> State:
    known = state.driver
    status = DriverStatus(
        state=now,
        error=error,
        driver=inventory.driver if inventory else None if now.definite else known.driver,
        generation=inventory.generation if inventory else known.generation,
        since=known.since if known.state is now else event.wall,
    )
    if status != known:
        state = replace(state, driver=status)
    broken = now not in (DriverState.READY, DriverState.ABSENT)
    return faults.stand(state, event, "driver", f"{now}: {error}" if broken else "")


def _deadlines(state: State, event: Event) -> State:
    """When to scan again: soon while something is missing, at the end of a quiet time, else after the resync time."""
    missing = state.driver.state is not DriverState.READY or any(
        condition.fault is FaultClass.UNREACHABLE and event.wall - condition.since < MISSING_FOR
        for found in state.conditions.values()
        for condition in found
    )
    deadlines = dict(state.deadlines)
    if isinstance(event.fact, InventoryTaken | InventoryFailed):
        deadlines[RESYNC] = event.at + (min(MISSING_RESYNC, state.resync) if missing else state.resync)
    times = [rules.quiet_until(state.policy, found) for found in state.conditions.values()]
    coming = [time for time in times if time is not None and time > event.wall]
    if coming:
        deadlines[QUIET] = event.at + min(coming) - event.wall + 0.01
    else:
        deadlines.pop(QUIET, None)
    return state if deadlines == state.deadlines else replace(state, deadlines=deadlines)
