"""A small node as a State: two GPUs, one resource, a kubelet that watches it."""

from __future__ import annotations

from reactor.events import ConfigOrigin
from reactor.model.condition import Condition, FaultClass
from reactor.model.config import Config, Flags
from reactor.model.gpu import Driver, DriverState, Gpu, MigMode
from reactor.model.hold import Hold, HoldKey, PodRef
from reactor.model.ids import DeviceId, GpuUuid, Identity, PciAddress, ResourceName, device_id
from reactor.model.kubelet import SocketIdentity, StreamId
from reactor.model.snapshot import Listed, Offer, Snapshot
from reactor.model.value import replace
from reactor.plan import Plan, PlannedGroup, PlannedResource
from reactor.state import ConfigState, DriverStatus, Kubelet, Plugin, State

WHOLE = ResourceName("nvidia.com/gpu")
LIFE = SocketIdentity(inode=7, ctime_ns=1)
WALL = 1_700_000_000.0


def gpu(index: int) -> Gpu:
    return Gpu(
        uuid=GpuUuid(f"GPU-0000000{index}-0000-0000-0000-000000000000"),
        index=index,
        minor=index,
        pci=PciAddress(f"0000:{index + 1:02x}:00.0"),
        product="NVIDIA H100 80GB HBM3",
        memory=80 << 30,
        compute=(9, 0),
        numa=0,
        mig=MigMode.DISABLED,
        recovery=None,
        monitored=True,
    )


GPUS = (gpu(0), gpu(1))
PLUGIN = Plugin(
    socket="gpu-reactor-1.sock",
    registered=LIFE,
    streams=frozenset({StreamId(1)}),
    sent_revision=5,
    sent_healthy=2,
)
READY = State(
    revision=9,
    version="1.2.3",
    run="run-1",
    boot="boot-1",
    started_wall=WALL - 600,
    config=ConfigState(
        config=Config(),
        digest="sha256-of-it",
        origin=ConfigOrigin.FILE,
        path="/etc/gpu-reactor/config.yaml",
        accepted_wall=WALL - 60,
    ),
    driver=DriverStatus(state=DriverState.READY, driver=Driver(version="580.95.05", cuda=(13, 0)), generation=1),
    gpus=GPUS,
    scanned_at=1.0,
    plan=Plan(resources=(PlannedResource(name=WHOLE, groups=tuple(PlannedGroup(gpu=one.uuid) for one in GPUS)),)),
    kubelet=Kubelet(identity=LIFE, life=1, plugins={WHOLE: PLUGIN}),
)


def listed(one: Gpu, share: int | None = None, *, reason: str = "") -> Listed:
    return Listed(
        id=device_id(one.uuid, share),
        gpu=one.uuid,
        index=one.index,
        minor=one.minor,
        share=share,
        healthy=not reason,
        reason=reason,
    )


def snapshot(*devices: Listed, revision: int = 5) -> Snapshot:
    offer = Offer(
        resource=WHOLE,
        groups=tuple((device,) for device in devices),
        revision=revision,
        by_id={device.id: device for device in devices},
    )
    return Snapshot(revision=revision, offers={WHOLE: offer})


SNAPSHOT = snapshot(*(listed(one) for one in GPUS))


def xid(number: int = 79, **changes: object) -> Condition:
    return replace(
        Condition(
            fault=FaultClass.RESET,
            reason="xid",
            message=f"XID {number}: GPU has fallen off the bus",
            xid=number,
            since=WALL - 30,
            last=WALL - 30,
            boot="boot-1",
        ),
        **changes,
    )


def hold(one: Gpu, share: int | None = None, *, pod: str = "a-pod", resource: ResourceName = WHOLE) -> Hold:
    return Hold(
        resource=resource,
        id=device_id(one.uuid, share),
        gpu=one.uuid,
        identity=Identity.WHOLE if share is None else Identity.SHARED,
        since=WALL - 20,
        pod=PodRef("default", pod),
    )


def foreign_hold() -> Hold:
    return Hold(resource=WHOLE, id=DeviceId("nvidia0"), gpu=None, identity=Identity.FOREIGN, since=WALL - 20)


def holding(state: State, *holds: Hold) -> State:
    return replace(state, holds={HoldKey(one.resource, one.id): one for one in holds})


def patient() -> Config:
    """failOnInitError: false"""
    return Config(flags=Flags(fail_on_init_error=False))
