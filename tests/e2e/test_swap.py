"""From another device plugin to the agent and back, while pods run. Both list whole GPUs by UUID, so a GPU is one id.

The other one stands on a fixed socket and registers once (peer.py). Who changes plugins lets the old one end before the
new one comes, or the other way round.
"""

from __future__ import annotations

from reactor.simulate.nvml.hardware import Hardware
from tests.e2e.node import GPU, Node
from tests.e2e.other import end_other, start_other
from tests.e2e.owners import GPUS, Owners, with_pods
from tests.e2e.versions import EVERY_KUBELET
from tests.e2e.world import Process

IDS = [gpu.uuid for gpu in Hardware(f"{GPUS}xH100").gpus]


async def start_peer(node: Node) -> Process:
    return await start_other(node, GPU, IDS)


async def known(owners: Owners) -> None:
    """The agent and the kubelet know of every pod's GPUs."""
    await owners.listed()
    await owners.known()


@EVERY_KUBELET
async def test_one_plugin_ends_and_the_other_comes(node: Node):
    owners = await with_pods(node, first=1)
    await owners.agent.stop()
    peer = await start_peer(node)
    await node.podresources.shows(GPU, lambda ids: len(ids) == GPUS)
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    await owners.add("theirs", 1)
    await end_other(peer)
    mark = owners.agent.log.mark()
    owners.agent.start()
    await owners.agent.event("agent.settled", since=mark)
    await known(owners)
    await owners.add("ours", 1)
    await owners.agent.stop()
    peer = await start_peer(node)
    await owners.add("last", 1)
    await owners.listed()
    await end_other(peer)


@EVERY_KUBELET
async def test_the_agent_comes_while_the_other_one_serves_and_stays_when_that_ends(node: Node):
    """Up to 1.34 the kubelet ends the stream of whoever came last with it: the agent is back at once."""
    owners = await with_pods(node, first=1)
    await owners.agent.stop()
    peer = await start_peer(node)
    await node.podresources.shows(GPU, lambda ids: len(ids) == GPUS)
    await owners.add("theirs", 1)
    mark = owners.agent.log.mark()
    owners.agent.start()
    await owners.agent.event("agent.settled", since=mark)
    await known(owners)
    await owners.add("ours", 1)
    mark = owners.agent.log.mark()
    await end_other(peer)
    if forgets(node):
        await owners.agent.event("stream.closed", since=mark)
        await owners.agent.event("agent.settled", since=mark)
    await known(owners)
    await owners.add("last", 1)


@EVERY_KUBELET
async def test_the_other_one_comes_while_the_agent_serves(node: Node):
    """Up to 1.34 it is forgotten with the agent, and registers once only: nobody loses a GPU, and nobody gets one."""
    owners = await with_pods(node, first=1)
    peer = await start_peer(node)
    await owners.add("theirs", 1)
    await owners.agent.stop()
    if forgets(node):
        await node.podresources.shows(GPU, lambda ids: not ids)
        await owners.stand()
        await end_other(peer)
        peer = await start_peer(node)
    await node.podresources.shows(GPU, lambda ids: len(ids) == GPUS)
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    await owners.add("last", 2)
    await owners.listed()
    await end_other(peer)


def forgets(node: Node) -> bool:
    """Does this kubelet take the end of a plugin for that of the one which has its resource now?"""
    return node.version in ("1.29", "1.34")
