"""The kubelet in memory against the agent's own desk: lives, adversities, and what each of them shows."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from reactor.model.errors import Refused, Transient
from reactor.model.hold import PodRef
from reactor.model.ids import ResourceName
from reactor.simulate.kubelet.memory import Container, Hold, MemoryKubelet, MemoryServers, Phase, Traits
from reactor.simulate.kubelet.plugin import KubeletPanic
from reactor.simulate.kubelet.topology import Policy
from reactor.simulate.kubelet.version import Version
from tests.simulate.kubelet.agent import GPU, Notes, desk, snapshot


class Node:
    def __init__(self, nursery: trio.Nursery, version: str, **traits) -> None:
        self.notes = Notes()
        self.kubelet = MemoryKubelet(nursery, Traits(version=Version.parse(version), **traits))
        self.servers = MemoryServers(self.kubelet, desk(self.notes))

    async def serve(self, *names: str, **how) -> str:
        """Show these ids and register on a fresh socket; returns when the list has arrived."""
        self.servers.post(snapshot(*names, **how))
        socket = await self.servers.serve(GPU)
        await self.servers.register(GPU, socket)
        await wait_all_tasks_blocked()
        return socket

    async def show(self, *names: str, **how) -> None:
        self.servers.post(snapshot(*names, **how))
        await wait_all_tasks_blocked()

    def counts(self) -> tuple[int, int]:
        return self.kubelet.allocatable(GPU), self.kubelet.capacity(GPU)


@asynccontextmanager
async def node(version: str = "1.34", **traits) -> AsyncIterator[Node]:
    async with trio.open_nursery() as nursery:
        made = Node(nursery, version, **traits)
        await made.kubelet.start()
        yield made
        nursery.cancel_scope.cancel()


async def test_what_the_agent_shows_is_what_the_kubelet_has(autojump_clock):
    async with node() as one:
        await one.serve("a", "b", ill=["b"])
        assert one.kubelet.devices(GPU) == {"a": True, "b": False}
        assert one.counts() == (1, 2)
        assert one.kubelet.streams(GPU) == 1
        assert one.kubelet.node() == {GPU: (2, 1)}
        await one.show("a", "b", "c", revision=2)
        assert one.counts() == (3, 3)
        assert one.notes.lists == [(GPU, 1, 1), (GPU, 3, 0)]


async def test_a_pod_gets_its_devices_and_everyone_can_see_it(autojump_clock):
    async with node() as one:
        await one.serve("a", "b", numa=True)
        pod = await one.kubelet.run_pod("p", {GPU: 2})
        assert pod.phase is Phase.RUNNING
        assert one.kubelet.held(GPU) == {"a", "b"}
        (listed,) = one.kubelet.list_pods()
        assert listed.pod == PodRef("default", "p")
        assert listed.devices == ((GPU, "a", (0,)), (GPU, "b", (1,)))
        entry = json.loads(one.kubelet.checkpoint())["Data"]["PodDeviceEntries"][0]
        assert entry["DeviceIDs"] == {"0": ["a"], "1": ["b"]}
        assert len(one.notes.granted_ids) == 1
        one.kubelet.delete_pod("p")
        assert one.kubelet.list_pods() == ()
        await one.show("a", "b", numa=True, nudge=1)
        assert json.loads(one.kubelet.checkpoint())["Data"]["PodDeviceEntries"] is None


async def test_a_refusal_reaches_the_pod_status(autojump_clock):
    async with node() as one:
        await one.serve("a")
        hold = one.kubelet.weather.hold = Hold(answered=False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.kubelet.run_pod, "p", {GPU: 1})
            await hold.arrived.wait()
            await one.show("a", ill=["a"], revision=2)
            hold.release()
        assert "code = FailedPrecondition desc = a is withheld" in one.kubelet.pod("p").message


@pytest.mark.parametrize("answered", [True, False])
async def test_lists_go_on_while_an_allocate_is_in_flight(autojump_clock, answered):
    async with node() as one:
        await one.serve("a", "b")
        hold = one.kubelet.weather.hold = Hold(answered=answered)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.kubelet.run_pod, "p", {GPU: 2})
            await hold.arrived.wait()
            await one.show("a", "b", "c", revision=2)
            assert one.counts() == (3, 3)
            assert one.kubelet.pod("p").phase is Phase.PENDING
            hold.release()
        assert one.kubelet.pod("p").phase is Phase.RUNNING


async def test_an_id_dropped_during_its_allocate_panics_the_kubelet(autojump_clock):
    async with node() as one:
        await one.serve("a", "b")
        hold = one.kubelet.weather.hold = Hold(answered=True)

        async def drop_in_flight() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.kubelet.run_pod, "p", {GPU: 2})
                await hold.arrived.wait()
                await one.show("a", revision=2)
                hold.release()

        with pytest.RaisesGroup(KubeletPanic):
            await drop_in_flight()
        assert "left the list" in one.kubelet.panicked
        assert not one.kubelet.up
        assert one.notes.live == 0


async def test_a_held_id_missing_after_a_silent_restart_panics_the_kubelet(autojump_clock):
    async with node("1.37", policy=Policy.BEST_EFFORT) as one:
        await one.serve("a", "b", numa=True)
        await one.kubelet.run_pod("p", {GPU: 2})
        await one.kubelet.restart(api_silent=True)
        assert one.kubelet.list_pods() == ()
        await one.serve("a", numa=True)
        with pytest.raises(KubeletPanic):
            await one.kubelet.api_answers()
        assert "b is not listed" in one.kubelet.panicked


@pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
async def test_a_restart_sweeps_the_socket_and_the_agent_comes_back(autojump_clock, version):
    async with node(version) as one:
        socket = await one.serve("a")
        pod = await one.kubelet.run_pod("p", {GPU: 1})
        before = one.kubelet.identity()
        await one.kubelet.restart()
        assert one.notes.live == 0
        assert not one.kubelet.exists(socket)
        after = one.kubelet.identity()
        assert after != before
        assert after.inode == before.inode
        with pytest.raises(Transient, match="our own socket"):
            await one.servers.register(GPU, socket)
        assert one.counts() == (0, 0)
        await one.serve("a")
        assert one.counts() == (1, 1)
        assert one.kubelet.held(GPU) == {"a"}
        assert pod.phase is Phase.RUNNING


async def test_a_killed_kubelet_leaves_its_socket_and_a_stopped_one_does_not(autojump_clock):
    async with node() as one:
        one.kubelet.kill()
        assert one.kubelet.identity() is not None
        assert not one.kubelet.accepts()
        await one.kubelet.start()
        one.kubelet.stop()
        assert one.kubelet.identity() is None
        with pytest.raises(Transient, match="refused"):
            one.kubelet.list_pods()
        socket = await one.servers.serve(GPU)
        with pytest.raises(Transient, match="refused"):
            await one.servers.register(GPU, socket)


async def test_a_pod_whose_allocate_was_in_flight_is_admitted_again_by_the_next_life(autojump_clock):
    async with node() as one:
        await one.serve("a")
        hold = one.kubelet.weather.hold = Hold(answered=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.kubelet.run_pod, "p", {GPU: 1})
            await hold.arrived.wait()
            one.kubelet.kill()
        assert one.kubelet.pod("p").phase is Phase.PENDING
        one.kubelet.weather.hold = None
        await one.kubelet.start(api_silent=True)
        await one.serve("a")
        await one.kubelet.api_answers()
        assert one.kubelet.pod("p").phase is Phase.RUNNING


async def test_a_stream_that_ends_during_allocate_refuses_the_pod(autojump_clock):
    async with node() as one:
        await one.serve("a")
        hold = one.kubelet.weather.hold = Hold(answered=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.kubelet.run_pod, "p", {GPU: 1})
            await hold.arrived.wait()
            one.kubelet.reset_stream(GPU)
        await wait_all_tasks_blocked()
        assert "the client connection is closing" in one.kubelet.pod("p").message
        assert one.counts() == (0, 1)


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


async def test_from_1_37_a_register_right_after_the_end_is_answered_and_nothing_happens(autojump_clock):
    async with node("1.37", end_notice=0.005) as one:
        await one.serve("a")
        socket = one.servers.sockets()[GPU]
        one.kubelet.reset_stream(GPU)
        await one.kubelet.register(GPU, socket)
        await trio.sleep(1)
        assert one.kubelet.streams(GPU) == 0
        assert one.counts() == (0, 1)
        await one.kubelet.register(GPU, socket)
        await wait_all_tasks_blocked()
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


async def test_without_its_checkpoint_the_kubelet_thinks_running_devices_free(autojump_clock):
    async with node() as one:
        await one.serve("a")
        await one.kubelet.run_pod("p", {GPU: 1})
        await one.kubelet.restart(keep_checkpoint=False)
        assert one.kubelet.checkpoint() is None
        await one.serve("a")
        assert one.kubelet.held(GPU) == frozenset()
        assert one.kubelet.list_pods()[0].devices == ()


async def test_a_spoilt_checkpoint_counts_as_none_and_is_mended_by_the_next_write(autojump_clock):
    async with node() as one:
        await one.serve("a")
        one.kubelet.node()
        one.kubelet.spoil_checkpoint(b"{")
        assert one.kubelet.checkpoint() == b"{"
        await one.kubelet.restart()
        assert one.kubelet.node() == {GPU: (1, 1)}  # the Node object keeps what was last published
        await one.serve("a")
        assert json.loads(one.kubelet.checkpoint())["Data"]["RegisteredDevices"] == {GPU: ["a"]}


async def test_an_init_container_holds_more_than_its_pod(autojump_clock):
    async with node() as one:
        await one.serve("a", "b", "c")
        await one.kubelet.run_pod("p", containers=[Container("c", {GPU: 1})], init={GPU: 2})
        assert len(one.kubelet.held(GPU)) == 2
        assert len(one.kubelet.list_pods()[0].devices) == 1


async def test_lists_are_rate_limited(autojump_clock):
    async with node() as one:
        for _ in range(10):
            assert await one.kubelet.read_list() == ()
        with pytest.raises(Transient, match="rejected by rate limit"):
            await one.kubelet.read_list()
        await trio.sleep(1)
        assert await one.kubelet.read_list() == ()


async def test_a_rebooted_node_fails_its_pods_unless_the_plugin_is_there_first(autojump_clock):
    async with node() as one:
        await one.serve("a")
        pod = await one.kubelet.run_pod("p", {GPU: 1})
        await one.kubelet.restart(down=30, reboot=True)
        assert pod.phase is Phase.FAILED
        assert "no healthy devices present" in pod.message


async def test_300_restarts_with_pods_are_quick_and_leave_nothing(autojump_clock):
    async with node() as one:
        tasks = trio.lowlevel.current_statistics().tasks_living
        began = time.perf_counter()
        for number in range(300):
            await one.serve("a", "b")
            await one.kubelet.run_pod(f"p{number}", {GPU: 1})
            one.kubelet.delete_pod(f"p{number}")
            await one.kubelet.restart()
        took = time.perf_counter() - began
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert took < 3


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


async def test_the_socket_file_of_a_dead_plugin_refuses_a_dial_back(autojump_clock):
    async with node("1.34") as one:
        one.kubelet.weather.register_delay = 0.5
        socket = await one.servers.serve(GPU)
        with trio.move_on_after(0.1):
            await one.servers.register(GPU, socket)
        one.servers.drop()  # killed: the file stays, and up to 1.34 the kubelet goes on with its Register
        assert one.kubelet.exists(socket)
        await trio.sleep(30)
        assert one.kubelet.streams(GPU) == 0
