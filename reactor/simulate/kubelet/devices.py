"""The kubelet's device manager, as far as lists and counts go: what is listed, healthy, allocated, and by whom.

Maps are named after the kubelet's own. A list replaces what stood there; an endpoint that stops leaves its devices
unhealthy, and the resource is deleted (shown as zero) once the grace period is over and somebody reads the capacity.
Allocation is in ``allocation.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from reactor.simulate.kubelet.checkpoint import Allocation, Books, Entry
from reactor.simulate.kubelet.plugin import Device, Endpoint, Options
from reactor.simulate.kubelet.version import Version

GRACE = 300.0


@dataclass(slots=True, eq=False)
class Connected:
    """One endpoint that the manager knows. Those that only the checkpoint remembers have nobody to call."""

    endpoint: Endpoint | None
    options: Options | None
    stopped_at: float | None = None
    socket: str = ""


@dataclass(frozen=True, slots=True)
class Capacity:
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    deleted: frozenset[str] = frozenset()


@dataclass(slots=True)
class HealthChange:
    """A health that differs from the one listed before, or an id that was not, makes the kubelet sync its pod."""

    uid: str
    resource: str
    id: str
    healthy: bool


@dataclass(slots=True)
class DeviceManager:
    version: Version
    clock: Callable[[], float]
    rng: Random
    grace: float = GRACE
    write: Callable[[Books], None] = lambda books: None
    """Called with every content that the checkpoint takes."""
    endpoints: dict[str, list[Connected]] = field(default_factory=dict)
    listed: dict[str, dict[str, Device]] = field(default_factory=dict)
    healthy: dict[str, frozenset[str]] = field(default_factory=dict)
    unhealthy: dict[str, frozenset[str]] = field(default_factory=dict)
    allocated: dict[str, set[str]] = field(default_factory=dict)
    pods: dict[str, dict[str, dict[str, Allocation]]] = field(default_factory=dict)
    """Pod uid, container, resource."""
    changes: list[HealthChange] = field(default_factory=list)

    # ------------------------------------------------------------ start

    def load(self, books: Books) -> None:
        """Take up the checkpoint: allocations as they were, resources without devices, endpoints stopped just now."""
        for each in books.entries:
            self.insert(each.uid, each.container, each.resource, each.allocation)
        self.recount()
        for resource in books.registered:
            self.healthy[resource] = self.unhealthy[resource] = frozenset()
            self.endpoints[resource] = [Connected(None, None, self.clock())]

    def books(self) -> Books:
        entries = tuple(
            Entry(uid, container, resource, allocation)
            for uid, containers in self.pods.items()
            for container, resources in containers.items()
            for resource, allocation in resources.items()
        )
        return Books(entries, dict(self.healthy))

    def save(self) -> None:
        self.write(self.books())

    # ------------------------------------------------------------ endpoints

    def connect(self, resource: str, socket: str, endpoint: Endpoint, options: Options) -> Connected | None:
        """A plugin registered. Up to 1.36 it takes the place of whoever was there; None: it is there already (1.37)."""
        connected = Connected(endpoint, options, socket=socket)
        if self.version.many_endpoints:
            live = [each for each in self.endpoints.get(resource, ()) if each.stopped_at is None]
            if any(each.socket == socket for each in live):
                return None
            self.endpoints[resource] = [*live, connected]
        else:
            self.endpoints[resource] = [connected]
        return connected

    def disconnect(self, resource: str, gone: Connected | None = None) -> None:
        """Stop an endpoint; None: the one that is in place now. The last one takes the health of all ids with it."""
        known = self.endpoints.get(resource)
        if not known:
            return
        if gone is not None and len(known) > 1 and gone in known:
            known.remove(gone)
            return
        if gone is None or gone in known:
            known[-1].stopped_at = self.clock()
            self.mark_unhealthy(resource)

    def mark_unhealthy(self, resource: str) -> None:
        self.unhealthy[resource] = self.unhealthy.get(resource, frozenset()) | self.healthy.get(resource, frozenset())
        if resource in self.healthy:
            self.healthy[resource] = frozenset()

    def current(self, resource: str) -> Connected | None:
        """The endpoint that Allocate goes to: the one that registered last."""
        known = self.endpoints.get(resource)
        return known[-1] if known else None

    # ------------------------------------------------------------ lists

    def receive(self, resource: str, devices: Iterable[Device]) -> None:
        """A ListAndWatch message. The same id with both healths is counted twice, as the kubelet does."""
        before = self.listed.get(resource, {})
        listed: dict[str, Device] = {}
        healthy: set[str] = set()
        unhealthy: set[str] = set()
        changed: dict[str, Device] = {}
        for each in devices:
            old = before.get(each.id)
            if old is None or old.health != each.health:  # a new one may be a held one that was gone
                changed[each.id] = each
            listed[each.id] = each
            (healthy if each.healthy else unhealthy).add(each.id)
        self.listed[resource] = listed
        self.healthy[resource], self.unhealthy[resource] = frozenset(healthy), frozenset(unhealthy)
        if changed:
            self._notify(resource, changed)
        self.save()

    def _notify(self, resource: str, changed: Mapping[str, Device]) -> None:
        for uid, containers in self.pods.items():
            for resources in containers.values():
                for name, allocation in resources.items():
                    if name == resource or not self.version.notifies_by_resource:
                        ids = sorted(allocation.ids & changed.keys())
                        self.changes += [HealthChange(uid, name, each, changed[each].healthy) for each in ids]

    def capacity(self) -> Capacity:
        """Read the counts. A read is also what deletes a resource whose endpoint stopped more than the grace ago."""
        capacity: dict[str, int] = {}
        allocatable: dict[str, int] = {}
        deleted: set[str] = set()
        for resource in {**self.healthy, **self.unhealthy}:
            if self._expired(resource):
                deleted.add(resource)
                continue
            allocatable[resource] = len(self.healthy.get(resource, ()))
            capacity[resource] = allocatable[resource] + len(self.unhealthy.get(resource, ()))
        for resource in deleted:
            for known in (self.endpoints, self.healthy, self.unhealthy):
                known.pop(resource, None)
        if deleted:
            self.save()
        return Capacity(capacity, allocatable, frozenset(deleted))

    def _expired(self, resource: str) -> bool:
        current = self.current(resource)
        if current is None:
            return True
        return current.stopped_at is not None and self.clock() - current.stopped_at > self.grace

    def plugged(self, resource: str) -> bool:
        """Whether this is a device plugin's resource at all: registered, or still allocated."""
        return resource in self.healthy or resource in self.allocated

    def health_of(self, resource: str, device: str) -> str:
        """What the pod status says of an id. An unknown one is healthy."""
        found = self.listed.get(resource, {}).get(device)
        return "Healthy" if found is None or found.healthy else "Unhealthy"

    # ------------------------------------------------------------ who has what

    def container_devices(self, uid: str, container: str, resource: str) -> frozenset[str] | None:
        found = self.pods.get(uid, {}).get(container, {}).get(resource)
        return None if found is None or not found.ids else found.ids

    def insert(self, uid: str, container: str, resource: str, allocation: Allocation) -> None:
        self.pods.setdefault(uid, {}).setdefault(container, {})[resource] = allocation

    def free(self, active: Iterable[str]) -> bool:
        """Drop what pods have that are not active. Memory only: the checkpoint learns of it at its next write."""
        ended = self.pods.keys() - set(active)
        for uid in ended:
            del self.pods[uid]
        if ended:
            self.recount()
        return bool(ended)

    def recount(self) -> None:
        self.allocated = {}
        for containers in self.pods.values():
            for resources in containers.values():
                for resource, allocation in resources.items():
                    self.allocated.setdefault(resource, set()).update(allocation.ids)

    def pick(self, ids: Iterable[str]) -> list[str]:
        """Ids in the order in which a Go map would give them: any."""
        ordered = sorted(ids)
        self.rng.shuffle(ordered)
        return ordered
