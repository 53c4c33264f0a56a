"""Worker hangs: one GPU is unknown, the others and the agent go on."""

from __future__ import annotations

import trio

from reactor.events import WorkerLost
from reactor.model.gpu import DriverState
from reactor.simulate.node import GPU


async def test_a_call_that_hangs_marks_its_gpu_and_the_others_are_served(flow, seen, autojump_clock):
    """HLT-22"""
    async with flow(gpus="4xH100") as node:
        node.hardware.hang("nvmlDeviceGetMemoryInfo", 1)
        await node.until(lambda: node.unhealthy() == {node.gpu(1)}, within=60)
        node.hardware.xid(3, 79)
        await node.settle()
        assert node.unhealthy() == {node.gpu(1), node.gpu(3)}
        assert any(fact.hung and fact.gpu_index == 1 for fact in seen.of(WorkerLost))
        await node.settle(120)
        assert node.healthy() == {node.gpu(0), node.gpu(2)}
        assert seen.history(node.gpu(1)) == "HU"


async def test_an_xid_of_another_gpu_comes_while_the_call_still_hangs(flow, seen, autojump_clock):
    """HLT-22"""
    async with flow(gpus="4xH100") as node:
        await node.settle(20)
        node.hardware.hang("nvmlDeviceGetMemoryInfo", 1)
        await trio.sleep(12)
        assert not node.unhealthy(), "the deadline is not over yet"
        node.hardware.xid(3, 79)
        await node.until(lambda: node.unhealthy() == {node.gpu(3)}, within=1)


async def test_the_gpu_is_healthy_again_when_it_answers_again(flow, seen, autojump_clock):
    async with flow() as node:
        hang = node.hardware.hang("nvmlDeviceGetMemoryInfo", 1)
        await node.until(lambda: node.unhealthy() == {node.gpu(1)}, within=60)
        await node.settle(60)
        hang.release()
        await node.until(lambda: not node.unhealthy(), within=600)
        assert seen.history(node.gpu(1)) == "HUH"


async def test_an_initialisation_that_hangs_keeps_nobody_waiting_but_the_gpus(flow, seen, autojump_clock):
    """NVM-02"""
    async with flow(started=False) as node:
        hang = node.hardware.hang("nvmlInitWithFlags")
        await node.kubelet.start()
        await node.start_agent()
        await node.until(lambda: node.state.driver.state is DriverState.HUNG, within=130)
        assert "driver" in node.state.faults
        assert node.listed() == {}
        node.edit_config("version: v1\nnot: this\n")
        await node.until(lambda: "config.rejected" in node.state.faults, within=1)
        node.share(0)
        hang.release()
        await node.until(lambda: node.healthy() == {node.gpu(0), node.gpu(1)}, within=200)
        assert "driver" not in node.state.faults


async def test_a_hang_of_the_whole_driver_condemns_nobody(flow, seen, autojump_clock):
    async with flow() as node:
        node.hardware.hang("nvmlSystemGetDriverVersion")
        await node.settle(300)
        assert node.state.driver.state is DriverState.HUNG
        assert node.healthy() == {node.gpu(0), node.gpu(1)}
        pod = await node.kubelet.run_pod("job", {GPU: 1})
        assert pod.phase == "Running"


async def test_sigterm_ends_the_agent_while_a_call_hangs(flow, seen, autojump_clock):
    async with flow() as node:
        node.hardware.hang("nvmlDeviceGetMemoryInfo", 1)
        await node.settle(31)
        before = autojump_clock.current_time()
        await node.stop_agent()
        assert autojump_clock.current_time() - before <= 6.1
