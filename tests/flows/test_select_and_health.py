"""Sections select and health, edited while pods run: only what is named moves."""

from __future__ import annotations

from reactor.simulate.node import GPU


async def test_an_excluded_gpu_goes_when_its_pod_has_ended(flow, seen, autojump_clock):
    async with flow(gpus="3xH100") as node:
        await node.kubelet.run_pod("a", {GPU: 1})
        await node.settle(2)
        (held,) = node.kubelet.held(GPU)
        assert held == node.gpu(0)
        node.edit_config("select: {exclude: {indices: [0, 1]}}\n")
        await node.settle(20)
        assert node.listed() == {node.gpu(0): False, node.gpu(2): True}
        assert set(node.state.plan.unlisted.values()) == {
            "select.exclude names it (index 0)",
            "select.exclude names it (index 1)",
        }
        node.kubelet.delete_pod("a")
        await node.settle(20)
        assert node.listed() == {node.gpu(2): True}
        node.edit_config("version: v1\n")
        await node.settle(1)
        assert node.healthy() == {node.gpu(index) for index in range(3)}


async def test_a_gpu_excluded_while_it_is_ill_is_still_ill_when_it_is_back(flow, autojump_clock):
    async with flow() as node:
        node.hardware.xid(0, 79)
        await node.settle(1)
        assert node.unhealthy() == {node.gpu(0)}
        node.edit_config("select: {include: {indices: [1]}}\n")
        await node.settle(20)
        assert node.listed() == {node.gpu(1): True}
        node.edit_config("version: v1\n")
        await node.settle(1)
        assert node.unhealthy() == {node.gpu(0)}


async def test_an_xid_that_is_called_harmless_gives_its_gpu_back_at_once(flow, log, autojump_clock):
    async with flow(replicas=2) as node:
        node.hardware.xid(0, 79)
        await node.settle(1)
        assert node.unhealthy() == node.shares(0, replicas=2)
        node.share(2, more="health: {xids: {application: [79]}}\n")
        await node.settle(1)
        assert node.unhealthy() == set()
        node.hardware.xid(0, 79)
        await node.settle(1)
        assert node.unhealthy() == set()
        assert log.of("xid.reported")[-1]["class"] == "application"
        assert log.of("gpu.recovered")


async def test_what_xids_mean_outlives_the_agent(flow, autojump_clock):
    async with flow(config="health: {xids: {ignore: [79], reset: [13]}}\n") as node:
        node.hardware.xid(1, 13)
        await node.settle(1)
        await node.stop_agent()
        await node.start_agent()
        await node.settle(1)
        node.hardware.xid(0, 79)
        await node.settle(1)
        assert node.unhealthy() == {node.gpu(1)}
