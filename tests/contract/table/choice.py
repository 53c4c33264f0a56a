"""GetPreferredAllocation and PreStartContainer: what the plugin is asked, and what becomes of its answer."""

from __future__ import annotations

from collections.abc import Mapping

import grpc

from tests.contract.table.admission import one, refused, told
from tests.contract.table.plugin import (
    ALLOCATE,
    PRE_START,
    PREFERRED,
    UNHEALTHY,
    ProbePlugin,
    Refusal,
    device,
    devices,
    probe,
)
from tests.contract.table.restart import back
from tests.contract.table.row import row
from tests.contract.table.under_test import Kubelet, Shape


def _asked(plugin: ProbePlugin) -> list[Mapping[str, object]]:
    return [
        {"available": "".join(each.ids), "must": "".join(each.must), "size": each.size}
        for each in plugin.called(PREFERRED)
    ]


@row("10, 16 (32)", {"asked": [{"available": "abcd", "must": "", "size": 2}], "ids": ["b", "d"]})
async def what_is_preferred_is_given(kubelet: Kubelet) -> object:
    """Without alignment all that is free is offered, and what the plugin chooses is taken."""
    async with probe(kubelet.directory, "probe.test/preferred", devices("abcd"), preferred=True) as plugin:
        await kubelet.until_counts(plugin.resource, (4, 4))
        plugin.choose = lambda request: ("b", "d")
        pod = await one(kubelet, plugin, "preferred", 2)
        await kubelet.delete(pod.name)
        return {"asked": _asked(plugin), "ids": sorted(plugin.called(ALLOCATE)[0].ids)}


@row("10", {"asked": [{"available": "ab", "must": "", "size": 2}], "ids": ["a", "b"]})
async def preferred_is_asked_even_without_a_choice(kubelet: Kubelet) -> object:
    """When all that is free is needed, the plugin is asked all the same."""
    async with probe(kubelet.directory, "probe.test/no-choice", devices("ab"), preferred=True) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod = await one(kubelet, plugin, "no-choice", 2)
        await kubelet.delete(pod.name)
        return {"asked": _asked(plugin), "ids": sorted(plugin.called(ALLOCATE)[0].ids)}


@row("10", {"of the chosen": True, "count": 3, "foreign": False})
async def odd_preferences(kubelet: Kubelet) -> object:
    """Foreign ids and too many are dropped, too few are made up."""
    async with probe(kubelet.directory, "probe.test/odd-choice", devices("abcde"), preferred=True) as plugin:
        await kubelet.until_counts(plugin.resource, (5, 5))
        plugin.choose = lambda request: ("e", "z", "e", "d")
        pod = await one(kubelet, plugin, "odd-choice", 3)
        (call,) = plugin.called(ALLOCATE)
        await kubelet.delete(pod.name)
        return {"of the chosen": {"d", "e"} <= set(call.ids), "count": len(call.ids), "foreign": "z" in call.ids}


@row("10, 16 (32)", {"first": ("", 2), "second": (2, 3), "app of init": True})
async def preferred_with_reusable_ids(kubelet: Kubelet) -> object:
    """What an init container had must be included in the choice for the app container."""
    async with probe(kubelet.directory, "probe.test/must", devices("abcdef"), preferred=True) as plugin:
        await kubelet.until_counts(plugin.resource, (6, 6))
        shapes = [Shape("i", {plugin.resource: 2}, "init"), Shape("c", {plugin.resource: 3})]
        pod = await kubelet.run(kubelet.name("must"), *shapes)
        first, second = plugin.called(PREFERRED)
        init, app = plugin.called(ALLOCATE)
        assert set(second.must) == set(init.ids)
        await kubelet.delete(pod.name)
        return {
            "first": ("".join(first.must), first.size),
            "second": (len(second.must), second.size),
            "app of init": set(init.ids) <= set(app.ids),
        }


@row(
    "10", refused("device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Internal desc = no idea")
)
async def preferred_that_fails(kubelet: Kubelet) -> object:
    """An error of GetPreferredAllocation is the end of the pod."""
    async with probe(kubelet.directory, "probe.test/no-idea", devices("ab"), preferred=True) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        plugin.refuse[PREFERRED] = Refusal(grpc.StatusCode.INTERNAL, "no idea")
        return told(await one(kubelet, plugin, "no-idea"))


@row("10, 16 (30)", {"calls": [True, True], "seconds": True, "allocated": 1, "zero": 0})
async def prestart_is_called_at_each_start(kubelet: Kubelet) -> object:
    """With exactly the ids, at the first start and at a restart, with 30 s; not for a container that wants none."""
    async with probe(kubelet.directory, "probe.test/prestart", devices("ab"), pre_start=True) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod = await one(kubelet, plugin, "prestart", 2)
        await kubelet.restart_container(pod.name, "c")
        calls = plugin.called(PRE_START)
        none = await one(kubelet, plugin, "prestart-none", 0)
        for each in (pod, none):
            await kubelet.delete(each.name)
        return {
            "calls": [each.ids == ("a", "b") for each in calls],
            "seconds": all(each.left is not None and 25 < each.left <= 31 for each in calls),
            "allocated": len(plugin.called(ALLOCATE)),
            "zero": len(plugin.called(PRE_START)) - len(calls),
        }


@row("10", {"phase": "Pending", "waits": True, "again": True})
async def prestart_that_fails(kubelet: Kubelet) -> object:
    """The container waits, and is tried again."""
    async with probe(kubelet.directory, "probe.test/not-yet", devices("a"), pre_start=True) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        plugin.refuse[PRE_START] = Refusal(grpc.StatusCode.INTERNAL, "not yet")
        pod = await one(kubelet, plugin, "not-yet")
        del plugin.refuse[PRE_START]
        await kubelet.retried(pod.name)
        after = await kubelet.until_pod(pod.name, lambda seen: seen.phase == "Running")
        await kubelet.delete(pod.name)
        return {"phase": pod.phase, "waits": bool(pod.waiting), "again": after.phase == "Running"}


@row("10", {"waits": {"c": "CreateContainerConfigError"}, "calls": 1, "again": 2})
async def prestart_while_the_plugin_is_down(kubelet: Kubelet) -> object:
    """A container that starts again waits for the plugin; another Register is enough."""
    async with probe(kubelet.directory, "probe.test/down", devices("a"), pre_start=True) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        pod = await one(kubelet, plugin, "down")
        await plugin.close()
        await kubelet.until_counts(plugin.resource, (1, 0))
        waits = (await kubelet.restart_container(pod.name, "c")).waiting
        calls = len(plugin.called(PRE_START))
        await back(kubelet, plugin)
        await kubelet.retried(pod.name)
        await plugin.until_called(PRE_START, 2)
        await kubelet.until_pod(pod.name, lambda seen: seen.phase == "Running" and not seen.waiting)
        await kubelet.delete(pod.name)
        return {"waits": waits, "calls": calls, "again": len(plugin.called(PRE_START))}


@row("10", {"waits": {}, "calls": 1, "then": 2}, alone=True)
async def prestart_before_the_plugin_is_back(kubelet: Kubelet) -> object:
    """After a start of the kubelet and before the plugin's Register it is left out without a word."""
    async with probe(kubelet.directory, "probe.test/not-back", devices("a"), pre_start=True) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        pod = await one(kubelet, plugin, "not-back")
        await kubelet.kill()
        await kubelet.start()
        await kubelet.until_pod(pod.name, lambda seen: seen.phase == "Running")
        waits = (await kubelet.restart_container(pod.name, "c")).waiting
        calls = len(plugin.called(PRE_START))
        await back(kubelet, plugin)
        await kubelet.restart_container(pod.name, "c")
        await kubelet.delete(pod.name)
        return {"waits": waits, "calls": calls, "then": len(plugin.called(PRE_START))}


@row("10", {"unhealthy": 2, "gone": 2})
async def prestart_of_a_device_that_is_gone(kubelet: Kubelet) -> object:
    """It is called although the device is unhealthy, or listed no more: a gate for what must not start."""
    async with probe(kubelet.directory, "probe.test/gone", devices("ab"), pre_start=True) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pods = [await one(kubelet, plugin, stem) for stem in ("unhealthy", "gone")]
        first, second = (call.ids[0] for call in plugin.called(PRE_START))
        plugin.send([device(first, UNHEALTHY), device("c")])
        await kubelet.until_counts(plugin.resource, (2, 1))
        for each in pods:
            await kubelet.restart_container(each.name, "c")
            await kubelet.delete(each.name)
        ids = [call.ids[0] for call in plugin.called(PRE_START)]
        return {"unhealthy": ids.count(first), "gone": ids.count(second)}
