"""The kubelet on real sockets against the agent's real plugin servers."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from grpclib.client import Channel
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError

from reactor.aio import open_door
from reactor.kubelet import calls
from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet._pb import podresources_pb2 as v1
from reactor.kubelet._pb.deviceplugin_grpc import DevicePluginBase
from reactor.kubelet._pb.podresources_grpc import PodResourcesListerStub
from reactor.kubelet.books import list_pods, read_checkpoint
from reactor.kubelet.encode import EncodedList
from reactor.kubelet.listener import Listener
from reactor.kubelet.servers import PluginServers
from reactor.model.errors import Refused, Transient
from reactor.model.ids import ResourceName
from reactor.simulate.kubelet.directory import wipe
from reactor.simulate.kubelet.grpc import Break, GrpcKubelet, Phase, Traits, open_kubelet
from reactor.simulate.kubelet.plugin import KubeletPanic
from reactor.simulate.kubelet.version import Version
from tests.simulate.kubelet.agent import GPU, Notes, desk, snapshot
from tests.simulate.kubelet.sockets import Careless, Node, careless, list_of, node


@pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
async def test_register_list_allocate_and_what_is_seen_of_it(version):
    async with node(version) as one:
        await one.serve("a", "b", ill=["b"], numa=True)
        assert await one.kubelet.devices(GPU) == {"a": True, "b": False}
        pod = await one.kubelet.run_pod("p", {GPU: 1})
        assert pod.phase is Phase.RUNNING
        assert await one.kubelet.node() == {GPU: (2, 1)}
        (listed,) = await list_pods(one.door, one.kubelet.pod_resources_socket)
        assert (listed.pod.name, listed.devices) == ("p", ((GPU, "a", (0,)),))
        (entry,) = (await read_checkpoint(one.kubelet.directory / "kubelet_internal_checkpoint")).entries
        assert (entry.pod_uid, entry.container, entry.id, entry.numa) == (pod.uid, "c", "a", (0,))
        second = await one.kubelet.run_pod("q", {GPU: 1})
        assert "Requested: 1, Available: 0" in second.message
        await one.kubelet.delete_pod("p")
        assert await one.kubelet.held(GPU) == {"a"}


async def test_a_restart_wipes_the_sockets_and_its_own_gets_a_new_identity():
    async with node() as one:
        made = await one.serve("a")
        await one.kubelet.run_pod("p", {GPU: 1})
        before = await one.kubelet.identity()
        await one.kubelet.restart()
        assert await one.kubelet.identity() != before
        assert not (one.kubelet.directory / made).exists()
        assert await one.kubelet.node() == {GPU: (0, 0)}
        assert [each.pod.name for each in await one.kubelet.list_pods()] == ["p"]
        await one.serve("a")
        assert await one.kubelet.held(GPU) == {"a"}


async def test_a_killed_kubelet_leaves_a_socket_that_refuses_and_ends_our_streams():
    async with node() as one:
        made = await one.serve("a")
        await one.kubelet.kill()
        assert one.kubelet.socket.is_socket()
        assert (one.kubelet.directory / made).is_socket()
        await one.parted()
        with pytest.raises(Transient, match="refused"):
            await one.servers.register(GPU, made)


async def test_a_graceful_end_removes_the_socket():
    async with node() as one:
        await one.kubelet.stop()
        assert await one.kubelet.identity() is None


async def test_a_silent_api_server_leaves_list_empty():
    async with node() as one:
        await one.serve("a")
        await one.kubelet.run_pod("p", {GPU: 1})
        await one.kubelet.restart(api_silent=True)
        assert await list_pods(one.door, one.kubelet.pod_resources_socket) == ()
        await one.kubelet.api_answers()
        assert len(await list_pods(one.door, one.kubelet.pod_resources_socket)) == 1


async def test_a_bad_resource_name_is_refused_in_the_kubelets_words():
    async with node() as one:
        bad = ResourceName("nvidia.com/a+b")
        made = await one.servers.serve(bad)
        with pytest.raises(Refused, match='UNKNOWN: the ResourceName "nvidia.com/a\\+b" is invalid'):
            await one.servers.register(bad, made)


@pytest.mark.parametrize("accepting", [True, False])
async def test_an_endpoint_that_speaks_no_http2_or_is_not_there_costs_the_dial_timeout(accepting):
    async with node(dial_timeout=0.05) as one:
        path = one.kubelet.directory / "dumb.sock"
        with socket.socket(socket.AF_UNIX) as dumb:
            if accepting:
                dumb.bind(str(path))
                dumb.listen()
            with pytest.raises(Transient, match="failed to dial device plugin: context deadline exceeded"):
                await one.door.call(calls.register, str(one.kubelet.socket), GPU, "dumb.sock", 2.0)


async def test_register_can_be_refused_delayed_or_never_answered():
    async with node() as one:
        made = await one.servers.serve(GPU)
        await one.kubelet.weather(lambda weather: setattr(weather, "refuse_register", 1))
        with pytest.raises(Transient, match="failed to dial"):
            await one.servers.register(GPU, made)
        await one.kubelet.kill()
        await one.kubelet.start(mute=True)
        made = await one.servers.serve(GPU)
        with pytest.raises(Transient, match=r"no answer in time|DEADLINE"):
            await one.servers.register(GPU, made, 0.01)


async def test_podresources_answers_get_and_allocatable_and_limits_the_rate():
    async with node() as one:
        await one.serve("a", "b", ill=["b"], numa=True)
        await one.kubelet.run_pod("p", {GPU: 1})
        socket_path = str(one.kubelet.pod_resources_socket)

        async def ask():
            async with Channel(path=socket_path) as channel:
                stub = PodResourcesListerStub(channel)
                found = await stub.Get(v1.GetPodResourcesRequest(pod_name="p", pod_namespace="default"))
                free = await stub.GetAllocatableResources(v1.AllocatableResourcesRequest())
                with pytest.raises(GRPCError, match="not found"):
                    await stub.Get(v1.GetPodResourcesRequest(pod_name="q", pod_namespace="default"))
                with pytest.raises(GRPCError, match="rejected by rate limit"):
                    for _ in range(50):
                        await stub.List(v1.ListPodResourcesRequest())
                return found, free

        found, free = await one.door.call(ask)
        assert found.pod_resources.containers[0].devices[0].device_ids == ["a"]
        assert [(list(each.device_ids), each.topology.nodes[0].ID) for each in free.devices] == [(["a"], 0)]


async def test_a_lost_checkpoint_and_swept_sockets():
    async with node() as one:
        made = await one.serve("a")
        await one.kubelet.run_pod("p", {GPU: 1})
        await one.kubelet.sweep_sockets()
        assert not (one.kubelet.directory / made).exists()
        assert await one.kubelet.streams(GPU) == 1
        await one.kubelet.restart(0.01, graceful=True, keep_checkpoint=False)
        assert await one.kubelet.checkpoint() is None
        await one.serve("a")
        assert (await one.kubelet.allocatable(GPU), await one.kubelet.capacity(GPU)) == (1, 1)
        assert await one.kubelet.held(GPU) == frozenset()


async def test_a_rebooted_node_fails_pods_that_come_before_their_plugin():
    async with node() as one:
        await one.serve("a")
        await one.kubelet.run_pod("p", {GPU: 1})
        await one.kubelet.restart(reboot=True)
        assert "no healthy devices present" in (await one.kubelet.pod("p")).message


async def test_fifty_restarts_leave_no_descriptor_behind():
    async with node() as one:
        await one.serve("a")
        await one.kubelet.restart()
        await one.serve("a")
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(50):
            await one.kubelet.restart()
            await one.serve("a")
        assert await one.kubelet.streams(GPU) == 1
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2


async def test_the_process_of_its_own_tells_what_it_sees():
    notes = Notes()
    with tempfile.TemporaryDirectory(prefix="gr-") as root:
        command = [sys.executable, "-m", "reactor.simulate.kubelet", root, "--version", "1.37"]
        async with trio.open_nursery() as nursery, open_door() as door:
            process = await nursery.start(lambda task_status: trio.run_process(
                command, stdin=-1, capture_stdout=False, stdout=-1, check=True, task_status=task_status
            ))
            told = await nursery.start(_lines, process.stdout)
            assert (await told.receive())["event"] == "started"
            plugins = Path(root) / "device-plugins"
            servers = PluginServers(door, desk(notes), directory=plugins, kubelet_socket=plugins / "kubelet.sock")
            servers.post(snapshot("a", "b", ill=["b"]))
            await servers.register(GPU, await servers.serve(GPU))
            assert (await told.receive())["event"] == "registered"
            listed = await told.receive()
            assert (listed["event"], listed["healthy"], listed["unhealthy"]) == ("listed", 1, 1)
            await process.stdin.send_all(b"run p nvidia.com/gpu 1\n")
            admitted = await told.receive()
            assert (admitted["phase"], admitted["ids"]) == ("Running", ["a"])
            await process.stdin.send_all(b"quit\n")
            assert (await told.receive())["event"] == "ended"
            await servers.aclose(1)


async def _lines(stream, task_status):
    send, receive = trio.open_memory_channel(100)
    task_status.started(receive)
    rest = b""
    async for data in stream:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            await send.send(json.loads(line))


@pytest.mark.parametrize(
    ("version", "left"), [("1.32", {"kubelet_internal_checkpoint", "sub"}), ("1.33", None)], ids=["1.32", "1.33"]
)
def test_what_a_start_removes(version, left):
    with tempfile.TemporaryDirectory(prefix="gr-") as root:
        directory = Path(root)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(directory / "plugin.sock"))
        (directory / "sub").mkdir()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(directory / "sub" / "deep.sock"))
        (directory / "link").symlink_to("sub/deep.sock")
        (directory / "dangling").symlink_to("nowhere")
        (directory / "note").write_text("")
        (directory / "kubelet_internal_checkpoint").write_text("")
        wipe(directory, Version.parse(version))
        found = {each.name for each in directory.iterdir()}
        assert (directory / "sub" / "deep.sock").is_socket()
        assert found == (left or {"kubelet_internal_checkpoint", "sub", "note", "dangling"})
