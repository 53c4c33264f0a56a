"""Two instances of a plugin, one taking over from the other."""

from __future__ import annotations

import grpc

from tests.contract.table.admission import one
from tests.contract.table.plugin import ALLOCATE, OPTIONS, ProbePlugin, Refusal, devices, probe
from tests.contract.table.row import row, since
from tests.contract.table.under_test import Kubelet

STOPPED = "UnexpectedAdmissionError"


@row(
    "16 (41)",
    since(
        v1_29={"pods": ["Running", "Running", STOPPED], "counts": (3, 0)},
        v1_37={"pods": ["Running", "Running", "Running"], "counts": (3, 3)},
    ),
)
async def a_rollout(kubelet: Kubelet) -> object:
    """Old, a pod, new on another socket, a pod, old leaves, a pod. From 1.37 nobody notices."""
    pods = []
    old = ProbePlugin(kubelet.directory, "probe.test/rollout")
    old.send(devices("abc"))
    old.serve()
    await old.register()
    await kubelet.until_counts(old.resource, (3, 3))
    pods.append(await one(kubelet, old, "rollout-1"))
    async with probe(kubelet.directory, old.resource, devices("abc")) as new:
        await kubelet.until_counts(old.resource, (3, 3))
        pods.append(await one(kubelet, new, "rollout-2"))
        assert new.called(ALLOCATE), "the new one is asked"
        await old.close()
        stays = kubelet.version.many_endpoints
        counts = await kubelet.until_counts(new.resource, (3, 3) if stays else (3, 0))
        pods.append(await one(kubelet, new, "rollout-3"))
        for each in pods:
            await kubelet.delete(each.name)
    return {"pods": [each.reason or each.phase for each in pods], "counts": counts}


@row("16 (42)", {"answer": False, "during": "Running", "counts": (2, 2), "after": "Running", "asked": 1})
async def a_rollout_that_fails_first(kubelet: Kubelet) -> object:
    """The new one fails its options call; the old one serves on, until a newer one succeeds."""
    async with probe(kubelet.directory, "probe.test/fails-first", devices("ab")) as old:
        await kubelet.until_counts(old.resource, (2, 2))
        async with probe(kubelet.directory, old.resource, devices("ab"), registered=False) as bad:
            bad.refuse[OPTIONS] = Refusal(grpc.StatusCode.INTERNAL, "not yet")
            answer = await bad.register()
        during = await one(kubelet, old, "fails-first-1")
        counts = await kubelet.until_counts(old.resource, (2, 2))
        async with probe(kubelet.directory, old.resource, devices("ab")) as new:
            await kubelet.until_counts(old.resource, (2, 2))
            after = await one(kubelet, new, "fails-first-2")
            asked = len(new.called(ALLOCATE))
        for each in (during, after):
            await kubelet.delete(each.name)
        return {
            "answer": answer.ok,
            "during": during.phase,
            "counts": counts,
            "after": after.reason or after.phase,
            "asked": asked,
        }


@row(
    "16 (43)",
    since(
        v1_29={"counts": (2, 0), "pod": STOPPED, "asked": 0},
        v1_37={"counts": (2, 2), "pod": "Running", "asked": 1},
    ),
)
async def a_rollout_that_is_taken_back(kubelet: Kubelet) -> object:
    """The new one leaves again. From 1.37 the old one serves on; before, it is taken down with it."""
    async with probe(kubelet.directory, "probe.test/back", devices("ab")) as old:
        async with probe(kubelet.directory, old.resource, devices("ab")):
            await kubelet.until_counts(old.resource, (2, 2))
        counts = await kubelet.until_counts(old.resource, (2, 2) if kubelet.version.many_endpoints else (2, 0))
        pod = await one(kubelet, old, "back")
        await kubelet.delete(pod.name)
        return {"counts": counts, "pod": pod.reason or pod.phase, "asked": len(old.called(ALLOCATE))}
