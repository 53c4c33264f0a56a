"""``make node-demo``: the agent on a real Kubernetes node, as a story on your terminal. Without a GPU.

    python -m tests.e2e.demo [1.34 | 1.37]

Each act says what is done and what is to come of it. ``ok`` lines are held against the node itself: its API, its
kubelet, its containers. What the Node object says of GPUs is shown whenever it changes. Exit 0: all was as told.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

from tests.e2e.api import Away
from tests.e2e.bundle import keep
from tests.e2e.daemonset import AgentPod, DaemonSet, deploy
from tests.e2e.image import NotBuilt
from tests.e2e.node import GPU, Node, count_of, health, need_all
from tests.e2e.versions import WHOLE
from tests.e2e.world import HOSTNAME, NotHere

SHARES = f"{GPU}.shared"
GPUS, EACH = 8, 4
SHARED = f"""version: v1
flags: {{failOnInitError: false}}
sharing:
  timeSlicing:
    resources:
    - {{name: {GPU}, rename: {SHARES}, replicas: {EACH}}}
"""
WITHIN = 120.0
"""Far more than anything takes on an idle machine."""


class Stage:
    """Where the story is told, with the seconds since it began."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def act(self, headline: str, *words: str) -> None:
        print(f"\n== {headline}")
        for line in words:
            print(f"   {line}")
        sys.stdout.flush()

    def say(self, mark: str, text: str) -> None:
        print(f"{time.monotonic() - self._begun:7.1f} s  {mark:4}  {text}", flush=True)

    def ok(self, text: str) -> None:
        self.say("ok", text)


async def story(node: Node, stage: Stage) -> None:
    """From a Node that is Ready to the end."""
    async with _node_shown(node, stage):
        daemonset, agent = await _applied(node, stage)
        held = await _pod_with_two(node, stage)
        await _xid(node, stage, agent, min(held))
        await _edited(node, stage, daemonset, agent)
        await _kubelet_restarted(node, stage, agent, held)
        await _freed(node, stage)


async def _applied(node: Node, stage: Stage) -> tuple[DaemonSet, AgentPod]:
    stage.act(
        "The agent is installed, as a DaemonSet",
        "kubectl apply -f deploy/static/gpu-reactor.yaml, patched with deploy/static/simulated.yaml:",
        f"{GPUS} H100 are pretended to it, so no driver is needed. All else is as on any node.",
    )
    daemonset = await deploy(node)
    agent = await daemonset.serving(within=WITHIN)
    stage.ok(f"pod {agent.name} is Ready")
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS, within=WITHIN)
    stage.ok(f"the node offers {GPUS} of {GPU}")
    return daemonset, agent


async def _pod_with_two(node: Node, stage: Stage) -> set[str]:
    stage.act("A pod asks for two GPUs", f"limits: {{{GPU}: 2}}. The scheduler finds the node, the kubelet the agent.")
    await node.create_pod("two", {GPU: 2})
    await node.running("two", within=WITHIN)
    seen = (await node.inside("two")).environment["NVIDIA_VISIBLE_DEVICES"].split(",")
    stage.ok(f"it runs, and its container sees NVIDIA_VISIBLE_DEVICES={','.join(seen)}")
    held = (await node.podresources.held(GPU))["two"]
    _must(set(seen) == held and len(held) == 2, f"the kubelet lists {held} for it")
    stage.ok("the kubelet lists the same two for it")
    return held


async def _xid(node: Node, stage: Stage, agent: AgentPod, sick: str) -> None:
    stage.act(
        f"XID 79: one of the two, {sick[:12]}..., falls off the bus",
        "The pod is not killed: that is for its owner to decide. But nobody else will get this GPU.",
    )
    mark = agent.log.mark()
    await agent.inject("xid=79", f"gpu={sick}")
    await agent.log.event("xid.reported", since=mark, within=WITHIN)
    await node.resource(GPU, allocatable=GPUS - 1, capacity=GPUS, within=WITHIN)
    stage.ok(f"the node offers {GPUS - 1} of {GPUS}")
    pod = await node.pod("two", lambda pod: "Unhealthy" in health(pod).values(), within=WITHIN)
    _must([each for each, told in health(pod).items() if told == "Unhealthy"] == [sick], f"told: {health(pod)}")
    stage.ok("status of the pod: Running, this GPU Unhealthy, the other Healthy")
    stage.act("Somebody mends it, and says so", f"gpu-reactor inject clear gpu={sick} reason=mended")
    await agent.inject("clear", f"gpu={sick}", "reason=mended")
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS, within=WITHIN)
    stage.ok(f"the node offers {GPUS} again")


async def _edited(node: Node, stage: Stage, daemonset: DaemonSet, agent: AgentPod) -> None:
    free = (GPUS - 2) * EACH
    stage.act(
        "The ConfigMap is edited: from now on each GPU is shared by four",
        "kubectl -n kube-system edit configmap gpu-reactor, while the pod has two GPUs for itself:",
        *(f"  {line}" for line in SHARED.splitlines()),
        f"{GPUS - 2} GPUs are cut into {free} shares. The two of the pod stay whole, and its own, until it ends.",
    )
    await daemonset.configure(SHARED)
    await node.resource(SHARES, allocatable=free, capacity=GPUS * EACH, within=WITHIN)
    stage.ok(f"the node offers {free} of {SHARES}")
    await node.resource(GPU, allocatable=0, capacity=2, within=WITHIN)
    stage.ok(f"of {GPU} only the two are left that are taken")
    _must((await daemonset.serving(within=WITHIN)).container == agent.container, "the agent was restarted")
    stage.ok("the agent was not restarted for that")


async def _kubelet_restarted(node: Node, stage: Stage, agent: AgentPod, held: set[str]) -> None:
    free = (GPUS - 2) * EACH
    stage.act(
        "The kubelet restarts", "It forgets its plugins and removes their sockets. The agent is there again at once."
    )
    mark = agent.log.mark()
    await node.kubelet.restart()
    for resource in (GPU, SHARES):
        await agent.log.event("plugin.registered", since=mark, resource=resource, within=WITHIN)
    await node.podresources.shows(SHARES, lambda ids: len(ids) == free, within=WITHIN)
    await node.resource(SHARES, allocatable=free, capacity=GPUS * EACH, within=WITHIN)
    stage.ok("both resources are registered, as they were")
    await node.podresources.held_as(GPU, {"two": held}, within=WITHIN)
    stage.ok("the pod runs on, with the same two GPUs")


async def _freed(node: Node, stage: Stage) -> None:
    stage.act("The pod ends", "Nobody has these two whole any more, so they are cut as well.")
    await node.delete_pod("two", within=WITHIN)
    await node.resource(SHARES, allocatable=GPUS * EACH, capacity=GPUS * EACH, within=WITHIN)
    stage.ok(f"the node offers {GPUS * EACH} of {SHARES}")
    await node.create_pod("share", {SHARES: 1})
    await node.running("share", within=WITHIN)
    stage.ok("a pod that asks for one share runs")


@asynccontextmanager
async def _node_shown(node: Node, stage: Stage) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_show_node, node, stage)
        yield
        nursery.cancel_scope.cancel()


async def _show_node(node: Node, stage: Stage) -> None:
    """Tell each change of what the Node object says of our resources."""
    told = ""
    while True:
        with suppress(Away):
            async with node.api.watch("Node", HOSTNAME) as changes:
                async for _, now in changes:
                    names = sorted(name for name in now["status"]["allocatable"] if name.startswith("nvidia.com/"))
                    counts = {name: count_of(now, name) for name in names}
                    said = ", ".join(f"{name} {free} of {all_}" for name, (all_, free) in counts.items())
                    if said != told:
                        told = said
                        stage.say("node", said)


def _must(true: bool, otherwise: str) -> None:
    assert true, otherwise


def _words(exc: BaseException) -> str:
    """Of what came first: parts that start side by side fail as a group."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return str(exc)


async def play(version: str) -> int:
    stage = Stage()
    stage.act(
        f"A Kubernetes {version} node starts on this machine",
        "etcd, API server, controllers, scheduler, containerd and a kubelet, in namespaces of their own.",
    )
    node = Node(version)
    failed: BaseException | None = None
    try:
        try:
            await node.up()
            stage.ok(f"node {HOSTNAME} is Ready")
            await story(node, stage)
        except* AssertionError as exc:
            failed = exc
        if failed is not None:
            stage.say("NOT", _words(failed))
            kept = await keep(node, "node-demo", node.cache / "failed")
            stage.say("", f"logs of everything: {kept}")
            return 1
    finally:
        node.close()
    stage.act("All of it was as told, and nothing of it is left on this machine")
    return 0


def main() -> int:
    version = sys.argv[1] if len(sys.argv) > 1 else WHOLE[-1]
    if version not in WHOLE:
        print(f"no such version: {version}; there are {' and '.join(WHOLE)}", file=sys.stderr)
        return 2
    try:
        need_all([version])
        return trio.run(partial(play, version))
    except (NotHere, NotBuilt) as exc:
        print(f"node-demo: {exc}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
