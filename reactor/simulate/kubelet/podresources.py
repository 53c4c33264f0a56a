"""What podresources says: one record for each device and NUMA node of it, container by container."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from reactor.model.hold import PodDevices, PodRef
from reactor.model.ids import DeviceId, ResourceName
from reactor.simulate.kubelet.checkpoint import NO_NODE
from reactor.simulate.kubelet.devices import DeviceManager
from reactor.simulate.kubelet.pods import Pod


@dataclass(frozen=True, slots=True)
class Record:
    resource: str
    id: str
    node: int | None


@dataclass(frozen=True, slots=True)
class PodEntry:
    pod: PodRef
    containers: tuple[tuple[str, tuple[Record, ...]], ...]


def entry_of(manager: DeviceManager, pod: Pod) -> PodEntry:
    """App containers and (from 1.30) sidecars; what plain init containers have is not shown, though it is allocated."""
    sidecars = manager.version.lists_sidecars
    shown = [each.name for each in pod.all_containers() if (sidecars and each.sidecar) or each in pod.containers]
    return PodEntry(pod.ref, tuple((name, tuple(_records(manager, pod, name))) for name in shown))


def _records(manager: DeviceManager, pod: Pod, container: str) -> Iterator[Record]:
    for resource, allocation in manager.pods.get(pod.uid, {}).get(container, {}).items():
        for node in manager.pick(map(str, allocation.by_node)):
            for each in allocation.by_node[int(node)]:
                yield Record(resource, each, None if int(node) == NO_NODE else int(node))


def allocatable(manager: DeviceManager) -> Iterator[Record]:
    """Healthy devices only, whatever the name of the call says."""
    for resource, ids in manager.healthy.items():
        for each in ids:
            for node in manager.listed[resource][each].numa or (None,):
                yield Record(resource, each, node)


def merged(entries: Iterable[PodEntry]) -> tuple[PodDevices, ...]:
    """As a careful reader sees it: each device once, with all its NUMA nodes."""
    pods = []
    for entry in entries:
        found: dict[tuple[str, str], set[int]] = {}
        for _, records in entry.containers:
            for each in records:
                found.setdefault((each.resource, each.id), set()).update(() if each.node is None else (each.node,))
        devices = tuple(
            (ResourceName(resource), DeviceId(device), tuple(sorted(nodes)))
            for (resource, device), nodes in sorted(found.items())
        )
        pods.append(PodDevices(pod=entry.pod, devices=devices))
    return tuple(pods)


@dataclass(slots=True)
class RateLimit:
    """100 calls a second with bursts of 10, over all podresources calls together."""

    clock: Callable[[], float]
    rate: float = 100.0
    burst: float = 10.0
    _tokens: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens, self._at = self.burst, self.clock()

    def take(self) -> bool:
        now = self.clock()
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
