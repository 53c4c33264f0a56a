"""Topology: which lists a policy takes, on a machine with two NUMA nodes."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.simulate.kubelet.topology import Policy
from tests.contract.table.plugin import ALLOCATE, PREFERRED, device, probe
from tests.contract.table.restart import back
from tests.contract.table.row import row
from tests.contract.table.under_test import Kubelet, Lister, Shape


def on(**nodes: Sequence[int] | None) -> list[pb.Device]:
    return [device(name, numa=numa) for name, numa in nodes.items()]


LISTS: dict[str, tuple[list[pb.Device], int]] = {
    "nobody has a node": (on(a=None, b=None), 2),
    "empty node lists": (on(a=[], b=[]), 2),
    "node -1": (on(a=[-1], b=[-1]), 1),
    "a node that is not there": (on(a=[7], b=[7]), 1),
    "one has a node, 1 wanted": (on(a=[0], b=None), 1),
    "one has a node, 2 wanted": (on(a=[0], b=None), 2),
    "each on both": (on(a=[0, 1], b=[0, 1]), 2),
    "apart": (on(a=[0], b=[1]), 2),
}


async def _admitted(kubelet: Kubelet, policy: Policy) -> object:
    await kubelet.kill()
    await kubelet.start(policy=policy)
    seen: dict[str, str] = {}

    async def admit(number: int, what: str, listed: Sequence[pb.Device], wanted: int) -> None:
        async with probe(kubelet.directory, f"probe.test/{policy}-{number}", listed) as plugin:
            await kubelet.until_counts(plugin.resource, (2, 2))
            pod = await kubelet.run(kubelet.name(f"{policy}-{number}"), Shape("c", {plugin.resource: wanted}))
            seen[what] = pod.reason or pod.phase
            await kubelet.delete(pod.name)

    async with trio.open_nursery() as nursery:
        for number, (what, (listed, wanted)) in enumerate(LISTS.items()):
            nursery.start_soon(admit, number, what, listed, wanted)
    return seen


def _but(**refused: str) -> dict[str, str]:
    return {what: "TopologyAffinityError" if what in refused.values() else "Running" for what in LISTS}


_UNKNOWN = {"minus": "node -1", "absent": "a node that is not there"}


@row("12", _but(), alone=True)
async def policy_best_effort(kubelet: Kubelet) -> object:
    """Takes everything."""
    return await _admitted(kubelet, Policy.BEST_EFFORT)


@row("12", _but(**_UNKNOWN, half="one has a node, 2 wanted"), alone=True)
async def policy_restricted(kubelet: Kubelet) -> object:
    """Refuses what no set of nodes has: nodes that are not there, and devices without a node beside one with."""
    return await _admitted(kubelet, Policy.RESTRICTED)


@row("12", _but(**_UNKNOWN, half="one has a node, 2 wanted", apart="apart"), alone=True)
async def policy_single_numa_node(kubelet: Kubelet) -> object:
    """Refuses besides what no single node has."""
    return await _admitted(kubelet, Policy.SINGLE)


@row(
    "10, 12",
    {
        "more than needed": [{"available": "abc", "must": "", "size": 2}],
        "just enough": [],
        "too few": [{"available": "abcd", "must": "ab", "size": 3}],
    },
    alone=True,
)
async def preferred_with_alignment(kubelet: Kubelet) -> object:
    """Of aligned devices more than are needed are offered; as many are taken unasked; if more are needed, all are
    offered, and the aligned must be included."""
    await kubelet.kill()
    await kubelet.start(policy=Policy.BEST_EFFORT)
    cases = {
        "more than needed": (on(a=[0], b=[0], c=[0], d=[1]), 2),
        "just enough": (on(a=[0], b=[0], c=[1]), 2),
        "too few": (on(a=[0], b=[0], c=None, d=None), 3),
    }
    seen = {}
    for number, (what, (listed, wanted)) in enumerate(cases.items()):
        async with probe(kubelet.directory, f"probe.test/aligned-{number}", listed, preferred=True) as plugin:
            await kubelet.until_counts(plugin.resource, (len(listed), len(listed)))
            pod = await kubelet.run(kubelet.name(f"aligned-{number}"), Shape("c", {plugin.resource: wanted}))
            assert plugin.called(ALLOCATE), pod
            seen[what] = [
                {"available": "".join(each.ids), "must": "".join(each.must), "size": each.size}
                for each in plugin.called(PREFERRED)
            ]
            await kubelet.delete(pod.name)
    return seen


@row("15, 16 (37)", {"before": {"a": [[]], "b": [[]]}, "same": True}, alone=True)
async def no_numa_nodes_over_a_restart(kubelet: Kubelet) -> object:
    """What podresources says of a plugin that knows of no topology is the same after a start of the kubelet."""
    async with probe(kubelet.directory, "probe.test/plain", on(a=None, b=None)) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod = await kubelet.run(kubelet.name("plain"), Shape("c", {plugin.resource: 2}))
        before = await records(kubelet, pod.name)
        await kubelet.kill()
        await kubelet.start()
        await back(kubelet, plugin)
        await Lister(kubelet).until(pod.name, {"c": ["a", "b"]})
        after = await records(kubelet, pod.name)
        await kubelet.delete(pod.name)
        return {"before": before, "same": before == after}


async def records(kubelet: Kubelet, pod: str) -> dict[str, list[list[int]]]:
    """Of List: for each device of the pod's first container, the NUMA nodes of each record that it has."""
    seen: dict[str, list[list[int]]] = {}
    for each in (await Lister(kubelet).raw_list()).pod_resources:
        if each.name == pod:
            for record in each.containers[0].devices:
                (identity,) = record.device_ids
                seen.setdefault(identity, []).append([node.ID for node in record.topology.nodes])
    return {identity: sorted(nodes) for identity, nodes in sorted(seen.items())}


@row("12, 15, 16 (37)", {"a": [[0]], "b": [[0], [1]], "c": [[]]})
async def numa_nodes_in_podresources(kubelet: Kubelet) -> object:
    """One record for each device and NUMA node of it; without topology, one."""
    listed = on(a=[0], b=[0, 1], c=None)
    async with probe(kubelet.directory, "probe.test/records", listed) as plugin:
        await kubelet.until_counts(plugin.resource, (3, 3))
        pod = await kubelet.run(kubelet.name("records"), Shape("c", {plugin.resource: 3}))
        seen = await records(kubelet, pod.name)
        await kubelet.delete(pod.name)
        return seen
