"""Our plugin server under a grpcio client: what the kubelet would see."""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import suppress

import grpc
import pytest
import trio
from h2.connection import H2Connection
from h2.settings import SettingCodes

from reactor.model.ids import ResourceName, device_id
from tests.contract.peer import client, health, node
from tests.kubelet.fakes import GPU, group, offer, snapshot, uuid

ID0, ID1 = (device_id(uuid(index)) for index in (0, 1))


async def test_options_offer_preferred_allocation_and_no_prestart() -> None:
    async with node() as one:
        name = await one.servers.serve(GPU)
        with client(one.path(name)) as peer:
            options = peer.options()
    assert options.get_preferred_allocation_available
    assert not options.pre_start_required


async def test_the_first_list_and_each_change_reach_the_stream() -> None:
    async with node() as one:
        one.servers.post(snapshot(offer(group(0), group(1))))
        name = await one.servers.serve(GPU)
        with client(one.path(name)) as peer:
            stream = peer.watch()
            assert health(next(stream)) == {ID0: "Healthy", ID1: "Healthy"}
            one.servers.post(snapshot(offer(group(0, healthy=False), group(1), revision=2)))
            assert health(next(stream)) == {ID0: "Unhealthy", ID1: "Healthy"}
            await one.servers.settle()
            stream.cancel()
        opened = one.log.lines[0]
        assert opened[:3] == ("opened", GPU, name)
        assert [line[3:6] for line in one.log.lines if line[0] == "sent"] == [(1, 0, 2), (2, 0, 1)]


async def test_topology_crosses_the_wire() -> None:
    async with node() as one:
        one.servers.post(snapshot(offer(group(0, numa=(1,)), topology=True)))
        with client(one.path(await one.servers.serve(GPU))) as peer:
            (device,) = next(peer.watch()).devices
    assert [place.ID for place in device.topology.nodes] == [1]


async def test_a_list_beyond_what_the_kubelet_takes_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async with node() as one:
        one.servers.post(snapshot(offer(group(0))))
        with client(one.path(await one.servers.serve(GPU))) as peer:
            stream = peer.watch()
            next(stream)
            with caplog.at_level(logging.CRITICAL):
                one.servers.post(snapshot(offer(group(0, replicas=75_000), revision=2)))
                await one.servers.settle()
            one.servers.post(snapshot(offer(group(1), revision=3)))
            assert health(next(stream)) == {ID1: "Healthy"}


async def test_two_streams_both_get_one_change() -> None:
    """KBL-14"""
    async with node() as one:
        one.servers.post(snapshot(offer(group(0))))
        path = one.path(await one.servers.serve(GPU))
        with client(path) as first, client(path) as second:
            streams = [first.watch(), second.watch()]
            for stream in streams:
                next(stream)
            one.servers.post(snapshot(offer(group(0, healthy=False), revision=2)))
            assert [health(next(stream)) for stream in streams] == [{ID0: "Unhealthy"}] * 2


async def test_a_stream_that_breaks_ends_alone() -> None:
    """KBL-13"""
    async with node() as one:
        one.servers.post(snapshot(offer(group(0))))
        path = one.path(await one.servers.serve(GPU))
        with client(path) as kept:
            stream = kept.watch()
            next(stream)
            with client(path) as lost:
                next(lost.watch())
            one.servers.post(snapshot(offer(group(0, healthy=False), revision=2)))
            assert health(next(stream)) == {ID0: "Unhealthy"}
            with trio.fail_after(2):
                while len(one.desk.streams) > 1:
                    await one.servers.settle()


async def test_a_reader_that_stalls_gets_the_newest_list_and_not_the_backlog() -> None:
    async with node() as one:
        big = [group(index, replicas=3000) for index in range(8)]
        one.servers.post(snapshot(offer(*big)))
        path = one.path(await one.servers.serve(GPU))
        with client(path) as peer:
            stream = peer.watch()
            next(stream)
            for revision in range(2, 40):
                one.servers.post(snapshot(offer(group(0, replicas=revision), *big[1:], revision=revision)))
                await one.servers.settle()
            sizes = []
            while not sizes or sizes[-1] != 39 + 7 * 3000:
                sizes.append(len(next(stream).devices))
        assert len(sizes) < 38


async def test_allocate_answers_each_request() -> None:
    async with node() as one:
        one.servers.post(snapshot(offer(group(0), group(1))))
        with client(one.path(await one.servers.serve(GPU))) as peer:
            reply = peer.allocate([ID0], [ID1])
        await one.servers.settle()  # the answer goes before its report, and a call after both
        assert [dict(answer.envs) for answer in reply.container_responses] == [
            {"NVIDIA_VISIBLE_DEVICES": ID0},
            {"NVIDIA_VISIBLE_DEVICES": ID1},
        ]
        assert one.log.lines[-1] == ("granted", 1, GPU, (ID0, ID1))
        assert 0 < one.log.took[0] < 5


async def test_allocate_of_no_ids_is_answered() -> None:
    """ALC-07"""
    async with node() as one:
        one.servers.post(snapshot(offer(group(0))))
        with client(one.path(await one.servers.serve(GPU))) as peer:
            (answer,) = peer.allocate([]).container_responses
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "void"


async def test_a_foreign_id_is_the_requests_fault() -> None:
    """KBL-06"""
    async with node() as one:
        one.servers.post(snapshot(offer(group(0))))
        with client(one.path(await one.servers.serve(GPU))) as peer, pytest.raises(grpc.RpcError) as caught:
            peer.allocate(["nvidia0"])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "nvidia0 is not one of nvidia.com/gpu"


async def test_an_unhealthy_id_is_the_devices_fault() -> None:
    async with node() as one:
        one.servers.post(snapshot(offer(group(0, healthy=False))))
        with client(one.path(await one.servers.serve(GPU))) as peer, pytest.raises(grpc.RpcError) as caught:
            peer.allocate([ID0])
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_preferred_allocation_request_of_20_mb_is_answered() -> None:
    """SHR-11"""
    ids = [f"{index:05}" + "x" * 4995 for index in range(4_200)]
    async with node() as one:
        with client(one.path(await one.servers.serve(GPU))) as peer:
            assert len(peer.preferred(ids, ids[:1], 3)) == 3


async def test_prestart_is_answered_although_it_is_not_asked_for() -> None:
    async with node() as one:
        with client(one.path(await one.servers.serve(GPU))) as peer:
            assert peer.start(ID0).ByteSize() == 0


async def test_allocate_answers_while_the_trio_thread_is_blocked() -> None:
    async with node() as one:
        one.servers.post(snapshot(offer(group(0))))
        path = one.path(await one.servers.serve(GPU))
        with client(path) as peer:  # blocks this thread, which is trio's, for every call
            peer.options()
            begun = time.perf_counter()
            for _ in range(20):
                peer.allocate([ID0])
            assert time.perf_counter() - begun < 2


async def test_closing_a_server_is_seen_by_its_streams() -> None:
    async with node() as one:
        one.servers.post(snapshot(offer(group(0))))
        name = await one.servers.serve(GPU)
        with client(one.path(name)) as peer:
            stream = peer.watch()
            next(stream)
            await one.servers.close(GPU)
            with pytest.raises(grpc.RpcError) as caught:
                next(stream)
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert not one.path(name).exists()
        assert one.servers.sockets() == {}
        assert one.log.lines[-1][:3] == ("ended", GPU, name)


async def test_serving_again_takes_a_new_name_and_ends_the_old_server() -> None:
    async with node() as one:
        first = await one.servers.serve(GPU)
        second = await one.servers.serve(GPU)
        assert first != second
        assert one.servers.sockets() == {GPU: second}
        assert [path.name for path in one.directory.iterdir()] == [second]


async def test_each_resource_has_its_own_server() -> None:
    shared = ResourceName("nvidia.com/gpu.shared")
    async with node() as one:
        one.servers.post(snapshot(offer(group(0)), offer(group(1), resource=shared)))
        names = [await one.servers.serve(resource) for resource in (GPU, shared)]
        lists = []
        for name in names:
            with client(one.path(name)) as peer:
                lists.append(health(next(peer.watch())))
        await one.servers.close(GPU)
        with client(one.path(names[1])) as peer:
            peer.options()
    assert lists == [{ID0: "Healthy"}, {ID1: "Healthy"}]


async def test_an_old_server_leaves_a_socket_alone_that_another_bound_at_its_path() -> None:
    """KBL-05"""
    async with node() as one:
        path = one.path(await one.servers.serve(GPU))
        path.unlink()
        path.touch()
        await one.servers.close(GPU)
        assert path.exists()


async def test_a_hundred_open_streams_end_within_a_second() -> None:
    async with node() as one:
        one.servers.post(snapshot(offer(group(0))))
        path = one.path(await one.servers.serve(GPU))
        with client(path) as peer:
            streams = [peer.watch() for _ in range(100)]
            for stream in streams:
                next(stream)
            begun = time.perf_counter()
            await one.servers.aclose(1)
            assert time.perf_counter() - begun < 1
            for stream in streams:
                with pytest.raises(grpc.RpcError):
                    next(stream)


async def test_a_client_that_never_reads_does_not_hold_the_close() -> None:
    async with node() as one:
        one.servers.post(snapshot(offer(*[group(index, replicas=4000) for index in range(8)])))
        path = one.path(await one.servers.serve(GPU))
        with socket.socket(socket.AF_UNIX) as stuck:
            stuck.connect(os.fspath(path))
            stuck.sendall(_watch_with_an_open_window())
            with trio.fail_after(2):
                while not any(line[0] == "opened" for line in one.log.lines):
                    await one.servers.settle()
            begun = time.perf_counter()
            await one.servers.close(GPU)
            assert time.perf_counter() - begun < 0.9


def _watch_with_an_open_window() -> bytes:
    """ListAndWatch in HTTP/2 that takes any amount of data, so that only the socket's buffer holds the server back."""
    h2 = H2Connection()
    h2.initiate_connection()
    h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
    h2.increment_flow_control_window(2**30)
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/v1beta1.DevicePlugin/ListAndWatch",
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    h2.send_headers(1, list(headers.items()))
    h2.send_data(1, bytes(5), end_stream=True)
    return h2.data_to_send()


async def test_a_close_that_is_cut_short_still_ends_the_connections() -> None:
    async with node() as one:
        one.servers.post(snapshot(offer(*[group(index, replicas=4000) for index in range(8)])))
        path = one.path(await one.servers.serve(GPU))
        with socket.socket(socket.AF_UNIX) as stuck:
            stuck.connect(os.fspath(path))
            stuck.sendall(_watch_with_an_open_window())
            with trio.fail_after(2):
                while not one.desk.streams:
                    await one.servers.settle()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.servers.close, GPU)
                while path.exists():  # the file goes first, then the peers are given their time
                    await one.servers.settle()
                nursery.cancel_scope.cancel()
            stuck.settimeout(5)
            with suppress(ConnectionResetError):
                while stuck.recv(2**20):
                    pass
            await one.servers.settle()
        assert one.desk.streams == ()


async def test_many_servings_leave_no_descriptor_behind() -> None:
    """KBL-21"""
    async with node() as one:
        one.servers.post(snapshot(offer(group(0))))

        async def again() -> None:
            with client(one.path(await one.servers.serve(GPU))) as peer:
                next(peer.watch())

        await again()
        await one.servers.close(GPU)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(30):
            await again()
        await one.servers.close(GPU)
        with trio.fail_after(2):
            while len(os.listdir("/proc/self/fd")) > before:
                await one.servers.settle()
