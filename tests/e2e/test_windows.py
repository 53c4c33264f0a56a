"""What takes minutes: the kubelet's grace for a plugin that is away, a node that was deleted, and no news at all."""

from __future__ import annotations

import pytest
import trio

from tests.e2e.node import GPU, Node
from tests.e2e.owners import GPUS, with_pods
from tests.e2e.world import HOSTNAME

pytestmark = pytest.mark.long

QUIET = 180.0
DISTURBED = "State pushed for device plugin|Got registration request|Making allocation request|has been stopped"
"""What the kubelet's log would say."""


async def test_an_agent_that_is_away_for_longer_than_the_kubelets_grace_has_all_gpus_again(node: Node):
    """After 5 minutes the kubelet drops the resource; what pods have of it stays in its books."""
    owners = await with_pods(node, two=2)
    await owners.agent.stop()
    await node.resource(GPU, allocatable=0, capacity=GPUS)
    await node.resource(GPU, allocatable=0, capacity=0, within=360)
    await owners.stand()
    await owners.listed()
    owners.agent.start()
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    await owners.listed()
    await owners.add("rest", 2)


async def test_where_nothing_happens_nobody_is_told_anything(node: Node):
    owners = await with_pods(node, two=2)
    await owners.agent.event("agent.settled")
    mark = node.kubelet.log.mark()
    told: list[str] = []
    with trio.move_on_after(QUIET):
        told.append(await owners.agent.log.until(".", since=owners.agent.log.mark(), within=2 * QUIET))
    assert not told
    assert not node.kubelet.log.find(DISTURBED, since=mark)
    await owners.stand()


async def test_pods_of_a_node_that_was_deleted_give_their_gpus_back(node: Node):
    """The kubelet does not make its Node object again while it runs: the controllers take its pods away."""
    owners = await with_pods(node, two=2)
    await node.api.delete("Node", HOSTNAME)
    await node.gone("Pod", "two", within=180)
    await owners.pods.pop("two").ended()
    await node.kubelet.restart()
    await node.ready()
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    await owners.known()  # pods of its first look at the API it would judge by its old books
    await owners.add("all", GPUS)
