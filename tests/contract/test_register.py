"""Our Register client against a kubelet in grpcio, and our sockets' names and files."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import grpc
import pytest
import trio

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet.servers import socket_name
from reactor.model.errors import Refused, Transient
from reactor.model.ids import ResourceName
from reactor.model.kubelet import LONGEST_DIRECTORY, LONGEST_REGISTRY
from tests.contract.peer import client, node, registration, short_directory
from tests.kubelet.fakes import GPU


async def test_register_names_our_socket_and_is_dialled_back_while_it_waits() -> None:
    """KBL-08"""
    seen: list[pb.RegisterRequest] = []
    async with node() as one:

        def register(request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:
            with client(one.path(request.endpoint)) as back:
                assert back.options().get_preferred_allocation_available
            seen.append(request)
            return pb.Empty()

        with registration(one.path("kubelet.sock"), register):
            name = await one.servers.serve(GPU)
            await one.servers.register(GPU, name)
    (request,) = seen
    assert (request.version, request.endpoint, request.resource_name) == ("v1beta1", name, GPU)


async def test_the_deadline_of_register_goes_over_the_wire() -> None:
    left: list[float] = []

    def register(request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:
        left.append(context.time_remaining())
        return pb.Empty()

    async with node() as one:
        with registration(one.path("kubelet.sock"), register):
            await one.servers.register(GPU, await one.servers.serve(GPU), deadline=12.0)
    assert 10 < left[0] <= 12.5


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('the ResourceName "NVIDIA.com/gpu" is invalid', Refused),
        ('requested API version "v1beta1" is not supported by kubelet. Supported version is ["v2"]', Refused),
        ("failed to dial device plugin: context deadline exceeded", Transient),
    ],
)
async def test_a_refused_register_says_what_the_kubelet_said(text: str, kind: type[Exception]) -> None:
    def register(request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:
        context.abort(grpc.StatusCode.UNKNOWN, text)

    async with node() as one:
        with registration(one.path("kubelet.sock"), register):
            name = await one.servers.serve(GPU)
            with pytest.raises(kind) as caught:
                await one.servers.register(GPU, name)
    assert text in str(caught.value)
    assert GPU in str(caught.value)


async def test_no_kubelet_is_transient() -> None:
    async with node() as one:
        name = await one.servers.serve(GPU)
        with pytest.raises(Transient, match=r"nvidia\.com/gpu.*No such file"):
            await one.servers.register(GPU, name)


async def test_a_kubelet_socket_that_refuses_is_transient() -> None:
    async with node() as one:
        name = await one.servers.serve(GPU)
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(os.fspath(one.path("kubelet.sock")))
        with pytest.raises(Transient, match="refused"):
            await one.servers.register(GPU, name)


async def test_a_kubelet_that_never_answers_is_transient_by_the_deadline() -> None:
    async with node() as one:
        name = await one.servers.serve(GPU)
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(os.fspath(one.path("kubelet.sock")))
            silent.listen()
            begun = time.perf_counter()
            with pytest.raises(Transient, match=r"nvidia\.com/gpu"):
                await one.servers.register(GPU, name, deadline=0.05)
            assert time.perf_counter() - begun < 1


async def test_register_can_be_cancelled() -> None:
    async with node() as one:
        name = await one.servers.serve(GPU)
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(os.fspath(one.path("kubelet.sock")))
            silent.listen()
            with trio.move_on_after(0.02) as scope:
                await one.servers.register(GPU, name)
        assert scope.cancelled_caught


async def test_a_swept_socket_is_found_by_the_probe_before_the_kubelet_is_bothered() -> None:
    """KBL-04"""
    seen: list[pb.RegisterRequest] = []

    def register(request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:
        seen.append(request)
        return pb.Empty()

    async with node() as one:
        with registration(one.path("kubelet.sock"), register):
            name = await one.servers.serve(GPU)
            one.path(name).unlink()
            with pytest.raises(Transient, match=name):
                await one.servers.register(GPU, name)
            await one.servers.register(GPU, await one.servers.serve(GPU))
    assert len(seen) == 1


async def test_a_missing_plugin_directory_is_transient() -> None:
    with short_directory() as base:
        async with node(base / "none") as one:
            with pytest.raises(Transient, match=r"nvidia\.com/gpu"):
                await one.servers.serve(GPU)
            (base / "none").mkdir()
            assert await one.servers.serve(GPU)


async def test_relative_directories_and_odd_characters_are_served() -> None:
    """KBL-16"""
    with short_directory() as base:
        odd = base / "a b%20:c#é"
        odd.mkdir()
        relative = Path("../" * 20) / odd.relative_to("/") / ".." / odd.name
        async with node(relative) as one:
            name = await one.servers.serve(ResourceName("nvidia.com/gpu"))
            assert (odd / name).is_socket()


def test_a_long_resource_name_is_cut_so_that_the_path_fits() -> None:
    """KBL-16"""
    directory = "/var/lib/kubelet/device-plugins"
    name = socket_name(ResourceName("nvidia.com/" + "x" * 63), directory)
    assert len(f"{directory}/{name}") <= 107
    assert name.startswith("gpu-reactor-xxxx")


def test_a_directory_that_leaves_no_room_is_refused_with_the_limit() -> None:
    """KBL-16"""
    assert socket_name(GPU, "/" + "d" * (LONGEST_DIRECTORY - 1))
    assert socket_name(GPU, "/" + "d" * (LONGEST_REGISTRY - 1), hidden=True)
    for directory, hidden in ((LONGEST_DIRECTORY, False), (LONGEST_REGISTRY, True)):
        with pytest.raises(Refused, match="at most 107 bytes"):
            socket_name(GPU, "/" + "d" * directory, hidden=hidden)


async def test_dead_sockets_of_earlier_lives_are_removed_and_nothing_else() -> None:
    with short_directory() as base:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(os.fspath(base / "gpu-reactor-gpu-dead.sock"))
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(os.fspath(base / "nvidia-gpu.sock"))
        (base / "gpu-reactor-file.sock").touch()
        with socket.socket(socket.AF_UNIX) as alive:
            alive.bind(os.fspath(base / "gpu-reactor-gpu-alive.sock"))
            alive.listen()
            async with node(base) as one:
                name = await one.servers.serve(GPU)
                kept = {path.name for path in base.iterdir()}
    assert kept == {"nvidia-gpu.sock", "gpu-reactor-file.sock", "gpu-reactor-gpu-alive.sock", name}
