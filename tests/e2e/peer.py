"""A stand-in for another device plugin, in grpcio: one fixed socket, whole GPUs by UUID, registered once.

    python -m tests.e2e.peer DIRECTORY RESOURCE UUID...     # in the node; ends with TERM as such plugins do

It answers with the variable that everybody's containers read. It removes a socket that is in its place before it
listens, and its own when it ends. USR1 turns the health of its first GPU. It looks at no hardware, no config and no
kubelet by itself, so it has no way to be late.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from reactor.kubelet._pb import deviceplugin_pb2 as pb

SOCKET = "nvidia-gpu.sock"
_SERVICE = "v1beta1.DevicePlugin"


class Peer:
    def __init__(self, directory: Path, resource: str, ids: list[str]) -> None:
        self._directory = directory
        self._resource = resource
        self._ids = ids
        self._sick = ""
        self._changed = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(8))

    def serve(self) -> None:
        socket = self._directory / SOCKET
        socket.unlink(missing_ok=True)
        watch = grpc.unary_stream_rpc_method_handler(
            self._watch, pb.Empty.FromString, lambda message: message.SerializeToString()
        )
        methods = {
            "GetDevicePluginOptions": _unary(pb.Empty, lambda request, context: pb.DevicePluginOptions()),
            "Allocate": _unary(pb.AllocateRequest, _allocate),
            "ListAndWatch": watch,
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, methods),))
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()
        with grpc.insecure_channel(f"unix:{self._directory}/kubelet.sock") as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register", pb.RegisterRequest.SerializeToString, pb.Empty.FromString
            )
            request = pb.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=self._resource)
            register(request, timeout=30, wait_for_ready=True)

    def turn(self) -> None:
        with self._changed:
            self._sick = "" if self._sick else self._ids[0]
            self._changed.notify_all()

    def end(self) -> None:
        self._server.stop(0).wait()
        (self._directory / SOCKET).unlink(missing_ok=True)

    def _watch(self, request: pb.Empty, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        sent: str | None = None
        while context.is_active():
            with self._changed:
                if self._sick == sent:
                    self._changed.wait(1)  # the other side may have gone meanwhile
                    continue
                sent = self._sick
            yield pb.ListAndWatchResponse(
                devices=[pb.Device(ID=one, health="Unhealthy" if one == sent else "Healthy") for one in self._ids]
            )


def _unary(request: type[pb.Empty | pb.AllocateRequest], answer: Callable[..., object]) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(answer, request.FromString, lambda reply: reply.SerializeToString())


def _allocate(request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
    reply = pb.AllocateResponse()
    for one in request.container_requests:
        reply.container_responses.add(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(one.devices_ids)})
    return reply


def main() -> None:
    mine = {signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, mine)
    peer = Peer(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
    peer.serve()
    print("served", flush=True)
    while signal.sigwait(mine) is signal.SIGUSR1:
        peer.turn()
    peer.end()


if __name__ == "__main__":
    main()
