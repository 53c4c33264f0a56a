"""One life of a kubelet: device manager, registry and sync loop, on no runtime and no clock of its own.

What outlives it is handed in: the API server's pods (with what the container runtime runs) and the checkpoint. The
transport around it (``memory.py``, ``grpc.py``) tells it what it received and serialises admissions, as the kubelet's
sync loop does. A step at which a real kubelet would end raises ``KubeletPanic`` and stays visible in ``panicked``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from reactor.model.hold import PodRef
from reactor.simulate.kubelet import podresources, texts
from reactor.simulate.kubelet.allocation import AdmissionError, Allocator
from reactor.simulate.kubelet.checkpoint import Books
from reactor.simulate.kubelet.devices import GRACE, Capacity, DeviceManager
from reactor.simulate.kubelet.plugin import Device, KubeletPanic, PluginError, RunOptions
from reactor.simulate.kubelet.pods import ApiServer, Container, Phase, Pod
from reactor.simulate.kubelet.registration import Client, Registry
from reactor.simulate.kubelet.topology import Policy
from reactor.simulate.kubelet.version import Version

MAX_NODES = 8
DEFAULT = Version(1, 34)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Which kubelet, and how it is set up."""

    version: Version = DEFAULT
    policy: Policy = Policy.NONE
    numa: int = 2
    grace: float = GRACE
    """Seconds for which a stopped resource stays on the node with nothing allocatable."""
    dial_timeout: float = 10.0
    seed: int = 0
    """Orders what Go leaves to chance."""
    predicates: bool = True
    """Whether the general predicates run after the allocation, from where a pod can still be refused."""
    end_notice: float = 0.0
    """Seconds until the kubelet notices that a stream ended. From 1.37 on it refuses that socket meanwhile."""

    def __post_init__(self) -> None:
        if self.policy is not Policy.NONE and not 0 < self.numa <= MAX_NODES:
            raise ValueError(f"a kubelet refuses topology policy {self.policy} on {self.numa} NUMA nodes")


class KubeletCore:
    def __init__(
        self,
        traits: Traits,
        api: ApiServer,
        clock: Callable[[], float],
        *,
        books: Books | None = None,
        write: Callable[[Books], None] = lambda books: None,
    ) -> None:
        self.traits = traits
        self.api = api
        self.panicked: str | None = None
        self.known: dict[str, Pod] = {}
        """Pods that this life has heard of, by uid."""
        self.node: dict[str, tuple[int, int]] = {}
        """Node status as last sampled: (capacity, allocatable). A key stays for ever, at 0/0."""
        self._ready = False
        self._admitting = False
        self.manager = DeviceManager(traits.version, clock, Random(traits.seed), traits.grace, write)
        self.registry = Registry(self.manager)
        self.allocator = Allocator(
            self.manager, self._active, lambda: self._ready, traits.policy, tuple(range(traits.numa))
        )
        if books is not None:
            self.manager.load(books)

    @property
    def ready(self) -> bool:
        """Whether the API server was heard in this life."""
        return self._ready

    def _active(self) -> set[str]:
        return {uid for uid, pod in self.known.items() if not pod.over}

    # ------------------------------------------------------------ lists

    def receive(self, client: Client, devices: Iterable[Device]) -> None:
        self.manager.receive(client.resource, devices)

    def capacity(self) -> Capacity:
        return self.manager.capacity()

    def sample(self) -> dict[str, tuple[int, int]]:
        """Publish the node status (each 10 s in a real one)."""
        seen = self.manager.capacity()
        for resource in seen.deleted:
            self.node[resource] = (0, 0)
        for resource, count in seen.capacity.items():
            self.node[resource] = (count, seen.allocatable.get(resource, 0))
        return self.node

    # ------------------------------------------------------------ pods

    async def hear(self) -> None:
        """The API server answers for the first time in this life: its pods are admitted, then sources are ready."""
        for pod in list(self.api.pods.values()):
            await self.add(pod)
        self._ready = True

    async def add(self, pod: Pod) -> None:
        """Admit a pod and start it. One at a time: the caller holds the lock of the sync loop."""
        if self._admitting:
            raise RuntimeError(f"pod {pod.ref} came while another one is being admitted")
        self.known[pod.uid] = pod
        if pod.over:
            return
        self._admitting = True
        try:
            await self._admit(pod)
            if pod.phase is Phase.PENDING:
                await self.start(pod)
        except KubeletPanic as panic:
            self.panicked = str(panic)
            raise
        finally:
            self._admitting = False

    async def _admit(self, pod: Pod) -> None:
        for container in pod.all_containers():
            if self.traits.policy is not Policy.NONE and not self.allocator.align(pod, container):
                pod.reject(texts.AFFINITY, texts.AFFINITY_MESSAGE)
                return
            try:
                await self.allocator.allocate(pod, container)
            except AdmissionError as error:
                pod.reject(texts.UNEXPECTED, texts.allocate_failed(str(error)))
                return
        refusal = self._predicate(pod) if self.traits.predicates else None
        if refusal is not None:
            pod.reject(*refusal)

    def _predicate(self, pod: Pod) -> tuple[str, str] | None:
        """Whether the requests of all active pods fit; what is allocated is always thought to be there."""
        others = [each for each in self.known.values() if each is not pod and not each.over]
        for resource in {name for each in pod.all_containers() for name in each.limits}:
            wanted = pod.request(resource)
            if not wanted or resource not in self.manager.healthy:
                continue
            allocated = len(self.manager.allocated.get(resource, ()))
            room = max(len(self.manager.healthy[resource]), allocated)
            used = sum(each.request(resource) for each in others)
            if used + wanted > room:
                return texts.out_of(resource, wanted, used, room)
        return None

    async def start(self, pod: Pod) -> dict[str, RunOptions]:
        """Start every container (init containers end at once); a failing PreStart leaves the pod waiting."""
        told = {}
        try:
            for container in pod.all_containers():
                told[container.name] = await self.allocator.run_options(pod, container)
                pod.told[container.name] = told[container.name]
        except (PluginError, AdmissionError) as error:
            pod.message = f"CreateContainerConfigError: {error}"
            return told
        pod.phase, pod.message, pod.running = Phase.RUNNING, "", pod.started()
        return told

    async def restart_container(self, pod: Pod, container: Container) -> RunOptions | None:
        """A container ended and starts again in place: no Allocate, the cached answer. It waits if PreStart fails."""
        try:
            options = await self.allocator.run_options(pod, container)
        except (PluginError, AdmissionError) as error:
            pod.message = f"CreateContainerConfigError: {error}"
            return None
        pod.told[container.name] = options
        return options

    def forget(self, pod: Pod) -> None:
        """The pod is gone from the API server and from the runtime. Its devices are freed later, when asked for."""
        self.known.pop(pod.uid, None)

    # ------------------------------------------------------------ what can be seen

    def pod_resources(self) -> tuple[podresources.PodEntry, ...]:
        """podresources List. From 1.34 it also frees what ended pods have, in memory."""
        version = self.traits.version
        if version.frees_at_list:
            self.allocator.collect()
        pods = [pod for pod in self.known.values() if not (pod.over and version.lists_active_pods_only)]
        return tuple(podresources.entry_of(self.manager, pod) for pod in pods)

    def pod_resources_of(self, ref: PodRef) -> podresources.PodEntry | None:
        """podresources Get; None: unknown, or (from 1.36) not active."""
        for pod in self.known.values():
            if pod.ref == ref and not (pod.over and self.traits.version >= Version(1, 36)):
                return podresources.entry_of(self.manager, pod)
        return None

    def pod_health(self, pod: Pod) -> dict[str, dict[str, str]]:
        """``allocatedResourcesStatus`` of the app containers: health by resource and id."""
        health: dict[str, dict[str, str]] = {}
        for container in pod.containers if self.traits.version.tells_health else ():
            for resource, allocation in self.manager.pods.get(pod.uid, {}).get(container.name, {}).items():
                for each in sorted(allocation.ids):
                    health.setdefault(resource, {})[each] = self.manager.health_of(resource, each)
        return health

    def devices(self, resource: str) -> dict[str, bool]:
        """The list as it stands: id and whether it is healthy now."""
        healthy = self.manager.healthy.get(resource, frozenset())
        return {each: each in healthy for each in self.manager.listed.get(resource, ())}

    def held(self, resource: str) -> frozenset[str]:
        """Ids that the device manager thinks are in use."""
        return frozenset(self.manager.allocated.get(resource, ()))
