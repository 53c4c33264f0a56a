"""What a kubelet remembers, and forgets: its checkpoint, its list of pods, over its restarts and the plugin's."""

from __future__ import annotations

import stat

import trio

from tests.contract.table.admission import over, refused, told
from tests.contract.table.plugin import ALLOCATE, PRE_START, ProbePlugin, device, devices, probe
from tests.contract.table.register import by_the_dial_timeout
from tests.contract.table.row import row, since
from tests.contract.table.under_test import Kubelet, Lister, PodSeen, Shape, entries

CHECKPOINT = "kubelet_internal_checkpoint"


async def holding(kubelet: Kubelet, plugin: ProbePlugin, stem: str, count: int = 2) -> tuple[PodSeen, list[str]]:
    """A pod that runs, and its ids."""
    pod = await kubelet.run(kubelet.name(stem), Shape("c", {plugin.resource: count}))
    assert pod.phase == "Running", pod
    return pod, sorted(plugin.called(ALLOCATE)[-1].ids)


async def back(kubelet: Kubelet, plugin: ProbePlugin) -> None:
    """The plugin does as one must after a kubelet's start: a new socket, then Register. Returns once its list is known.

    The kubelet itself is asked, for the Node object may show for a while what it showed before.
    """
    await plugin.close()
    plugin.serve()
    answer = await plugin.register()
    assert answer.ok, answer
    await plugin.until_streams(1)
    with trio.fail_after(30):
        while True:
            if await Lister(kubelet).allocatable(plugin.resource):
                return
            await trio.sleep(0.02)


def over_or_running(pod: PodSeen) -> bool:
    return over(pod) or (pod.phase == "Running" and not pod.waiting)


def held(kubelet: Kubelet, plugin: ProbePlugin) -> list[tuple[str, list[str]]]:
    return entries(kubelet.checkpoint(), plugin.resource)


# ---------------------------------------------------------------- section 7a


@row(
    "7, 7a",
    {
        "list": True,
        "entry": ["AllocResp", "ContainerName", "DeviceIDs", "PodUID", "ResourceName"],
        "ids": {"-1": True},
        "registered": ["a", "b", "c", "d"],
        "mode": 0o600,
    },
)
async def the_books_of_a_running_pod(kubelet: Kubelet) -> object:
    """podresources lists the ids; the checkpoint has an entry with them by NUMA node, and the whole answer."""
    async with probe(kubelet.directory, "probe.test/books", devices("abcd")) as plugin:
        await kubelet.until_counts(plugin.resource, (4, 4))
        pod, ids = await holding(kubelet, plugin, "books")
        await kubelet.until_checkpoint(lambda data: bool(entries(data, plugin.resource)))
        data = kubelet.checkpoint()
        (entry,) = (each for each in data["PodDeviceEntries"] if each["ResourceName"] == plugin.resource)
        mode = stat.S_IMODE((kubelet.directory / CHECKPOINT).stat().st_mode)
        seen = {
            "list": await Lister(kubelet).pod(pod.name) == {"c": ids},
            "entry": sorted(entry),
            "ids": {node: sorted(found) == ids for node, found in entry["DeviceIDs"].items()},
            "registered": sorted(data["RegisteredDevices"][plugin.resource]),
            "mode": mode,
        }
        await kubelet.delete(pod.name)
        return seen


@row(
    "7a",
    since(
        v1_29={"listed": None, "entry": True, "after a list": True, "after an Allocate": False},
        v1_34={"listed": None, "entry": True, "after a list": False, "after an Allocate": False},
    ),
    alone=True,
)
async def a_deleted_pod_is_forgotten(kubelet: Kubelet) -> object:
    """List lacks it at once, the checkpoint keeps it: from 1.34 until the next list of a plugin, before until the next
    Allocate."""
    async with probe(kubelet.directory, "probe.test/forget", devices("abcd")) as plugin:
        await kubelet.until_counts(plugin.resource, (4, 4))
        pod, ids = await holding(kubelet, plugin, "forget")
        await kubelet.until_checkpoint(lambda data: bool(entries(data, plugin.resource)))
        await kubelet.delete(pod.name)
        await trio.sleep(kubelet.quiet)
        seen = {"listed": await Lister(kubelet).pod(pod.name), "entry": ("c", ids) in held(kubelet, plugin)}
        plugin.send(devices("abcd"))
        await trio.sleep(kubelet.quiet)
        seen["after a list"] = ("c", ids) in held(kubelet, plugin)
        other = await kubelet.run(kubelet.name("forget-other"), Shape("d", {plugin.resource: 1}))
        await kubelet.until_checkpoint(lambda data: any(name == "d" for name, _ in entries(data, plugin.resource)))
        seen["after an Allocate"] = ("c", ids) in held(kubelet, plugin)
        await kubelet.delete(other.name)
        return seen


@row("7a", {"listed": {"c": True}, "entries": {"i": True, "c": True}})
async def a_plain_init_container_in_the_books(kubelet: Kubelet) -> object:
    """List has the app's ids only, the checkpoint both entries, for as long as the pod lives."""
    async with probe(kubelet.directory, "probe.test/init-books", devices("abcd")) as plugin:
        await kubelet.until_counts(plugin.resource, (4, 4))
        shapes = [Shape("i", {plugin.resource: 2}, "init"), Shape("c", {plugin.resource: 1})]
        pod = await kubelet.run(kubelet.name("init-books"), *shapes)
        init, app = (sorted(call.ids) for call in plugin.called(ALLOCATE))
        await kubelet.until_checkpoint(lambda data: len(entries(data, plugin.resource)) == 2)
        listed = await Lister(kubelet).pod(pod.name) or {}
        seen = {
            "listed": {name: ids == app for name, ids in listed.items()},
            "entries": {name: ids == {"i": init, "c": app}[name] for name, ids in held(kubelet, plugin)},
        }
        await kubelet.delete(pod.name)
        return seen


@row("7a", {"listed": {"c": []}, "entries": []})
async def a_pod_without_devices_in_the_books(kubelet: Kubelet) -> object:
    """It is listed, with nothing; the checkpoint does not have it."""
    pod = await kubelet.run(kubelet.name("without"), Shape("c"))
    listed = await Lister(kubelet).pod(pod.name)
    await kubelet.delete(pod.name)
    return {"listed": listed, "entries": entries(kubelet.checkpoint(), "")}


@row("7a", {"silent": {}, "kept": True, "answering": True}, alone=True)
async def a_restart_while_the_api_server_is_silent(kubelet: Kubelet) -> object:
    """List is empty until the API server is heard, then the pod is back with its ids; the checkpoint is kept."""
    async with probe(kubelet.directory, "probe.test/silent", devices("abcd")) as plugin:
        await kubelet.until_counts(plugin.resource, (4, 4))
        pod, ids = await holding(kubelet, plugin, "silent")
        await kubelet.kill()
        await kubelet.start(api_silent=True)
        await back(kubelet, plugin)
        silent = await Lister(kubelet).pods()
        kept = ("c", ids) in held(kubelet, plugin)
        await kubelet.api_answers()
        answering = await Lister(kubelet).until(pod.name, {"c": ids})
        await kubelet.delete(pod.name)
        return {"silent": silent, "kept": kept, "answering": answering}


@row("7a", {"phase": "Running", "listed": {"c": []}, "entries": [], "given again": True}, alone=True)
async def a_checkpoint_that_is_lost(kubelet: Kubelet) -> object:
    """The running pod is listed with nothing, and its devices are free for others."""
    return await _without_books(kubelet, "lost", None)


@row("7, 7a", {"phase": "Running", "listed": {"c": []}, "entries": [], "given again": True}, alone=True)
async def a_checkpoint_that_is_spoiled(kubelet: Kubelet) -> object:
    """What cannot be read is as good as lost."""
    return await _without_books(kubelet, "spoiled", b'{"Data":{"PodDeviceEntries":null')


async def _without_books(kubelet: Kubelet, stem: str, text: bytes | None) -> object:
    async with probe(kubelet.directory, f"probe.test/{stem}", devices("abcd"), preferred=True) as plugin:
        plugin.choose = lambda request: sorted(request.available_deviceIDs)[:2]
        await kubelet.until_counts(plugin.resource, (4, 4))
        pod, ids = await holding(kubelet, plugin, stem)
        await kubelet.kill()
        path = kubelet.directory / CHECKPOINT
        path.unlink() if text is None else path.write_bytes(text)
        await kubelet.start()
        await back(kubelet, plugin)
        await kubelet.until_counts(plugin.resource, (4, 4))
        await Lister(kubelet).until(pod.name, {"c": []})
        seen: dict[str, object] = {
            "phase": (await kubelet.until_pod(pod.name, lambda found: True)).phase,
            "listed": await Lister(kubelet).pod(pod.name),
            "entries": held(kubelet, plugin),
        }
        other, again = await holding(kubelet, plugin, f"{stem}-other")
        seen["given again"] = again == ids
        for each in (pod, other):
            await kubelet.delete(each.name)
        return seen


@row(
    "8",
    {"ids": ["a", "b"], "reason": "OutOfprobe.test/after", "message": "requested: 2, used: 2, capacity: 2"},
    alone=True,
)
async def a_pod_that_is_refused_after_its_allocate(kubelet: Kubelet) -> object:
    """The general predicates look last: the plugin was asked already, here for ids that another pod has."""
    async with probe(kubelet.directory, "probe.test/after", devices("ab")) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod, _ = await holding(kubelet, plugin, "after")
        await kubelet.kill()
        (kubelet.directory / CHECKPOINT).unlink()
        await kubelet.start()
        await back(kubelet, plugin)
        await kubelet.until_counts(plugin.resource, (2, 2))
        other = await kubelet.run(kubelet.name("after-other"), Shape("c", {plugin.resource: 2}))
        ids = sorted(plugin.called(ALLOCATE)[1].ids)
        for each in (pod, other):
            await kubelet.delete(each.name)
        return {"ids": ids, "reason": other.reason, "message": other.message.partition(f"{plugin.resource}, ")[2]}


# ---------------------------------------------------------------- sections 6 and 7


@row(
    "6, 7, 16 (4, 8, 37)",
    {"away": (0, 0), "back": (3, 3), "phase": "Running", "listed": True, "calls": 1, "other": True},
    alone=True,
)
async def a_kubelet_that_restarts_under_a_pod(kubelet: Kubelet) -> object:
    """0/0 until the plugin is back. The pod runs on, with its ids, and no Allocate is made for it."""
    async with probe(kubelet.directory, "probe.test/restart", devices("abc")) as plugin:
        await kubelet.until_counts(plugin.resource, (3, 3))
        pod, ids = await holding(kubelet, plugin, "restart")
        await kubelet.stop()
        await kubelet.start()
        seen: dict[str, object] = {"away": await kubelet.until_counts(plugin.resource, (0, 0))}
        await back(kubelet, plugin)
        seen["back"] = await kubelet.until_counts(plugin.resource, (3, 3))
        seen["phase"] = (await kubelet.until_pod(pod.name, lambda found: True)).phase
        seen["listed"] = await Lister(kubelet).until(pod.name, {"c": ids})
        seen["calls"] = len(plugin.called(ALLOCATE))
        other, others = await holding(kubelet, plugin, "restart-other", 1)
        seen["other"] = not set(others) & set(ids)
        for each in (pod, other):
            await kubelet.delete(each.name)
        return seen


@row(
    "2",
    ["failed to dial device plugin: context deadline exceeded", "by the dial timeout", (0, 0), (1, 1)],
    alone=True,
)
async def a_plugin_that_only_registers_again(kubelet: Kubelet) -> object:
    """The start of a kubelet removed its socket, so the dial-back finds nobody, until the plugin binds anew."""
    async with probe(kubelet.directory, "probe.test/swept", devices("a")) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        await kubelet.kill()
        await kubelet.start()
        answer = await plugin.register()
        near = by_the_dial_timeout(answer, kubelet)
        seen = [answer.text, "by the dial timeout" if near else answer.seconds]
        seen.append(await kubelet.until_counts(plugin.resource, (0, 0)))
        await back(kubelet, plugin)
        return [*seen, await kubelet.until_counts(plugin.resource, (1, 1))]


@row("7", {"running": "Running", "later": "Running", "counts": (1, 1)}, alone=True, window=True)
async def a_device_that_is_gone_after_a_restart(kubelet: Kubelet) -> object:
    """Policy none: a container that runs is not looked at, so the pod stays although its device is not there."""
    async with probe(kubelet.directory, "probe.test/vanished") as plugin:
        plugin.send([device("a"), device("b", "Unhealthy")])
        await kubelet.until_counts(plugin.resource, (2, 1))
        pod, _ = await holding(kubelet, plugin, "vanished", 1)
        await kubelet.kill()
        await kubelet.start(api_silent=True)
        plugin.send(devices("b"))
        await back(kubelet, plugin)
        await kubelet.api_answers()
        seen: dict[str, object] = {"running": (await kubelet.until_pod(pod.name, lambda found: True)).phase}
        seen["counts"] = await kubelet.until_counts(plugin.resource, (1, 1))
        await trio.sleep(kubelet.quiet)
        seen["later"] = (await kubelet.until_pod(pod.name, lambda found: True)).phase
        await kubelet.delete(pod.name)
        return seen


@row("16 (6)", {"phase": "Succeeded", "reason": "", "counts": (0, 0)}, alone=True, window=True)
async def a_pod_that_succeeded_is_not_admitted_again(kubelet: Kubelet) -> object:
    """The kubelet restarts with the plugin gone: the pod stays Succeeded."""
    plugin = ProbePlugin(kubelet.directory, "probe.test/succeeded")
    plugin.send(devices("ab"))
    plugin.serve()
    await plugin.register()
    await kubelet.until_counts(plugin.resource, (2, 2))
    pod = await kubelet.run(kubelet.name("succeeded"), Shape("c", {plugin.resource: 1}, finishes=True))
    await kubelet.until_pod(pod.name, over)
    await plugin.close()
    await kubelet.until_counts(plugin.resource, (2, 0))
    await kubelet.stop()
    await kubelet.start()
    counts = await kubelet.until_counts(plugin.resource, (0, 0))
    await trio.sleep(kubelet.quiet)
    after = await kubelet.until_pod(pod.name, lambda found: True)
    await kubelet.delete(pod.name)
    return {"phase": after.phase, "reason": after.reason, "counts": counts}


@row("16 (9)", {"listed": None, "given again": True}, alone=True)
async def a_pod_deleted_while_the_kubelet_was_down(kubelet: Kubelet) -> object:
    """An orphan: it is not listed, and its devices go to the next pod."""
    async with probe(kubelet.directory, "probe.test/orphan", devices("ab")) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod, ids = await holding(kubelet, plugin, "orphan")
        await kubelet.stop()
        await kubelet.delete(pod.name)
        await kubelet.start()
        await back(kubelet, plugin)
        await kubelet.until_counts(plugin.resource, (2, 2))
        listed = await Lister(kubelet).pod(pod.name)
        other, again = await holding(kubelet, plugin, "orphan-next")
        await kubelet.delete(other.name)
        return {"listed": listed, "given again": again == ids}


@row(
    "7",
    refused("requested number of devices unavailable for probe.test/early. Requested: 2, Available: 0"),
    alone=True,
)
async def a_pod_of_the_first_batch(kubelet: Kubelet) -> object:
    """What the API server tells at a start is admitted before anything is freed: a pod that is to have the devices of
    one that went away meanwhile is refused."""
    async with probe(kubelet.directory, "probe.test/early", devices("ab")) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod, _ = await holding(kubelet, plugin, "early")
        await kubelet.kill()
        await kubelet.delete(pod.name)
        name = kubelet.name("early-next")
        await kubelet.run(name, Shape("c", {plugin.resource: 2}), settled=False)
        await kubelet.start(api_silent=True)
        await back(kubelet, plugin)
        await kubelet.api_answers()
        after = await kubelet.until_pod(name, over_or_running)
        await kubelet.delete(name)
        return told(after)


@row("16 (7)", {"away": (2, 0), "back": (2, 2), "listed": True, "calls": 1}, alone=True)
async def a_plugin_that_is_killed_and_comes_back(kubelet: Kubelet) -> object:
    """Assignments stay as they were."""
    async with probe(kubelet.directory, "probe.test/killed", devices("ab")) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod, ids = await holding(kubelet, plugin, "killed", 1)
        await plugin.close(keep_file=True)
        seen: dict[str, object] = {"away": await kubelet.until_counts(plugin.resource, (2, 0))}
        await back(kubelet, plugin)
        seen["back"] = await kubelet.until_counts(plugin.resource, (2, 2))
        seen["listed"] = await Lister(kubelet).until(pod.name, {"c": ids})
        seen["calls"] = len(plugin.called(ALLOCATE))
        await kubelet.delete(pod.name)
        return seen


@row("10", {"asked": 0, "phase": "Running"}, alone=True)
async def prestart_before_the_plugin_is_back(kubelet: Kubelet) -> object:
    """After a restart of the kubelet a container starts without PreStart: its options are not known."""
    async with probe(kubelet.directory, "probe.test/skipped", devices("ab"), pre_start=True) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod, _ = await holding(kubelet, plugin, "skipped", 1)
        await kubelet.stop()
        await kubelet.start()
        before = len(plugin.called(PRE_START))
        await kubelet.until_counts(plugin.resource, (0, 0))
        await kubelet.restart_container(pod.name, "c")
        after = await kubelet.until_pod(pod.name, over_or_running)
        await kubelet.delete(pod.name)
        return {"asked": len(plugin.called(PRE_START)) - before, "phase": after.phase}
