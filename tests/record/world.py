"""Small states and events for tests of the log."""

from __future__ import annotations

from dataclasses import dataclass, field

from reactor.events import Event, Fact
from reactor.model.condition import Condition, FaultClass
from reactor.model.gpu import Gpu, MigMode
from reactor.model.hold import Hold, PodRef
from reactor.model.ids import DeviceId, GpuUuid, Identity, PciAddress, ResourceName
from reactor.plan import Plan, PlannedGroup, PlannedResource
from reactor.record.recorder import Recorder
from reactor.state import State

GPU = ResourceName("nvidia.com/gpu")
WALL = 1_796_000_000.0


def uuid(index: int) -> GpuUuid:
    return GpuUuid(f"GPU-00000000-0000-4000-8000-{index:012d}")


def gpu(index: int, *, monitored: bool = True) -> Gpu:
    return Gpu(
        uuid=uuid(index),
        index=index,
        minor=index,
        pci=PciAddress(f"0000:{index + 16:02x}:00.0"),
        product="NVIDIA H100 80GB HBM3",
        memory=85_520_809_984,
        compute=(9, 0),
        numa=0,
        mig=MigMode.DISABLED,
        recovery=None,
        monitored=monitored,
    )


def condition(xid: int | None = 79, *, fault: FaultClass = FaultClass.RESET, reason: str = "xid") -> Condition:
    return Condition(fault=fault, reason=reason, message=f"XID {xid}", xid=xid, since=WALL, last=WALL, boot="b")


def hold(index: int, pod: str = "train-0") -> Hold:
    return Hold(
        resource=GPU,
        id=DeviceId(uuid(index)),
        gpu=uuid(index),
        identity=Identity.WHOLE,
        since=WALL,
        pod=PodRef("ml", pod),
    )


def node(gpus: int = 2, *, replicas: int = 0) -> State:
    """A node with GPUs, all planned under one resource."""
    known = tuple(gpu(index) for index in range(gpus))
    groups = tuple(PlannedGroup(gpu=each.uuid, replicas=replicas) for each in known)
    return State(run="r1", scanned_at=1.0, gpus=known, plan=Plan(resources=(PlannedResource(name=GPU, groups=groups),)))


@dataclass
class Teller:
    """Gives facts to a recorder as the bus does."""

    recorder: Recorder
    seq: int = 0
    at: float = 100.0
    state: State = field(default_factory=node)

    def tell(self, fact: Fact, after: State | None = None, *, cause: int | None = None, later: float = 0.0) -> None:
        self.seq += 1
        self.at += later
        event = Event(seq=self.seq, cause=cause, at=self.at, wall=WALL + self.at, fact=fact)
        before, self.state = self.state, after or self.state
        self.recorder.record(event, before, self.state)
