"""A real node's kubelet as a kubelet under test. Pods are bound to it by name, past the scheduler."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import trio

from reactor.simulate.kubelet.topology import Policy
from reactor.simulate.kubelet.version import Version
from tests.contract.table.under_test import Counts, PodSeen, Shape, parse_checkpoint
from tests.e2e.api import Object
from tests.e2e.node import PLUGINS, Node
from tests.e2e.settings import BUSYBOX
from tests.e2e.world import HOSTNAME

PATIENCE = 40.0
_numbers = itertools.count(1)
_STUCK = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError"}
_STUCK |= {"PreStartHookError", "ErrImageNeverPull", "ImagePullBackOff", "ErrImagePull"}


class Real:
    dial_timeout = 10.0
    grace = 300.0

    def __init__(self, node: Node, quiet: float = 2.5) -> None:
        self.node = node
        self.quiet = quiet
        self.version = Version.parse(node.version)
        self.directory = node.path(PLUGINS)
        self.pod_resources = node.path("/var/lib/kubelet/pod-resources/kubelet.sock")
        self.registry = node.path("/var/lib/kubelet/plugins_registry")
        self._heard_since = 0

    def name(self, stem: str) -> str:
        return f"{stem}-{next(_numbers)}"

    # ------------------------------------------------------------ pods

    async def run(self, name: str, *shapes: Shape, settled: bool = True) -> PodSeen:
        await self.node.api.create(_manifest(name, shapes))
        return await self.until_pod(name, _settled if settled else lambda pod: True)

    async def until_pod(self, name: str, said: Callable[[PodSeen], bool]) -> PodSeen:
        last = PodSeen(name, "")

        def look(pod: Object) -> bool:
            nonlocal last
            last = _seen(pod)
            return said(last)

        with suppress(AssertionError):
            await self.node.pod(name, look, within=PATIENCE)
        return last

    async def delete(self, name: str) -> None:
        grace = None if self.node.kubelet.alive else 0
        await self.node.delete_pod(name, grace=grace, within=PATIENCE)

    async def environment(self, pod: str, container: str) -> Mapping[str, str]:
        with trio.fail_after(PATIENCE):
            while True:
                with suppress(ValueError, OSError):
                    return (await self.node.inside(pod, container)).environment
                await trio.sleep(0.05)  # after a reboot a pod is Running as before, and then starts

    async def restart_container(self, pod: str, container: str) -> PodSeen:
        inside = await self.node.inside(pod, container)
        before = _restarts(await self.node.api.get("Pod", pod), container)
        os.kill(inside.pid, signal.SIGKILL)

        def again(found: Object) -> bool:
            seen = _seen(found)
            return _stuck(seen) or (_restarts(found, container) > before and seen.phase == "Running")

        return _seen(await self.node.pod(pod, again, within=PATIENCE))

    async def retried(self, pod: str) -> None:
        """It tries again by itself."""

    async def health(self, pod: str) -> Mapping[str, Mapping[str, str]]:
        return _health(await self.node.api.get("Pod", pod))

    async def until_health(self, pod: str, health: Mapping[str, Mapping[str, str]]) -> bool:
        with suppress(AssertionError):
            await self.node.pod(pod, lambda found: _health(found) == health, within=PATIENCE)
            return True
        return False

    # ------------------------------------------------------------ the node

    async def counts(self, resource: str) -> Counts | None:
        return _counts(await self.node.api.get("Node", HOSTNAME), resource)

    async def until_counts(self, resource: str, counts: Counts | None, seconds: float = 0) -> Counts | None:
        def look(node: Object) -> bool:
            return _counts(node, resource) == counts

        with suppress(AssertionError):
            await self.node.until("Node", HOSTNAME, look, within=max(PATIENCE, seconds))
        return await self.counts(resource)

    def checkpoint(self) -> Mapping[str, object]:
        return parse_checkpoint(self.node.checkpoint)

    async def until_checkpoint(self, said: Callable[[Mapping[str, object]], bool]) -> bool:
        with trio.move_on_after(PATIENCE):
            while True:
                if said(self.checkpoint()):
                    return True
                await trio.sleep(0.05)  # the file's directory changes with every list
        return False

    @asynccontextmanager
    async def spec(self, kind: str, names: Mapping[str, Mapping[str, str]]) -> AsyncIterator[None]:
        devices = [
            {"name": name, "containerEdits": {"env": [f"{key}={value}" for key, value in environment.items()]}}
            for name, environment in names.items()
        ]
        path = self.node.folder / "cdi" / f"{kind.replace('/', '-')}.json"
        path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices}))
        try:
            yield
        finally:
            path.unlink()

    # ------------------------------------------------------------ lives

    @property
    def ended(self) -> str | None:
        return None if self.node.kubelet.alive else "the process ended"

    async def until_ended(self) -> bool:
        process = self.node.kubelet.process
        assert process is not None
        with suppress(trio.TooSlowError):
            await process.ended(within=PATIENCE)
            return True
        return False

    async def kill(self) -> None:
        await self.node.kubelet.kill()

    async def stop(self) -> None:
        await self.node.kubelet.stop()

    async def start(self, *, api_silent: bool = False, policy: Policy | None = None) -> None:
        if policy is not None:
            self.node.kubelet.settings["topologyManagerPolicy"] = str(policy)
        if api_silent:
            self.node.apiserver.pause()
        self._heard_since = self.node.kubelet.log.mark()
        self.node.kubelet.start()
        await self.node.kubelet_accepts()
        if not api_silent:
            await self._heard()

    async def _heard(self) -> None:
        """The kubelet has been told its pods; what comes now comes after them. It may end of them."""
        process = self.node.kubelet.process
        assert process is not None
        async with trio.open_nursery() as nursery:

            async def ended() -> None:
                await process.ended(within=2 * PATIENCE)
                nursery.cancel_scope.cancel()

            nursery.start_soon(ended)
            await self.node.kubelet.log.until('SyncLoop ADD" source="api"', since=self._heard_since, within=PATIENCE)
            await self.node.ready()
            nursery.cancel_scope.cancel()

    async def api_answers(self) -> None:
        self.node.apiserver.resume()
        await self._heard()

    async def reboot(self) -> None:
        await self.node.containerd.stop()
        pods = self.node.world.cgroup_folder("memory", "kubepods")
        with trio.fail_after(PATIENCE):
            while pids := [pid for file in pods.rglob("cgroup.procs") for pid in file.read_text().split()]:
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                await trio.sleep(0.02)  # what is killed takes a moment to leave
        mark = self.node.containerd.log.mark()
        self.node.containerd.start()
        await self.node.containerd.log.until("containerd successfully booted", since=mark)


async def two_numa_nodes(node: Node) -> None:
    """Let the kubelet to come see two NUMA nodes, each with half of the machine's cores."""
    nodes = node.folder / "numa"
    cores = range(os.cpu_count() or 1)
    half = (len(cores) + 1) // 2
    for number, mine in enumerate((cores[:half], cores[half:])):
        folder = nodes / f"node{number}"
        (folder / "hugepages").mkdir(parents=True)
        (folder / "meminfo").write_text(f"Node {number} MemTotal:        4194304 kB\n")
        (folder / "cpulist").write_text(",".join(map(str, mine)) + "\n")
        (folder / "distance").write_text("10 20\n" if number == 0 else "20 10\n")
        for core in mine:
            (folder / f"cpu{core}").symlink_to(f"../../cpu/cpu{core}")
    (nodes / "online").write_text("0-1\n")
    await node.run("mount", "--bind", str(nodes), "/sys/devices/system/node")


def _manifest(name: str, shapes: tuple[Shape, ...]) -> Object:
    def container(shape: Shape) -> Object:
        runs_on = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
        ends = shape.finishes or shape.kind == "init"
        return {
            "name": shape.name,
            "image": shape.image or BUSYBOX,
            "imagePullPolicy": "Never" if not shape.image else "IfNotPresent",
            "command": ["sh", "-c", "exit 0" if ends else runs_on],
            "resources": {"limits": {each: str(count) for each, count in shape.limits.items()}},
            **({"restartPolicy": "Always"} if shape.kind == "sidecar" else {}),
        }

    spec = {
        "nodeName": HOSTNAME,
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Never" if any(each.finishes for each in shapes) else "Always",
        "initContainers": [container(each) for each in shapes if each.kind != "app"],
        "containers": [container(each) for each in shapes if each.kind == "app"],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _settled(pod: PodSeen) -> bool:
    return pod.phase in ("Running", "Failed", "Succeeded") or _stuck(pod)


def _stuck(pod: PodSeen) -> bool:
    return bool(_STUCK & set(pod.waiting.values()))


def _seen(pod: Object) -> PodSeen:
    status = pod["status"]
    apps = status.get("containerStatuses", ())
    statuses = [*status.get("initContainerStatuses", ()), *apps]
    waiting = {
        each["name"]: each["state"]["waiting"].get("reason", "") for each in statuses if "waiting" in each["state"]
    }
    phase = status["phase"]
    if phase == "Running" and not all(each["started"] for each in apps):
        phase = "Starting"
    return PodSeen(pod["metadata"]["name"], phase, status.get("reason", ""), status.get("message", ""), waiting)


def _restarts(pod: Object, container: str) -> int:
    (found,) = (each["restartCount"] for each in pod["status"]["containerStatuses"] if each["name"] == container)
    return int(found)


def _health(pod: Object) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for container in pod["status"].get("containerStatuses", ()):
        for each in container.get("allocatedResourcesStatus", ()):
            found.setdefault(each["name"], {}).update({one["resourceID"]: one["health"] for one in each["resources"]})
    return found


def _counts(node: Object, resource: str) -> Counts | None:
    status = node["status"]
    if resource not in status.get("capacity", {}):
        return None
    return int(status["capacity"][resource]), int(status["allocatable"][resource])
