"""Plugins and connections that misbehave on real sockets, and what the kubelet makes of it."""

from __future__ import annotations

import pytest
import trio
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from reactor.kubelet.books import list_pods
from reactor.kubelet.encode import EncodedList
from reactor.model.errors import Transient
from reactor.simulate.kubelet.grpc import Break, Phase
from reactor.simulate.kubelet.plugin import KubeletPanic
from tests.simulate.kubelet.agent import GPU, snapshot
from tests.simulate.kubelet.sockets import Careless, careless, list_of, node


@pytest.mark.parametrize("how", list(Break))
async def test_however_a_stream_breaks_both_sides_see_it_and_a_new_register_heals(how):
    async with node() as one:
        made = await one.serve("a", "b")
        await one.kubelet.break_stream(GPU, how)
        await one.until(lambda devices: not any(devices.values()))
        await one.parted()
        await one.servers.register(GPU, made)
        await one.until(lambda devices: all(devices.values()))


async def test_a_reader_that_does_not_read_shuts_the_window_and_then_gets_the_newest():
    async with node() as one:
        ids = [f"id-{number:060d}" for number in range(2000)]
        await one.serve(*ids)
        await one.kubelet.weather(lambda weather: weather.calm.clear())
        for revision in range(2, 8):
            one.servers.post(snapshot(*ids, ill=ids[:revision], revision=revision))
            await one.servers.settle()
        sent = len(one.notes.lists)
        await one.kubelet.weather(lambda weather: weather.calm.set())
        await one.until(lambda devices: sum(not each for each in devices.values()) == 7)
        assert sent < 4
        assert len(one.notes.lists) < 7


async def test_a_list_that_nobody_has_read_yet_is_read_before_the_end_of_its_stream():
    async with node() as one:

        async def sent() -> int:
            return len(one.notes.lists)

        await one.serve("a")
        await one.kubelet.weather(lambda weather: weather.calm.clear())
        one.servers.post(snapshot("a", "b", revision=2))
        await one.until(lambda devices: devices.keys() == {"a", "b"})  # that reading had begun
        one.servers.post(snapshot("a", "b", "c", revision=3))
        await one.eventually(sent, lambda lists: lists == 3)
        await one.servers.close(GPU)
        await one.kubelet.weather(lambda weather: weather.calm.set())
        await one.until(lambda devices: devices == {"a": False, "b": False, "c": False})


@pytest.mark.parametrize("over", [0, 1])
async def test_four_mib_pass_and_one_byte_more_ends_the_stream(over):
    async with node() as one:
        # 19 bytes stand around the id: fields and lengths of the device and of the id, and "Healthy".
        big = list_of("b" * (4 * 1024 * 1024 - 19 + over))
        assert big.ByteSize() == 4 * 1024 * 1024 + over
        async with careless(one, list_of("a"), big):
            await one.until(lambda devices: (devices == {"a": False}) if over else ("a" not in devices))
            await one.eventually(lambda: one.kubelet.streams(GPU), lambda streams: streams == 1 - over)


async def test_an_answer_without_containers_leaks_the_ids():
    async with node() as one, careless(one, list_of("a")):
        await one.until(bool)
        pod = await one.kubelet.run_pod("p", {GPU: 1})
        assert "no containers return in allocation response" in pod.message
        assert await one.kubelet.held(GPU) == {"a"}


async def test_a_list_that_is_no_message_ends_the_stream():
    async with node() as one, careless(one, list_of("a"), EncodedList(b"\xff\xff")):
        await one.until(lambda devices: devices == {"a": False})


async def test_failing_options_fail_the_register_and_no_list_is_asked_for():
    class NoOptions(Careless):
        async def GetDevicePluginOptions(self, stream):  # noqa: N802
            await stream.recv_message()
            raise GRPCError(Status.INTERNAL, "no options today")

    async with node() as one:
        with pytest.raises(Transient, match="get device plugin options: rpc error: code = Internal desc = no options"):
            async with careless(one, list_of("a"), service=NoOptions):
                pass
        assert await one.kubelet.node() == {}


async def test_an_id_dropped_while_the_answer_is_on_its_way_ends_the_kubelet():
    async with node() as one:
        await one.serve("a", "b")
        await one.kubelet.weather(lambda weather: weather.answers.clear())

        async def drop_in_flight() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.kubelet.run_pod, "p", {GPU: 2})
                await one.eventually(one.granted, bool)
                one.servers.post(snapshot("a", revision=2))
                await one.until(lambda devices: "b" not in devices)
                await one.kubelet.weather(lambda weather: weather.answers.set())

        with pytest.RaisesGroup(KubeletPanic):
            await drop_in_flight()
        assert "b of nvidia.com/gpu left the list" in one.kubelet.panicked
        with pytest.raises(Transient, match="refused"):
            await list_pods(one.door, one.kubelet.pod_resources_socket)


@pytest.mark.parametrize("killed", [True, False])
async def test_a_connection_that_ends_while_an_answer_is_on_its_way(killed):
    async with node() as one:
        await one.serve("a")
        await one.kubelet.weather(lambda weather: weather.answers.clear())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.kubelet.run_pod, "p", {GPU: 1})
            await one.eventually(one.granted, bool)
            if killed:
                await one.kubelet.kill()
            else:
                await one.kubelet.break_stream(GPU)
        pod = await one.kubelet.pod("p")
        assert pod.phase is (Phase.PENDING if killed else Phase.FAILED)
        assert killed or "the client connection is closing" in pod.message
