"""(State, Event) -> State: pure, total, the only writer of the state; it reads no clock, facts carry their time.

One module a subject; this one sends each fact to its branch and then settles what follows from any change: the plan,
the ids that leave, the lists that must be sent again. A branch that changes nothing returns the same object.
"""

from __future__ import annotations

from typing import assert_never

from reactor import events as e
from reactor.model.hold import HoldKey
from reactor.model.value import replace
from reactor.reducer import clock, configs, gpus, holds, kubelet, leaving
from reactor.reducer.faults import begin, end
from reactor.state import State

__all__ = ["reduce"]

Known = (
    e.AgentWaiting
    | e.AgentStarted
    | e.StateRestored
    | e.SignalReceived
    | e.AgentStopping
    | e.ConfigRead
    | e.ConfigRejected
    | e.InventoryTaken
    | e.InventoryFailed
    | e.XidReported
    | e.EccReported
    | e.RecoveryActionChanged
    | e.GpuLost
    | e.FaultUnattributed
    | e.FaultCleared
    | e.DevicesChanged
    | e.WorkerStarted
    | e.WorkerLost
    | e.KubeletUp
    | e.KubeletDown
    | e.PluginSocketGone
    | e.PluginDirectoryGone
    | e.PluginServing
    | e.PluginClosed
    | e.PluginOffered
    | e.PluginRegistered
    | e.PluginRefused
    | e.StreamOpened
    | e.StreamEnded
    | e.Advertised
    | e.Granted
    | e.Refused
    | e.PodsListed
    | e.PodsListFailed
    | e.CheckpointRead
    | e.CheckpointFailed
    | e.DeadlinePassed
    | e.Remembered
    | e.HandlerFailed
    | e.HandlerRecovered
    | e.SourceFailed
    | e.SourceRecovered
)
"""Every fact there is; mypy sees to it that each has its branch."""


def reduce(state: State, event: e.Event) -> State:
    """Fold one event into the state."""
    fact = event.fact
    if not isinstance(fact, Known):
        raise TypeError(f"no branch for {type(fact).__name__}")
    return leaving.settle(state, _branch(clock.follow(state, event), event, fact), event)


def _branch(state: State, event: e.Event, fact: Known) -> State:
    match fact:
        case e.AgentStarted():
            return _started(state, event, fact)
        case e.StateRestored():
            return _restored(state, event, fact)
        case e.SignalReceived():
            return _signalled(state, fact)
        case e.AgentStopping():
            return replace(state, stopping=True)
        case e.AgentWaiting():
            return begin(state, event, "agent.waiting", fact.reason)
        case e.ConfigRead():
            state = gpus.rules_changed(configs.config_read(state, event, fact), event)
            return configs.cpus(configs.channels(state, event), event)
        case e.ConfigRejected():
            return configs.config_rejected(state, event, fact)
        case e.InventoryTaken():
            return configs.channels(gpus.inventory_taken(state, event, fact), event)
        case e.InventoryFailed():
            return gpus.inventory_failed(state, event, fact)
        case e.XidReported():
            return gpus.xid_reported(state, event, fact)
        case e.EccReported():
            return gpus.ecc_reported(state, event, fact)
        case e.RecoveryActionChanged():
            return gpus.recovery_changed(state, event, fact)
        case e.GpuLost():
            return gpus.gpu_lost(state, event, fact)
        case e.FaultCleared():
            return gpus.fault_cleared(state, fact)
        case e.WorkerStarted() | e.WorkerLost() | e.FaultUnattributed() | e.DevicesChanged() | e.Remembered():
            return state
        case e.KubeletUp():
            return configs.cpus(kubelet.up(state, event, fact), event)
        case e.KubeletDown():
            return kubelet.down(state, fact)
        case e.PluginSocketGone():
            return kubelet.socket_gone(state, fact)
        case e.PluginDirectoryGone():
            return replace(state, stopping=True, stranded=fact.error)
        case e.PluginServing():
            return kubelet.serving(state, fact)
        case e.PluginClosed():
            return kubelet.closed(state, fact)
        case e.PluginOffered():
            return kubelet.offered(state, event, fact)
        case e.PluginRefused():
            return kubelet.refused(state, event, fact)
        case e.PluginRegistered():
            return kubelet.registered(state, event, fact)
        case e.StreamOpened():
            return kubelet.stream_opened(state, fact)
        case e.StreamEnded():
            return kubelet.stream_ended(state, fact)
        case e.Advertised():
            return _advertised(state, event, fact)
        case e.Granted():
            return holds.granted(state, event, fact)
        case e.Refused():
            return _refused(state, event, fact)
        case e.PodsListed():
            return holds.pods_listed(state, event, fact)
        case e.PodsListFailed():
            return holds.list_failed(state, event, fact)
        case e.CheckpointRead():
            return holds.checkpoint_read(state, event, fact)
        case e.CheckpointFailed():
            return holds.checkpoint_failed(state, event, fact)
        case e.DeadlinePassed():
            return _deadline(state, fact)
        case e.HandlerFailed():
            return begin(state, event, _handler_fault(fact), fact.error, count=fact.attempt)
        case e.HandlerRecovered():
            return end(state, _handler_fault(fact))
        case e.SourceFailed():
            return begin(state, event, f"source.{fact.source}", fact.error, count=fact.attempt)
        case e.SourceRecovered():
            return end(state, f"source.{fact.source}")
        case _:
            assert_never(fact)


def _advertised(state: State, event: e.Event, fact: e.Advertised) -> State:
    state = kubelet.advertised(state, event, fact)
    return holds.advertised(leaving.advertised(state, event, fact), event, fact)


def _handler_fault(fact: e.HandlerFailed | e.HandlerRecovered) -> str:
    return f"handler.{fact.handler}:{fact.lane}" if fact.lane else f"handler.{fact.handler}"


def _started(state: State, event: e.Event, fact: e.AgentStarted) -> State:
    return replace(
        end(state, "agent.waiting"),
        version=fact.version,
        run=fact.run,
        boot=fact.boot,
        simulated=fact.simulated,
        environment=fact.policy,
        policy=fact.policy,
        resync=fact.resync,
        kubelet=replace(state.kubelet, registration=fact.registration),
        started_wall=event.wall,
        clock=event.wall - event.at,
    )


def _signalled(state: State, fact: e.SignalReceived) -> State:
    if fact.name == "HUP":
        return replace(state, reloads=state.reloads + 1)
    return replace(state, stopping=True)


def _restored(state: State, event: e.Event, fact: e.StateRestored) -> State:
    if fact.problem:
        state = begin(state, event, "state.unreadable", fact.problem)
    if fact.config is not None and state.config.config is None:
        config = replace(state.config, config=fact.config, digest=fact.config_digest, text=fact.config_text)
        state = configs.origin_restored(replace(state, config=config), event)
    state = replace(
        state,
        holds={hold.key: hold for hold in holds.of_boot(state, fact)} | dict(state.holds),
        freed=fact.freed or state.freed,
        conditions=fact.conditions or state.conditions,
        relapses=fact.relapses or state.relapses,
        pci=fact.pci or state.pci,
        kubelet=replace(state.kubelet, last=fact.kubelet),
    )
    return gpus.rules_changed(state, event)


def _refused(state: State, event: e.Event, fact: e.Refused) -> State:
    """An id at fault is Unhealthy until the next good scan; an id that leaves is waited for anew."""
    if fact.faulty:
        refused = {**state.refused, **{HoldKey(fact.resource, one): fact.message for one in fact.faulty}}
        if refused != state.refused:
            state = replace(state, refused=refused)
    return leaving.refused(state, event, fact)


def _deadline(state: State, fact: e.DeadlinePassed) -> State:
    """A deadline is over; branches that gave it its name look at the time themselves."""
    deadlines = {name: at for name, at in state.deadlines.items() if name != fact.name}
    if len(deadlines) == len(state.deadlines):
        return state
    return kubelet.deadline(replace(state, deadlines=deadlines), fact)
