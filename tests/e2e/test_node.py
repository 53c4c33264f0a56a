"""The node of the tests itself: its parts stop, pause and come back, it is cleaned, and it leaves a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e import build
from tests.e2e.api import Away
from tests.e2e.build import built
from tests.e2e.bundle import keep
from tests.e2e.node import GPU, Node, container_of, phase
from tests.e2e.world import HOSTNAME, NotHere


async def test_a_container_writes_sees_and_ends_as_told(node: Node):
    greeting = [{"name": "GREETING", "value": "hello"}]
    await node.create_pod("brief", containers=[container_of("c", command="echo $GREETING; exit 3", env=greeting)])
    await node.pod("brief", lambda pod: phase(pod) == "Failed")
    assert await node.logs("brief") == "hello\n"


async def test_waiting_outlasts_an_api_server_that_restarts(node: Node):
    await node.run_pod("one")
    await node.apiserver.kill()
    with pytest.raises(Away):
        await node.api.get("Node", HOSTNAME)
    node.apiserver.start()
    await node.running("one")


async def test_pods_run_on_while_every_part_restarts(node: Node):
    await node.run_pod("one")
    before = (await node.inside("one")).pid
    for part in node.parts:
        await part.kill()
    await node.start()
    await node.run_pod("two")
    await node.running("one")
    assert (await node.inside("one")).pid == before


async def test_a_reboot_ends_containers_and_leaves_pods_to_the_kubelet(node: Node):
    await node.run_pod("one", restartPolicy="Always")
    before = await node.inside("one")
    boot = (await node.api.get("Node", HOSTNAME))["status"]["nodeInfo"]["bootID"]
    await node.reboot()
    await node.until("Node", HOSTNAME, lambda thing: thing["status"]["nodeInfo"]["bootID"] != boot)
    await node.pod("one", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)
    await node.running("one")
    assert (await node.inside("one")).pid != before.pid


async def test_a_paused_api_server_keeps_its_connections_and_answers_later(node: Node):
    await node.run_pod("one")
    node.apiserver.pause()
    mark = node.kubelet.log.mark()
    await node.kubelet.restart()
    await node.kubelet.log.until("Starting kubelet main sync loop", since=mark)
    node.apiserver.resume()
    await node.run_pod("two")
    await node.running("one")


async def test_the_kubelet_takes_other_settings_at_its_next_start(node: Node):
    await node.kubelet.restart(maxPods=7)
    await node.until("Node", HOSTNAME, lambda thing: thing["status"]["capacity"]["pods"] == "7")
    await node.clean()
    await node.until("Node", HOSTNAME, lambda thing: thing["status"]["capacity"]["pods"] == "110")


async def test_a_bundle_has_all_that_explains_a_failure(node: Node, tmp_path: Path):
    agent = await node.start_agent("2xH100")
    await node.resource(GPU, allocatable=2)
    await node.run_pod("one", {GPU: 1})
    folder = await keep(node, "a test[1.37]", tmp_path)
    assert folder == tmp_path / "a_test_1.37-1"
    for part in node.parts:
        assert (folder / "log" / part.name).exists()
    kept = (folder / agent.folder.name / "log").read_text()
    assert '"agent.started"' in kept
    assert agent.log.text().startswith(kept)  # it goes on
    for name in ("journal", "state", "config"):
        assert (folder / agent.folder.name / name).exists()
    assert "nvidia.com/gpu" in (folder / "kubelet_internal_checkpoint").read_text()
    (pod,) = json.loads((folder / "pods.json").read_text())
    assert pod["metadata"]["name"] == "one"
    assert any(each.name.startswith("default_one_") for each in (folder / "pods").iterdir())  # among earlier ones
    assert {"nodes.json", "events.json", "parts.json", "kubelet.json"} <= {each.name for each in folder.iterdir()}


def test_parts_that_are_not_built_are_named(tmp_path: Path):
    with pytest.raises(NotHere, match=r"not built yet: kubelet-1\.29, kubernetes-1\.34, .*; make node builds"):
        built("1.29", tmp_path)


def test_go_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotHere, match=r"install Go >= 1.26"):
        build.build(["cni"], tmp_path)


async def test_what_makes_pods_is_gone_before_the_next_test(node: Node):
    template = {"metadata": {"labels": {"app": "many"}}, "spec": {"containers": [container_of()]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "many"}}, "template": template}
    await node.api.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many"}, "spec": spec})
    await node.until("Deployment", "many", lambda thing: thing["status"].get("readyReplicas") == 2)
    await node.clean()
    for kind in ("Deployment", "ReplicaSet", "Pod"):
        assert await node.api.items(kind) == []
