"""Config broken, then mended: last good stays in force, the refusal is told once, health goes on meanwhile."""

from __future__ import annotations

from reactor.events import ConfigRejected
from reactor.simulate.node import GPU

BROKEN = "version: v1\nsharing:\n  timeSlicing: [\n"


async def test_a_broken_edit_changes_nothing_and_its_mend_is_applied(flow, seen, log, autojump_clock):
    """CFG-29"""
    async with flow(replicas=2) as node:
        node.edit_config(BROKEN)
        await node.settle(10)
        assert node.healthy() == set(node.listed()) == node.shares(0, 1, replicas=2)
        assert seen.sent(GPU) == 1
        assert set(node.state.faults) == {"config.rejected"}
        (line,) = log.of("config.rejected")
        assert line["problems"][0]["line"] > 1
        node.share(3)
        await node.settle()
        assert node.healthy() == node.shares(0, 1, replicas=3)
        assert node.state.faults == {}


async def test_the_same_broken_text_seen_again_is_told_once(flow, seen, log, autojump_clock):
    async with flow() as node:
        for _ in range(3):
            node.edit_config(BROKEN)
            await node.settle(1)
        assert len(log.of("config.rejected")) == 1
        assert len({fact.digest for fact in seen.of(ConfigRejected)}) == 1


async def test_mending_back_to_what_is_in_force_ends_the_refusal_and_sends_nothing(flow, seen, autojump_clock):
    async with flow(replicas=2) as node:
        node.edit_config(BROKEN)
        await node.settle()
        node.share(2)
        await node.settle(10)
        assert node.state.faults == {}
        assert seen.sent(GPU) == 1


async def test_health_goes_on_while_the_config_is_broken_and_stays_after_the_mend(flow, seen, autojump_clock):
    """XTR-02"""
    async with flow(replicas=2) as node:
        node.edit_config(BROKEN)
        await node.settle(1)
        node.hardware.xid(1, 48)
        await node.settle(1)
        assert node.unhealthy() == node.shares(1, replicas=2)
        node.share(3)
        await node.settle(10)
        assert node.healthy() == node.shares(0, replicas=3)
        assert node.unhealthy() == node.shares(1, replicas=3)
        assert seen.history(node.share_of(1, 0)) == "HU"


async def test_a_config_broken_across_a_restart_leaves_the_last_accepted_in_force(flow, autojump_clock):
    async with flow(replicas=2) as node:
        await node.settle(1)
        node.edit_config(BROKEN)
        await node.settle(1)
        await node.kill_agent()
        await node.start_agent()
        await node.settle(1)
        assert node.healthy() == node.shares(0, 1, replicas=2)
        assert "config.rejected" in node.state.faults


async def test_a_broken_first_config_serves_nothing_until_it_is_mended(flow, seen, autojump_clock):
    async with flow(config=BROKEN) as node:
        await node.settle(5)
        assert node.listed() == {}
        assert seen.lists == []
        node.share(0)
        await node.settle()
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
