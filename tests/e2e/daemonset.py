"""The agent as people run it: the image, in a pod of the DaemonSet of deploy/static, over GPUs that it pretends.

daemonset = await deploy(node)                  # config="...": what the ConfigMap holds; gpus="8xH100"
agent = await daemonset.serving()               # the agent that is Ready: .state(), .log.event(...), .pid, .inject(...)
await daemonset.configure("version: v1")        # edits the ConfigMap; None takes the key out
await daemonset.roll_out()                      # as kubectl rollout restart
later = await daemonset.serving(after=agent)    # another pod, or the container started again
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

import trio

from reactor.status.document import Document
from tests.deploy.static import manifests, merged, patch
from tests.e2e.agent import answer
from tests.e2e.api import Object
from tests.e2e.image import agent_archive
from tests.e2e.logs import PATIENCE, AgentLog
from tests.e2e.node import Node

T = TypeVar("T")
NAMESPACE, NAME, KEY = "kube-system", "gpu-reactor", "config.yaml"
_CRI = re.compile(r"^\S+ (?:stdout|stderr) ([FP]) (.*)$")
_loaded: WeakKeyDictionary[Node, Path] = WeakKeyDictionary()


async def deploy(
    node: Node,
    *,
    config: str = "version: v1\nflags: {failOnInitError: false}\n",
    gpus: str | None = "8xH100",
    change: Object | None = None,
) -> DaemonSet:
    """Apply everything, the image first; ``change`` is merged into the DaemonSet. Returns before a pod runs.

    ``gpus``: what to simulate; None: nothing, it looks for a driver.
    """
    archive = await trio.to_thread.run_sync(agent_archive, node.cache)
    if _loaded.get(node) != archive:
        await node.load(archive)
        _loaded[node] = archive
    for thing in manifests():
        if thing["kind"] == "ConfigMap":
            thing["data"] = {KEY: config}
        if thing["kind"] == "DaemonSet":
            simulated = json.loads(json.dumps(patch("simulated")).replace("8xH100", gpus)) if gpus else {}
            thing = merged(merged(thing, simulated), change or {})
        await node.api.apply(thing)
    return DaemonSet(node)


class DaemonSet:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def serving(self, *, after: AgentPod | None = None, within: float = PATIENCE) -> AgentPod:
        """The agent once it is the only one that is Ready; with ``after``, once it is another than that."""

        def look(pods: list[Object]) -> AgentPod | None:
            ready = [each for each in pods if _ready(each)]
            if len(ready) != 1 or (after is not None and _container(ready[0]) == after.container):
                return None
            return AgentPod(self._node, ready[0])

        return await self.until(look, within=within)

    async def until(self, look: Callable[[list[Object]], T | None], *, within: float = PATIENCE) -> T:
        """What this finds among its pods, as soon as it finds something."""
        last: list[Object] = []
        try:
            with trio.fail_after(within):
                while True:
                    async with self._node.api.watch("Pod", namespace=NAMESPACE) as changes:
                        async for _ in changes:
                            last = await self.pods()
                            if (found := look(last)) is not None:
                                return found
        except trio.TooSlowError:
            seen = [(each["metadata"]["name"], each["status"]) for each in last]
            raise AssertionError(f"{within} s in vain for pods of the agent; last: {seen}") from None

    async def pods(self) -> list[Object]:
        """Every pod of it, also those that are about to end."""
        return [each for each in await self._node.api.items("Pod", namespace=NAMESPACE) if _ours(each)]

    async def configure(self, text: str | None) -> None:
        """Edit the ConfigMap through the API; None removes the key."""
        await self._node.api.patch("ConfigMap", NAME, {"data": {KEY: text}}, namespace=NAMESPACE)

    async def change(self, change: Object) -> None:
        """Merge this into the DaemonSet."""
        await self._node.api.patch("DaemonSet", NAME, change, namespace=NAMESPACE)

    async def roll_out(self) -> None:
        """Replace every pod in the way that the DaemonSet says."""
        stamp = {"kubectl.kubernetes.io/restartedAt": str(trio.current_time())}
        await self.change({"spec": {"template": {"metadata": {"annotations": stamp}}}})


class AgentPod:
    """One life of the agent's container."""

    def __init__(self, node: Node, pod: Object) -> None:
        meta, (status,) = pod["metadata"], pod["status"]["containerStatuses"]
        self.name: str = meta["name"]
        self.container = _container(pod)
        self.restarts: int = status["restartCount"]
        logs = node.path("/var/log/pods") / f"{NAMESPACE}_{self.name}_{meta['uid']}" / NAME
        self.log = ContainerLog(logs / f"{self.restarts}.log")
        self.pid = min(self._pids(node))
        """On the machine."""
        self._node = node

    def cgroup(self, controller: str) -> Path:
        """Its cgroup, as seen from outside."""
        return _cgroup(self._node, controller, self.container)

    def _pids(self, node: Node) -> list[int]:
        return [int(word) for word in (_cgroup(node, "memory", self.container) / "cgroup.procs").read_text().split()]

    @property
    def worker(self) -> int:
        """The pid of its NVML worker, on the machine."""
        (found,) = [pid for pid in self._pids(self._node) if b"reactor.nvml.worker" in _command(pid)]
        return found

    @property
    def status(self) -> dict[str, str]:
        """What the kernel says of its main process."""
        return dict(line.split(":\t", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())

    @property
    def mounts(self) -> dict[str, str]:
        """Where something is mounted in it -> ro or rw."""
        lines = [line.split() for line in Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()]
        return {fields[4]: fields[5].split(",")[0] for fields in lines}

    @property
    def admin(self) -> Path:
        return Path(f"/proc/{self.pid}/root/run/gpu-reactor/agent.sock")

    async def state(self) -> Document:
        """The document of ``status``."""
        document: Document = json.loads(await answer(self.admin, "GET", "/debug/state"))
        return document

    async def inject(self, *words: str) -> None:
        """As the command does: ``inject("xid=79", "gpu=3")``."""
        await answer(self.admin, "POST", "/debug/inject", json.dumps(words).encode())

    async def delete(self) -> None:
        await self._node.api.delete("Pod", self.name, namespace=NAMESPACE)

    async def gone(self, *, within: float = PATIENCE) -> None:
        await self._node.gone("Pod", self.name, namespace=NAMESPACE, within=within)

    async def until(self, holds: Callable[[Object], object], *, within: float = PATIENCE) -> Object:
        return await self._node.until("Pod", self.name, holds, namespace=NAMESPACE, within=within)


class ContainerLog(AgentLog):
    """The agent's log as the container runtime keeps it: its lines without what the runtime puts before them."""

    def text(self, since: int = 0) -> str:
        return "".join(f"{line}\n" for line in _joined(super().text(since).splitlines()))

    async def follow(self, since: int = 0) -> AsyncGenerator[str, None]:
        parts: list[str] = []
        async with aclosing(super().follow(since)) as lines:
            async for line in lines:
                parts.append(line)
                for whole in _joined(parts):
                    yield whole
                    parts.clear()


def _joined(lines: list[str]) -> list[str]:
    """Whole lines of those that the runtime has cut into parts; what is not whole yet is left out."""
    whole: list[str] = []
    part = ""
    for line in lines:
        found = _CRI.match(line)
        assert found is not None, line
        part += found[2]
        if found[1] == "F":
            whole.append(part)
            part = ""
    return whole


def _ours(pod: Object) -> bool:
    labels = pod["metadata"].get("labels", {})
    return bool(labels.get("app.kubernetes.io/name") == NAME)


def _ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    statuses = pod["status"].get("containerStatuses", [])
    return ready and len(statuses) == 1 and "running" in statuses[0]["state"]


def _container(pod: Object) -> str:
    (status,) = pod["status"]["containerStatuses"]
    return str(status["containerID"].rpartition("/")[2])


def _cgroup(node: Node, controller: str, container: str) -> Path:
    (found,) = node.world.cgroup_folder(controller).rglob(container)
    return found


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
