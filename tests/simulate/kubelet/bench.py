"""A device manager on a bench: a clock that is set by hand and plugins that answer as told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reactor.simulate.kubelet.checkpoint import Books
from reactor.simulate.kubelet.core import KubeletCore, Traits
from reactor.simulate.kubelet.plugin import ContainerAnswer, Device, Options, PluginError
from reactor.simulate.kubelet.pods import ApiServer, Container, Pod
from reactor.simulate.kubelet.registration import Client
from reactor.simulate.kubelet.version import Version

GPU = "nvidia.com/gpu"
Call = tuple[str, tuple[Any, ...]]


@dataclass
class Plugin:
    """An Endpoint that records its calls."""

    wants: Options = field(default_factory=Options)
    answer: Callable[[Sequence[str]], tuple[ContainerAnswer, ...]] = lambda ids: (ContainerAnswer(),)
    during: Callable[[], Awaitable[None]] | None = None
    prefer: Callable[[Sequence[str], Sequence[str], int], Sequence[str]] = lambda available, must, size: ()
    error: str = ""
    calls: list[Call] = field(default_factory=list)

    def _note(self, name: str, *values: Any) -> None:
        self.calls.append((name, values))
        if self.error:
            raise PluginError(self.error)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [values for called, values in self.calls if called == name]

    async def options(self) -> Options:
        self._note("options")
        return self.wants

    async def allocate(self, ids: Sequence[str]) -> tuple[ContainerAnswer, ...]:
        self._note("allocate", tuple(sorted(ids)))
        if self.during is not None:
            await self.during()
        return self.answer(ids)

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> tuple[str, ...]:
        self._note("preferred", tuple(sorted(available)), tuple(sorted(must_include)), size)
        return tuple(self.prefer(available, must_include, size))

    async def pre_start(self, ids: Sequence[str]) -> None:
        self._note("pre_start", tuple(sorted(ids)))


class Bench:
    """A kubelet core whose API server has been heard, and the outside that outlives it."""

    def __init__(self, version: str = "1.34", **traits: Any) -> None:
        self.now = 1000.0
        self.traits = Traits(version=Version.parse(version), **traits)
        self.api = ApiServer()
        self.written: list[Books] = []
        self.core = self._life(None)

    def _life(self, books: Books | None) -> KubeletCore:
        return KubeletCore(self.traits, self.api, lambda: self.now, books=books, write=self.written.append)

    async def up(self) -> Bench:
        await self.core.hear()
        return self

    def reborn(self) -> None:
        """The kubelet restarts; its API server is silent until ``core.hear``."""
        self.core = self._life(self.written[-1] if self.written else None)

    def connect(self, plugin: Plugin, resource: str = GPU, socket: str = "a.sock") -> Client:
        client = Client(resource, socket, plugin, lambda: None)
        self.core.registry.begin(client)
        self.core.registry.connected(client, plugin.wants)
        return client

    def serve(self, *devices: Device | str, resource: str = GPU, plugin: Plugin | None = None) -> Plugin:
        """Connect a plugin and send one list."""
        plugin = plugin or Plugin()
        self.list(self.connect(plugin, resource), *devices)
        return plugin

    def list(self, client: Client, *devices: Device | str) -> None:
        self.core.receive(client, [Device(each) if isinstance(each, str) else each for each in devices])

    async def run(self, name: str, limits: dict[str, int] | int = 1, **shape: Any) -> Pod:
        if isinstance(limits, int):
            limits = {GPU: limits}
        pod = self.api.create(name, limits, **shape)
        await self.core.add(pod)
        return pod

    def delete(self, pod: Pod) -> None:
        self.api.delete(pod.ref.name)
        self.core.forget(pod)

    def ids(self, pod: Pod, container: str = "c", resource: str = GPU) -> set[str]:
        return set(self.core.manager.container_devices(pod.uid, container, resource) or ())

    def counts(self, resource: str = GPU) -> tuple[int, int] | None:
        """(allocatable, capacity) as the node would show them, None before the resource was ever seen."""
        found = self.core.sample().get(resource)
        return None if found is None else (found[1], found[0])

    def entries(self) -> set[tuple[str, frozenset[str]]]:
        """(container, ids) in the checkpoint as last written."""
        return {(each.container, each.allocation.ids) for each in self.written[-1].entries}


def bad(name: str, health: str = "Unhealthy", numa: tuple[int, ...] = ()) -> Device:
    return Device(name, health, numa)


def on(node: int, *names: str) -> list[Device]:
    return [Device(each, numa=(node,)) for each in names]


def container(name: str, count: int, *, sidecar: bool = False, resource: str = GPU) -> Container:
    return Container(name, {resource: count}, sidecar)


def healthy(names: Iterable[str]) -> list[Device]:
    return [Device(each) for each in names]
