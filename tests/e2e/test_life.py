"""The agent's life on a real node, as a process over simulated GPUs."""

from tests.e2e.node import GPU, Node, reason


async def test_pods_get_what_they_ask_for_and_see_it(node: Node):
    await node.start_agent("8xH100")
    await node.resource(GPU, allocatable=8, capacity=8)
    await node.run_pod("two", {GPU: 2})
    seen = await node.inside("two")
    assert len(seen.environment["NVIDIA_VISIBLE_DEVICES"].split(",")) == 2
    await node.create_pod("nine", {GPU: 9})
    pending = await node.pod("nine", reason)
    assert "Insufficient nvidia.com/gpu" in reason(pending)


async def test_a_node_is_clean_for_the_next_test(node: Node):
    await node.start_agent("2xH100")
    await node.resource(GPU, allocatable=2, capacity=2)
    await node.run_pod("two", {GPU: 2})
