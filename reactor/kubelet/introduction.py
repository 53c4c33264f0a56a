"""What the kubelet's plugin watcher asks a socket that it found: asyncio side.

It asks who this is (within 1 s), dials back as for a Register, and then tells whether it took the plugin. Where it did
not like what it was told it asks again after 0.5 s, doubling up to two minutes; where the dial-back failed it never
comes again to that file.
"""

from __future__ import annotations

from collections.abc import Callable

from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from reactor.kubelet._pb import pluginregistration_pb2 as pb
from reactor.kubelet._pb.pluginregistration_grpc import RegistrationBase
from reactor.kubelet.calls import VERSION
from reactor.model.ids import ResourceName

Notified = Callable[[ResourceName, str, str | None], None]
"""Told of a resource, its socket, and why the kubelet did not take it; None: it did."""


class Introduction(RegistrationBase):
    def __init__(self, resource: ResourceName, socket: str, notified: Notified, spent: Callable[[], bool]) -> None:
        """``spent``: whether the socket has had its registration, so that another one comes to take its place."""
        self._resource = resource
        self._socket = socket
        self._notified = notified
        self._spent = spent

    async def GetInfo(self, stream: Stream[pb.InfoRequest, pb.PluginInfo]) -> None:  # noqa: N802
        await stream.recv_message()
        if self._spent():
            raise GRPCError(Status.UNAVAILABLE, "this socket is done with, another one takes its place")
        # No endpoint: this socket, wherever the kubelet sees it. Our path to it may be another one.
        info = pb.PluginInfo(type="DevicePlugin", name=self._resource, supported_versions=[VERSION])
        await stream.send_message(info)

    async def NotifyRegistrationStatus(  # noqa: N802
        self, stream: Stream[pb.RegistrationStatus, pb.RegistrationStatusResponse]
    ) -> None:
        status = await stream.recv_message()
        if status is not None:
            error = None if status.plugin_registered else status.error or "the kubelet gave no reason"
            self._notified(self._resource, self._socket, error)
        await stream.send_message(pb.RegistrationStatusResponse())
