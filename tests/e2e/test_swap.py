"""From another device plugin to the agent and back, while pods run. Both list whole GPUs by UUID, so a GPU is one id.

The other one stands on a fixed socket and registers once (peer.py). Who changes plugins lets the old one end before the
new one comes, or the other way round.
"""

from __future__ import annotations

import signal
import sys

from reactor.simulate.nvml.hardware import Hardware
from tests.e2e.agent import ROOT
from tests.e2e.logs import Log
from tests.e2e.node import GPU, PLUGINS, Node
from tests.e2e.owners import GPUS, Owners, with_pods
from tests.e2e.versions import EVERY_KUBELET
from tests.e2e.world import Process

SPEC = f"{GPUS}xH100"


async def start_peer(node: Node) -> Process:
    """The other plugin; returns once it is registered."""
    log = Log(node.folder / "log" / "peer")
    mark = log.mark()
    ids = [gpu.uuid for gpu in Hardware(SPEC).gpus]
    with log.path.open("ab") as out:
        command = [sys.executable, "-m", "tests.e2e.peer", PLUGINS, GPU, *ids]
        peer = node.world.start(command, stdout=out.fileno(), cwd=ROOT)
    await log.until("^served$", since=mark)
    return peer


async def end_peer(peer: Process) -> None:
    peer.send(signal.SIGTERM)
    assert await peer.ended() == 0


async def known(owners: Owners) -> None:
    """The agent and the kubelet know of every pod's GPUs."""
    await owners.listed()
    assert {hold["id"] for hold in (await owners.agent.state())["holds"]} == owners.gpus()


@EVERY_KUBELET
async def test_one_plugin_ends_and_the_other_comes(node: Node):
    owners = await with_pods(node, first=1)
    await owners.agent.stop()
    peer = await start_peer(node)
    await node.podresources.shows(GPU, lambda ids: len(ids) == GPUS)
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    await owners.add("theirs", 1)
    await end_peer(peer)
    mark = owners.agent.log.mark()
    owners.agent.start()
    await owners.agent.event("agent.settled", since=mark)
    await known(owners)
    await owners.add("ours", 1)
    await owners.agent.stop()
    peer = await start_peer(node)
    await owners.add("last", 1)
    await owners.listed()
    await end_peer(peer)


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
    await end_peer(peer)
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
        await end_peer(peer)
        peer = await start_peer(node)
    await node.podresources.shows(GPU, lambda ids: len(ids) == GPUS)
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    await owners.add("last", 2)
    await owners.listed()
    await end_peer(peer)


def forgets(node: Node) -> bool:
    """Does this kubelet take the end of a plugin for that of the one which has its resource now?"""
    return node.version in ("1.29", "1.34")
