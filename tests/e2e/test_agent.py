"""What befalls the agent on a node: ended at every moment, starved, updated and rolled back, started twice.

What is the same for its pod (deleted, out of memory, a stuck worker, a rolling update) is in test_daemonset.py.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e import cgroups
from tests.e2e.agent import ROOT, Agent
from tests.e2e.api import Object
from tests.e2e.logs import PATIENCE
from tests.e2e.node import GPU, Node, phase, reason
from tests.e2e.owners import GPUS, owner, with_pods

MOMENTS = ("agent.started", "config.applied", "inventory.taken", "stream.opened", "agent.settled")
"""Lines of its start, in their order."""
LONG = 4 * PATIENCE
STARVED = 5
"""Percent of a core."""
ASKED = "Issuing a GetPreferredAllocation call|Making allocation request"
"""In the kubelet's log: it waits for an answer of the agent on which a pod depends."""


def refused(pod: Object) -> bool:
    return phase(pod) == "Failed" and "UnexpectedAdmissionError" in reason(pod)


def settled(pod: Object) -> bool:
    return phase(pod) in ("Running", "Succeeded") or refused(pod)


async def test_an_agent_killed_again_and_again_in_its_start_harms_nobody(node: Node):
    """Pods that come meanwhile get GPUs that nobody has, or are refused, and then others get them."""
    owners = await with_pods(node, two=2)
    kubelet, begun = node.kubelet.process, owners.agent.log.mark()
    names = [f"p{number}" for number in range(2 * len(MOMENTS))]
    for name, moment in zip(names, 2 * MOMENTS, strict=True):
        await owners.agent.kill()
        await node.create_pod(name, {GPU: 1}, command="true")
        mark = owners.agent.log.mark()
        owners.agent.start()
        await owners.agent.event(moment, since=mark)
    for name in names:
        await node.pod(name, settled, within=LONG)
    granted = [set(line["ids"]) for line in owners.agent.log.of("allocation.answered", since=begun)]
    assert not set().union(*granted) & owners.gpus()
    await owners.stand()
    await owners.add("rest", GPUS - 2)
    await owners.listed()
    assert node.kubelet.process is kubelet
    assert node.kubelet.alive
    # Up to 1.36 a Register whose dial-back fails, 10 s after that agent was killed, has the kubelet forget the one that
    # serves: it does not notice the end of that. A kubelet that starts again does.
    await node.kubelet.restart()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGCONT])
async def test_a_pod_that_the_kubelet_asks_for_when_the_agent_ends_is_answered_or_refused(
    node: Node, ending: signal.Signals
):
    """Refused if it is killed, answered if it goes on; if it is stopped, it may still answer."""
    owners = await with_pods(node, two=2)
    mark = node.kubelet.log.mark()
    owners.agent.send(signal.SIGSTOP)
    await node.create_pod("asks", {GPU: 1})
    await node.kubelet.log.until(ASKED, since=mark)
    owners.agent.send(ending)
    owners.agent.send(signal.SIGCONT)
    asks = await node.pod("asks", settled)
    assert ending is signal.SIGTERM or refused(asks) == (ending is signal.SIGKILL)
    if ending is not signal.SIGCONT:
        assert owners.agent.process is not None
        await owners.agent.process.ended()
        mark = owners.agent.log.mark()
        owners.agent.start()
        await owners.agent.event("agent.settled", since=mark)
    await node.delete_pod("asks")
    await owners.stand()
    await owners.add("rest", GPUS - 2)


async def test_an_agent_with_five_percent_of_a_core_still_does_all_of_it(node: Node):
    """Late, but all of it: a start, pods, a fault, a restart of the kubelet."""
    owners = await with_pods(node, two=2)
    agent = owners.agent
    await agent.stop()
    mark = agent.log.mark()
    agent.start(groups=starved(node))
    await agent.event("agent.settled", since=mark, within=LONG)
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS, within=LONG)
    await node.create_pod("one", {GPU: 1})
    await node.running("one", within=LONG)
    owners.pods["one"] = await owner(node, "one")
    (sick,) = await node.podresources.allocatable(GPU) - owners.gpus()
    await agent.gpus("xid", sick, 79)
    await node.resource(GPU, allocatable=GPUS - 1, capacity=GPUS, within=LONG)
    mark = agent.log.mark()
    await node.kubelet.restart()
    await agent.event("plugin.registered", since=mark, within=LONG)
    await node.podresources.shows(GPU, lambda ids: len(ids) == GPUS - 1, within=LONG)
    await owners.stand()
    await owners.listed()


def starved(node: Node) -> Sequence[Path]:
    """A cgroup with little processor time, as the node sees it."""
    group = node.world.cgroup_folder("cpu", "starved")
    group.mkdir(exist_ok=True)
    if cgroups.unified():
        (group / "cpu.max").write_text(f"{STARVED * 1000} 100000")
        return [cgroups.ROOT / "starved"]
    (group / "cpu.cfs_quota_us").write_text(f"{STARVED * 1000}")
    return [cgroups.ROOT / "cpu" / "starved"]


async def test_of_two_agents_by_mistake_one_serves_and_the_other_takes_over_when_it_ends(node: Node):
    owners = await with_pods(node, two=2)
    first = owners.agent
    second = await node.start_agent(first.gpus)
    await second.event("agent.delayed")
    await owners.add("one", 1)
    assert first.alive
    assert second.log.of("plugin.served") == second.log.of("config.applied") == []
    await first.kill()
    await second.event("agent.settled")
    await node.resource(GPU, allocatable=GPUS, capacity=GPUS)
    first.start()
    await owners.stand()
    await owners.listed()
    await owners.add("rest", 1)


def next_version(folder: Path, *, state: int) -> Sequence[str]:
    """A copy of this agent that is of a later version and keeps more in its state file: a wrap to start it with."""
    shutil.copytree(ROOT / "reactor", folder / "reactor", ignore=shutil.ignore_patterns("__pycache__"))
    remember = folder / "reactor" / "handlers" / "remember.py"
    text = remember.read_text()
    text = re.sub(r"^VERSION = \d+$", f"VERSION = {state}", text, flags=re.MULTILINE)
    text = text.replace(
        "    v: int = VERSION\n", '    v: int = VERSION\n    later: tuple[str, ...] = ("known later",)\n'
    )
    remember.write_text(text)
    return ("sh", "-c", f'cd {folder} && exec "$@"', "sh")


async def updated(node: Node, agent: Agent, *wrap: str) -> int:
    """Stop it and start what is wrapped so: where in its log that begins."""
    await agent.stop()
    mark = agent.log.mark()
    agent.start(*wrap)
    await agent.event("agent.settled", since=mark)
    return mark


async def test_an_update_and_its_rollback_forget_nothing(node: Node, tmp_path: Path):
    """A later version that keeps more of the same: what it adds is read over, what is known is read."""
    owners = await with_pods(node, two=2)
    sick = min(await node.podresources.allocatable(GPU) - owners.gpus())
    await owners.agent.gpus("xid", sick, 79)
    await node.resource(GPU, allocatable=GPUS - 1, capacity=GPUS)
    later = next_version(tmp_path, state=1)
    for wrap in (later, (), later, ()):
        mark = await updated(node, owners.agent, *wrap)
        assert ("known later" in (owners.agent.state_dir / "state.json").read_text()) == bool(wrap)
        (restored,) = owners.agent.log.of("state.restored", since=mark)
        assert (restored["level"], restored["holds"]) == ("info", 2)
        await node.podresources.shows(GPU, lambda ids: len(ids) == GPUS - 1)
        assert sick not in await node.podresources.allocatable(GPU)
        await owners.listed()
        await owners.stand()
    await owners.add("rest", 1)


async def test_a_rollback_under_a_state_file_that_is_too_new_says_so_and_takes_no_gpu_from_a_pod(
    node: Node, tmp_path: Path
):
    """The kubelet's books tell who has what; the file is set aside."""
    owners = await with_pods(node, two=2)
    await updated(node, owners.agent, *next_version(tmp_path, state=2))
    mark = await updated(node, owners.agent)
    (restored,) = owners.agent.log.of("state.restored", since=mark)
    assert restored["level"] == "warning"
    assert "version 2" in str(restored["error"])
    assert (owners.agent.state_dir / "state.damaged").exists()
    assert {hold["id"] for hold in (await owners.agent.state())["holds"]} == owners.gpus()
    await owners.stand()
    await owners.listed()
    await owners.add("rest", GPUS - 2)
