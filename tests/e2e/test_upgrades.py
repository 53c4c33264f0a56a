"""The kubelet and the control plane upgraded and taken back over the same folder, while pods hold GPUs."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.node import GPU, Node
from tests.e2e.owners import GPUS, with_pods


async def kubelet_of(node: Node, version: str) -> None:
    """Go on with a kubelet of this version, and wait until it has the agent's list."""
    node.upgrade(version)
    await node.kubelet.restart()
    await node.kubelet.log.until("Got registration request", since=node.kubelet.begun)
    await node.podresources.shows(GPU, lambda ids: len(ids) == GPUS)
    await node.until("Node", "n1", lambda found: f"v{version}." in found["status"]["nodeInfo"]["kubeletVersion"])


async def test_pods_run_on_with_their_gpus_while_the_kubelet_goes_from_1_34_to_1_37_and_back(
    make_node: Callable[..., Node],
):
    node = make_node("1.37")
    node.upgrade("1.34")
    await node.up()
    owners = await with_pods(node, one=1)
    for version in ("1.37", "1.34"):
        await kubelet_of(node, version)
        await owners.listed()
        await owners.add(f"since-{version.replace('.', '-')}", 1)


async def test_containers_start_again_with_their_gpus_when_the_kubelet_goes_from_1_29_to_1_34_and_back(
    make_node: Callable[..., Node],
):
    """Since 1.31 a container is known by another hash: the kubelet starts anew what one before that had started."""
    node = make_node("1.29")
    await node.up()
    owners = await with_pods(node, one=1)
    for version in ("1.34", "1.29"):
        await kubelet_of(node, version)
        await owners.start_again()
        await owners.listed()
        await owners.add(f"since-{version.replace('.', '-')}", 1)


async def test_pods_keep_their_gpus_while_a_whole_node_goes_from_1_29_to_1_37(make_node: Callable[..., Node]):
    """The control plane first, as it must: no kubelet is newer than it."""
    node = make_node("1.29")
    await node.up()
    owners = await with_pods(node, one=1)
    await kubelet_of(node, "1.34")
    await owners.start_again()
    await node.upgrade_control_plane("1.37")
    await owners.add("between", 1)
    await kubelet_of(node, "1.37")
    await owners.listed()
    await owners.add("rest", 2)
