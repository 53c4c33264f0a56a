"""What goes wrong between the kubelet in memory and its plugins, each on order."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from reactor.model.errors import Refused, Transient
from reactor.model.ids import ResourceName
from tests.simulate.kubelet.agent import GPU
from tests.simulate.kubelet.node import node


async def test_a_reset_stream_is_not_retried_and_its_resource_goes_after_the_grace(autojump_clock):
    async with node() as one:
        await one.serve("a", "b")
        one.kubelet.reset_stream(GPU)
        await trio.sleep(1)
        assert one.notes.live == 0
        assert one.counts() == (0, 2)
        await trio.sleep(300)
        assert one.kubelet.node() == {GPU: (0, 0)}


async def test_a_swept_socket_keeps_its_stream(autojump_clock):
    async with node() as one:
        await one.serve("a")
        one.kubelet.sweep_sockets()
        await one.show("a", "b", revision=2)
        assert one.counts() == (2, 2)


async def test_changes_of_the_directory_wake_whoever_watches_it(autojump_clock):
    async with node() as one:
        for change in (one.kubelet.sweep_sockets, one.kubelet.stop):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.kubelet.changed)
                await wait_all_tasks_blocked()
                change()


async def test_register_fails_as_often_as_told_and_then_goes_well(autojump_clock):
    async with node() as one:
        one.kubelet.weather.refuse_register = 2
        for _ in range(2):
            with pytest.raises(Transient, match="UNKNOWN: failed to dial device plugin"):
                await one.serve("a")
        await one.serve("a")
        assert one.counts() == (1, 1)


async def test_a_bad_name_is_refused_for_good(autojump_clock):
    async with node() as one:
        resource = ResourceName("NVIDIA.com/gpu")
        socket = await one.servers.serve(resource)
        with pytest.raises(Refused, match="is invalid"):
            await one.servers.register(resource, socket)


@pytest.mark.parametrize(("late", "took"), [(3.0, 5.2), (20.0, 10.0)])
async def test_a_socket_that_comes_late_is_dialled_again_within_ten_seconds(autojump_clock, late, took):
    async with node() as one:
        plug_socket = await one.servers.serve(GPU)
        plug = one.kubelet.sockets.pop(plug_socket)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def appear() -> None:
                await trio.sleep(late)
                one.kubelet.bind(plug)

            nursery.start_soon(appear)
            if late < 10:
                await one.kubelet.register(GPU, plug_socket)
            else:
                with pytest.raises(Transient, match="context deadline exceeded"):
                    await one.kubelet.register(GPU, plug_socket)
            assert trio.current_time() - began == pytest.approx(took)


@pytest.mark.parametrize(("version", "registered"), [("1.34", 1), ("1.35", 0)])
async def test_up_to_1_34_a_register_goes_on_when_its_caller_gave_up(autojump_clock, version, registered):
    async with node(version) as one:
        one.kubelet.weather.register_delay = 5
        socket = await one.servers.serve(GPU)
        with pytest.raises(Transient, match="no answer in time"):
            await one.servers.register(GPU, socket, 2)
        await trio.sleep(10)
        assert one.kubelet.streams(GPU) == registered


async def test_from_1_37_a_register_right_after_the_end_burns_the_socket(autojump_clock):
    async with node("1.37", end_notice=0.005) as one:
        await one.serve("a")
        socket = one.servers.sockets()[GPU]
        one.kubelet.reset_stream(GPU)
        for _ in range(2):
            with pytest.raises(Transient, match="already connected"):
                await one.kubelet.register(GPU, socket)
            await trio.sleep(1)
        assert one.kubelet.streams(GPU) == 0
        assert one.counts() == (1, 1)
        await one.serve("a")
        assert one.kubelet.streams(GPU) == 1


async def test_a_slow_reader_gets_the_newest_list_when_it_reads_again(autojump_clock):
    async with node() as one:
        await one.serve("a")
        one.kubelet.weather.shut()
        for number in range(2, 9):
            await one.show(*"abcdefgh"[:number], revision=number)
        assert one.counts() == (1, 1)
        one.kubelet.weather.open()
        await wait_all_tasks_blocked()
        assert one.counts() == (8, 8)
        assert len(one.notes.lists) == 3  # the first, the one under way, the newest


async def test_a_list_read_late_was_sent_before(autojump_clock):
    async with node() as one:
        await one.serve("a")
        one.kubelet.weather.read_delay = 2
        await one.show("a", ill=["a"], revision=2)
        assert one.notes.lists[-1] == (GPU, 0, 1)
        assert one.counts() == (1, 1)
        await trio.sleep(2.1)
        assert one.counts() == (0, 1)


async def test_a_list_longer_than_the_kubelet_reads_ends_the_stream(autojump_clock):
    async with node() as one:
        await one.serve("a")
        await one.show("a", "b" * 4_194_304, revision=2)
        assert one.kubelet.streams(GPU) == 0
        assert one.counts() == (0, 1)


async def test_lists_are_rate_limited(autojump_clock):
    async with node() as one:
        for _ in range(10):
            assert await one.kubelet.read_list() == ()
        with pytest.raises(Transient, match="rejected by rate limit"):
            await one.kubelet.read_list()
        await trio.sleep(1)
        assert await one.kubelet.read_list() == ()


async def test_serving_can_be_made_to_fail(autojump_clock):
    async with node() as one:
        one.servers.fail_serve = 1
        with pytest.raises(Transient, match="No space left"):
            await one.serve("a")
        await one.serve("a")
        await one.servers.aclose(1)
        await one.servers.settle()
        await wait_all_tasks_blocked()
        assert one.kubelet.streams(GPU) == 0
        assert not one.servers.sockets()
