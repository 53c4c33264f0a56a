"""Facts about the kubelet and about our servers: up and down, registered, streams, what was sent."""

from __future__ import annotations

from reactor.events import (
    Advertised,
    DeadlinePassed,
    Event,
    KubeletDown,
    KubeletUp,
    PluginClosed,
    PluginOffered,
    PluginRefused,
    PluginRegistered,
    PluginServing,
    PluginSocketGone,
    StreamEnded,
    StreamOpened,
)
from reactor.model.ids import ResourceName
from reactor.model.value import replace
from reactor.reducer import holds
from reactor.reducer.faults import begin, end
from reactor.state import Plugin, State

STREAM_WITHIN = 2.0
"""Seconds after a Register that was accepted within which the kubelet opens its stream (spec/kubelet.md 4, rule d)."""
FOUND_WITHIN = 30.0
"""Seconds within which a kubelet that is up takes a socket that is there to find; it looks each second."""
_LONGEST = 64.0
"""Seconds at most from a refusal to the next socket."""
_ENROLLED = "enrolled:"
_REFUSED = "registration.refused:"


def up(state: State, event: Event, fact: KubeletUp) -> State:
    """The kubelet accepts connections; another identity than the last one is a new life of it."""
    known = state.kubelet
    if known.identity == fact.identity and not known.doubted:
        return state
    new = fact.identity != known.last
    kubelet = replace(
        known,
        identity=fact.identity,
        last=fact.identity,
        doubted=False,
        up_at=event.at,
        seen=True,
        pins_cpus=fact.pins_cpus,
        reason="",
        life=known.life + 1 if new else known.life,
    )
    state = replace(state, kubelet=kubelet)
    return holds.new_life(state) if new else state


def down(state: State, fact: KubeletDown) -> State:
    known = state.kubelet
    if known.identity is None and known.reason == fact.reason:
        return state
    return replace(state, kubelet=replace(known, identity=None, doubted=False, up_at=None, reason=fact.reason))


def serving(state: State, fact: PluginServing) -> State:
    return _with_plugin(state, fact.resource, Plugin(socket=fact.socket))


def offered(state: State, event: Event, fact: PluginOffered) -> State:
    plugin = state.kubelet.plugins.get(fact.resource)
    if plugin is None or plugin.socket != fact.socket or plugin.offered:
        return state
    state = _with_plugin(state, fact.resource, replace(plugin, offered=True))
    return _due(state, fact.resource, event.at + FOUND_WITHIN)


def closed(state: State, fact: PluginClosed) -> State:
    state = end(state, _REFUSED + fact.resource)
    if fact.resource not in state.kubelet.plugins:
        return state
    plugins = {name: plugin for name, plugin in state.kubelet.plugins.items() if name != fact.resource}
    return replace(state, kubelet=replace(state.kubelet, plugins=plugins))


def registered(state: State, event: Event, fact: PluginRegistered) -> State:
    plugin = state.kubelet.plugins.get(fact.resource)
    if plugin is None or plugin.socket != fact.socket:
        return state
    state = end(state, _REFUSED + fact.resource)
    state = _with_plugin(state, fact.resource, replace(plugin, registered=fact.identity, registered_at=event.at))
    if plugin.streams:
        return state
    return _due(state, fact.resource, event.at + STREAM_WITHIN)


def refused(state: State, event: Event, fact: PluginRefused) -> State:
    """It is told with the kubelet's words; another socket comes, ever later, for many a refusal is for good."""
    plugin = state.kubelet.plugins.get(fact.resource)
    if plugin is None or plugin.socket != fact.socket:
        return state
    name = _REFUSED + fact.resource
    known = state.faults.get(name)
    count = known.count + 1 if known else 1
    state = begin(state, event, name, fact.error, count=count)
    return _due(state, fact.resource, event.at + min(2.0 ** min(count - 1, 6), _LONGEST))


def _due(state: State, resource: ResourceName, at: float) -> State:
    return replace(state, deadlines={**state.deadlines, _ENROLLED + resource: at})


def deadline(state: State, fact: DeadlinePassed) -> State:
    """A registration that brought no stream in time did nothing: it is done over, with another socket."""
    if not fact.name.startswith(_ENROLLED):
        return state
    resource = ResourceName(fact.name.removeprefix(_ENROLLED))
    plugin = state.kubelet.plugins.get(resource)
    if plugin is None or plugin.streams or not _failed(state, plugin, _REFUSED + resource):
        return state
    return _with_plugin(state, resource, replace(plugin, registered=None, registered_at=None, spent=True))


def _failed(state: State, plugin: Plugin, refused: str) -> bool:
    if plugin.registered_at is not None:
        return True
    return plugin.offered and (state.kubelet.identity is not None or refused in state.faults)


def stream_opened(state: State, fact: StreamOpened) -> State:
    plugin = state.kubelet.plugins.get(fact.resource)
    if plugin is None or plugin.socket != fact.socket or fact.stream in plugin.streams:
        return state
    return _with_plugin(state, fact.resource, replace(plugin, streams=plugin.streams | {fact.stream}))


def stream_ended(state: State, fact: StreamEnded) -> State:
    """The last stream of a resource ended: its registration is void and the kubelet is to be looked at."""
    plugin = state.kubelet.plugins.get(fact.resource)
    if plugin is None or fact.stream not in plugin.streams:
        return state
    left = plugin.streams - {fact.stream}
    if left:
        return _with_plugin(state, fact.resource, replace(plugin, streams=left))
    state = _with_plugin(state, fact.resource, Plugin(socket=plugin.socket, spent=True))
    if state.kubelet.identity is None:
        return state
    return replace(state, kubelet=replace(state.kubelet, doubted=True))


def socket_gone(state: State, fact: PluginSocketGone) -> State:
    plugin = state.kubelet.plugins.get(fact.resource)
    if plugin is None or plugin.socket != fact.socket or plugin.spent:
        return state
    return _with_plugin(state, fact.resource, replace(plugin, spent=True))


def advertised(state: State, event: Event, fact: Advertised) -> State:
    plugin = state.kubelet.plugins.get(fact.resource)
    if plugin is None or fact.stream not in plugin.streams:
        return state
    sent = replace(
        plugin,
        sent_revision=fact.revision,
        sent_healthy=fact.healthy,
        sent_unhealthy=fact.unhealthy,
        sent_nudge=fact.nudge,
        sent_at=plugin.sent_at if fact.standing else event.at,
    )
    return _with_plugin(state, fact.resource, sent)


def _with_plugin(state: State, resource: ResourceName, plugin: Plugin) -> State:
    plugins = {**state.kubelet.plugins, resource: plugin}
    return replace(state, kubelet=replace(state.kubelet, plugins=plugins))
