"""Facts of a small world, source by source, for properties of the reducer alone."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec import structs

from reactor import events as e
from reactor.model.condition import Placement
from reactor.model.config import (
    Config,
    ConfigProblem,
    FirstDevices,
    Flags,
    HoldsPolicy,
    ListedDevices,
    SharedResource,
    TimeSlicing,
)
from reactor.model.gpu import Driver, DriverState, FailureKind, Gpu, GpuFailure, Inventory, MigMode, RecoveryAction
from reactor.model.hold import CheckpointEntry, PodDevices, PodRef
from reactor.model.ids import DeviceId, GpuUuid, PciAddress, ResourceName
from reactor.model.kubelet import SocketIdentity, StreamId

GPU, SHARED = ResourceName("nvidia.com/gpu"), ResourceName("nvidia.com/gpu.shared")
RESOURCES = (GPU, SHARED)
UUIDS = tuple(GpuUuid(f"GPU-{letter * 8}-0000-0000-0000-000000000000") for letter in "abc")
PODS = tuple(PodRef("default", f"pod-{number}") for number in range(3))
LAST_PODS = tuple(PodRef("default", f"last-{number}") for number in range(3))
FOREIGN = DeviceId("tpu-0")
ONE_DEVICE_OF_EACH = tuple(DeviceId(gpu) for gpu in UUIDS)
IDS = (*ONE_DEVICE_OF_EACH, *(DeviceId(f"{gpu}::{n}") for gpu in UUIDS for n in range(3)), FOREIGN)

resources = st.sampled_from(RESOURCES)
ids = st.sampled_from(IDS)
uuids = st.sampled_from(UUIDS)


def _gpu(place: int, index: int, numa: int | None, recovery: RecoveryAction | None) -> Gpu:
    return Gpu(
        uuid=UUIDS[place],
        index=index,
        minor=place,
        pci=PciAddress(f"0000:{place + 1:02x}:00.0"),
        product="NVIDIA H100",
        memory=80 << 30,
        compute=(9, 0),
        numa=numa,
        mig=MigMode.DISABLED,
        recovery=recovery,
        monitored=True,
    )


_recovery = st.sampled_from((RecoveryAction.NONE, RecoveryAction.NONE, None, RecoveryAction.RESET))


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """Some of the GPUs answer, some fail, some are not counted."""
    gpus: list[Gpu] = []
    failures: list[GpuFailure] = []
    for place in draw(st.lists(st.integers(0, 2), unique=True, max_size=3).map(sorted)):
        index = len(gpus) + len(failures)
        kind = draw(st.sampled_from((None, None, None, *FailureKind)))
        if kind is None:
            gpus.append(_gpu(place, index, draw(st.sampled_from((place % 2, place % 2, None))), draw(_recovery)))
        else:
            named = draw(st.booleans())
            failure = GpuFailure(index=index, kind=kind, error="no", uuid=UUIDS[place] if named else None)
            failures.append(failure)
    return Inventory(
        driver=Driver(version="580", cuda=(13, 0)),
        gpus=tuple(gpus),
        failures=tuple(failures),
        generation=draw(st.integers(1, 2)),
    )


_sharing = st.builds(
    lambda replicas, rename, devices: TimeSlicing(
        resources=(SharedResource(name=GPU, rename=rename, replicas=replicas, devices=devices),)
    ),
    st.integers(2, 3),
    st.sampled_from((None, SHARED)),
    st.sampled_from((FirstDevices(1), ListedDevices(indices=frozenset((1,))), FirstDevices(3))),
)
configs = st.builds(
    Config,
    flags=st.sampled_from((Flags(), Flags(), Flags(pass_device_specs=True))),
    gpus=st.sampled_from((Config().gpus, Config().gpus, ())),
    time_slicing=st.one_of(st.just(TimeSlicing()), _sharing, _sharing),
    holds=st.sampled_from((HoldsPolicy.WAIT, HoldsPolicy.WAIT, HoldsPolicy.ALLOW)),
)
_problem = ConfigProblem(line=1, column=1, path="flags", message="unknown key")
config: st.SearchStrategy[e.Fact] = st.one_of(
    configs.map(lambda one: e.ConfigRead(config=one, digest=str(hash(one)), text=repr(one))),
    configs.map(lambda one: e.ConfigRead(config=one, digest=str(hash(one)), text=repr(one))),
    st.just(e.ConfigRejected(digest="bad", path="c", problems=(_problem,))),
)

_placements = st.sampled_from((Placement(), Placement(), Placement(gi=1, ci=0)))
nvml: st.SearchStrategy[e.Fact] = st.one_of(
    st.builds(e.InventoryTaken, inventory=inventories()),
    st.builds(e.InventoryTaken, inventory=inventories()),
    st.builds(e.InventoryFailed, state=st.sampled_from(tuple(DriverState)), error=st.just("no")),
    st.builds(e.XidReported, gpu=uuids, placement=_placements, xid=st.sampled_from((31, 48, 54, 79, 9999))),
    st.builds(e.EccReported, gpu=uuids, placement=_placements),
    st.builds(e.RecoveryActionChanged, gpu=uuids, action=st.sampled_from(tuple(RecoveryAction))),
    st.builds(e.GpuLost, gpu=uuids, error=st.just("lost")),
    st.builds(e.FaultUnattributed, what=st.just("?")),
    st.builds(e.FaultCleared, gpu=uuids, reason=st.just("mended")),
)


@st.composite
def pods(draw: st.DrawFn, known: tuple[PodRef, ...] = PODS) -> tuple[PodDevices, ...]:
    """A List: an id has one pod at most."""
    given = draw(st.dictionaries(st.tuples(resources, ids), st.sampled_from(known), max_size=4))
    named = draw(st.frozensets(st.sampled_from(known))) | frozenset(given.values())
    return tuple(
        PodDevices(pod=pod, devices=tuple((*key, ()) for key, owner in given.items() if owner == pod))
        for pod in sorted(named)
    )


@st.composite
def entries(draw: st.DrawFn) -> tuple[CheckpointEntry, ...]:
    given = draw(st.dictionaries(st.tuples(resources, ids), st.sampled_from(("uid-0", "uid-1", "uid-2")), max_size=4))
    return tuple(CheckpointEntry(pod_uid=uid, container="c", resource=key[0], id=key[1]) for key, uid in given.items())


_never = st.just(0.0)
"""asked_at is set when the fact is told: it is the time of the call."""
books: st.SearchStrategy[e.Fact] = st.one_of(
    st.builds(e.PodsListed, pods=pods(), asked_at=_never),
    st.builds(e.PodsListFailed, error=st.just("no")),
    st.builds(e.CheckpointRead, entries=entries(), asked_at=_never),
    st.builds(e.CheckpointRead, entries=entries(), asked_at=_never),
    st.builds(e.CheckpointFailed, error=st.just("no"), missing=st.booleans()),
)

_identities = st.builds(SocketIdentity, inode=st.just(1), ctime_ns=st.integers(1, 2))
_sockets = st.sampled_from(("one.sock", "two.sock"))
_streams = st.integers(1, 3).map(StreamId)
_counts = st.integers(0, 3)
kubelet: st.SearchStrategy[e.Fact] = st.one_of(
    st.builds(e.KubeletUp, identity=_identities),
    st.builds(e.KubeletDown, reason=st.just("refused")),
    st.builds(e.PluginSocketGone, resource=resources, socket=_sockets),
    st.builds(e.PluginServing, resource=resources, socket=_sockets),
    st.builds(e.PluginClosed, resource=resources),
    st.builds(e.PluginRegistered, resource=resources, socket=_sockets, identity=_identities),
    st.builds(e.PluginOffered, resource=resources, socket=_sockets),
    st.builds(e.PluginRefused, resource=resources, socket=_sockets, error=st.just("no")),
    st.builds(e.StreamOpened, resource=resources, socket=_sockets, stream=_streams),
    st.builds(e.StreamOpened, resource=resources, socket=_sockets, stream=_streams),
    st.builds(e.StreamEnded, resource=resources, socket=_sockets, stream=_streams),
    st.builds(
        e.Advertised,
        resource=resources,
        stream=_streams,
        revision=st.integers(0, 60),
        nudge=st.integers(0, 3),
        healthy=_counts,
        unhealthy=_counts,
        size=st.just(100),
    ),
)
grants: st.SearchStrategy[e.Fact] = st.one_of(
    st.builds(
        e.Granted,
        number=st.integers(1, 9),
        resource=resources,
        ids=st.lists(ids, min_size=1, max_size=2, unique=True).map(tuple),
    ),
    st.builds(
        e.Refused,
        resource=resources,
        ids=st.lists(ids, max_size=2).map(tuple),
        message=st.just("no"),
        faulty=st.lists(ids, max_size=1).map(tuple),
    ),
)
others: st.SearchStrategy[e.Fact] = st.one_of(
    st.builds(e.SignalReceived, name=st.sampled_from(("HUP", "TERM"))),
    st.builds(e.AgentStopping, reason=st.just("asked")),
    st.builds(e.PluginDirectoryGone, directory=st.just("/d")),
    st.builds(e.AgentWaiting, reason=st.just("another one")),
    st.builds(e.AgentStarted, version=st.just("1"), run=st.just("r"), boot=st.sampled_from(("boot", "boot-2"))),
    st.builds(e.StateRestored, problem=st.sampled_from(("", "damaged"))),
    st.builds(e.DevicesChanged, what=st.just("?")),
    st.builds(e.WorkerStarted, pid=st.just(1)),
    st.builds(e.WorkerLost, hung=st.booleans(), error=st.just("no")),
    st.builds(
        e.DeadlinePassed,
        name=st.sampled_from(("leaving", "resync", "quiet", "enrolled:nvidia.com/gpu", "none of ours")),
    ),
    st.builds(e.Remembered, revision=st.integers(0, 9)),
    st.builds(
        e.HandlerFailed,
        handler=st.just("h"),
        lane=st.sampled_from(("", "l")),
        error=st.just("no"),
        attempt=st.integers(1, 3),
        retry_in=st.just(1.0),
    ),
    st.builds(e.HandlerRecovered, handler=st.just("h"), lane=st.sampled_from(("", "l")), attempts=st.just(1)),
    st.builds(e.SourceFailed, source=st.just("s"), error=st.just("no"), attempt=st.just(1), retry_in=st.just(1.0)),
    st.builds(e.SourceRecovered, source=st.just("s"), attempts=st.just(1)),
)
anything: st.SearchStrategy[e.Fact] = st.one_of(config, nvml, nvml, books, books, kubelet, kubelet, grants, others)
levels: st.SearchStrategy[e.Fact] = st.one_of(
    config,
    st.builds(e.InventoryTaken, inventory=inventories()),
    st.builds(e.InventoryFailed, state=st.sampled_from(tuple(DriverState)), error=st.just("no")),
    books,
    st.builds(e.KubeletUp, identity=_identities),
    st.builds(e.KubeletDown, reason=st.just("refused")),
    st.builds(e.PluginSocketGone, resource=resources, socket=_sockets),
)


def told_at(fact: e.Fact, at: float) -> e.Fact:
    """The fact with the time of its call, where it has one."""
    if isinstance(fact, e.PodsListed | e.CheckpointRead):
        return structs.replace(fact, asked_at=at)
    return fact
