"""(event, before, after) -> the lines that tell of it. Pure.

What a fact says by itself is told here; what it changed (conditions, driver, plan, holds) is told by
``differences``, whoever changed it, and the agent's faults are named by ``standing``. A fact that repeats what is known
tells nothing, or at level debug.
"""

from __future__ import annotations

from reactor import events as facts
from reactor.conditions.classes import classify
from reactor.events import Event, Fact
from reactor.model.ids import GpuUuid
from reactor.record import catalogue as say
from reactor.record.differences import differences
from reactor.record.line import SHOWN, Level, Line
from reactor.record.look import address, find, listed, many, name
from reactor.record.standing import name_faults
from reactor.record.tell import served
from reactor.state import State


def lines(event: Event, before: State, after: State) -> tuple[Line, ...]:
    """Every line that this event is worth: what was said first, then what it changed."""
    match event.fact:
        case facts.XidReported() as fact:
            said: tuple[Line, ...] = (_xid(fact, before, after),)
        case facts.EccReported() as fact:
            said = (_ecc(fact, before, after),)
        case facts.ConfigRead() | facts.ConfigRejected() as fact:
            said = _config(fact, before)
        case facts.HandlerFailed() | facts.HandlerRecovered() | facts.SourceFailed() | facts.SourceRecovered() as fact:
            said = _supervision(fact, event, before, after)
        case fact:
            said = _agent(fact) or _nvml(fact, before, after) or served(fact, before, after)
    if before is after:
        return said
    told = (*said, *differences(event, before, after))
    return told if before.faults is after.faults else name_faults(told, event, before, after)


def _agent(fact: Fact) -> tuple[Line, ...]:
    match fact:
        case facts.AgentWaiting():
            return (say.AgentDelayed(reason=fact.reason, msg=f"gpu-reactor waits: {fact.reason}"),)
        case facts.AgentStarted():
            told = f"gpu-reactor {fact.version} started" + (" on SIMULATED NVML" if fact.simulated else "")
            return (say.AgentStarted(version=fact.version, boot=fact.boot, simulated=fact.simulated, msg=told),)
        case facts.StateRestored():
            return (_restored(fact),)
        case facts.SignalReceived():
            return (say.AgentSignalled(name=fact.name, msg=f"SIG{fact.name} received"),)
        case facts.AgentStopping():
            return (say.AgentStopped(reason=fact.reason, msg=f"gpu-reactor stops: {fact.reason}"),)
        case facts.Remembered():
            return (say.StateRemembered(revision=fact.revision, msg="state file written"),)
        case facts.DeadlinePassed():
            return (say.DeadlinePassed(name=fact.name, msg=f"{fact.name} is due"),)
    return ()


def _restored(fact: facts.StateRestored) -> Line:
    conditions = sum(len(conditions) for conditions in fact.conditions.values())
    told = f"state of an earlier life: {many(len(fact.holds), 'held id')}, {many(conditions, 'condition')}"
    return say.StateRestored(
        level=Level.WARNING if fact.problem else Level.INFO,
        holds=len(fact.holds),
        conditions=conditions,
        error=fact.problem,
        msg=f"state file not usable: {fact.problem}" if fact.problem else told,
    )


def _config(fact: facts.ConfigRead | facts.ConfigRejected, before: State) -> tuple[Line, ...]:
    if isinstance(fact, facts.ConfigRead):
        told = f"config accepted from {fact.path or fact.origin.value}"
        return (say.ConfigRead(digest=fact.digest, origin=fact.origin.value, path=fact.path, msg=told),)
    if not fact.asked and fact.digest == before.config.rejected_digest and fact.problems == before.config.problems:
        return ()
    first = fact.problems[0].render(fact.path) if fact.problems else fact.path
    more = f" (and {len(fact.problems) - 1} more)" if len(fact.problems) > 1 else ""
    problems = tuple(
        say.ConfigFault(line=problem.line, column=problem.column, path=problem.path, text=problem.message)
        for problem in fact.problems[:SHOWN]
    )
    told = f"config rejected, what is in force stays: {first}{more}"
    return (
        say.ConfigRejected(path=fact.path, digest=fact.digest, problems=problems, count=len(fact.problems), msg=told),
    )


# ---------------------------------------------------------------- NVML


def _nvml(fact: Fact, before: State, after: State) -> tuple[Line, ...]:
    match fact:
        case facts.RecoveryActionChanged():
            told = f"{name(fact.gpu, after, before)}: driver asks for {fact.action.value}"
            line: Line = say.RecoveryChanged(gpu=fact.gpu, action=fact.action.value, synthetic=fact.synthetic, msg=told)
        case facts.FaultUnattributed():
            told = f"{fact.what}, at a GPU that could not be told: all are checked"
            line = say.FaultUnattributed(what=fact.what, synthetic=fact.synthetic, msg=told)
        case facts.FaultCleared():
            told = f"{name(fact.gpu, after, before)} cleared by a person: {fact.reason}"
            line = say.FaultAcknowledged(gpu=fact.gpu, reason=fact.reason, synthetic=fact.synthetic, msg=told)
        case facts.DevicesChanged():
            what = f"{fact.what}: {fact.error}" if fact.error else fact.what
            told = f"{what}: looking at the devices again"
            line = say.DevicesChanged(what=what, synthetic=fact.synthetic, msg=told)
        case facts.WorkerStarted():
            line = say.WorkerStarted(pid=fact.pid, msg=f"NVML worker {fact.pid} started")
        case facts.WorkerLost():
            told = f"NVML worker {'hung' if fact.hung else 'died'}: {fact.error}"
            line = say.WorkerLost(hung=fact.hung, error=fact.error, index=fact.gpu_index, msg=told)
        case facts.InventoryFailed():
            if (fact.state, fact.error) == (before.driver.state, before.driver.error):
                return ()
            told = f"GPUs cannot be scanned ({fact.state.value}): {fact.error}"
            line = say.InventoryFailed(state=fact.state.value, error=fact.error, msg=told)
        case _:
            return ()
    return (line,)


def _xid(fact: facts.XidReported, before: State, after: State) -> Line:
    known = find(after, fact.gpu) or find(before, fact.gpu)
    decision, affected = decision_on(fact.gpu, before, after)
    xid_class = classify(after.policy, fact.xid).value
    told = f"XID {fact.xid} ({xid_class}) on {name(fact.gpu, after, before)}: " + _consequence(decision, affected)
    return say.XidReported(
        gpu=fact.gpu,
        pci=address(fact.gpu, after, before),
        index=known.index if known else None,
        xid=fact.xid,
        xid_class=xid_class,
        gi=fact.placement.gi,
        ci=fact.placement.ci,
        decision=decision,
        devices_affected=affected,
        synthetic=fact.synthetic,
        msg=told,
    )


def _ecc(fact: facts.EccReported, before: State, after: State) -> Line:
    decision, affected = decision_on(fact.gpu, before, after)
    told = f"double-bit ECC error on {name(fact.gpu, after, before)}: " + _consequence(decision, affected)
    return say.EccReported(
        gpu=fact.gpu,
        pci=address(fact.gpu, after, before),
        decision=decision,
        devices_affected=affected,
        synthetic=fact.synthetic,
        msg=told,
    )


def decision_on(gpu: GpuUuid, before: State, after: State) -> tuple[str, int]:
    """What an event meant for a GPU (recorded, condemned, counted), and how many listed ids that affects."""
    old, new = before.conditions.get(gpu, ()), after.conditions.get(gpu, ())
    if new == old:
        return "recorded", 0
    worse = {condition.key for condition in new} - {condition.key for condition in old}
    return "condemned" if worse else "counted", listed(after, gpu)


def _consequence(decision: str, affected: int) -> str:
    match decision:
        case "recorded":
            return "recorded, health is as before"
        case "condemned":
            return f"unhealthy from now, {many(affected, 'id')} affected"
    return f"unhealthy already, {many(affected, 'id')} affected"


# ---------------------------------------------------------------- supervision

Supervised = facts.HandlerFailed | facts.HandlerRecovered | facts.SourceFailed | facts.SourceRecovered


def _supervision(fact: Supervised, event: Event, before: State, after: State) -> tuple[Line, ...]:
    match fact:
        case facts.HandlerFailed() | facts.SourceFailed() if (
            fact.attempt & (fact.attempt - 1) and before.faults.keys() == after.faults.keys()
        ):
            return ()  # told when it begins, and at attempts 1, 2, 4, 8, ...
        case facts.HandlerFailed():
            told = f"{fact.handler} failed (attempt {fact.attempt}), again in {fact.retry_in:.1f} s: {fact.error}"
            line: Line = say.HandlerFailed(
                handler=fact.handler,
                lane=fact.lane,
                error=fact.error,
                attempt=fact.attempt,
                retry_s=round(fact.retry_in, 3),
                msg=told,
            )
        case facts.SourceFailed():
            told = f"{fact.source} failed (attempt {fact.attempt}), again in {fact.retry_in:.1f} s: {fact.error}"
            line = say.SourceFailed(
                source=fact.source, error=fact.error, attempt=fact.attempt, retry_s=round(fact.retry_in, 3), msg=told
            )
        case facts.HandlerRecovered():
            line = say.HandlerRecovered(
                handler=fact.handler,
                lane=fact.lane,
                attempt=fact.attempts,
                seconds=_lasted((f"handler.{fact.handler}:{fact.lane}", f"handler.{fact.handler}"), event, before),
                msg=f"{fact.handler} works again after {many(fact.attempts, 'failure')}",
            )
        case facts.SourceRecovered():
            line = say.SourceRecovered(
                source=fact.source,
                attempt=fact.attempts,
                seconds=_lasted((f"source.{fact.source}",), event, before),
                msg=f"{fact.source} works again after {many(fact.attempts, 'failure')}",
            )
    return (line,)


def _lasted(names: tuple[str, ...], event: Event, before: State) -> float | None:
    """How long the fault of one of these names was there."""
    fault = next((before.faults[key] for key in names if key in before.faults), None)
    return round(max(event.wall - fault.since, 0.0), 3) if fault is not None else None
