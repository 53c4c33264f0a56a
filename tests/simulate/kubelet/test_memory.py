"""The kubelet in memory against the agent's own desk: its lives, its pods, and what they show."""

from __future__ import annotations

import json
import time

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from reactor.model.errors import Transient
from reactor.model.hold import PodRef
from reactor.simulate.kubelet.memory import Container, Hold, Phase
from reactor.simulate.kubelet.plugin import KubeletPanic
from reactor.simulate.kubelet.topology import Policy
from tests.simulate.kubelet.agent import GPU
from tests.simulate.kubelet.node import node


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
        began = time.process_time()
        for number in range(300):
            await one.serve("a", "b")
            await one.kubelet.run_pod(f"p{number}", {GPU: 1})
            one.kubelet.delete_pod(f"p{number}")
            await one.kubelet.restart()
        took = time.process_time() - began
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert took < 3


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
