"""The floor: a device plugin that only answers, in grpcio, as short as it can be.

``python -m tests.bench.floor DIRECTORY GPUS`` serves so many made-up GPUs, registers, and does what a line on stdin
says: ``list`` sends a list that differs from the last one, ``again`` serves on a new socket and registers there. It
looks at no hardware, no config and no kubelet by itself, so it has no way to be late.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from tests.bench.block import arm

RESOURCE = "nvidia.com/gpu"
GPUS = 8
THREADS = 24
"""One for each of sixteen clients, and some that wait in streams."""


class Plugin:
    def __init__(self, directory: Path, gpus: int) -> None:
        self._directory = directory
        self._ids = tuple(f"GPU-00000000-0000-0000-0000-{number:012d}" for number in range(gpus))
        self._changed = threading.Condition()
        self._revision = 0
        self._life = 0
        self._server: grpc.Server | None = None

    def list(self) -> None:
        with self._changed:
            self._revision += 1
            self._changed.notify_all()

    def again(self) -> None:
        if self._server is not None:
            self._server.stop(0)
        self._life += 1
        name = f"floor-{self._life}.sock"
        self._server = grpc.server(ThreadPoolExecutor(THREADS))
        methods: dict[str, grpc.RpcMethodHandler] = {
            "GetDevicePluginOptions": _unary(pb.Empty, lambda request, context: pb.DevicePluginOptions()),
            "Allocate": _unary(pb.AllocateRequest, _allocate),
            "GetPreferredAllocation": _unary(pb.PreferredAllocationRequest, _prefer),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._watch, pb.Empty.FromString, pb.ListAndWatchResponse.SerializeToString
            ),
        }
        handler = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self._directory / name}")
        self._server.start()
        with grpc.insecure_channel(f"unix:{self._directory}/kubelet.sock") as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register", pb.RegisterRequest.SerializeToString, pb.Empty.FromString
            )
            register(pb.RegisterRequest(version="v1beta1", endpoint=name, resource_name=RESOURCE), timeout=10)

    def _watch(self, request: pb.Empty, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        sent = -1
        while True:
            with self._changed:
                while self._revision == sent:
                    self._changed.wait()
                sent = self._revision
            marked = self._ids[sent % len(self._ids)] if sent else ""
            yield pb.ListAndWatchResponse(
                devices=[pb.Device(ID=one, health="Unhealthy" if one == marked else "Healthy") for one in self._ids]
            )


Request = type[pb.Empty | pb.AllocateRequest | pb.PreferredAllocationRequest]


def _unary(request: Request, answer: Callable[..., object]) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(answer, request.FromString, lambda reply: reply.SerializeToString())


def _allocate(request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
    reply = pb.AllocateResponse()
    for one in request.container_requests:
        reply.container_responses.add(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(one.devices_ids)})
    return reply


def _prefer(request: pb.PreferredAllocationRequest, context: grpc.ServicerContext) -> pb.PreferredAllocationResponse:
    """The first of them: a plugin that has no opinion."""
    reply = pb.PreferredAllocationResponse()
    for one in request.container_requests:
        reply.container_responses.add(deviceIDs=one.available_deviceIDs[: one.allocation_size])
    return reply


def main() -> None:
    arm()
    plugin = Plugin(Path(sys.argv[1]), int(sys.argv[2]))
    plugin.again()
    for line in sys.stdin:
        {"list": plugin.list, "again": plugin.again}[line.strip()]()


if __name__ == "__main__":
    main()
