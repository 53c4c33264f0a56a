"""The agent as people run it, in the DaemonSet of deploy/static: its rights, its config, and the gaps of its lives."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
import trio

from tests.deploy.static import merged, patch
from tests.e2e import cgroups
from tests.e2e.api import Object
from tests.e2e.daemonset import NAME, NAMESPACE, AgentPod, deploy
from tests.e2e.logs import PATIENCE
from tests.e2e.node import GPU, PLUGINS, Node

SEVEN = "version: v1\nflags: {failOnInitError: false}\nselect: {exclude: {indices: [7]}}\n"
BROKEN = "version: v1\nselect: {exclude: {indexes: [6]}}\n"
HOG = """
import os
file = os.memfd_create("hog")
while True:
    os.write(file, bytes(1 << 16))
"""
"""Fills the memory of a cgroup with pages that count for it and not for this process: another one is killed first."""
FREEZES = pytest.mark.skipif(
    cgroups.unified(), reason="in cgroup v2 what is frozen can be killed: nothing stands for a call stuck in the kernel"
)
STREAM_LOST = r"ListAndWatch ended|[Ee]ndpoint became unhealthy|[Ee]ndpoint stopped"
LISTED = r"State pushed for device plugin"


def moment(line: str) -> float:
    """When the kubelet wrote this line."""
    found = re.match(r"[IWE]\d{4} (\S+)", line)
    assert found is not None, line
    return datetime.strptime(found[1], "%H:%M:%S.%f").timestamp()


async def gap(node: Node, mark: int) -> float:
    """How long the kubelet had no list of ours."""
    lost = await node.kubelet.log.until(STREAM_LOST, since=mark)
    since = mark + node.kubelet.log.text(mark).index(lost)
    return (moment(await node.kubelet.log.until(LISTED, since=since)) - moment(lost)) % 86400


async def holding_two(node: Node) -> set[str]:
    """A pod ``two`` that runs; what it holds."""
    await node.resource(GPU, allocatable=8, capacity=8)
    await node.run_pod("two", {GPU: 2})
    return (await node.podresources.held(GPU))["two"]


async def knows(agent: AgentPod, held: set[str]) -> None:
    """Wait until the agent holds these and no other ids: what pods of the test before had is free."""
    with trio.fail_after(PATIENCE):
        while True:
            if {hold["id"] for hold in (await agent.state())["holds"]} == held:
                return
            await trio.sleep(0.05)  # it tells of changes only


async def untouched(node: Node, held: set[str]) -> None:
    """The pod has what it had and never noticed, and others find the rest."""
    assert (await node.podresources.held(GPU))["two"] == held
    (status,) = (await node.api.get("Pod", "two"))["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    await node.run_pod("six", {GPU: 6})
    assert not (await node.podresources.held(GPU))["six"] & held


async def test_it_serves_with_no_rights_but_those_of_its_user(node: Node):
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    await holding_two(node)
    rights = ("CapEff", "CapPrm", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    assert [int(agent.status[name], 16) for name in rights] == [0, 0, 0, 0, 1, 2]
    mounts = agent.mounts
    assert mounts["/"] == "ro"
    assert not any("serviceaccount" in place for place in mounts)
    theirs = ("/proc", "/dev", "/sys", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf")  # of kernel and kubelet
    assert {place for place, mode in mounts.items() if mode == "rw" and not place.startswith(theirs)} == {
        "/var/lib/kubelet/device-plugins",
        "/var/lib/gpu-reactor",
        "/run/gpu-reactor",
        "/tmp",
    }


async def test_the_patches_are_what_kubectl_would_make_of_them(node: Node):
    """The API server merges them as the tests do, and takes what comes of it."""
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    here = await node.api.get("DaemonSet", NAME, namespace=NAMESPACE)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{NAME}?dryRun=All"
    kind = "application/strategic-merge-patch+json"
    for name in ("simulated", "driver-root"):
        made = json.loads(await node.api.request("PATCH", path, patch(name), kind=kind))
        wanted = merged(here, patch(name))
        template = made["spec"]["template"]["spec"]
        expected = wanted["spec"]["template"]["spec"]
        for key in ("volumes", "containers"):
            assert {each["name"] for each in template[key]} == {each["name"] for each in expected[key]}
        (container,), (other,) = template["containers"], expected["containers"]
        for key in ("args", "securityContext"):
            assert container[key] == other[key]
        assert {each["name"] for each in container["volumeMounts"]} >= {
            each["name"] for each in patch(name)["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        }
    assert agent.restarts == 0


async def test_without_the_nvidia_runtime_the_driver_is_looked_for_below_its_root(node: Node):
    """DRV-01: it is not there at first. What comes then is no library, but it is the one that is tried."""
    root = node.folder / "driver"
    (root / "usr" / "lib64").mkdir(parents=True)
    (root / "dev").mkdir()
    place = {"spec": {"template": {"spec": {"volumes": [{"name": "driver-root", "hostPath": {"path": str(root)}}]}}}}
    daemonset = await deploy(node, gpus=None, change=merged(patch("driver-root"), place))
    agent = await daemonset.serving()
    missing = await agent.log.event("inventory.failed")
    assert "libnvidia-ml.so.1: cannot open shared object file" in str(missing["error"])
    seen = agent.log.mark()
    (root / "usr" / "lib64" / "libnvidia-ml.so.1").write_text("no library")
    tried = await agent.log.event("inventory.failed", since=seen)
    assert "/driver-root/usr/lib64/libnvidia-ml.so.1: file too short" in str(tried["error"])
    assert agent.mounts["/driver-root"] == "ro"
    assert (await daemonset.serving()).container == agent.container


async def test_applied_before_the_kubelet_is_up(node: Node):
    await node.kubelet.stop()
    daemonset = await deploy(node)
    node.kubelet.start()
    await daemonset.serving()
    await node.resource(GPU, allocatable=8, capacity=8)


async def test_an_edit_of_the_config_map_applies_live(node: Node):
    """CFG-30. The stream of a resource that stays is not closed, and no pod notices."""
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    held = await holding_two(node)
    mark, seen = node.kubelet.log.mark(), agent.log.mark()
    await daemonset.configure(SEVEN)
    await agent.log.event("config.applied", since=seen)
    excluded = next(gpu["uuid"] for gpu in (await agent.state())["gpus"] if gpu["index"] == 7)
    left = 8 if excluded in held else 7
    await node.resource(GPU, allocatable=7, capacity=left)
    assert node.kubelet.log.find(STREAM_LOST, mark) == []
    assert (await node.podresources.held(GPU))["two"] == held
    assert (await daemonset.serving()).container == agent.container


async def test_a_faulty_edit_changes_nothing_and_shows(node: Node):
    daemonset = await deploy(node, config=SEVEN)
    agent = await daemonset.serving()
    await node.resource(GPU, allocatable=7, capacity=7)
    mark = node.kubelet.log.mark()
    seen = agent.log.mark()
    await daemonset.configure(BROKEN)
    told = await agent.log.event("config.rejected", since=seen)
    assert "indexes" in json.dumps(told)
    await shows_rejected(agent)
    for text in (None, ""):
        seen = agent.log.mark()
        await daemonset.configure(text)
        await agent.log.event("config.rejected", since=seen)
    seen = agent.log.mark()
    await daemonset.configure(SEVEN)
    await agent.log.event("config.read", since=seen)
    seen = agent.log.mark()
    await node.api.delete("ConfigMap", NAME, namespace=NAMESPACE)
    await agent.log.event("config.rejected", since=seen)
    await shows_rejected(agent)
    assert await node.counts(GPU) == (7, 7)
    assert node.kubelet.log.find(STREAM_LOST, mark) == []
    assert (await daemonset.serving()).container == agent.container


async def shows_rejected(agent: AgentPod) -> None:
    assert (await agent.state())["config"]["rejected"] is not None


async def test_what_was_accepted_last_serves_on_over_restarts_and_a_reboot(node: Node):
    """Broken, then the agent is restarted, then the node is rebooted; and all again without a ConfigMap."""
    daemonset = await deploy(node, config=SEVEN)
    agent = await daemonset.serving()
    await node.resource(GPU, allocatable=7, capacity=7)
    await daemonset.configure(BROKEN)
    await agent.log.event("config.rejected")
    await agent.delete()
    agent = await daemonset.serving(after=agent)
    await shows_rejected(agent)
    await node.resource(GPU, allocatable=7, capacity=7)
    await node.api.delete("ConfigMap", NAME, namespace=NAMESPACE)
    await node.reboot()
    agent = await daemonset.serving(after=agent)
    await node.resource(GPU, allocatable=7, capacity=7)


async def test_a_rolling_update_has_the_next_agent_waiting_when_the_last_one_ends(node: Node):
    """No moment at which the node has no GPU: the kubelet is without a list for less than a second."""
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    held = await holding_two(node)
    mark = node.kubelet.log.mark()
    await daemonset.roll_out()
    later = await daemonset.serving(after=agent)
    assert later.name != agent.name
    assert await gap(node, mark) < 1.5
    await untouched(node, held)


async def test_an_update_that_does_not_start_leaves_the_agent_serving(node: Node):
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    held = await holding_two(node)
    mark = node.kubelet.log.mark()
    wrong = {"name": NAME, "args": ["run", "--no-such-flag"]}
    await deploy(node, change={"spec": {"template": {"spec": {"containers": [wrong]}}}})
    assert await daemonset.until(lambda pods: next(filter(None, map(ended_with, pods)), None)) == 78
    assert node.kubelet.log.find(STREAM_LOST, mark) == []
    await untouched(node, held)
    await deploy(node)  # the old version again
    await daemonset.until(lambda pods: [each["metadata"]["name"] for each in pods] == [agent.name] or None)
    assert node.kubelet.log.find(STREAM_LOST, mark) == []


def ended_with(pod: Object) -> int | None:
    """The exit code of its container, if that has ended."""
    ended = [last_state(pod).get("terminated")] if pod["status"].get("containerStatuses") else []
    return next((int(each["exitCode"]) for each in ended if each), None)


async def test_a_deleted_pod_is_replaced(node: Node):
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    held = await holding_two(node)
    mark = node.kubelet.log.mark()
    await agent.delete()
    await daemonset.serving(after=agent, within=15)
    assert await gap(node, mark) < 15
    await node.resource(GPU, allocatable=8, capacity=8)
    await untouched(node, held)


async def test_a_killed_agent_starts_again_in_its_pod(node: Node):
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    held = await holding_two(node)
    mark = node.kubelet.log.mark()
    os.kill(agent.pid, signal.SIGKILL)
    later = await daemonset.serving(after=agent)
    assert (later.name, later.restarts) == (agent.name, 1)
    assert await gap(node, mark) < 5
    await node.resource(GPU, allocatable=8, capacity=8)
    await untouched(node, held)


async def test_a_plugin_directory_that_is_made_anew_is_served_again(node: Node):
    """The container's mount goes on showing the old one, so that only another start helps. The checkpoint was in it."""
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    held = await holding_two(node)
    await knows(agent, held)
    await node.kubelet.stop()
    shutil.rmtree(node.path(PLUGINS))
    mark, seen = node.kubelet.log.mark(), agent.log.mark()
    node.kubelet.start()
    await agent.log.event("plugin.stranded", since=seen)
    await node.kubelet.log.until(LISTED, since=mark)
    later = await daemonset.serving(after=agent)
    assert (later.name, later.restarts) == (agent.name, 1)
    assert last_state(await later.until(bool))["terminated"]["exitCode"] == 1
    await node.podresources.shows(GPU, lambda ids: len(ids) == 8)
    await node.run_pod("six", {GPU: 6})
    assert not (await node.podresources.held(GPU))["six"] & held


async def test_an_agent_that_is_out_of_memory_starts_again_in_its_pod(node: Node):
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    held = await holding_two(node)
    mark = node.kubelet.log.mark()
    top = cgroups.ROOT if cgroups.unified() else cgroups.ROOT / "memory"
    group = top / agent.cgroup("memory").relative_to(node.world.cgroup_folder("memory"))
    with (node.folder / "log" / "hog").open("wb") as out:
        node.world.start([sys.executable, "-c", HOG], stdout=out.fileno(), groups=[group])
    killed = await agent.until(lambda pod: "terminated" in last_state(pod))
    assert last_state(killed)["terminated"]["reason"] == "OOMKilled"
    await daemonset.serving(after=agent)
    assert await gap(node, mark) < 15
    await node.resource(GPU, allocatable=8, capacity=8)
    await untouched(node, held)


def last_state(pod: Object) -> Object:
    (status,) = pod["status"]["containerStatuses"]
    found: Object = status["lastState"] or status["state"]
    return found


@contextmanager
def stuck(agent: AgentPod) -> Iterator[None]:
    """Freeze its worker, which stands for a call that never returns: no signal reaches it, and no container ends."""
    group = agent.cgroup("freezer") / "stuck"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(agent.worker))
    (group / "freezer.state").write_text("FROZEN")
    try:
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")


@FREEZES
async def test_a_deleted_pod_is_replaced_while_its_worker_is_stuck_in_the_kernel(node: Node):
    """OBS-04. The agent serves on; its container cannot end, so the next one serves beside it."""
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    held = await holding_two(node)
    with stuck(agent):
        await untouched(node, held)
        await node.delete_pod("six")
        mark = node.kubelet.log.mark()
        await agent.delete()
        await daemonset.serving(after=agent)
        assert await gap(node, mark) < 15
        await node.resource(GPU, allocatable=8, capacity=8)
        await untouched(node, held)
        assert agent.name in {each["metadata"]["name"] for each in await daemonset.pods()}
    await agent.gone()


@FREEZES
async def test_deleting_the_pod_helps_an_agent_that_was_killed_while_its_worker_is_stuck(node: Node):
    """Its container cannot start again, for it has not ended."""
    daemonset = await deploy(node)
    agent = await daemonset.serving()
    held = await holding_two(node)
    with stuck(agent):
        mark = node.kubelet.log.mark()
        os.kill(agent.pid, signal.SIGKILL)
        await node.kubelet.log.until(STREAM_LOST, since=mark)
        await agent.delete()
        await daemonset.serving(after=agent)
        assert await gap(node, mark) < 15
        await node.resource(GPU, allocatable=8, capacity=8)
        await untouched(node, held)
        assert agent.name in {each["metadata"]["name"] for each in await daemonset.pods()}
    await agent.gone()
