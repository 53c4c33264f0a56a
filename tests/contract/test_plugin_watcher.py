"""Our sockets as the kubelet's plugin watcher finds them, with grpcio on its side."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest
import trio

from reactor.aio import open_door
from reactor.kubelet._pb import pluginregistration_pb2 as pb
from reactor.kubelet.servers import PluginServers, socket_name
from reactor.model.errors import Refused, Transient
from reactor.model.ids import ResourceName
from reactor.model.kubelet import LONGEST_REGISTRY
from tests.contract.peer import UNLIMITED, client, health, short_directory
from tests.kubelet.fakes import GPU, Log, desk, group, offer, snapshot, uuid

Told = list[tuple[ResourceName, str, str | None]]


class Watcher:
    """Asks a socket as the kubelet's plugin watcher does."""

    def __init__(self, channel: grpc.Channel) -> None:
        service = "/pluginregistration.Registration/"
        self._info = channel.unary_unary(
            f"{service}GetInfo",
            request_serializer=pb.InfoRequest.SerializeToString,
            response_deserializer=pb.PluginInfo.FromString,
        )
        self._notify = channel.unary_unary(
            f"{service}NotifyRegistrationStatus",
            request_serializer=pb.RegistrationStatus.SerializeToString,
            response_deserializer=pb.RegistrationStatusResponse.FromString,
        )

    def info(self) -> pb.PluginInfo:
        return self._info(pb.InfoRequest(), timeout=1)

    def notify(self, error: str | None = None, *, registered: bool = False) -> None:
        self._notify(pb.RegistrationStatus(plugin_registered=registered, error=error or ""), timeout=5)


@contextmanager
def asking(path: Path) -> Iterator[Watcher]:
    with grpc.insecure_channel(f"unix:{path}", options=UNLIMITED) as channel:
        yield Watcher(channel)


@asynccontextmanager
async def offering(registry: Path, *left: Path) -> AsyncIterator[tuple[PluginServers, Told, Log]]:
    one, log = desk()
    told: Told = []
    async with open_door() as door:
        servers = PluginServers(
            door,
            one,
            directory=registry,
            kubelet_socket=registry / "none.sock",
            notified=lambda *words: told.append(words),
            left=left,
        )
        servers.post(snapshot(offer(group(0))))
        await servers.settle()
        try:
            yield servers, told, log
        finally:
            await servers.aclose(1)


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


async def test_it_says_who_it_is_and_serves_the_plugin_on_the_same_socket() -> None:
    with short_directory() as base:
        async with offering(base) as (servers, told, _):
            name = await servers.serve(GPU)
            await servers.offer(GPU, name)
            with asking(base / name) as watcher:
                info = watcher.info()
                assert (info.type, info.name, info.endpoint) == ("DevicePlugin", GPU, "")
                assert list(info.supported_versions) == ["v1beta1"]
                with client(base / name) as back:
                    assert back.options().get_preferred_allocation_available
                    watcher.notify(registered=True)
                    assert health(next(back.watch())) == {uuid(0): "Healthy"}
            await servers.settle()
            assert told == [(GPU, name, None)]


async def test_a_refusal_keeps_the_kubelets_words() -> None:
    with short_directory() as base:
        async with offering(base) as (servers, told, _):
            name = await servers.serve(GPU)
            await servers.offer(GPU, name)
            with asking(base / name) as watcher:
                watcher.notify("RegisterPlugin error -- no")
                watcher.notify()
            await servers.settle()
            assert told == [(GPU, name, "RegisterPlugin error -- no"), (GPU, name, "the kubelet gave no reason")]


async def test_a_socket_is_hidden_until_it_is_offered_and_gone_when_closed() -> None:
    with short_directory() as base:
        async with offering(base) as (servers, _, _):
            name = await servers.serve(GPU)
            assert names(base) == [f".{name}"]
            await servers.offer(GPU, name)
            assert names(base) == [name]
            again = await servers.serve(GPU)
            assert names(base) == [f".{again}"], "never two files of one resource"
            await servers.close(GPU)
            assert names(base) == []
            await servers.offer(GPU, again)
            assert names(base) == []


async def test_a_socket_that_had_its_stream_takes_no_other_registration() -> None:
    """A kubelet that starts while we do not run finds it before we replace it: its registration would be half one."""
    with short_directory() as base:
        async with offering(base) as (servers, _, log):
            name = await servers.serve(GPU)
            await servers.offer(GPU, name)
            with asking(base / name) as watcher:
                with client(base / name) as back:
                    call = back.watch()
                    next(call)
                    assert watcher.info().name == GPU, "its stream lives"
                    call.cancel()
                with trio.fail_after(2):
                    while not any(line[0] == "ended" for line in log.lines):
                        await servers.settle()
                with pytest.raises(grpc.RpcError, match="another one takes its place") as caught:
                    watcher.info()
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_without_a_plugin_watcher_nobody_is_told_who_it_is() -> None:
    with short_directory() as base:
        one, _ = desk()
        async with open_door() as door:
            servers = PluginServers(door, one, directory=base, kubelet_socket=base / "kubelet.sock")
            name = await servers.serve(GPU)
            with asking(base / name) as watcher, pytest.raises(grpc.RpcError) as caught:
                watcher.info()
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            await servers.aclose(1)


async def test_dead_sockets_of_earlier_lives_are_removed_wherever_they_were() -> None:
    with short_directory() as base, short_directory() as other:
        for path in (
            base / "gpu-reactor-gpu-a.sock",
            base / ".gpu-reactor-gpu-b.sock",
            other / "gpu-reactor-gpu-c.sock",
        ):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(os.fspath(path))
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(os.fspath(base / "csi.sock"))
        async with offering(base, other, other / "none") as (servers, _, _):
            name = await servers.serve(GPU)
            assert names(base) == [f".{name}", "csi.sock"]
            assert names(other) == []


async def test_a_hidden_file_that_somebody_removes_is_seen_as_missing_and_served_anew() -> None:
    with short_directory() as base:
        async with offering(base) as (servers, _, _):
            name = await servers.serve(GPU)
            (base / f".{name}").unlink()
            with pytest.raises(Transient, match=f"offering {GPU} to the kubelet at .*{name}: No such file"):
                await servers.offer(GPU, name)
            assert servers.sockets() == {GPU: name}, "so that its absence is noticed"
            again = await servers.serve(GPU)
            await servers.offer(GPU, again)
            assert names(base) == [again]


async def test_a_registry_that_is_missing_is_transient() -> None:
    with short_directory() as base:
        async with offering(base / "none") as (servers, _, _):
            with pytest.raises(Transient, match=r"serving nvidia\.com/gpu at .*: No such file"):
                await servers.serve(GPU)
            (base / "none").mkdir()
            await servers.offer(GPU, await servers.serve(GPU))


def test_the_longest_path_is_that_of_the_hidden_name() -> None:
    """KBL-16"""
    longest = "/" + "d" * (LONGEST_REGISTRY - 1)
    name = socket_name(GPU, longest, hidden=True)
    assert len(f"{longest}/.{name}") == 107
    with pytest.raises(Refused, match=f"which leaves {LONGEST_REGISTRY} for the directory"):
        socket_name(GPU, longest + "d", hidden=True)
    assert len(f"{longest}d/{socket_name(GPU, longest + 'd')}") == 107
