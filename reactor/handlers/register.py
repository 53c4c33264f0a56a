"""Serves each resource that is to be listed, registers it with the kubelet, and closes what is no longer wanted.

One lane a resource: one that cannot be registered keeps no other waiting. Nothing is registered while a stream of it
is live, and never twice on one socket: after a stream ended, the next registration is that of a fresh one
(spec/kubelet.md 4). Nor before the checkpoint that a kubelet began with was looked at: the first list has it written
anew. Where the kubelet's plugin watcher finds us, a socket is offered to it under
the same conditions; that it took it is a fact which comes by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from reactor import view
from reactor.bus import Mail
from reactor.events import Event, Fact, PluginClosed, PluginOffered, PluginRegistered, PluginServing
from reactor.model.ids import ResourceName
from reactor.model.kubelet import Registration
from reactor.state import Plugin, State


class Servers(Protocol):
    async def serve(self, resource: ResourceName) -> str: ...

    async def close(self, resource: ResourceName) -> None: ...

    async def register(self, resource: ResourceName, socket: str) -> None: ...

    async def offer(self, resource: ResourceName, socket: str) -> None: ...


class Step(Enum):
    SERVE = "serve"
    REGISTER = "register"
    OFFER = "offer"
    CLOSE = "close"


def step(state: State, resource: ResourceName) -> Step | None:
    """What is to be done next for one resource, if anything."""
    plugin = state.kubelet.plugins.get(resource)
    if resource not in view.names(state):
        return None if plugin is None else Step.CLOSE
    if state.kubelet.registration is Registration.WATCHER:
        return _step_to_be_found(state, plugin)
    if not _may_list(state):
        return None
    if plugin is None:
        return Step.SERVE
    if plugin.streams or plugin.registered == state.kubelet.identity:
        return None
    return Step.SERVE if plugin.spent or plugin.registered is not None else Step.REGISTER


def _step_to_be_found(state: State, plugin: Plugin | None) -> Step | None:
    if plugin is None or (plugin.spent and not plugin.streams):
        return Step.SERVE
    if plugin.offered or plugin.spent:
        return None
    # A kubelet whose socket was never to be seen may be there all the same.
    return Step.OFFER if _may_list(state) or not state.kubelet.seen else None


def _may_list(state: State) -> bool:
    """Whether the kubelet is there, and the checkpoint that it began with was looked at."""
    kubelet = state.kubelet
    return kubelet.identity is not None and not kubelet.doubted and state.books.looked_life == kubelet.life


class Register:
    name = "register"
    ceiling = 1.0

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def settle(self, lane: str) -> float:
        return 0.0

    def wakes(self, event: Event, before: State, after: State) -> Iterable[str]:
        looked = after.books.looked_life != before.books.looked_life
        if after.kubelet is before.kubelet and not looked and not view.moved(before, after):
            return ()
        names = view.names(after) | after.kubelet.plugins.keys()
        return [
            name
            for name in sorted(names)
            if (todo := step(after, name)) is not None
            and (todo is not step(before, name) or after.kubelet.identity != before.kubelet.identity)
        ]

    async def run(self, lane: str, state: State, mail: Mail) -> Iterable[Fact]:
        resource = ResourceName(lane)
        match step(state, resource):
            case None:
                return ()
            case Step.CLOSE:
                await self._servers.close(resource)
                return (PluginClosed(resource=resource),)
            case Step.SERVE:
                return (PluginServing(resource=resource, socket=await self._servers.serve(resource)),)
            case Step.OFFER:
                socket = state.kubelet.plugins[resource].socket
                await self._servers.offer(resource, socket)
                return (PluginOffered(resource=resource, socket=socket),)
            case Step.REGISTER:
                return await self._register(state, resource)

    async def _register(self, state: State, resource: ResourceName) -> Iterable[Fact]:
        socket, identity = state.kubelet.plugins[resource].socket, state.kubelet.identity
        if identity is None:
            return ()
        await self._servers.register(resource, socket)
        return (PluginRegistered(resource=resource, socket=socket, identity=identity),)
