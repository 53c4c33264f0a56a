"""podresources: what it lists, of whom, and how often it may be asked."""

from __future__ import annotations

import grpc
import trio

from tests.contract.table.admission import over
from tests.contract.table.plugin import devices, probe
from tests.contract.table.row import row, since
from tests.contract.table.under_test import Kubelet, Lister, Shape


async def _get(kubelet: Kubelet, name: str) -> object:
    try:
        answer = await Lister(kubelet).get(name)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details().replace(name, 'NAME')}"
    return {each.name: sorted(one.device_ids[0] for one in each.devices) for each in answer.pod_resources.containers}


@row("15, 16 (38)", since(v1_29="listed", v1_34="absent"))
async def a_pod_that_is_over_in_list(kubelet: Kubelet) -> object:
    """From 1.34 List has active pods only."""
    pod = await kubelet.run(kubelet.name("over"), Shape("c", finishes=True))
    await kubelet.until_pod(pod.name, over)
    if kubelet.version.lists_active_pods_only:
        await Lister(kubelet).until(pod.name, None)
    listed = await Lister(kubelet).pod(pod.name)
    await kubelet.delete(pod.name)
    return "absent" if listed is None else "listed"


_OFF = "UNKNOWN: PodResources API Get method disabled"
_UNKNOWN = "UNKNOWN: pod NAME in namespace default not found"


@row(
    "15, 16 (39)",
    since(
        v1_29={"running": _OFF, "unknown": _OFF, "over": _OFF},
        v1_34={"running": {"c": ["a"]}, "unknown": _UNKNOWN, "over": {"c": []}},
        v1_36={"running": {"c": ["a"]}, "unknown": _UNKNOWN, "over": _UNKNOWN},
    ),
)
async def get_of_one_pod(kubelet: Kubelet) -> object:
    """Off before 1.34; from 1.36 a pod that is over is not found."""
    async with probe(kubelet.directory, "probe.test/get", devices("a")) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        pod = await kubelet.run(kubelet.name("get"), Shape("c", {plugin.resource: 1}))
        done = await kubelet.run(kubelet.name("get-over"), Shape("c", finishes=True))
        await kubelet.until_pod(done.name, over)
        await Lister(kubelet).until(done.name, None if kubelet.version.lists_active_pods_only else {"c": []})
        seen = {
            "running": await _get(kubelet, pod.name),
            "unknown": await _get(kubelet, "nobody-knows"),
            "over": await _get(kubelet, done.name),
        }
        for each in (pod, done):
            await kubelet.delete(each.name)
        return seen


@row("15, 16 (40)", {"answered": True, "refused": "RESOURCE_EXHAUSTED: rejected by rate limit"}, alone=True)
async def many_lists_at_once(kubelet: Kubelet) -> object:
    """A hundred a second, ten at once; what is more is refused."""
    told: list[str] = []
    for _ in range(5):  # a machine that is slow enough is not refused
        told += await trio.to_thread.run_sync(Lister(kubelet).hammer, 200)
        if set(told) > {"OK"}:
            break
    refused = [each for each in told if each != "OK"]
    return {"answered": "OK" in told, "refused": refused[0] if refused else "nothing"}
