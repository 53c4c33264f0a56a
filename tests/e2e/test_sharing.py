"""The config edited while pods hold GPUs: shared, whole again, renamed, fewer replicas, a smaller selection.

Whatever is asked for, a pod keeps what it has, nobody else gets it under another name, and once the pod has ended the
node has what the config says.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable

import pytest

from tests.e2e.agent import Agent, Gpus
from tests.e2e.api import Object
from tests.e2e.node import GPU, Node, container_of, reason
from tests.e2e.witness import Witness, witnessed

SHARED = f"{GPU}.shared"
WHOLE = "version: v1\n"
STREAM_LOST = r"ListAndWatch ended|[Ee]ndpoint became unhealthy|[Ee]ndpoint stopped"


def shared(replicas: int, *, rename: str = "") -> str:
    entry = f"{{name: {GPU}, replicas: {replicas}{f', rename: {rename}' if rename else ''}}}"
    return f"version: v1\nsharing: {{timeSlicing: {{resources: [{entry}]}}}}\n"


def waits(pod: Object) -> bool:
    return "Insufficient" in reason(pod)


async def told(node: Node, pod: str) -> set[str]:
    """The GPUs that its container sees."""
    return set((await node.inside(pod)).environment["NVIDIA_VISIBLE_DEVICES"].split(","))


async def test_a_gpu_that_a_pod_owns_is_shared_when_that_pod_ends_and_whole_when_its_shares_are_free(node: Node):
    agent = await node.start_agent("2xH100")
    await node.resource(GPU, allocatable=2, capacity=2)
    mark = node.kubelet.log.mark()
    async with witnessed(node):
        await node.run_pod("job", {GPU: 1})
        agent.write_config(shared(2))
        await node.resource(GPU, allocatable=2, capacity=5)
        await node.run_pod("a", {GPU: 1})
        await node.create_pod("b", {GPU: 1})
        await node.pod("b", waits)  # the scheduler takes off what the job asked for
        await node.delete_pod("job")
        await node.running("b")
        await node.resource(GPU, allocatable=4, capacity=4)
        gpus = await told(node, "a") | await told(node, "b")
        agent.write_config(WHOLE)
        await node.resource(GPU, allocatable=2 - len(gpus), capacity=4)
        await node.delete_pod("a")
        await node.delete_pod("b")
        await node.resource(GPU, allocatable=2, capacity=2)
        await node.run_pod("next", {GPU: 2})
    assert node.kubelet.log.find(STREAM_LOST, since=mark) == []


async def test_a_held_share_moves_to_the_new_name_when_its_pod_ends(node: Node):
    agent = await node.start_agent("2xH100", config=shared(2))
    await node.resource(GPU, allocatable=4, capacity=4)
    async with witnessed(node, GPU, SHARED):
        await node.run_pod("job", {GPU: 1})
        agent.write_config(shared(2, rename=SHARED))
        await node.resource(SHARED, allocatable=3, capacity=3)
        await node.resource(GPU, allocatable=0, capacity=1)
        await node.run_pod("next", {SHARED: 3})
        await node.delete_pod("job")
        await node.resource(SHARED, allocatable=4, capacity=4)
        await node.resource(GPU, allocatable=0, capacity=0)
        await node.run_pod("last", {SHARED: 1})


async def test_held_shares_beyond_the_new_number_stay_until_their_pods_end(node: Node):
    """SHR-07"""
    agent = await node.start_agent("1xH100", config=shared(4))
    await node.resource(GPU, allocatable=4, capacity=4)
    mark = node.kubelet.log.mark()
    async with witnessed(node):
        for name in "abcd":
            await node.run_pod(name, {GPU: 1})
        held = {pod: one for pod, ids in (await node.podresources.held(GPU)).items() for one in ids}
        beyond = [pod for pod, one in held.items() if one.endswith(("::2", "::3"))]
        staying = sorted(held.keys() - set(beyond))
        agent.write_config(shared(2))
        await node.resource(GPU, allocatable=2, capacity=4)
        await node.delete_pod(beyond[0])
        await node.resource(GPU, allocatable=2, capacity=3)
        await node.delete_pod(staying[0])
        await node.create_pod("next", {GPU: 1})
        await node.pod("next", waits)  # two pods run, and two is what there is
        await node.delete_pod(beyond[1])
        await node.running("next")
        await node.resource(GPU, allocatable=2, capacity=2)
        assert (await node.podresources.held(GPU))["next"] == {held[staying[0]]}
    assert node.kubelet.log.find(STREAM_LOST, since=mark) == []


async def test_a_held_gpu_that_is_no_longer_selected_goes_when_its_pod_ends(node: Node):
    agent = await node.start_agent("3xH100")
    await node.resource(GPU, allocatable=3, capacity=3)
    mark = node.kubelet.log.mark()
    async with witnessed(node):
        await node.run_pod("job", {GPU: 1})
        (held,) = (await node.podresources.held(GPU))["job"]
        free = sorted(await node.podresources.allocatable(GPU) - {held})
        agent.write_config(f"version: v1\nselect: {{exclude: {{uuids: [{held}, {free[0]}]}}}}\n")
        await node.resource(GPU, allocatable=1, capacity=2)
        assert await node.podresources.allocatable(GPU) == {free[1]}
        await node.delete_pod("job")
        await node.resource(GPU, allocatable=1, capacity=1)
        agent.write_config(WHOLE)
        await node.resource(GPU, allocatable=3, capacity=3)
        await node.run_pod("next", {GPU: 3})
    assert node.kubelet.log.find(STREAM_LOST, since=mark) == []


async def test_a_gpu_that_a_pod_owns_is_shared_at_once_where_that_is_allowed(node: Node):
    agent = await node.start_agent("1xH100")
    await node.resource(GPU, allocatable=1, capacity=1)
    witness = Witness(node, [GPU])
    await node.run_pod("job", {GPU: 1})
    await witness.look()
    assert not witness.broken
    agent.write_config(f"{shared(2)}holds: allow\n")
    await node.resource(GPU, allocatable=2, capacity=3)
    await node.run_pod("a", {GPU: 1})
    await witness.look()
    assert await told(node, "a") == await told(node, "job")
    assert witness.broken, "the witness sees what is not allowed elsewhere"


# ---------------------------------------------------------------- all of it at once, and then the agent and the kubelet

H100, A100, L4, T4, BIG = (f"nvidia.com/{name}" for name in ("h100", "a100", "l4", "t4", "big"))
PRODUCTS = "2xH100+2xA100+1xL4+2xT4"


def by_product(*, a100: str, shares: dict[str, int], more: str = "") -> str:
    names = {"*H100*": H100, "*A100*": a100, "*L4*": L4, "*T4*": T4}
    patterns = ", ".join(f'{{pattern: "{pattern}", name: {name}}}' for pattern, name in names.items())
    entries = ", ".join(f"{{name: {name}, replicas: {number}}}" for name, number in shares.items())
    sharing = f"sharing: {{timeSlicing: {{resources: [{entries}]}}}}"
    return f"version: v1\nresources: {{gpus: [{patterns}]}}\n{sharing}\n{more}"


BEFORE = by_product(a100=A100, shares={L4: 4})
AFTER = by_product(a100=BIG, shares={L4: 2, H100: 2}, more='select: {exclude: {products: ["*T4*"]}}\n')
"""H100 shared, A100 under another name, fewer shares of the L4, no T4."""
WITH_PODS = {"h100": (2, 5), "a100": (0, 1), "big": (1, 1), "l4": (2, 4), "t4": (0, 1)}
"""(allocatable, capacity) then, while pods have one H100, one A100, all shares of the L4 and one T4."""
FORGOTTEN = WITH_PODS | {"a100": (0, 0), "t4": (0, 0)}
"""The same where the agent does not know that it once served a name: it may be that of another plugin."""


def on_one_numa_node(gpus: Gpus) -> None:
    """As on this machine: a kubelet aligns nothing with a NUMA node that it does not know."""
    for file in gpus.folder.glob("sys/bus/pci/devices/*/numa_node"):
        file.write_text("0\n")


async def counts(node: Node, **wanted: tuple[int, int]) -> None:
    """Wait for (allocatable, capacity) of each."""
    for name, (allocatable, capacity) in wanted.items():
        await node.resource(f"nvidia.com/{name}", allocatable=allocatable, capacity=capacity)


def pod_with(*resources: str, shares: int = 1) -> Object:
    """Containers, each with one resource: the variable that tells one its GPUs would be set twice by two."""
    containers = [container_of(f"c{n}", {name: shares if name == L4 else 1}) for n, name in enumerate(resources)]
    return {"containers": containers}


def edited_while_alive(agent: Agent) -> None:
    """What was asked for has long been so when they die."""


def edited_while_dead(agent: Agent) -> None:
    agent.write_config(AFTER)


def edited_while_dead_and_forgotten(agent: Agent) -> None:
    """The kubelet's checkpoint alone says who has what."""
    agent.write_config(AFTER)
    shutil.rmtree(agent.state_dir)


async def killed_together_in_silence(node: Node, agent: Agent, meanwhile: Callable[[Agent], None]) -> None:
    """The agent and the kubelet end and start while the API server answers nothing; then it answers again."""
    node.apiserver.pause()
    await agent.kill()
    await node.kubelet.kill()
    meanwhile(agent)
    agent.start()
    node.kubelet.start()
    for name, number in {H100: 2, L4: 2, BIG: 1}.items():
        await node.podresources.shows(name, lambda ids, number=number: len(ids) == number)
    node.apiserver.resume()
    await node.ready()


@pytest.mark.parametrize(
    ("policy", "meanwhile", "then"),
    [
        ("best-effort", edited_while_alive, WITH_PODS),
        ("restricted", edited_while_dead, WITH_PODS),
        ("single-numa-node", edited_while_dead_and_forgotten, FORGOTTEN),
    ],
    ids=["best-effort, edited before", "restricted, edited meanwhile", "single-numa-node, without its state"],
)
async def test_nothing_is_given_twice_after_agent_and_kubelet_died_under_a_silent_api_server(
    node: Node, policy: str, meanwhile: Callable[[Agent], None], then: dict[str, tuple[int, int]]
):
    await node.kubelet.restart(signal.SIGKILL, topologyManagerPolicy=policy)
    gpus = await node.start_gpus(PRODUCTS)
    on_one_numa_node(gpus)
    agent = await node.start_agent(gpus, config=BEFORE)
    await counts(node, h100=(2, 2), a100=(2, 2), l4=(4, 4), t4=(2, 2))
    async with witnessed(node, H100, A100, L4, T4, BIG) as witness:
        await node.run_pod("one", **pod_with(H100, L4, shares=4))
        await node.run_pod("other", **pod_with(A100, T4))
        if meanwhile is edited_while_alive:
            agent.write_config(AFTER)
            await counts(node, **WITH_PODS)
        await witness.look()
        before = witness.processes
        assert {pod: len(mains) for pod, mains in before.items()} == {"one": 2, "other": 2}
        await killed_together_in_silence(node, agent, meanwhile)
        await counts(node, **then)
        await node.running("one")
        await node.running("other")
        await witness.look()
        assert witness.processes == before
        await node.run_pod("next", **pod_with(H100, BIG))
        await node.delete_pod("one")
        await node.delete_pod("other")
        await counts(node, h100=(4, 4), a100=(0, 0), big=(2, 2), l4=(2, 2), t4=(0, 0))
    assert witness.seen == {"one", "other", "next"}
