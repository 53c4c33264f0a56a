"""One resource's DevicePlugin service on the asyncio side: gRPC in front of the desk."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet._pb.deviceplugin_grpc import DevicePluginBase
from reactor.kubelet.desk import Desk, Report
from reactor.kubelet.encode import EncodedList, ListEncoder
from reactor.model.ids import ResourceName
from reactor.model.kubelet import Answer, Refusal

log = logging.getLogger(__name__)

LARGEST_LIST = 4 * 2**20
"""Bytes of a message that the kubelet takes; one more and it ends the stream with every id unhealthy."""
PAUSE = 0.01
"""Seconds for which reports of Allocates are put off; nothing in the agent needs them sooner."""
_LONGEST_MESSAGE = 1000
"""Characters of a refusal: it becomes an HTTP/2 header and part of the pod's status."""


class PluginService(DevicePluginBase):
    def __init__(self, desk: Desk, resource: ResourceName, socket: str) -> None:
        self._desk = desk
        self._resource = resource
        self._socket = socket
        self._encoder = ListEncoder()
        self.spent = False
        """Whether a stream of it has ended: whoever registers it after that gets half a plugin."""

    def __mapping__(self) -> dict[str, Handler]:
        watch = Handler(self.watch, Cardinality.UNARY_STREAM, pb.Empty, EncodedList)
        return {**super().__mapping__(), "/v1beta1.DevicePlugin/ListAndWatch": watch}

    async def GetDevicePluginOptions(self, stream: Stream[pb.Empty, pb.DevicePluginOptions]) -> None:  # noqa: N802
        await stream.recv_message()
        await stream.send_message(pb.DevicePluginOptions(get_preferred_allocation_available=True))

    async def ListAndWatch(self, stream: Stream[pb.Empty, pb.ListAndWatchResponse]) -> None:  # noqa: N802
        raise GRPCError(Status.UNIMPLEMENTED)  # never mapped: watch() takes its path, with encoded messages

    async def watch(self, stream: Stream[pb.Empty, EncodedList]) -> None:
        """Send the list in force, then each newer one; ends with the stream, and only this stream, when a send fails.

        While a reader is slow, what it misses is replaced: it gets the newest list when it reads again. A list that
        the kubelet would drop the resource for is not sent; the plan prevents it, this is the last guard.
        """
        await stream.recv_message()
        changed = asyncio.Event()
        feed = self._desk.open(self._resource, self._socket, changed.set)
        try:
            while True:
                offer = feed.take()
                if offer is None:
                    changed.clear()
                    await changed.wait()
                    continue
                encoded = self._encoder.encode(offer)
                if len(encoded.data) > LARGEST_LIST:
                    log.error("list.oversized", extra={"resource": self._resource, "size": len(encoded.data)})
                    continue
                await stream.send_message(encoded)
                feed.sent(offer, len(encoded.data))
        finally:
            self.spent = True
            feed.close()

    async def Allocate(self, stream: Stream[pb.AllocateRequest, pb.AllocateResponse]) -> None:  # noqa: N802
        begun = asyncio.get_running_loop().time()
        request = await stream.recv_message()
        asked = () if request is None else tuple(tuple(one.devices_ids) for one in request.container_requests)
        outcome = self._desk.allocate(self._resource, asked, partial(self._report, begun))
        if isinstance(outcome, Refusal):
            # Told apart for whoever reads the pod's status: the device's fault, or the request's.
            status = Status.FAILED_PRECONDITION if outcome.faulty else Status.INVALID_ARGUMENT
            raise GRPCError(status, outcome.message[:_LONGEST_MESSAGE])
        await stream.send_message(pb.AllocateResponse(container_responses=[_container(one) for one in outcome]))

    def _report(self, begun: float, report: Report) -> None:
        """Report an Allocate a little later: at once it would wake the agent's thread, and the next call would wait.

        The time that it took is known after two turns of the loop: in the first the answer, which is not written yet,
        leaves (``listener``).
        """
        loop = asyncio.get_running_loop()

        def owe() -> None:
            if self._desk.owe(partial(report, loop.time() - begun)):
                loop.call_later(PAUSE, self._desk.settle)

        loop.call_soon(loop.call_soon, owe)

    async def GetPreferredAllocation(  # noqa: N802
        self, stream: Stream[pb.PreferredAllocationRequest, pb.PreferredAllocationResponse]
    ) -> None:
        request = await stream.recv_message()
        reply = pb.PreferredAllocationResponse()
        for one in () if request is None else request.container_requests:
            chosen = self._desk.preferred(
                self._resource, tuple(one.available_deviceIDs), tuple(one.must_include_deviceIDs), one.allocation_size
            )
            reply.container_responses.add(deviceIDs=chosen)
        await stream.send_message(reply)

    async def PreStartContainer(  # noqa: N802
        self, stream: Stream[pb.PreStartContainerRequest, pb.PreStartContainerResponse]
    ) -> None:
        """Not asked for by our options; answered all the same."""
        await stream.recv_message()
        await stream.send_message(pb.PreStartContainerResponse())


def _container(answer: Answer) -> pb.ContainerAllocateResponse:
    return pb.ContainerAllocateResponse(
        envs=dict(answer.envs),
        mounts=[pb.Mount(container_path=inside, host_path=outside) for inside, outside in answer.mounts],
        devices=[
            pb.DeviceSpec(container_path=inside, host_path=outside, permissions=permissions)
            for inside, outside, permissions in answer.devices
        ],
    )


async def until_owed() -> None:
    """Return when each Allocate that was answered before is reported, or owed: that takes two turns of the loop."""
    for _ in range(2):
        await asyncio.sleep(0)
