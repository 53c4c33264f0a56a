"""The two ways in which a careless plugin ends a kubelet, and what a careful one does instead."""

from __future__ import annotations

import trio

from reactor.simulate.kubelet.topology import Policy
from tests.contract.table.admission import over
from tests.contract.table.plugin import ALLOCATE, UNHEALTHY, device, devices, probe
from tests.contract.table.restart import back, holding
from tests.contract.table.row import row, since
from tests.contract.table.under_test import Kubelet, Lister, Shape


async def _during_allocate(kubelet: Kubelet, stem: str, *, careless: bool) -> object:
    async with probe(kubelet.directory, f"probe.test/{stem}", devices("ab")) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        hold = plugin.hold(ALLOCATE)
        name = kubelet.name(stem)
        await kubelet.run(name, Shape("c", {plugin.resource: 1}), settled=False)
        (taken,) = (await plugin.until_called(ALLOCATE)).ids
        (other,) = set("ab") - {taken}
        plugin.send([device(other), *([] if careless else [device(taken, UNHEALTHY)])])
        await kubelet.until_checkpoint(lambda data: data["RegisteredDevices"].get(plugin.resource) == [other])
        hold.release()
        if careless and kubelet.version.panics_on_missing_ids:
            ended = await kubelet.until_ended()
            await kubelet.delete(name)
            return "ends" if ended else "lives"
        pod = await kubelet.until_pod(name, lambda found: found.phase == "Running" or over(found))
        await kubelet.delete(name)
        return [pod.phase, "ends" if kubelet.ended else "lives"]


@row("14", since(v1_29=["Running", "lives"], v1_34="ends"), alone=True)
async def an_id_dropped_during_its_allocate(kubelet: Kubelet) -> object:
    """From 1.34 the kubelet ends with a nil dereference."""
    return await _during_allocate(kubelet, "dropped", careless=True)


@row("14", ["Running", "lives"], alone=True)
async def an_id_made_unhealthy_during_its_allocate(kubelet: Kubelet) -> object:
    """Harmless: the pod is admitted."""
    return await _during_allocate(kubelet, "flipped", careless=False)


async def _after_a_silent_restart(kubelet: Kubelet, stem: str, *, careless: bool) -> object:
    await kubelet.kill()
    await kubelet.start(policy=Policy.BEST_EFFORT)
    everything = [device("a", numa=[0]), device("b", numa=[0])]
    async with probe(kubelet.directory, f"probe.test/{stem}", everything) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod, (taken,) = await holding(kubelet, plugin, stem, 1)
        (other,) = set("ab") - {taken}
        await kubelet.kill()
        await kubelet.start(api_silent=True)
        plugin.send([device(other, numa=[0]), *([] if careless else [device(taken, UNHEALTHY, numa=[0])])])
        await back(kubelet, plugin)
        await kubelet.api_answers()
        if careless and kubelet.version.panics_on_missing_ids:
            ended = await kubelet.until_ended()
            await kubelet.delete(pod.name)
            return "ends" if ended else "lives"
        await Lister(kubelet).until(pod.name, {"c": [taken]})
        await trio.sleep(kubelet.quiet)
        after = await kubelet.until_pod(pod.name, lambda found: True)
        await kubelet.delete(pod.name)
        return [after.phase, "ends" if kubelet.ended else "lives"]


@row("14", since(v1_29=["Running", "lives"], v1_34="ends"), alone=True)
async def a_held_id_missing_after_a_restart(kubelet: Kubelet) -> object:
    """With a topology policy, and the plugin back before the API server answers: from 1.34 the kubelet ends when it
    admits the running pod, at every start for as long as that pod is there."""
    return await _after_a_silent_restart(kubelet, "missing", careless=True)


@row("14", ["Running", "lives"], alone=True)
async def a_held_id_unhealthy_after_a_restart(kubelet: Kubelet) -> object:
    """Listed as unhealthy, with its NUMA node, it harms nobody."""
    return await _after_a_silent_restart(kubelet, "tombstone", careless=False)
