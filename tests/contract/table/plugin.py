"""A device plugin in grpcio that does what it is told, careless where a real one must be careful.

It serves one resource on one socket. Lists go out when ``send`` says so, whatever pods hold; every call is kept, and
can be answered, refused or held by the test. grpcio's threads stay behind ``_wake``, which tells the test's trio task
that something came.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import trio

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet._pb import pluginregistration_pb2 as registration

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
OPTIONS, WATCH, ALLOCATE = "GetDevicePluginOptions", "ListAndWatch", "Allocate"
PREFERRED, PRE_START = "GetPreferredAllocation", "PreStartContainer"
INFO, NOTIFY = "GetInfo", "NotifyRegistrationStatus"

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_numbers = itertools.count(1)
_run = f"{os.getpid():x}"


def device(identity: str, health: str = HEALTHY, numa: Sequence[int] | None = None) -> pb.Device:
    topology = None if numa is None else pb.TopologyInfo(nodes=[pb.NUMANode(ID=each) for each in numa])
    return pb.Device(ID=identity, health=health, topology=topology)


def devices(ids: str, unhealthy: str = "") -> list[pb.Device]:
    """One device for each letter."""
    return [device(each, UNHEALTHY if each in unhealthy else HEALTHY) for each in ids]


@dataclass(frozen=True)
class Call:
    """One call of the kubelet, with the ids it was about."""

    method: str
    ids: tuple[str, ...] = ()
    must: tuple[str, ...] = ()
    size: int = 0
    left: float | None = None
    """Seconds that the caller gave it; None: no deadline."""
    told: str = ""
    """Of the plugin watcher: the error that it tells of, or that there is none."""
    at: float = field(default_factory=time.monotonic, compare=False)
    """When it came, in seconds."""


@dataclass(frozen=True)
class Registered:
    """What Register came to."""

    code: str
    text: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.code == "OK"


@dataclass
class Hold:
    """Keeps a call from being answered until it is released."""

    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        self.released.set()


class Refusal(Exception):
    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


Answer = Callable[[Sequence[str]], pb.AllocateResponse]


def plain(ids: Sequence[str]) -> pb.AllocateResponse:
    """One response; PROBE names the ids."""
    return pb.AllocateResponse(
        container_responses=[pb.ContainerAllocateResponse(envs={"PROBE": ",".join(sorted(ids))})]
    )


class ProbePlugin:
    def __init__(
        self,
        directory: Path,
        resource: str,
        *,
        socket: str | None = None,
        preferred: bool = False,
        pre_start: bool = False,
    ) -> None:
        self.directory = directory
        self.resource = resource
        self.socket = socket or f"probe-{_run}-{next(_numbers)}.sock"
        self.calls: list[Call] = []
        self.answer: Answer = plain
        self.choose: Callable[[pb.ContainerPreferredAllocationRequest], Sequence[str]] = lambda request: ()
        self.refuse: dict[str, Refusal] = {}
        """By method: what it is answered with, until it is taken out."""
        self.holds: dict[str, Hold] = {}
        self.found = False
        """Be found by the plugin watcher: say who it is, and bind under a name that is passed over, then rename."""
        self.info = registration.PluginInfo(type="DevicePlugin", name=resource, supported_versions=["v1beta1"])
        self.streams = 0
        """Open ListAndWatch streams."""
        self._options = pb.DevicePluginOptions(
            get_preferred_allocation_available=preferred, pre_start_required=pre_start
        )
        self._list: pb.ListAndWatchResponse | None = None
        self._version = 0
        self._epoch = 0
        self._changed = threading.Condition()
        self._token = trio.lowlevel.current_trio_token()
        self._news = trio.Event()
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None

    @property
    def path(self) -> Path:
        return self.directory / self.socket

    # ------------------------------------------------------------ life

    def serve(self) -> None:
        """Bind and listen; a file that lies there goes."""
        self.path.unlink(missing_ok=True)
        self._pool = ThreadPoolExecutor(16, thread_name_prefix=f"probe {self.resource}")
        server = grpc.server(self._pool, options=_UNLIMITED)
        methods = {
            OPTIONS: grpc.unary_unary_rpc_method_handler(
                self._get_options, pb.Empty.FromString, pb.DevicePluginOptions.SerializeToString
            ),
            WATCH: grpc.unary_stream_rpc_method_handler(
                self._watch, pb.Empty.FromString, pb.ListAndWatchResponse.SerializeToString
            ),
            ALLOCATE: grpc.unary_unary_rpc_method_handler(
                self._allocate, pb.AllocateRequest.FromString, pb.AllocateResponse.SerializeToString
            ),
            PREFERRED: grpc.unary_unary_rpc_method_handler(
                self._preferred,
                pb.PreferredAllocationRequest.FromString,
                pb.PreferredAllocationResponse.SerializeToString,
            ),
            PRE_START: grpc.unary_unary_rpc_method_handler(
                self._start, pb.PreStartContainerRequest.FromString, pb.PreStartContainerResponse.SerializeToString
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),))
        if self.found:
            server.add_generic_rpc_handlers((self._registration(),))
        bound = self.path.with_name(f".{self.socket}") if self.found else self.path
        server.add_insecure_port(f"unix:{bound}")
        server.start()
        bound.rename(self.path)
        self._server = server

    def _registration(self) -> grpc.GenericRpcHandler:
        methods = {
            INFO: grpc.unary_unary_rpc_method_handler(
                self._get_info, registration.InfoRequest.FromString, registration.PluginInfo.SerializeToString
            ),
            NOTIFY: grpc.unary_unary_rpc_method_handler(
                self._notify,
                registration.RegistrationStatus.FromString,
                registration.RegistrationStatusResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler("pluginregistration.Registration", methods)

    async def close(self, *, keep_file: bool = False) -> None:
        """End the server and its connections. ``keep_file``: as after SIGKILL, a file stays that refuses."""
        server, self._server = self._server, None
        if server is None:
            return
        kept = self.path.with_suffix(".kept")
        if keep_file and self.path.exists():
            os.link(self.path, kept)  # grpcio unlinks its path when it stops
        for hold in self.holds.values():
            hold.release()
        with self._changed:
            self._epoch += 1
            self._changed.notify_all()
        await trio.to_thread.run_sync(server.stop(0).wait)
        if self._pool is not None:
            await trio.to_thread.run_sync(self._pool.shutdown)
        if kept.exists():
            kept.rename(self.path)
        elif not keep_file:
            self.path.unlink(missing_ok=True)

    async def register(
        self,
        *,
        resource: str | None = None,
        version: str = "v1beta1",
        endpoint: str | None = None,
        deadline: float = 20,
        options: pb.DevicePluginOptions | None = None,
    ) -> Registered:
        """Register with the kubelet in our directory, and say what came of it."""
        request = pb.RegisterRequest(
            version=version, endpoint=endpoint or self.socket, resource_name=resource or self.resource, options=options
        )
        return await trio.to_thread.run_sync(register, self.directory / "kubelet.sock", request, deadline)

    # ------------------------------------------------------------ lists and faults

    def send(self, listed: Sequence[pb.Device]) -> None:
        """The list from now on; to every open stream at once."""
        with self._changed:
            self._list = pb.ListAndWatchResponse(devices=listed)
            self._version += 1
            self._changed.notify_all()

    def end_streams(self) -> None:
        """End every open stream from our side; the server goes on."""
        with self._changed:
            self._epoch += 1
            self._changed.notify_all()

    def hold(self, method: str) -> Hold:
        self.holds[method] = hold = Hold()
        return hold

    # ------------------------------------------------------------ what came

    def called(self, method: str) -> list[Call]:
        return [each for each in self.calls if each.method == method]

    async def until(self, said: Callable[[], bool], seconds: float = 30) -> None:
        """Wait for calls, or for streams to open and end."""
        with trio.move_on_after(seconds):
            while not said():
                await self._news.wait()
            return
        raise AssertionError(f"{self.resource}: not within {seconds} s; streams {self.streams}, calls {self.calls}")

    async def until_called(self, method: str, times: int = 1, seconds: float = 30) -> Call:
        await self.until(lambda: len(self.called(method)) >= times, seconds)
        return self.called(method)[times - 1]

    async def until_streams(self, count: int) -> None:
        await self.until(lambda: self.streams == count)

    def _wake(self) -> None:
        def stir() -> None:
            self._news.set()
            self._news = trio.Event()

        try:
            self._token.run_sync_soon(stir)
        except trio.RunFinishedError:
            return  # the test is over; a late call interests nobody

    def _came(self, context: grpc.ServicerContext, method: str, **about: object) -> None:
        left = context.time_remaining()
        # grpcio says "no deadline" by None or by a number of centuries, as its version will have it.
        known = None if left is None or math.isinf(left) or left > 1e6 else left
        self.calls.append(Call(method, left=known, **about))
        self._wake()
        hold = self.holds.get(method)
        if hold is not None:
            hold.released.wait(60)
        refusal = self.refuse.get(method)
        if refusal is not None:
            context.abort(refusal.code, refusal.text)

    # ------------------------------------------------------------ the service, in grpcio's threads

    def _get_options(self, request: pb.Empty, context: grpc.ServicerContext) -> pb.DevicePluginOptions:
        self._came(context, OPTIONS)
        return self._options

    def _watch(self, request: pb.Empty, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        def over() -> None:
            with self._changed:
                self.streams -= 1
                self._changed.notify_all()
            self._wake()

        with self._changed:
            self.streams += 1
            epoch = self._epoch
        context.add_callback(over)
        self._came(context, WATCH)
        sent = 0
        while True:
            with self._changed:
                while (
                    self._version == sent and self._epoch == epoch and context.is_active() and WATCH not in self.refuse
                ):
                    self._changed.wait()
                message, sent = self._list, self._version
            if WATCH in self.refuse:
                context.abort(self.refuse[WATCH].code, self.refuse[WATCH].text)
            if self._epoch != epoch or not context.is_active():
                return
            if message is not None:
                yield message

    def fail_streams(self, text: str) -> None:
        """Every open stream ends with an error, and every one that is opened."""
        with self._changed:
            self.refuse[WATCH] = Refusal(grpc.StatusCode.INTERNAL, text)
            self._changed.notify_all()

    def _allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
        asked = request.container_requests
        ids = tuple(asked[0].devices_ids) if asked else ()
        self._came(context, ALLOCATE, ids=ids, size=len(asked))
        return self.answer(ids)

    def _preferred(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        one = request.container_requests[0]
        ids, must = tuple(sorted(one.available_deviceIDs)), tuple(sorted(one.must_include_deviceIDs))
        self._came(context, PREFERRED, ids=ids, must=must, size=one.allocation_size)
        chosen = pb.ContainerPreferredAllocationResponse(deviceIDs=self.choose(one))
        return pb.PreferredAllocationResponse(container_responses=[chosen])

    def _get_info(self, request: registration.InfoRequest, context: grpc.ServicerContext) -> registration.PluginInfo:
        self._came(context, INFO)
        return self.info

    def _notify(
        self, request: registration.RegistrationStatus, context: grpc.ServicerContext
    ) -> registration.RegistrationStatusResponse:
        self._came(context, NOTIFY, told="registered" if request.plugin_registered else request.error)
        return registration.RegistrationStatusResponse()

    def _start(
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        self._came(context, PRE_START, ids=tuple(sorted(request.devices_ids)))
        return pb.PreStartContainerResponse()


def register(kubelet: Path, request: pb.RegisterRequest, deadline: float) -> Registered:
    begun = time.monotonic()
    # Each channel has its own connection: grpcio would keep one that a dead kubelet had refused.
    with grpc.insecure_channel(f"unix:{kubelet}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=pb.RegisterRequest.SerializeToString,
            response_deserializer=pb.Empty.FromString,
        )
        try:
            call(request, timeout=deadline)
        except grpc.RpcError as error:
            return Registered(error.code().name, error.details(), time.monotonic() - begun)
    return Registered("OK", "", time.monotonic() - begun)


@asynccontextmanager
async def probe(
    directory: Path,
    resource: str,
    listed: Sequence[pb.Device] | None = None,
    *,
    registered: bool = True,
    **settings: object,
) -> AsyncIterator[ProbePlugin]:
    """A probe that serves, registers and lists, and is gone at the end."""
    plugin = ProbePlugin(directory, resource, **settings)
    if listed is not None:
        plugin.send(listed)
    plugin.serve()
    try:
        if registered:
            answer = await plugin.register()
            assert answer.ok, answer
            await plugin.until_streams(1)
        yield plugin
    finally:
        with trio.CancelScope(shield=True):
            await plugin.close()
