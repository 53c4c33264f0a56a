"""Facts about the config: what is in force, what was refused."""

from __future__ import annotations

from reactor.allocate import channel_node
from reactor.events import ConfigOrigin, ConfigRead, ConfigRejected, Event
from reactor.model.value import replace
from reactor.reducer.faults import begin, end, stand
from reactor.state import ConfigState, State

FAULT = "config.rejected"
CHANNEL = "imex.channel"
CPUS = "kubelet.pins_cpus"


def config_read(state: State, event: Event, fact: ConfigRead) -> State:
    """An accepted text is in force at once; nothing is left of a refusal before it."""
    now = ConfigState(
        config=fact.config,
        digest=fact.digest,
        origin=fact.origin,
        path=fact.path,
        text=fact.text,
        notes=fact.notes,
        accepted_wall=event.wall,
        judged=True,
    )
    known = state.config
    if known.judged and known.digest == fact.digest and known.origin is fact.origin and not known.problems:
        return state
    return end(replace(state, config=now), FAULT)


def channels(state: State, event: Event) -> State:
    """An IMEX channel that the config asks for and that is not there is a fault, whether it is required or not."""
    config = state.config.config
    if config is None or state.scanned_at is None:
        return state
    lacking = [node for node in map(channel_node, config.imex.channels) if node not in state.nodes]
    then = "no GPU is handed out" if config.imex.required else "containers are given none"
    text = f"imex.channelIDs: {', '.join(lacking)} is not there, so {then}" if lacking else ""
    return stand(state, event, CHANNEL, text)


def cpus(state: State, event: Event) -> State:
    """KBL-22: what the kubelet does for pinned CPUs takes devices away that it does not know a container to have."""
    config = state.config.config
    if config is None:
        return state
    text = (
        "the kubelet's CPU manager is static: without flags.plugin.passDeviceSpecs, which is false, it takes running"
        " containers their GPUs"
    )
    return stand(state, event, CPUS, text if state.kubelet.pins_cpus and not config.flags.pass_device_specs else "")


def config_rejected(state: State, event: Event, fact: ConfigRejected) -> State:
    """A refused text changes nothing of what is in force; it is remembered to be shown."""
    if state.config.judged and state.config.rejected_digest == fact.digest and state.config.problems == fact.problems:
        return state
    config = replace(
        state.config, rejected_digest=fact.digest, rejected_path=fact.path, problems=fact.problems, judged=True
    )
    first = fact.problems[0].render(fact.path) if fact.problems else fact.path
    more = f" (and {len(fact.problems) - 1} more)" if len(fact.problems) > 1 else ""
    return begin(replace(state, config=config), event, FAULT, first + more)


def origin_restored(state: State, event: Event) -> State:
    """No text of this life was accepted yet: what an earlier life accepted last serves on."""
    return replace(state, config=replace(state.config, origin=ConfigOrigin.LAST_ACCEPTED, accepted_wall=event.wall))
