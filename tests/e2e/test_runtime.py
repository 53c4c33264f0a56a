"""What befalls the node below the kubelet: containerd restarts, and a reboot that ends every sandbox."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress

import trio

from tests.e2e.api import Away, Object
from tests.e2e.logs import PATIENCE
from tests.e2e.node import GPU, Node
from tests.e2e.owners import GPUS, owner, with_pods
from tests.e2e.pods import phase, pod_of, reason

BOOTED = "containerd successfully booted"


async def test_a_containerd_that_restarts_leaves_pods_and_gpus_as_they_are(node: Node):
    owners = await with_pods(node, two=2)
    streams = owners.agent.log.mark()
    for number in (signal.SIGTERM, signal.SIGKILL):
        await node.containerd.restart(number)
        await node.containerd.log.until(BOOTED, since=node.containerd.begun)
    await owners.add("rest", 2)
    await owners.listed()
    assert not owners.agent.log.of("stream.closed", since=streams)


async def test_a_kubelet_that_ended_for_want_of_containerd_finds_every_gpu_with_its_pod(node: Node):
    """It gives up without a runtime; whoever looks after it starts it again and again."""
    owners = await with_pods(node, two=2)
    await node.containerd.kill()
    await node.kubelet.restart(signal.SIGKILL)
    assert await node.kubelet.ended() != 0
    told = owners.agent.log.mark()
    await node.start()
    await owners.agent.event("plugin.registered", since=told)
    await owners.listed()
    await owners.add("rest", 2)


def workload(kind: str, name: str, gpus: int) -> Object:
    """A Job or Deployment of one pod."""
    restart = {"Job": "Never", "Deployment": "Always"}[kind]
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_of(name, {GPU: gpus}, restartPolicy=restart)["spec"]}
    version, spec = {"Job": ("batch/v1", {}), "Deployment": ("apps/v1", {"selector": {"matchLabels": {"app": name}}})}[
        kind
    ]
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, "template": template},
    }


async def pod_that(node: Node, holds: Callable[[Object], object], *, within: float = PATIENCE) -> str:
    """The name of the first pod of which this holds, whoever made it."""
    last: dict[str, str] = {}
    with trio.move_on_after(within):
        while True:
            with suppress(Away):
                async with node.api.watch("Pod") as changes:
                    async for what, pod in changes:
                        name = str(pod["metadata"]["name"])
                        last[name] = f"{what} {phase(pod)} {reason(pod)}"
                        if what != "DELETED" and holds(pod):
                            return name
    raise AssertionError(f"no such pod within {within} s; last seen: {last}")


def runs(app: str, *others: str) -> Callable[[Object], bool]:
    """Whether a pod of this workload runs, other than those."""

    def holds(pod: Object) -> bool:
        meta = pod["metadata"]
        mine = meta.get("labels", {}).get("app") == app and meta["name"] not in others
        return mine and phase(pod) == "Running" and "deletionTimestamp" not in meta

    return holds


async def test_pods_that_a_rebooted_node_takes_before_the_agent_fail_and_their_makers_make_new_ones(node: Node):
    """The kubelet admits what the API server has for it at once, and no GPU is there yet: it is not asked twice."""
    owners = await with_pods(node, bare=1)
    await node.api.create(workload("Job", "job", 1))
    await node.api.create(workload("Deployment", "server", 1))
    old = {app: await pod_that(node, runs(app)) for app in ("job", "server")}
    await node.reboot()
    for name in ("bare", *old.values()):
        await node.pod(name, lambda pod: phase(pod) == "Failed")
    owners.agent.start()
    new = {app: await pod_that(node, runs(app, old[app]), within=60) for app in ("job", "server")}
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    assert phase(await node.api.get("Pod", "bare")) == "Failed"
    owners.pods = {name: await owner(node, name) for name in new.values()}
    await owners.add("rest", 2)
    await owners.known()


async def test_a_pod_that_a_rebooted_node_starts_again_has_gpus_again_and_alone(node: Node):
    """Whoever is first, kubelet or agent: no GPU is lost and none is given twice."""
    owners = await with_pods(node, two=2)
    await node.api.create(workload("Deployment", "server", 1))
    await pod_that(node, runs("server"))
    await node.reboot(owners.agent)
    await node.pod("two", lambda pod: phase(pod) in ("Failed", "Succeeded"))
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    server = await pod_that(node, lambda pod: runs("server")(pod) and pod["status"]["containerStatuses"][0]["ready"])
    owners.pods = {server: await owner(node, server)}
    await owners.add("rest", 3)
    await owners.known()


async def test_a_node_that_boots_without_its_kubelets_books_has_every_gpu_free(node: Node):
    """Set up anew, say, but for our own folder. No pod of before the boot runs, so nobody is remembered."""
    owners = await with_pods(node, two=2)
    await owners.agent.kill()
    node.checkpoint.unlink()
    mark = owners.agent.log.mark()
    await node.reboot(owners.agent)
    await node.pod("two", lambda pod: phase(pod) in ("Failed", "Succeeded"))
    await owners.agent.event("hold.ended", since=mark, count=2)
    owners.pods.clear()
    await owners.add("all", GPUS)
    assert not owners.agent.log.of("hold.suspended", since=mark)
