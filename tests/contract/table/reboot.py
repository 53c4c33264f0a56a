"""Reboots: pods that come before their plugin, or after it."""

from __future__ import annotations

from tests.contract.table.admission import over, told
from tests.contract.table.plugin import ALLOCATE, ProbePlugin, devices, probe
from tests.contract.table.restart import back, holding, over_or_running
from tests.contract.table.row import row
from tests.contract.table.under_test import Kubelet

NONE_HEALTHY = "no healthy devices present; cannot allocate unhealthy devices probe.test/reboot"


@row("7, 16 (11, 12)", [("Failed", "UnexpectedAdmissionError", NONE_HEALTHY), (0, 0), 0], alone=True)
async def a_reboot_before_the_plugin_is_back(kubelet: Kubelet) -> object:
    """The pod is refused, and not tried again."""
    plugin = ProbePlugin(kubelet.directory, "probe.test/reboot")
    plugin.send(devices("ab"))
    plugin.serve()
    await plugin.register()
    await kubelet.until_counts(plugin.resource, (2, 2))
    pod, _ = await holding(kubelet, plugin, "reboot")
    await plugin.close()
    await kubelet.kill()
    await kubelet.reboot()
    before = len(plugin.called(ALLOCATE))
    await kubelet.start()
    after = await kubelet.until_pod(pod.name, over)
    counts = await kubelet.until_counts(plugin.resource, (0, 0))
    await kubelet.delete(pod.name)
    return [told(after), counts, len(plugin.called(ALLOCATE)) - before]


@row("7", {"phase": "Running", "same ids": True, "calls": 1}, alone=True)
async def a_reboot_with_the_plugin_back_first(kubelet: Kubelet) -> object:
    """The pod is started again with the answer of the checkpoint: no Allocate."""
    async with probe(kubelet.directory, "probe.test/first-back", devices("abcd")) as plugin:
        await kubelet.until_counts(plugin.resource, (4, 4))
        pod, ids = await holding(kubelet, plugin, "first-back")
        await _rebooted(kubelet, plugin)
        after = await kubelet.until_pod(pod.name, over_or_running)
        environment = await kubelet.environment(pod.name, "c")
        await kubelet.delete(pod.name)
        same = environment["PROBE"] == ",".join(ids)
        return {"phase": after.phase, "same ids": same, "calls": len(plugin.called(ALLOCATE))}


async def _rebooted(kubelet: Kubelet, plugin: ProbePlugin) -> None:
    """The node starts again, and the plugin is registered before the API server tells of any pod."""
    await kubelet.kill()
    await kubelet.reboot()
    await kubelet.start(api_silent=True)
    await back(kubelet, plugin)
    await kubelet.api_answers()


@row("7, 16 (27)", ["UnexpectedAdmissionError", "previously allocated devices are no longer healthy", 1], alone=True)
async def a_reboot_with_the_device_unhealthy(kubelet: Kubelet) -> object:
    """A pod whose devices are not healthy any more is refused."""
    async with probe(kubelet.directory, "probe.test/ill", devices("abcd")) as plugin:
        await kubelet.until_counts(plugin.resource, (4, 4))
        pod, ids = await holding(kubelet, plugin, "ill")
        plugin.send(devices("abcd", ids[0]))
        await kubelet.until_counts(plugin.resource, (4, 3))
        await _rebooted(kubelet, plugin)
        after = await kubelet.until_pod(pod.name, over)
        await kubelet.delete(pod.name)
        text = told(after)[2]
        return [after.reason, text.partition(";")[0], len(plugin.called(ALLOCATE))]
