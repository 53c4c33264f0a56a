"""ListAndWatch: what a list does to the node, and what its end does."""

from __future__ import annotations

import trio

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from tests.contract.table.plugin import ALLOCATE, UNHEALTHY, WATCH, ProbePlugin, device, devices, probe
from tests.contract.table.row import row, since
from tests.contract.table.tap import tapped
from tests.contract.table.under_test import Counts, Kubelet, Lister, PodSeen, Shape

LIMIT = 4 * 1024 * 1024


async def _after_each(kubelet: Kubelet, plugin: ProbePlugin, lists: list[tuple[list[pb.Device], Counts]]) -> object:
    """What the node says after each list; it is awaited, so a surprise takes as long as patience lasts."""
    seen = []
    for listed, counts in lists:
        plugin.send(listed)
        seen.append(await kubelet.until_counts(plugin.resource, counts))
    return seen


@row("5, 16 (14)", [(1, 1), (1, 0), (1, 1)])
async def one_device_unhealthy_and_back(kubelet: Kubelet) -> object:
    """An unhealthy device stays in the capacity and leaves the allocatable."""
    async with probe(kubelet.directory, "probe.test/one") as plugin:
        lists = [(devices("a"), (1, 1)), (devices("a", "a"), (1, 0)), (devices("a"), (1, 1))]
        return await _after_each(kubelet, plugin, lists)


@row("16 (16)", [(4, 4), (4, 3), (4, 4), (4, 2), (4, 3), (4, 4)])
async def four_devices_by_turns(kubelet: Kubelet) -> object:
    """One unhealthy, back, two unhealthy, back one by one."""
    async with probe(kubelet.directory, "probe.test/four") as plugin:
        lists = [(devices("abcd", bad), (4, 4 - len(bad))) for bad in ("", "a", "", "bc", "c", "")]
        return await _after_each(kubelet, plugin, lists)


@row("16 (23)", [(3, 2), (2, 2), (2, 1), (1, 1), (0, 0), (2, 2)])
async def a_list_replaces_the_one_before(kubelet: Kubelet) -> object:
    """What is not in the list is gone; an empty one leaves the resource, with nothing."""
    async with probe(kubelet.directory, "probe.test/replace") as plugin:
        steps = [("abc", "c"), ("ab", ""), ("ab", "a"), ("a", ""), ("", ""), ("ab", "")]
        lists = [(devices(ids, bad), (len(ids), len(ids) - len(bad))) for ids, bad in steps]
        return await _after_each(kubelet, plugin, lists)


@row("5", [(4, 1), ["a"]])
async def odd_words_for_health(kubelet: Kubelet) -> object:
    """Only ``Healthy`` is healthy."""
    async with probe(kubelet.directory, "probe.test/odd") as plugin:
        plugin.send([device("a"), device("b", ""), device("c", "healthy"), device("d", "foo")])
        counts = await kubelet.until_counts(plugin.resource, (4, 1))
        return [counts, await Lister(kubelet).allocatable(plugin.resource)]


@row("5", (2, 1))
async def one_id_with_both_healths(kubelet: Kubelet) -> object:
    """The same id twice with different health is counted twice."""
    async with probe(kubelet.directory, "probe.test/double") as plugin:
        plugin.send([device("a"), device("a", UNHEALTHY)])
        return await kubelet.until_counts(plugin.resource, (2, 1))


@row("16 (24)", [["a", "b"], ["b"], ["a", "b"]])
async def allocatable_of_podresources_is_the_healthy(kubelet: Kubelet) -> object:
    """GetAllocatableResources lists the healthy devices only, whatever its name says."""
    async with probe(kubelet.directory, "probe.test/healthy") as plugin:
        seen = []
        for bad in ("", "a", ""):
            plugin.send(devices("ab", bad))
            await kubelet.until_counts(plugin.resource, (2, 2 - len(bad)))
            seen.append(await Lister(kubelet).allocatable(plugin.resource))
        return seen


@row("3", [(1, 1), (1, 0), "ended"])
async def the_longest_list(kubelet: Kubelet) -> object:
    """4 194 304 bytes pass; one byte more ends the stream, and everything is unhealthy."""
    async with probe(kubelet.directory, "probe.test/long") as plugin:
        seen = await _after_each(kubelet, plugin, [(_list_of(LIMIT), (1, 1)), (_list_of(LIMIT + 1), (1, 0))])
        await plugin.until_streams(0)
        return [*seen, "ended"]


def _list_of(size: int) -> list[pb.Device]:
    """One device, in a message of exactly so many bytes."""
    padding = size
    while (length := pb.ListAndWatchResponse(devices=[device("x" * padding)]).ByteSize()) != size:
        padding -= length - size
    return [device("x" * padding)]


@row("16 (17)", [(0, 0), 1, 1], window=True)
async def a_stream_that_fails_at_once(kubelet: Kubelet) -> object:
    """ListAndWatch is not called again; the resource stays, at nothing."""
    async with probe(kubelet.directory, "probe.test/fails", registered=False) as plugin:
        plugin.fail_streams("no list today")
        await plugin.register()
        await plugin.until_called(WATCH)
        counts = await kubelet.until_counts(plugin.resource, (0, 0))
        before = len(plugin.called(WATCH))
        await trio.sleep(kubelet.quiet)
        return [counts, before, len(plugin.called(WATCH))]


@row("16 (18)", [(2, 2), (2, 0), 1], window=True)
async def a_stream_that_fails_later(kubelet: Kubelet) -> object:
    """What was listed stays as unhealthy; ListAndWatch is not called again."""
    async with probe(kubelet.directory, "probe.test/fails-later", devices("ab")) as plugin:
        seen = [await kubelet.until_counts(plugin.resource, (2, 2))]
        plugin.fail_streams("enough")
        seen.append(await kubelet.until_counts(plugin.resource, (2, 0)))
        await trio.sleep(kubelet.quiet)
        return [*seen, len(plugin.called(WATCH))]


@row("5", [(2, 2), True, (3, 0)])
async def the_last_list_of_a_plugin_that_leaves(kubelet: Kubelet) -> object:
    """A list counts that arrives in one piece with the end of its connection."""
    async with probe(kubelet.directory, "probe.test/last", devices("ab"), registered=False) as plugin:
        front = plugin.directory / f"tap-{plugin.socket}"
        with tapped(front, plugin.path) as tap:
            await plugin.register(endpoint=front.name)
            seen = [await kubelet.until_counts(plugin.resource, (2, 2))]
            tap.keep()
            plugin.send([*devices("ab"), device("the-last-one")])
            kept = await trio.to_thread.run_sync(tap.until_kept, b"the-last-one")
            await plugin.close()
            return [*seen, kept, await kubelet.until_counts(plugin.resource, (3, 0))]


@row("5, 6, 16 (19)", [(2, 0), (0, 0), "not before the grace period", (0, 0)], long=True)
async def a_plugin_that_stopped_is_deleted_after_the_grace(kubelet: Kubelet) -> object:
    """Unhealthy for five minutes, then zero; the key stays on the node for good."""
    plugin = ProbePlugin(kubelet.directory, "probe.test/stopped")
    plugin.send(devices("ab"))
    plugin.serve()
    await plugin.register()
    await kubelet.until_counts(plugin.resource, (2, 2))
    begun = trio.current_time()
    await plugin.close()
    seen = [await kubelet.until_counts(plugin.resource, (2, 0))]
    seen.append(await kubelet.until_counts(plugin.resource, (0, 0), kubelet.grace + 30))
    took = trio.current_time() - begun
    when = "not before the grace period" if kubelet.grace <= took < kubelet.grace + 20 else took
    await trio.sleep(kubelet.quiet)
    return [*seen, when, await kubelet.counts(plugin.resource)]


@row("5", [["x", "y"], (2, 2), {"c": ["x"]}, (1, 1)])
async def an_id_that_leaves_while_a_pod_has_it(kubelet: Kubelet) -> object:
    """It is gone from the capacity; the pod keeps its record."""
    async with probe(kubelet.directory, "probe.test/leaves") as plugin:
        plugin.send([device("x"), device("y", UNHEALTHY)])
        await kubelet.until_counts(plugin.resource, (2, 1))
        pod = await kubelet.run(kubelet.name("leaves"), Shape("c", {plugin.resource: 1}))
        plugin.send(devices("xy"))
        counts = await kubelet.until_counts(plugin.resource, (2, 2))
        listed = await Lister(kubelet).allocatable(plugin.resource)
        plugin.send(devices("y"))
        after = await kubelet.until_counts(plugin.resource, (1, 1))
        held = await Lister(kubelet).pod(pod.name)
        await kubelet.delete(pod.name)
        return [listed, counts, held, after]


async def _health(kubelet: Kubelet, pod: PodSeen, plugin: ProbePlugin, identity: str, health: str) -> str | None:
    """What the pod's status says of an id: what is awaited, as far as the status has it at all."""
    if kubelet.version.tells_health:
        await kubelet.until_health(pod.name, {plugin.resource: {identity: health}})
    return (await kubelet.health(pod.name)).get(plugin.resource, {}).get(identity)


HEALTHS = ["Healthy", "Unhealthy", "Healthy", "Unhealthy"]


@row("13, 16 (20)", since(v1_29=[None] * 4, v1_31=HEALTHS))
async def health_in_the_pod_status(kubelet: Kubelet) -> object:
    """allocatedResourcesStatus follows the list, at once."""
    async with probe(kubelet.directory, "probe.test/status", devices("a")) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        pod = await kubelet.run(kubelet.name("status"), Shape("c", {plugin.resource: 1}))
        seen = []
        for health in HEALTHS:
            plugin.send([device("a", health)])
            seen.append(await _health(kubelet, pod, plugin, "a", health))
        await kubelet.delete(pod.name)
        return seen


@row("13", since(v1_29=None, v1_31="Unhealthy"))
async def odd_health_in_the_pod_status(kubelet: Kubelet) -> object:
    """Any odd word is Unhealthy there too."""
    async with probe(kubelet.directory, "probe.test/odd-status", devices("a")) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        pod = await kubelet.run(kubelet.name("odd-status"), Shape("c", {plugin.resource: 1}))
        plugin.send([device("a", "on fire")])
        seen = await _health(kubelet, pod, plugin, "a", "Unhealthy")
        await kubelet.delete(pod.name)
        return seen


@row("13", since(v1_29=[None] * 3, v1_31=["Unhealthy"] * 3), window=True)
async def health_after_the_plugin_left(kubelet: Kubelet) -> object:
    """The last known health stays, though the node has nothing allocatable any more."""
    plugin = ProbePlugin(kubelet.directory, "probe.test/left")
    plugin.send(devices("ab"))
    plugin.serve()
    await plugin.register()
    await kubelet.until_counts(plugin.resource, (2, 2))
    pod = await kubelet.run(kubelet.name("left"), Shape("c", {plugin.resource: 1}))
    (held,) = plugin.called(ALLOCATE)[0].ids
    plugin.send(devices("ab", held))
    seen = [await _health(kubelet, pod, plugin, held, "Unhealthy")]
    await plugin.close()
    await kubelet.until_counts(plugin.resource, (2, 0))
    seen.append(await _health(kubelet, pod, plugin, held, "Unhealthy"))
    await trio.sleep(kubelet.quiet)
    seen.append(await _health(kubelet, pod, plugin, held, "Unhealthy"))
    await kubelet.delete(pod.name)
    return seen


@row("13", since(v1_29=[None] * 3, v1_31=["Healthy", "Unhealthy", "Healthy"]))
async def health_of_an_id_that_left_the_list(kubelet: Kubelet) -> object:
    """An id that is listed no more counts as healthy; when it is back as unhealthy, the pod is told."""
    async with probe(kubelet.directory, "probe.test/unlisted") as plugin:
        plugin.send([device("a"), device("b", UNHEALTHY)])
        await kubelet.until_counts(plugin.resource, (2, 1))
        pod = await kubelet.run(kubelet.name("unlisted"), Shape("c", {plugin.resource: 1}))

        seen = [await _health(kubelet, pod, plugin, "a", "Healthy")]
        plugin.send(devices("ab", "a"))
        seen.append(await _health(kubelet, pod, plugin, "a", "Unhealthy"))
        plugin.send(devices("b"))
        seen.append(await _health(kubelet, pod, plugin, "a", "Healthy"))
        await kubelet.delete(pod.name)
        return seen


@row("13", since(v1_29=[None] * 3, v1_31=["Healthy", "Unhealthy", "Healthy"]))
async def health_of_one_id_in_two_resources(kubelet: Kubelet) -> object:
    """Each pod is told of its own resource's device, also where that is listed no more."""
    async with (
        probe(kubelet.directory, "probe.test/well", devices("a")) as well,
        probe(kubelet.directory, "probe.test/ill", devices("a")) as ill,
    ):
        pods = []
        for plugin in (well, ill):
            await kubelet.until_counts(plugin.resource, (1, 1))
            stem = f"same-id-{plugin.resource.rpartition('/')[2]}"
            pods.append(await kubelet.run(kubelet.name(stem), Shape("c", {plugin.resource: 1})))
        ill.send(devices("a", "a"))
        told = await _health(kubelet, pods[1], ill, "a", "Unhealthy")
        seen = [await _health(kubelet, pods[0], well, "a", "Healthy"), told]
        well.send([])
        await kubelet.until_counts(well.resource, (0, 0))
        seen.append(await _health(kubelet, pods[0], well, "a", "Healthy"))
        for each in pods:
            await kubelet.delete(each.name)
        return seen
