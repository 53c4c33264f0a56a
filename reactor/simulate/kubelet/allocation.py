"""Admission of one container: hints, choice of ids, the plugin's Allocate, the record.

The steps and their order are the kubelet's, for it is the order that plugins trip over: ids are chosen, then the call
is out with nothing locked and lists may come, then each id is looked up again in what is listed *now*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from reactor.simulate.kubelet import texts, topology
from reactor.simulate.kubelet.checkpoint import NO_NODE, Allocation
from reactor.simulate.kubelet.devices import DeviceManager
from reactor.simulate.kubelet.plugin import KubeletPanic, PluginError, RunOptions, merge
from reactor.simulate.kubelet.pods import Container, Pod

Reusable = dict[str, set[str]]


class AdmissionError(Exception):
    """The pod is refused. ``str()`` is the cause that its status shows."""


@dataclass(slots=True)
class Allocator:
    manager: DeviceManager
    active: Callable[[], set[str]]
    """Uids of the active pods."""
    ready: Callable[[], bool]
    """Whether the API server was heard since the kubelet started."""
    policy: topology.Policy = topology.Policy.NONE
    nodes: Sequence[int] = ()
    _reusable: dict[str, Reusable] = field(default_factory=dict)
    _affinity: dict[tuple[str, str], topology.Hint] = field(default_factory=dict)

    def collect(self, pod: Pod | None = None) -> None:
        """Free what ended pods have (``UpdateAllocatedDevices``); not before the API server was heard."""
        if self.ready():
            self.manager.free(self.active() | ({pod.uid} if pod else set()))

    # ------------------------------------------------------------ hints

    def align(self, pod: Pod, container: Container) -> bool:
        """Find the container's NUMA nodes; False: the policy refuses it."""
        self.collect(pod)
        wanted = [(name, count) for name, count in container.limits.items() if count and self.manager.plugged(name)]
        hints = [self._hints(pod, container, resource, count) for resource, count in wanted]
        hint = topology.merge(self.policy, self.nodes, hints)
        self._affinity[pod.uid, container.name] = hint
        return topology.admits(self.policy, hint)

    def _hints(self, pod: Pod, container: Container, resource: str, wanted: int) -> list[topology.Hint] | None:
        manager = self.manager
        devices = manager.listed.get(resource, {})
        if not topology.aligned(devices):
            return None
        version = manager.version
        nodes = topology.hosting(devices, self.nodes) if version.hints_from_hosting_nodes_only else self.nodes
        allocated = manager.container_devices(pod.uid, container.name, resource)
        reusable: Iterable[str] = ()
        if allocated is not None:
            if len(allocated) != wanted:
                return []
            available = allocated
        else:
            available = manager.healthy.get(resource, frozenset()) - manager.allocated.get(resource, set())
            reusable = self._reusable.get(pod.uid, {}).get(resource, ())
            if len(available.union(reusable)) < wanted:
                return []
        return topology.device_hints(devices, available, reusable, wanted, nodes, panics=version.panics_on_missing_ids)

    # ------------------------------------------------------------ allocation

    async def allocate(self, pod: Pod, container: Container) -> None:
        """Give one container all its devices, then settle what later containers of the pod may use again."""
        self._reusable = {pod.uid: self._reusable.get(pod.uid, {})}
        reusable = self._reusable[pod.uid]
        await self._resources(pod, container, reusable)
        records = self.manager.pods.get(pod.uid, {}).get(container.name, {})
        plain = container in pod.init and not container.sidecar
        for resource, allocation in records.items():
            if plain:
                reusable.setdefault(resource, set()).update(allocation.ids)
            elif resource in reusable:
                reusable[resource] -= allocation.ids

    async def _resources(self, pod: Pod, container: Container, reusable: Reusable) -> None:
        manager = self.manager
        collected = changed = False
        for resource in manager.pick(container.limits):
            wanted = container.limits[resource]
            if not manager.plugged(resource):
                continue  # the pod runs without the device: the kubelet has never heard of it
            if not collected:
                self.collect(pod)
                collected = True
            chosen = await self._choose(pod, container, resource, wanted, reusable.get(resource, set()))
            if chosen:
                changed = True
                await self._call(pod, container, resource, chosen)
        if changed:
            manager.save()

    async def _call(self, pod: Pod, container: Container, resource: str, chosen: Sequence[str]) -> None:
        manager = self.manager
        connected = manager.current(resource)
        try:
            if connected is None:
                raise PluginError(texts.unknown_plugin(resource))
            if connected.stopped_at is not None or connected.endpoint is None:
                raise PluginError(texts.endpoint_stopped(resource))
            answers = await connected.endpoint.allocate(manager.pick(chosen))
        except PluginError as error:
            manager.recount()
            raise AdmissionError(str(error)) from error
        if not answers:
            raise AdmissionError(texts.NO_CONTAINERS)  # without a recount: the ids leak, as they do in the kubelet
        listed = manager.listed.get(resource, {})
        by_node: dict[int, list[str]] = {}
        for each in chosen:
            device = listed.get(each)
            if device is None and manager.version.panics_on_missing_ids:
                raise KubeletPanic(
                    f"nil dereference in allocateContainerResources: {each} of {resource} left the list while its "
                    f"Allocate was in flight"
                )
            for node in (device.numa if device is not None else ()) or (NO_NODE,):
                by_node.setdefault(node, []).append(each)
        record = Allocation.of({node: tuple(ids) for node, ids in by_node.items()}, answers[0])
        manager.insert(pod.uid, container.name, resource, record)

    async def _choose(
        self, pod: Pod, container: Container, resource: str, wanted: int, reusable: set[str]
    ) -> list[str]:
        """Which ids to ask the plugin for; none if the container has them already, or needs none."""
        manager = self.manager
        have = manager.container_devices(pod.uid, container.name, resource)
        if have is not None and len(have) != wanted:
            raise AdmissionError(texts.changed_request(pod.uid, container.name, resource, len(have), wanted))
        if not self.ready() and container.name in pod.running:
            return []
        healthy = manager.healthy.get(resource)
        if healthy is None:
            raise AdmissionError(texts.unregistered(resource))
        if not healthy:
            raise AdmissionError(texts.none_healthy(resource))
        if have is not None and not healthy >= have:
            raise AdmissionError(texts.no_longer_healthy(resource))
        if have is not None or not wanted:
            return []
        return await _Choice(self, pod, container, resource, wanted).run(reusable)

    def affinity(self, pod: Pod, container: Container) -> topology.Hint | None:
        return self._affinity.get((pod.uid, container.name))

    # ------------------------------------------------------------ start of a container

    async def run_options(self, pod: Pod, container: Container) -> RunOptions:
        """What the runtime gets at each start of the container: PreStart if asked for, else the cached answers."""
        manager = self.manager
        again = False
        for resource, wanted in container.limits.items():
            if not wanted or not manager.plugged(resource):
                continue
            again = await self._pre_start(pod, container, resource) or again
        if again:
            await self.allocate(pod, container)
        records = manager.pods.get(pod.uid, {}).get(container.name, {})
        return merge([records[resource].answer for resource in manager.pick(records)])

    async def _pre_start(self, pod: Pod, container: Container, resource: str) -> bool:
        """Call PreStartContainer where the plugin wants it; True: an active pod has no record and needs Allocate."""
        manager = self.manager
        connected = manager.current(resource)
        devices = manager.container_devices(pod.uid, container.name, resource)
        if connected is not None and connected.options is not None and connected.options.pre_start and devices:
            if connected.stopped_at is not None or connected.endpoint is None:
                raise PluginError(texts.endpoint_stopped(resource))
            await connected.endpoint.pre_start(manager.pick(devices))
        return devices is None and pod.uid in self.active()


class _Choice:
    """Picking ids for one request: reusable ones, then those on the right nodes, then what the plugin prefers."""

    def __init__(self, allocator: Allocator, pod: Pod, container: Container, resource: str, wanted: int) -> None:
        self._manager = allocator.manager
        self._hint = allocator.affinity(pod, container)
        self._resource = resource
        self._wanted = wanted
        self._taken: list[str] = []
        self._in_use = allocator.manager.allocated.setdefault(resource, set())

    @property
    def _missing(self) -> int:
        return self._wanted - len(self._taken)

    def _take(self, ids: Iterable[str]) -> bool:
        for each in ids:
            if not self._missing:
                break
            if each not in self._taken:
                self._taken.append(each)
                self._in_use.add(each)
        return not self._missing

    async def run(self, reusable: set[str]) -> list[str]:
        manager = self._manager
        if self._take(manager.pick(reusable)):
            return self._taken
        available = manager.healthy[self._resource] - self._in_use
        if len(available) < self._missing:
            # Reusable ids taken above stay marked, as they belong to this pod's init container anyway.
            raise AdmissionError(texts.unavailable(self._resource, self._missing, len(available)))
        near, far, nowhere = topology.split_by_affinity(
            manager.listed[self._resource], available, self._hint, manager.pick
        )
        if self._missing < len(near):
            preferred = await self._prefer(near)
            self._take(manager.pick(preferred.intersection(near))) or self._take(near)
            return self._taken
        if self._take(near):
            return self._taken
        preferred = await self._prefer(available)
        for ids in (manager.pick(preferred & available), far, nowhere):
            if self._take(ids):
                break
        return self._taken

    async def _prefer(self, offered: Iterable[str]) -> frozenset[str]:
        """Ask the plugin, if it said that it wants to be asked. Its error is the pod's end. The order is lost."""
        connected = self._manager.current(self._resource)
        if connected is None or connected.options is None or not connected.options.preferred:
            return frozenset()
        try:
            if connected.stopped_at is not None or connected.endpoint is None:
                raise PluginError(texts.endpoint_stopped(self._resource))
            pick = self._manager.pick
            offers = pick({*offered, *self._taken})
            return frozenset(await connected.endpoint.preferred(offers, pick(self._taken), self._wanted))
        except PluginError as error:
            raise AdmissionError(texts.preferred_failed(str(error))) from error
