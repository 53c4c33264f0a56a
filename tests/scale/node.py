"""Sixteen GPUs cut into many shares, and what a change of them takes, counted instead of timed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType

from reactor import allocate
from reactor.events import Advertised, CheckpointRead, FaultCleared, PodsListed, XidReported
from reactor.kubelet.desk import Desk
from reactor.kubelet.encode import ListEncoder
from reactor.model.condition import WHOLE_GPU
from reactor.model.gpu import Gpu
from reactor.model.hold import CheckpointEntry, PodDevices, PodRef
from reactor.model.ids import DeviceId, GpuUuid, ResourceName
from reactor.model.kubelet import StreamId
from tests.reducer.world import GPU, World, gpu

GPUS = tuple(gpu(GpuUuid(f"GPU-{n:08x}-0000-0000-0000-000000000000"), n, numa=n // 8) for n in range(16))


class Big(World):
    """``World`` with sixteen GPUs, a desk with one stream, and its encoder."""

    def __init__(self, replicas: int) -> None:
        super().__init__(replicas=replicas)
        self.desk = Desk(answer=allocate.answer, prefer=allocate.prefer, reports=Deaf())
        self.encoder = ListEncoder()
        self.stream = self.desk.open(GPU, "a.sock")
        self.deliver()

    def inventory(self, *gpus: Gpu, generation: int = 0) -> None:
        super().inventory(*(gpus or GPUS), generation=generation)

    def deliver(self) -> int:
        """What becomes of a new snapshot: posted, taken, encoded, sent. Bytes of the list; 0: there is nothing new."""
        self.desk.post(self.snapshot)
        offer = self.stream.take()
        if offer is None:
            return 0
        data = self.encoder.encode(offer).data
        self.stream.sent(offer, len(data))
        self.send()
        return len(data)

    def ids(self) -> list[DeviceId]:
        return [one.id for one in self.offer().devices()]

    def send(self, resource: ResourceName = GPU) -> None:
        """As ``World`` does, without counting the healthy ones: that would be the most of all work here."""
        offer, plugin = self.offer(resource), self.state.kubelet.plugins[resource]
        self.tell(
            Advertised(
                resource=resource,
                stream=min(plugin.streams),
                revision=offer.revision,
                nudge=offer.nudge,
                healthy=len(offer),
                unhealthy=0,
                size=0,
            )
        )

    def books(self, count: int) -> tuple[PodsListed, CheckpointRead]:
        """The kubelet's books with pods of two ids each, ``count`` ids in all."""
        ids = self.ids()[:count]
        pods = [ids[start : start + 2] for start in range(0, count, 2)]
        shown = tuple(
            PodDevices(pod=PodRef("default", f"pod-{number}"), devices=tuple((GPU, one, ()) for one in each))
            for number, each in enumerate(pods)
        )
        entries = tuple(
            CheckpointEntry(pod_uid=f"uid-{number}", container="c", resource=GPU, id=one)
            for number, each in enumerate(pods)
            for one in each
        )
        return PodsListed(pods=shown, asked_at=self.now), CheckpointRead(entries=entries, asked_at=self.now)

    def read(self, books: tuple[PodsListed, CheckpointRead]) -> None:
        for book in books:
            self.tell(book)

    def xid(self, number: int) -> int:
        self.tell(XidReported(gpu=GPUS[number].uuid, placement=WHOLE_GPU, xid=79))
        return self.deliver()

    def clear(self, number: int) -> int:
        self.tell(FaultCleared(gpu=GPUS[number].uuid, reason="mended"))
        return self.deliver()


class Deaf:
    """Takes the desk's reports and does nothing."""

    def stream_opened(self, resource: str, socket: str, stream: StreamId) -> None: ...

    def stream_ended(self, resource: str, socket: str, stream: StreamId) -> None: ...

    def sent(
        self,
        resource: str,
        stream: StreamId,
        revision: int,
        nudge: int,
        healthy: int,
        unhealthy: int,
        size: int,
        *,
        standing: bool,
    ) -> None: ...

    def granted(self, number: int, resource: str, ids: tuple[str, ...], took: float) -> None: ...

    def refused(
        self, resource: str, ids: tuple[str, ...], message: str, faulty: tuple[str, ...], took: float
    ) -> None: ...


def effort(work: Callable[[], object]) -> int:
    """Calls that ``work`` makes, of Python and C functions: the same on a busy machine as on an idle one."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()  # what it runs has nothing to do with the work
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls
