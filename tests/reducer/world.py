"""A state driven by facts alone, with the time in the test's hand."""

from __future__ import annotations

from collections.abc import Iterable

from reactor import events as e
from reactor import view
from reactor.model.config import Config, HoldsPolicy, SharedResource, TimeSlicing
from reactor.model.gpu import Driver, Gpu, Inventory, MigMode
from reactor.model.hold import CheckpointEntry, HoldKey, PodDevices, PodRef
from reactor.model.ids import DeviceId, GpuUuid, PciAddress, ResourceName
from reactor.model.kubelet import SocketIdentity, StreamId
from reactor.model.snapshot import Offer, Snapshot
from reactor.model.value import replace
from reactor.reducer import reduce
from reactor.state import State

GPU = ResourceName("nvidia.com/gpu")
SHARED = ResourceName("nvidia.com/gpu.shared")
A, B = (GpuUuid(f"GPU-{letter * 8}-0000-0000-0000-000000000000") for letter in "ab")
WHOLE_A, WHOLE_B = DeviceId(A), DeviceId(B)
POD = PodRef("default", "job")


def share(gpu: GpuUuid, number: int) -> DeviceId:
    return DeviceId(f"{gpu}::{number}")


def gpu(uuid: GpuUuid, index: int, **other: object) -> Gpu:
    values: dict[str, object] = {
        "uuid": uuid,
        "index": index,
        "minor": index,
        "pci": PciAddress(f"0000:{index + 1:02x}:00.0"),
        "product": "NVIDIA H100",
        "memory": 80 << 30,
        "compute": (9, 0),
        "numa": None,
        "mig": MigMode.DISABLED,
        "recovery": None,
        "monitored": True,
    }
    return Gpu(**(values | other))  # type: ignore[arg-type]


def config(replicas: int = 0, rename: ResourceName | None = None, holds: HoldsPolicy = HoldsPolicy.WAIT) -> Config:
    if not replicas:
        return Config(holds=holds)
    return Config(
        holds=holds,
        time_slicing=TimeSlicing(resources=(SharedResource(name=GPU, rename=rename, replicas=replicas),)),
    )


class World:
    """Two GPUs, a kubelet that is up, one stream a resource; lists go out when the test says ``send``."""

    def __init__(self, *, replicas: int = 0) -> None:
        self.state = State()
        self.now = 100.0
        self.seq = 0
        self.snapshot = Snapshot()
        self.grants = 0
        self.tell(e.AgentStarted(version="1", run="r", boot="boot"))
        self.config(replicas)
        self.inventory()
        self.checkpoint()
        self.kubelet(1)
        for name in view.names(self.state):
            self.serve(name)

    def tell(self, fact: e.Fact, *, after: float = 0.0) -> State:
        self.now += after
        self.seq += 1
        event = e.Event(seq=self.seq, cause=None, at=self.now, wall=self.now + 1e9, fact=fact)
        before = self.state
        self.state = reduce(before, event)
        if self.state is not before:
            self.state = replace(self.state, revision=self.seq)
        self.snapshot = view.snapshot(self.state, self.snapshot)
        return self.state

    def config(self, replicas: int = 0, rename: ResourceName | None = None, **other: HoldsPolicy) -> None:
        self.tell(e.ConfigRead(config=config(replicas, rename, **other), digest=f"{replicas}{rename}{other}"))

    def inventory(self, *gpus: Gpu, generation: int = 0) -> None:
        taken = gpus or (gpu(A, 0), gpu(B, 1))
        self.tell(
            e.InventoryTaken(
                inventory=Inventory(driver=Driver(version="570", cuda=(12, 8)), gpus=taken, generation=generation)
            )
        )

    def kubelet(self, life: int) -> None:
        self.tell(e.KubeletUp(identity=SocketIdentity(life, life)))

    def serve(self, resource: ResourceName) -> None:
        socket = f"{resource}-{self.seq}.sock"
        self.tell(e.PluginServing(resource=resource, socket=socket))
        identity = self.state.kubelet.identity
        assert identity is not None
        self.tell(e.PluginRegistered(resource=resource, socket=socket, identity=identity))
        self.tell(e.StreamOpened(resource=resource, socket=socket, stream=StreamId(self.seq)))
        self.send(resource)

    def send(self, resource: ResourceName = GPU) -> None:
        offer = self.offer(resource)
        plugin = self.state.kubelet.plugins[resource]
        healthy = sum(one.healthy for one in offer.devices())
        self.tell(
            e.Advertised(
                resource=resource,
                stream=min(plugin.streams),
                revision=offer.revision,
                nudge=offer.nudge,
                healthy=healthy,
                unhealthy=len(offer) - healthy,
                size=0,
            )
        )

    def grant(self, *ids: DeviceId, resource: ResourceName = GPU) -> None:
        self.grants += 1
        self.tell(e.Granted(number=self.grants, resource=resource, ids=ids))

    def pods(self, *ids: DeviceId, pod: PodRef = POD, resource: ResourceName = GPU, others: int = 0) -> None:
        """A List that shows one pod with these ids (none: no such pod)."""
        shown = [PodDevices(pod=pod, devices=tuple((resource, one, ()) for one in ids))] if ids else []
        shown += [PodDevices(pod=PodRef("other", str(number)), devices=()) for number in range(others)]
        self.tell(e.PodsListed(pods=tuple(shown), asked_at=self.now))

    def checkpoint(
        self, *ids: DeviceId, uid: str = "uid", resource: ResourceName = GPU, known: Iterable[ResourceName] = ()
    ) -> None:
        """``known``: resources that the kubelet knows by its file, ids or not."""
        entries = tuple(CheckpointEntry(pod_uid=uid, container="c", resource=resource, id=one) for one in ids)
        self.tell(e.CheckpointRead(entries=entries, resources=frozenset(known), asked_at=self.now))

    def deadline(self, name: str) -> None:
        """Let the time come that the state asked to be told of."""
        self.now = max(self.now, self.state.deadlines[name])
        self.tell(e.DeadlinePassed(name=name))

    def offer(self, resource: ResourceName = GPU) -> Offer:
        return self.snapshot.offers[resource]

    def listed(self, resource: ResourceName = GPU) -> dict[str, bool]:
        """What is listed, with its health; empty if the resource is not offered."""
        if resource not in self.snapshot.offers:
            return {}
        return {one.id: one.healthy for one in self.offer(resource).devices()}

    def held(self, resource: ResourceName = GPU) -> set[str]:
        return {key.id for key in self.state.holds if key.resource == resource}


def key(one: DeviceId, resource: ResourceName = GPU) -> HoldKey:
    return HoldKey(resource, one)
