"""The agent as the kubelet's plugin watcher finds it, with no kubelet.sock to register on."""

from __future__ import annotations

import signal

from tests.e2e.node import GPU, Node
from tests.e2e.versions import EVERY_KUBELET

REGISTRY = "/var/lib/kubelet/plugins_registry"
SHARED = """
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, rename: nvidia.com/gpu.shared, replicas: 2}
"""


def files(node: Node) -> list[str]:
    return [each.name for each in node.path(REGISTRY).iterdir() if "gpu-reactor" in each.name]


@EVERY_KUBELET
async def test_it_is_found_over_restarts_of_either_and_pods_keep_their_gpus(node: Node):
    agent = await node.start_agent("4xH100", "--kubelet-socket=")
    await node.resource(GPU, allocatable=4, capacity=4)
    (first,) = files(node)
    await node.run_pod("two", {GPU: 2})
    held, seen = (await node.podresources.held(GPU))["two"], await node.inside("two")

    for number in (signal.SIGTERM, signal.SIGKILL):
        mark = agent.log.mark()
        await node.kubelet.restart(number)
        await agent.event("plugin.registered", since=mark)
        await node.podresources.shows(GPU, lambda ids: len(ids) == 4)
    await agent.kill()
    await node.resource(GPU, allocatable=0, capacity=4)
    agent.start()
    await node.resource(GPU, allocatable=4, capacity=4)
    (last,) = files(node)
    assert last != first
    assert (await node.podresources.held(GPU))["two"] == held
    assert (await node.inside("two")).pid == seen.pid

    agent.write_config(SHARED)
    await node.resource(f"{GPU}.shared", allocatable=4, capacity=8)
    await node.delete_pod("two")
    await node.resource(f"{GPU}.shared", allocatable=8, capacity=8)
    assert await agent.stop() == 0
    assert files(node) == []
    await node.resource(f"{GPU}.shared", allocatable=0, capacity=8)
