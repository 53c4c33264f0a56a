"""The measuring kubelet, in grpcio: takes registrations, reads lists as bytes, and says when each one came."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet._pb import podresources_pb2 as pr
from tests.bench.floor import RESOURCE

# Without a pool of its own a channel may be given the connection of an earlier one to the same path.
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
_SERVICE = "/v1beta1.DevicePlugin/"


class Kubelet:
    """One life after another of a kubelet on one plugin directory."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "device-plugins"
        self.directory.mkdir(parents=True)
        (root / "pod-resources").mkdir()
        self._root = root
        self._lists: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._servers: list[grpc.Server] = []
        self._channel: grpc.Channel | None = None
        self._methods: dict[str, Callable[..., object]] = {}
        self._endpoint = ""
        self.streams = 0
        """How many streams were opened in all."""
        self.newest = b""
        self.write_down(())

    def write_down(self, held: Iterable[str]) -> None:
        """Write the checkpoint: one pod holds these ids."""
        entry = {"PodUID": "pod", "ContainerName": "main", "ResourceName": RESOURCE, "DeviceIDs": {"-1": sorted(held)}}
        checkpoint = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 0}
        (self.directory / "kubelet_internal_checkpoint").write_text(json.dumps(checkpoint))

    def start(self) -> int:
        """Begin a life as a kubelet does: wipe the sockets, then listen. Returns when it began to accept (ns)."""
        pods = self._server("v1.PodResourcesLister", "List", lambda request, context: pr.ListPodResourcesResponse())
        pods.add_insecure_port(f"unix:{self._root}/pod-resources/kubelet.sock")
        pods.start()
        server = self._server("v1beta1.Registration", "Register", self._register)
        for path in self.directory.iterdir():
            if path.is_socket():
                path.unlink()
        begun = time.monotonic_ns()
        server.add_insecure_port(f"unix:{self.directory}/kubelet.sock")
        server.start()
        return begun

    def stop(self) -> None:
        """End this life: nobody listens, and every stream has ended."""
        for server in self._servers:
            server.stop(0).wait()
        self._servers.clear()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self.forget()

    def forget(self, quiet: float = 0.0) -> None:
        """Take the lists that have come so far, until none came for ``quiet`` seconds."""
        with suppress(queue.Empty):
            while True:
                self._lists.get(timeout=quiet or None, block=bool(quiet))

    def next_list(self, deadline: float = 20.0) -> tuple[int, bytes]:
        """The next list: when it came (ns), and its bytes."""
        return self._lists.get(timeout=deadline)

    def await_healthy(self, count: int, deadline: float = 20.0) -> tuple[int, bytes]:
        """The next list with so many healthy ids, passing over others: when it came (ns), and its bytes."""
        while True:
            came, message = self.next_list(deadline)
            if healthy(message) == count:
                return came, message

    def allocate(self, request: bytes) -> float:
        """One Allocate; how long it took, in microseconds."""
        return _timed(self._method("Allocate"), request)

    def prefer(self, request: bytes) -> float:
        """One GetPreferredAllocation; how long it took, in microseconds."""
        return _timed(self._method("GetPreferredAllocation"), request)

    def crowd(self, clients: int, requests: Sequence[bytes]) -> tuple[list[float], float]:
        """Allocate from so many connections at once, each making all of these requests: microseconds of each call, and
        seconds of it all.
        """
        barrier = threading.Barrier(clients + 1)
        taken: list[float] = []

        def client() -> None:
            with self._dial() as channel:
                allocate = channel.unary_unary(_SERVICE + "Allocate")
                allocate(requests[0], timeout=10)
                barrier.wait()
                mine = [_timed(allocate, request) for request in requests]
                barrier.wait()
            taken.extend(mine)

        threads = [threading.Thread(target=client) for _ in range(clients)]
        for thread in threads:
            thread.start()
        barrier.wait()
        begun = time.perf_counter()
        barrier.wait()
        seconds = time.perf_counter() - begun
        for thread in threads:
            thread.join()
        return taken, seconds

    def _dial(self) -> grpc.Channel:
        return grpc.insecure_channel(f"unix:{self.directory / self._endpoint}", options=_OPTIONS)

    def _method(self, name: str) -> Callable[..., object]:
        assert self._channel is not None
        return self._methods.setdefault(name, self._channel.unary_unary(_SERVICE + name))

    def _server(self, service: str, name: str, answer: Callable[[bytes, grpc.ServicerContext], object]) -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(4), options=_OPTIONS)
        method = grpc.unary_unary_rpc_method_handler(
            answer, None, lambda reply: reply if isinstance(reply, bytes) else reply.SerializeToString()
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
        self._servers.append(server)
        return server

    def _register(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Dial back within Register, as kubelets up to 1.34 do, then read the list beside it."""
        self._endpoint = pb.RegisterRequest.FromString(request).endpoint
        channel = self._dial()
        channel.unary_unary(_SERVICE + "GetDevicePluginOptions")(b"", timeout=10)
        self._channel, self._methods = channel, {}
        watch = channel.unary_stream(_SERVICE + "ListAndWatch")(b"")
        threading.Thread(target=self._read, args=(watch,), daemon=True).start()
        return b""

    def _read(self, watch: Iterable[bytes]) -> None:
        self.streams += 1
        with suppress(grpc.RpcError, ValueError):  # the stream ended, or its channel was closed
            for data in watch:
                self.newest = data
                self._lists.put((time.monotonic_ns(), data))


def _timed(call: Callable[..., object], request: bytes) -> float:
    begun = time.perf_counter_ns()
    call(request, timeout=30)
    return (time.perf_counter_ns() - begun) / 1000


def ids(message: bytes) -> dict[str, str]:
    """Id and health of everything in a list."""
    return {device.ID: device.health for device in pb.ListAndWatchResponse.FromString(message).devices}


def healthy(message: bytes) -> int:
    """How many ids of a list are healthy, without taking it apart: that takes a while with 60 000."""
    return message.count(b"\x12\x07Healthy")


def allocate_request(*names: str) -> bytes:
    one: Sequence[str] = names
    return pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=one)]).SerializeToString()


def prefer_request(available: Sequence[str], size: int) -> bytes:
    one = pb.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)
    return pb.PreferredAllocationRequest(container_requests=[one]).SerializeToString()
