"""Evidence -> Condition, and what lifts it. Pure: times come in as arguments.

A condition says why a GPU is not healthy. Evidence makes one (``judge_*``), more of the same folds into it (``merge``),
and only evidence lifts it, by the class of the fault (``after_scan``, design.md 10):

========= ==========================================================================================================
reset     the driver was re-bound, the device was gone and came back, the driver asked for an action and no longer
          does, or the node booted anew
restart   the node booted anew
hardware  a person (``FaultCleared``), or another UUID at that PCI address (``replaced``)
unknown,  the GPU answered, nothing is asked where the driver can ask, and a quiet time since the newest evidence
unreachable
========= ==========================================================================================================

All of that is looked at only when a scan got an answer from this GPU through its handle, so that no GPU is called
mended while it does not answer (HLT-05), and nothing lifts while the driver asks for an action.

Which XID is of which class is for ``classes`` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reactor.conditions.classes import FAULTS, classify
from reactor.model.condition import FOREVER, WHOLE_GPU, Condition, FaultClass, Placement, Policy
from reactor.model.gpu import FailureKind, Gpu, RecoveryAction
from reactor.model.ids import GpuUuid, PciAddress
from reactor.model.value import replace

Conditions = tuple[Condition, ...]

_DOUBLE_BIT_ECC = 48

_NAMES = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    62: "internal micro-controller halt",
    64: "row remapping or page retirement failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained ECC error",
    109: "context switch timeout",
    119: "GSP timeout",
    120: "GSP error",
    140: "unrecovered ECC error",
}

_REMEDIES = {
    FaultClass.RESET: "needs a GPU reset",
    FaultClass.RESTART: "needs a reboot of the node",
    FaultClass.HARDWARE: "needs a person",
    FaultClass.UNKNOWN: "returns when quiet",
}


# ---------------------------------------------------------------- judging


def judge_xid(
    policy: Policy, placement: Placement, xid: int, wall: float, boot: str, synthetic: bool = False
) -> Condition | None:
    """None: an XID of the application, or ignored. It is recorded, the device stays Healthy (HLT-01)."""
    name = f"XID {xid} ({_NAMES[xid]})" if xid in _NAMES else f"XID {xid}"
    return _event(policy, xid, "xid", name, placement, wall, boot, synthetic)


def judge_ecc(
    policy: Policy, placement: Placement, wall: float, boot: str, synthetic: bool = False
) -> Condition | None:
    """A double-bit ECC event that came without its XID: judged as XID 48 is (HLT-17)."""
    return _event(policy, _DOUBLE_BIT_ECC, "ecc", _NAMES[_DOUBLE_BIT_ECC], placement, wall, boot, synthetic)


def _event(
    policy: Policy, xid: int, reason: str, name: str, placement: Placement, wall: float, boot: str, synthetic: bool
) -> Condition | None:
    fault = FAULTS.get(classify(policy, xid))
    if fault is None:
        return None
    return Condition(
        fault=fault,
        reason=reason,
        message=f"{name}: {_REMEDIES[fault]}",
        placement=placement,
        xid=xid if reason == "xid" else None,
        since=wall,
        last=wall,
        boot=boot,
        synthetic=synthetic,
    )


def judge_failure(kind: FailureKind, error: str, wall: float, boot: str, synthetic: bool = False) -> Condition:
    """A GPU that does not answer, by a scan or by word (``GpuLost``). No policy overrules that it cannot be used."""
    asks = kind is FailureKind.RESET_REQUIRED
    fault = FaultClass.RESET if asks else FaultClass.UNREACHABLE
    says = "the driver wants a reset" if asks else f"does not answer ({kind})"
    return Condition(
        fault=fault,
        reason=kind.value,
        message=f"{says}: {error}" if error else says,
        placement=WHOLE_GPU,
        since=wall,
        last=wall,
        boot=boot,
        action_seen=asks,
        synthetic=synthetic,
    )


def judge_action(
    policy: Policy, action: RecoveryAction | None, wall: float, boot: str, synthetic: bool = False
) -> Condition | None:
    """What the driver asks for, on a GPU that nothing else is known against. DRAIN_P2P condemns nobody."""
    if not _asks(action) or (policy.disable_all and not policy.enable_all):
        return None
    reboot = action is RecoveryAction.REBOOT
    return Condition(
        fault=FaultClass.RESTART if reboot else FaultClass.RESET,
        reason=FailureKind.RESET_REQUIRED.value,
        message=f"the driver asks for a recovery action: {action}",
        since=wall,
        last=wall,
        boot=boot,
        action_seen=True,
        synthetic=synthetic,
    )


def _asks(action: RecoveryAction | None) -> bool:
    return action not in (None, RecoveryAction.NONE, RecoveryAction.DRAIN_P2P)


# ---------------------------------------------------------------- folding

_SEVERITY = [FaultClass.HARDWARE, FaultClass.RESTART, FaultClass.RESET, FaultClass.UNREACHABLE, FaultClass.UNKNOWN]
_EVENTS = ("xid", "ecc")
_QUIET = (FaultClass.UNKNOWN, FaultClass.UNREACHABLE)


def _rank(condition: Condition) -> tuple[int, str, int, int, int]:
    """Worst first; independent of the order in which the evidence came (design.md 7, invariant 9)."""
    place = condition.placement
    numbers = [-1 if number is None else number for number in (place.gi, place.ci, condition.xid)]
    return (_SEVERITY.index(condition.fault), condition.reason, numbers[0], numbers[1], numbers[2])


MOST = 32
"""Conditions of one GPU that are kept apart."""


def merge(existing: Conditions, new: Condition) -> Conditions:
    """Add a condition, or fold it into the one of its key. The same object comes back if that changes nothing.

    Events are counted, each one. What a scan finds is a level that may be found every two seconds: it is not counted,
    and only where a quiet time runs from it does it move ``last``. Beyond ``MOST`` a further one only counts with the
    last of its class: a GPU that makes up codes must not cost more with each.
    """
    if len(existing) >= MOST and all(known.key != new.key for known in existing):
        alike = next((known for known in reversed(existing) if known.fault is new.fault), None)
        if alike is not None:
            new = replace(new, message=alike.message, reason=alike.reason, placement=alike.placement, xid=alike.xid)
    for position, known in enumerate(existing):
        if known.key == new.key:
            folded = _fold(known, new)
            if folded == known:
                return existing
            return (*existing[:position], folded, *existing[position + 1 :])
    return tuple(sorted((*existing, new), key=_rank))


def _fold(known: Condition, new: Condition) -> Condition:
    event = new.reason in _EVENTS
    return replace(
        known,
        message=new.message,
        since=min(known.since, new.since),
        last=max(known.last, new.last) if event or new.fault in _QUIET else known.last,
        count=known.count + new.count if event else known.count,
        boot=new.boot,
        action_seen=known.action_seen or new.action_seen,
        # A return from before this evidence proves nothing about it.
        gone_seen=new.gone_seen,
        needs_person=known.needs_person or new.needs_person,
        synthetic=known.synthetic and new.synthetic,
    )


def relapsed(policy: Policy, lifted_at: Iterable[float], wall: float) -> bool:
    """Whether a fault now is one relapse too many, given when the GPU's earlier conditions were lifted."""
    return (
        policy.relapse_limit > 0 and sum(wall - at <= policy.relapse_window for at in lifted_at) >= policy.relapse_limit
    )


# ---------------------------------------------------------------- lifting


def after_scan(
    policy: Policy,
    conditions: Conditions,
    gpu: Gpu,
    *,
    wall: float,
    boot: str,
    generation_changed: bool,
    can_ask: bool = False,
) -> Conditions:
    """What remains now that this GPU answered a scan; the same object if nothing changed.

    ``generation_changed``: the driver was re-bound since the scan before. ``can_ask``: this GPU, or one like it, has
    answered the recovery action before, so that None means a failed query and lifts nothing (HLT-20); otherwise None is
    a driver that cannot be asked.
    """
    kept = _told(policy, conditions, gpu.recovery, wall, boot, gone=generation_changed)
    if not _asks(gpu.recovery):
        failed = gpu.recovery is None and can_ask
        kept = tuple(known for known in kept if not _lifts(policy, known, gpu.recovery, failed, wall, boot))
    return conditions if kept == conditions else kept


def after_action(
    policy: Policy, conditions: Conditions, action: RecoveryAction, wall: float, boot: str, synthetic: bool = False
) -> Conditions:
    """What an event about the recovery action adds. It lifts nothing: that is for the scan it causes (HLT-18)."""
    told = _told(policy, conditions, action, wall, boot, synthetic=synthetic)
    return conditions if told == conditions else told


def _told(
    policy: Policy,
    conditions: Conditions,
    action: RecoveryAction | None,
    wall: float,
    boot: str,
    *,
    gone: bool = False,
    synthetic: bool = False,
) -> Conditions:
    """With what this look proves for later ones, and with the driver's own complaint if nothing marks the whole GPU."""
    asked = judge_action(policy, action, wall, boot, synthetic)
    seen = tuple(_note(known, wall, asked=_asks(action), gone=gone) for known in conditions)
    if asked is None or any(known.placement.whole for known in seen):
        return seen
    return merge(seen, asked)


def after_absence(conditions: Conditions) -> Conditions:
    """The device or its driver is away: coming back will be evidence. The same object if that was known."""
    if all(known.gone_seen for known in conditions):
        return conditions
    return tuple(replace(known, gone_seen=True) for known in conditions)


def _note(known: Condition, wall: float, *, asked: bool, gone: bool) -> Condition:
    """Keep what this look at the GPU proves for later looks."""
    return replace(
        known,
        action_seen=known.action_seen or asked,
        gone_seen=known.gone_seen or gone,
        # A clock set back must not make a quiet time longer than it is.
        last=min(known.last, wall) if known.fault in _QUIET else known.last,
    )


def _lifts(
    policy: Policy, known: Condition, action: RecoveryAction | None, failed: bool, wall: float, boot: str
) -> bool:
    if known.needs_person or known.fault is FaultClass.HARDWARE:
        return False
    if known.fault is FaultClass.RESTART:
        return known.boot != boot
    if known.fault is FaultClass.RESET:
        # A driver without the field asks by an error code; that the GPU answers is then its word that this is over.
        told = action is RecoveryAction.NONE or (
            action is None and not failed and known.reason == FailureKind.RESET_REQUIRED.value
        )
        return known.boot != boot or known.gone_seen or (known.action_seen and told)
    silent = action is None and not failed
    return (action is RecoveryAction.NONE or silent) and wall - known.last >= _quiet_time(policy, known)


def _quiet_time(policy: Policy, known: Condition) -> float:
    return policy.quiet_unknown if known.fault is FaultClass.UNKNOWN else policy.quiet_unreachable


def quiet_until(policy: Policy, conditions: Conditions) -> float | None:
    """Unix time from which a scan may lift something for its quiet time alone; None: nothing waits for time.

    It may lie in the past, when something else holds the condition too: only a time to come is worth a deadline.
    """
    waits = [
        known.last + _quiet_time(policy, known)
        for known in conditions
        if known.fault in _QUIET and not known.needs_person and _quiet_time(policy, known) < FOREVER
    ]
    return min(waits, default=None)


def relieved(policy: Policy, conditions: Conditions) -> Conditions:
    """What the rules still hold against a GPU; the same object if they lift nothing.

    A condition goes whose XID makes no GPU unhealthy any more. Nothing is judged anew: another class counts for the
    XIDs to come, and a GPU that was healthy stays so.
    """
    kept = tuple(known for known in conditions if _condemns(policy, known))
    return conditions if len(kept) == len(conditions) else kept


def _condemns(policy: Policy, known: Condition) -> bool:
    if known.reason not in _EVENTS:
        return True
    return classify(policy, _DOUBLE_BIT_ECC if known.xid is None else known.xid) in FAULTS


def replaced(places: Mapping[GpuUuid, PciAddress], gpus: Sequence[Gpu]) -> frozenset[GpuUuid]:
    """GPUs that are gone and whose PCI address another UUID has now: their conditions are void."""
    present = {gpu.uuid for gpu in gpus}
    occupied = {gpu.pci for gpu in gpus}
    return frozenset(uuid for uuid, pci in places.items() if pci in occupied and uuid not in present)
