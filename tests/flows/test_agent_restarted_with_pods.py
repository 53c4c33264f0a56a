"""Agent restarted with pods running: held ids are in its first list, and a restart launders no condition."""

from __future__ import annotations

import pytest
import trio

from reactor.simulate.node import GPU, SimNode

VERSIONS = pytest.mark.parametrize("version", ["1.29", "1.33", "1.34", "1.37"])
ENDS = pytest.mark.parametrize("end", [SimNode.stop_agent, SimNode.kill_agent], ids=["term", "kill"])


def first_after(seen, count):
    """The first list after so many."""
    return seen.lists[count].ids


@VERSIONS
@ENDS
async def test_held_ids_are_in_the_first_list(flow, seen, autojump_clock, version, end):
    async with flow(version=version, numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        ((_, held),) = seen.owned()
        await node.settle(3)
        node.share(2)
        await node.settle(10)
        listed, count = node.listed(), len(seen.lists)
        await end(node)
        await node.start_agent()
        await node.settle(1)
        assert first_after(seen, count) == listed
        await node.settle(60)
        assert held in node.unhealthy()
        assert len(seen.lists) <= count + 2, "nothing flaps after the restart"
        node.kubelet.delete_pod("job")
        await node.until(lambda: node.healthy() == set(node.listed()) == node.shares(0, 1, replicas=2), within=20)


@VERSIONS
@ENDS
async def test_the_config_was_edited_while_it_was_down(flow, seen, autojump_clock, version, end):
    async with flow(version=version, numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        ((_, held),) = seen.owned()
        await node.settle(3)
        await end(node)
        node.share(2)
        await node.start_agent()
        await node.settle(60)
        own = 0 if held == node.gpu(0) else 1
        assert node.unhealthy() == {held} | node.shares(own, replicas=2)
        assert node.healthy() == node.shares(1 - own, replicas=2)
        assert all(held in each.ids for each in seen.lists)


async def test_a_config_that_was_just_accepted_outlives_a_kill(flow, seen, autojump_clock):
    """Shares of it may be with pods already: it is on disk as soon as the list of it is out."""
    async with flow() as node:
        await node.settle(1)
        node.share(3)
        await node.until(lambda: len(node.healthy()) == 6)
        await node.kill_agent()
        node.edit_config("sharing: [")
        await node.start_agent()
        await node.settle(10)
        assert node.healthy() == set(node.listed()) == node.shares(0, 1, replicas=3)


async def test_a_disk_that_is_full_is_told_of_once(flow, seen, autojump_clock):
    async with flow() as node:
        node.disk_fails = "writing state.json: No space left on device"
        node.share(3)
        await trio.sleep(5)
        assert set(node.state.faults) == {"handler.remember"}
        node.disk_fails = ""
        await trio.sleep(20)
        assert node.state.faults == {}


@ENDS
async def test_the_resource_was_renamed_while_it_was_down(flow, seen, autojump_clock, end):
    async with flow(numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        ((_, held),) = seen.owned()
        await node.settle(3)
        await end(node)
        node.share(2, rename="nvidia.com/gpu.shared")
        await node.start_agent()
        await node.settle(60)
        assert node.listed() == {held: False}
        assert len(node.healthy("nvidia.com/gpu.shared")) == 2
        node.kubelet.delete_pod("job")
        await node.until(lambda: len(node.healthy("nvidia.com/gpu.shared")) == 4, within=20)


async def test_killed_just_after_a_grant_that_was_not_written_down(flow, seen, autojump_clock):
    """The state file is a moment behind; the kubelet's checkpoint has it."""
    async with flow(numa=True) as node:
        await node.settle(5)
        await node.kubelet.run_pod("job", {GPU: 1})
        ((_, held),) = seen.owned()
        await node.kill_agent()
        node.share(2)
        await node.start_agent()
        await node.settle(30)
        assert held in node.unhealthy()


async def test_the_pod_ended_while_the_agent_was_down(flow, seen, autojump_clock):
    async with flow() as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(3)
        node.share(2)
        await node.settle(10)
        await node.kill_agent()
        node.kubelet.delete_pod("job")
        await node.start_agent()
        await node.until(lambda: node.healthy() == set(node.listed()) == node.shares(0, 1, replicas=2), within=20)


@ENDS
async def test_a_condition_stays_over_a_restart_and_goes_with_a_new_boot(flow, seen, autojump_clock, end):
    """HLT-04"""
    async with flow(replicas=2) as node:
        node.hardware.xid(0, 48)
        await node.settle(2)
        count = len(seen.lists)
        await end(node)
        await node.start_agent()
        await node.settle(300)
        first = first_after(seen, count)
        assert {one for one, healthy in first.items() if healthy} == node.shares(1, replicas=2)
        assert node.unhealthy() == node.shares(0, replicas=2)
        await end(node)
        node.boot = "boot-2"
        await node.start_agent()
        await node.settle(5)
        assert node.healthy() == node.shares(0, 1, replicas=2)
        assert node.state.conditions == {}


async def test_relapses_are_counted_over_restarts(flow, seen, autojump_clock):
    async with flow() as node:
        for turn in range(4):
            node.hardware.xid(0, 119)
            await node.settle(2)
            node.hardware.recovery(0, 1)
            await node.settle(2)
            node.hardware.recovery(0, 0)
            await node.settle(2)
            await node.kill_agent()
            await node.start_agent()
            await node.settle(2)
            assert node.unhealthy() == ({node.gpu(0)} if turn == 3 else set())


async def test_a_damaged_state_file_costs_memory_only(flow, seen, autojump_clock):
    async with flow(numa=True) as node:
        await node.kubelet.run_pod("job", {GPU: 1})
        ((_, held),) = seen.owned()
        await node.settle(3)
        node.share(2)
        await node.settle(10)
        await node.kill_agent()
        node.disk = b'{"v": 1, "holds": ['
        await node.start_agent()
        await node.settle(30)
        assert "state.unreadable" in node.state.faults
        assert held in node.unhealthy()


@VERSIONS
async def test_ten_restarts_in_a_row_move_nothing(flow, seen, autojump_clock, version):
    async with flow(version=version, replicas=2) as node:
        await node.kubelet.run_pod("job", {GPU: 2})
        await node.settle(3)
        for number in range(10):
            await (node.kill_agent() if number % 2 else node.stop_agent())
            await node.start_agent()
            await node.settle(2)
            assert node.healthy() == node.shares(0, 1, replicas=2)
        assert len(node.kubelet.held(GPU)) == 2
        assert node.kubelet.streams(GPU) == 1
