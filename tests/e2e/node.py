"""A whole Kubernetes node for tests: etcd, API server, controllers, scheduler, containerd and a real kubelet.

A test takes the fixture ``node`` (one running node per version, shared by the tests that take it; cleaned after each)
or makes one of its own with the fixture ``make_node`` and ``await node.up()``; ``conftest.py`` has both. Then:

    agent = await node.start_agent("8xH100")              # a process in the node, over simulated GPUs (agent.py)
    await node.resource(GPU, allocatable=8)                # waits for the Node object to say so
    await node.run_pod("two", {GPU: 2})                    # creates it, waits until it is Running
    await node.create_pod("nine", {GPU: 9}); await node.pod("nine", lambda pod: "Insufficient" in reason(pod))
    seen = await node.inside("two")                        # its main process: seen.environment, .devices, .mounts
    await node.kubelet.restart(); await node.kubelet.log.until("regex", since=node.kubelet.begun)
    await node.delete_pod("two")                           # waits until it is gone from the API
    await agent.gpus("xid", 3, 79)                         # any action of simulate.nvml.host
    await agent.event("xid.reported", xid=79)              # a line of its log; agent.log, agent.state(), agent.inject()
    agent.write_config(text); await agent.kill(); agent.start()
    await node.until("ConfigMap", "name", predicate)       # any object, by watching; ``node.api`` for everything else

Parts: ``node.etcd, .apiserver, .controllers, .scheduler, .containerd, .kubelet``; each has ``start``, ``stop``,
``kill``, ``restart``, ``pause``, ``resume``, ``alive`` and ``log``; ``node.start()`` starts all that do not run, in the
right order, and ``node.reboot()`` takes the node (not the control plane) down and up. ``node.kubelet.restart(
topologyManagerPolicy=...)`` restarts it with other fields of its config; ``node.upgrade("1.37")`` takes the kubelet of
another version on its next start. ``node.podresources`` lists who holds what, ``node.checkpoint`` is the kubelet's
file. Times run out with an AssertionError that shows what was seen last.

A node is not bound to an event loop: start it in one test, use it in the next.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

import trio

from tests.e2e import settings
from tests.e2e.agent import Agent, Gpus
from tests.e2e.api import Api, Away, Object
from tests.e2e.build import CONTROL_PLANES, KUBELETS, built
from tests.e2e.busybox import busybox_archive
from tests.e2e.image import default_cache
from tests.e2e.logs import PATIENCE, Log
from tests.e2e.part import Kubelet, Part, which
from tests.e2e.podresources import PodResources
from tests.e2e.pods import GPU, SLEEP, Inside, Limits, container_of, count_of, health, phase, pod_of, reason
from tests.e2e.world import HOSTNAME, NotHere, World, need

__all__ = ["GPU", "PLUGINS", "Node", "container_of", "count_of", "health", "phase", "pod_of", "reason"]

STATE = "/var/lib/gpu-reactor"
"""Where an agent of a DaemonSet keeps its state."""
PLUGINS = "/var/lib/kubelet/device-plugins"
"""The kubelet's device plugin directory, as the node sees it; ``node.path(PLUGINS)`` from outside."""
GATES = {"ResourceHealthStatus": True}
_GATES_SINCE = {"ResourceHealthStatus": 31}

_REBOOT = """
umount -l /run && mount -t tmpfs tmpfs /run
grep -o ' /var/lib/kubelet/pods/[^ ]*' /proc/mounts | xargs -r umount -l
mount --bind {boot} /proc/sys/kernel/random/boot_id
"""
"""What a boot finds otherwise than the node before it left it."""

Predicate = Callable[[Object], object]


def need_all(versions: Iterable[str]) -> None:
    """Raise NotHere with the first thing that this machine lacks for nodes of these versions."""
    need()
    for version in versions:
        built(version, default_cache())
    busybox_archive(default_cache())
    if shutil.which("openssl") is None:
        raise NotHere("openssl, which makes the key of service accounts, is missing: apt-get install openssl")


class Node:
    """Its world is made by the constructor, its parts are started by ``up``; ``close`` ends all of it."""

    def __init__(
        self, version: str, *, gates: Mapping[str, bool] = GATES, verbosity: int = 4, cache: Path | None = None
    ):
        self.cache = cache or default_cache()
        self.version = version
        """Of the kubelet, such as 1.34."""
        self._version = version
        self.control_plane = CONTROL_PLANES[version]
        self.gates = dict(gates)
        self.agents: list[Agent] = []
        self.gpus: list[Gpus] = []
        self._numbers = count(1)
        folders = built(version, self.cache)
        self._common = [str(folders[each]) for each in folders if not each.startswith("kube")]
        self._control_path = ":".join([str(folders[self.control_plane]), *self._common, os.environ["PATH"]])
        self._plugins = folders["cni"]
        self.world = World()
        self.folder = self.world.folder
        self._lay_out()
        self.api = Api(self.world.inside, settings.ADMIN)
        self.podresources = PodResources(self.path("/var/lib/kubelet/pod-resources/kubelet.sock"))
        work = self.folder

        def part(name: str, argv: Callable[[], Sequence[str]]) -> Part:
            return Part(self.world, name, argv, lambda: self._control_path)

        self.etcd = part("etcd", lambda: settings.etcd(work))
        self.apiserver = part("apiserver", lambda: settings.apiserver(work, self._gates(self.control_plane)))
        self.controllers = part("controller-manager", lambda: settings.controller_manager(work))
        self.scheduler = part("scheduler", lambda: settings.scheduler(work))
        self.containerd = part("containerd", lambda: ("containerd", "-c", f"{work}/containerd.toml"))
        self.kubelet = Kubelet(
            self.world, lambda: settings.kubelet(work, verbosity), self._kubelet_path, self._write_kubelet_config
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.etcd, self.apiserver, self.controllers, self.scheduler, self.containerd, self.kubelet)

    @property
    def checkpoint(self) -> Path:
        return self.path(f"{PLUGINS}/kubelet_internal_checkpoint")

    def path(self, inner: str) -> Path:
        """A file below /var/lib/kubelet, /var/lib/gpu-reactor or /var/log/pods of the node, as seen from outside."""
        return self.world.path(inner)

    # ------------------------------------------------------------ life

    async def up(self, *, kubelet: bool = True) -> None:
        """Start everything and wait for a Node that takes pods. ``kubelet=False``: all but the kubelet."""
        archive = await trio.to_thread.run_sync(busybox_archive, self.cache)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._start_control_plane)
            await self._start_runtime()
            await self.load(archive)
        if kubelet:
            self.kubelet.start()
            await self.ready()

    async def start(self) -> None:
        """Start every part that does not run, the kubelet once the others serve: without containerd it would exit."""
        await self._start_runtime()
        await self._start_control_plane()
        if not self.kubelet.alive:
            self.kubelet.start()

    async def _start_runtime(self) -> None:
        if not self.containerd.alive:
            self.containerd.start()
        await self.containerd.log.until("containerd successfully booted", since=self.containerd.begun)

    async def _start_control_plane(self) -> None:
        for part in (self.etcd, self.apiserver):
            if not part.alive:
                part.start()
        await self.api_ready()
        for part in (self.controllers, self.scheduler):
            if not part.alive:
                part.start()

    async def reboot(self, *first: Agent) -> None:
        """The node goes down hard and comes up again: no container, an empty /run, a new boot id.

        The control plane stays, as it would elsewhere. ``first``: agents that are there before the kubelet is.
        """
        for agent in self.agents:
            if agent.alive:
                await agent.kill()
        await self.kubelet.kill()
        await self.containerd.kill()
        staying = {part.process.inner for part in self.parts if part.alive and part.process is not None}
        staying |= {gpus.process.inner for gpus in self.gpus}
        await self.world.end_others(staying)
        boot = self.folder / "boot_id"
        boot.write_text(f"{uuid4()}\n")
        await self.run("sh", "-c", _REBOOT.format(boot=boot))
        for agent in first:
            agent.start()
        await self.start()
        await self.kubelet.log.until("Successfully registered node", since=self.kubelet.begun)

    async def api_ready(self, *, within: float = 60) -> None:
        """Wait until the API server answers and calls itself ready."""
        with _patience(within, lambda: f"the API server is not ready:\n{_tail(self.apiserver.log)}"):
            while not await self.api.ready():
                assert self.apiserver.alive, f"the API server ended:\n{_tail(self.apiserver.log)}"
                await trio.sleep(0.05)  # nothing tells when a port opens

    async def ready(self, *, within: float = 60) -> None:
        """Wait until the Node is Ready and free of taints, and pods find their service account."""
        await self.until("Node", HOSTNAME, _takes_pods, within=within)
        await self.until("ServiceAccount", "default", bool, within=within)

    async def kubelet_accepts(self, *, within: float = PATIENCE) -> None:
        """Wait until a kubelet that was started takes registrations: it has swept its directory of sockets by then."""
        with trio.fail_after(within):
            while True:
                with suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
                    peer.connect(str(self.path(f"{PLUGINS}/kubelet.sock")))
                    return
                await trio.sleep(0.02)  # nothing tells when a socket begins to accept

    def close(self, *, keep: bool = False) -> None:
        """End every process, mount and cgroup of it; ``keep`` leaves the folder."""
        self.world.close(keep=keep)

    async def clean(self) -> None:
        """Make it fit for another test: no agent, no pod, no object of a test, every part running as it did."""
        died = [part.name for part in self.parts if part.wanted and not part.alive]
        assert not died, f"ended without being told to: {', '.join(died)}"
        for part in self.parts:
            if part.process is not None:
                part.resume()
        await self.start()
        await self.end_agents()
        await self._clean_objects()
        if self.kubelet.settings or self.version != self._version:
            self.kubelet.settings.clear()
            self.version = self._version
            await self.kubelet.restart()
        for each in self.path(STATE).iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        # A kubelet that lost its checkpoint shows what it does not know any more as allocatable, for ever.
        others = {name: None for name in await self.counted() if not name.startswith("nvidia.com/")}
        status = {"status": {"capacity": others, "allocatable": others}}
        await self.api.patch("Node", HOSTNAME, status, sub="status")
        # Else the next test takes what the Node says of the last agent for its own.
        await self.until("Node", HOSTNAME, lambda node: _takes_pods(node) and not _offers_devices(node))
        for each in (*self.agents, *self.gpus):
            shutil.rmtree(each.folder)
        self.agents.clear()
        self.gpus.clear()

    async def end_agents(self) -> None:
        """End every agent; one that complained, or does not end well, fails the test."""
        for agent in self.agents:
            await agent.away()
        for gpus in self.gpus:
            await gpus.end()

    async def _clean_objects(self) -> None:
        """Delete what tests make, in every namespace: first what makes pods, so that no pod comes after."""
        for kinds in (("DaemonSet", "Deployment", "Job"), ("ReplicaSet",), ("Pod",)):
            found = [(kind, each["metadata"]) for kind in kinds for each in await self.api.items(kind, namespace="")]
            for kind, meta in found:
                # A second is enough for containers that mind TERM. Forced, a pod would be gone before its containers.
                grace = 1 if kind == "Pod" else None
                await self.api.delete(kind, meta["name"], namespace=meta["namespace"], grace=grace)
            for kind, meta in found:
                await self.gone(kind, meta["name"], namespace=meta["namespace"])

    def upgrade(self, version: str) -> None:
        """From its next start on the kubelet is of this version; the control plane stays, and may not be older."""
        built(version, self.cache)
        self.version = version

    async def upgrade_control_plane(self, version: str) -> None:
        """Go on with the control plane of another version over the same etcd, and wait until it serves."""
        folders = built(version, self.cache)
        for part in (self.scheduler, self.controllers, self.apiserver):
            await part.kill()  # asked to end, an API server waits for its watches
        self.control_plane = CONTROL_PLANES[version]
        self._control_path = ":".join([str(folders[self.control_plane]), *self._common, os.environ["PATH"]])
        await self._start_control_plane()

    async def load(self, archive: Path) -> None:
        """Import the images of a docker or OCI archive into containerd."""
        await self.run("ctr", "-a", f"{self.folder}/containerd.sock", "-n", "k8s.io", "images", "import", str(archive))

    async def run(self, *argv: str, within: float = PATIENCE) -> str:
        """Run a command in the node, with the parts' programs in its PATH: what it wrote."""
        out = self.folder / "log" / "commands"
        with out.open("ab") as log:
            begin = log.tell()
            environment = {"PATH": self._control_path, "KUBECONFIG": f"{self.folder}/admin.kubeconfig"}
            program = which(argv[0], self._control_path)
            process = self.world.start([program, *argv[1:]], stdout=log.fileno(), environment=environment)
        code = await process.ended(within=within)
        text = out.read_bytes()[begin:].decode(errors="replace")
        assert code == 0, f"{' '.join(argv)} ended with {code}: {text}"
        return text

    # ------------------------------------------------------------ the API, by watching

    async def until(
        self, kind: str, name: str, holds: Predicate, *, namespace: str = "default", within: float = PATIENCE
    ) -> Object:
        """The object as soon as this holds of it. An API server that goes away meanwhile is waited for."""
        last: Object | None = None

        def told() -> str:
            return f"{within} s in vain for {kind} {name}; last seen: {_brief(last)}"

        with _patience(within, told):
            while True:
                with suppress(Away):
                    async with self.api.watch(kind, name, namespace=namespace) as changes:
                        async for what, last in changes:
                            if what != "DELETED" and holds(last):
                                return last
                await trio.sleep(0.05)  # it restarts, or ended a long watch

    async def gone(self, kind: str, name: str, *, namespace: str = "default", within: float = PATIENCE) -> None:
        """Wait until there is no such object."""
        with _patience(within, lambda: f"{kind} {name} is still there after {within} s"):
            while True:
                with suppress(Away):
                    async with self.api.watch(kind, name, namespace=namespace) as changes:
                        # Looked for once it is watched: of what went before that, a watch says nothing.
                        if await self.api.find(kind, name, namespace=namespace) is None:
                            return
                        async for what, _ in changes:
                            if what == "DELETED":
                                return
                await trio.sleep(0.05)

    async def resource(
        self, name: str = GPU, *, allocatable: int, capacity: int | None = None, within: float = PATIENCE
    ) -> Object:
        """Wait until the Node object says so of a resource; a resource that is not there counts as 0."""

        def holds(node: Object) -> bool:
            now = count_of(node, name)
            return now[1] == allocatable and capacity in (None, now[0])

        return await self.until("Node", HOSTNAME, holds, within=within)

    async def counted(self) -> list[str]:
        """Resources of device plugins that the Node has ever had."""
        return [name for name in (await self.api.get("Node", HOSTNAME))["status"]["capacity"] if "/" in name]

    async def counts(self, name: str = GPU) -> tuple[int, int]:
        """(capacity, allocatable) of a resource, now."""
        return count_of(await self.api.get("Node", HOSTNAME), name)

    # ------------------------------------------------------------ pods

    async def create_pod(self, name: str, limits: Limits = None, *, command: str = SLEEP, **spec: object) -> Object:
        """A pod of one busybox container ``c`` that runs ``command`` (shell); ``spec`` over what ``pod_of`` says."""
        return await self.api.create(pod_of(name, limits, command=command, **spec))

    async def run_pod(self, name: str, limits: Limits = None, *, command: str = SLEEP, **spec: object) -> Object:
        """The same, and wait until it is Running."""
        await self.create_pod(name, limits, command=command, **spec)
        return await self.running(name)

    async def pod(self, name: str, holds: Predicate, *, within: float = PATIENCE) -> Object:
        return await self.until("Pod", name, holds, within=within)

    async def running(self, name: str, *, within: float = PATIENCE) -> Object:
        """Wait until it is Running and every container of it is ready."""

        def runs(pod: Object) -> bool:
            assert phase(pod) != "Failed", f"{name} failed: {reason(pod)}"
            return phase(pod) == "Running" and all(each["ready"] for each in pod["status"]["containerStatuses"])

        return await self.pod(name, runs, within=within)

    async def delete_pod(self, name: str, *, grace: int | None = None, within: float = PATIENCE) -> None:
        """Delete it and wait until it is gone from the API. ``grace=0``: forced, whatever the kubelet does."""
        await self.api.delete("Pod", name, grace=grace)
        await self.gone("Pod", name, within=within)

    async def inside(self, pod: str, container: str = "c") -> Inside:
        """What a running container of a pod sees, read from its main process."""
        statuses = (await self.api.get("Pod", pod))["status"]["containerStatuses"]
        (found,) = [each["containerID"] for each in statuses if each["name"] == container]
        with trio.fail_after(PATIENCE):
            while True:
                seen = Inside(await trio.to_thread.run_sync(self._main_process, found.rpartition("/")[2]))
                if "HOSTNAME" in seen.environment:
                    return seen
                await trio.sleep(0.01)  # it is runc for a moment after its start, and no event tells of an exec

    def _main_process(self, container: str) -> int:
        (group,) = self.world.cgroup_folder("memory").rglob(container)
        return min(map(int, (group / "cgroup.procs").read_text().split()))

    async def logs(self, pod: str, container: str = "c") -> str:
        """What a container wrote."""
        path = f"/api/v1/namespaces/default/pods/{pod}/log?container={container}"
        return (await self.api.request("GET", path)).decode(errors="replace")

    # ------------------------------------------------------------ the agent

    async def start_gpus(self, spec: str = "8xH100") -> Gpus:
        """Simulated GPUs that outlive every agent."""
        gpus = Gpus(self.world, spec, self.folder / f"gpus-{next(self._numbers)}")
        self.gpus.append(gpus)
        await gpus.ready()
        return gpus

    async def start_agent(self, gpus: str | Gpus = "8xH100", *flags: str, config: str = "version: v1\n") -> Agent:
        """Start the agent of this checkout as a process in the node; ``agent.restart()`` starts it again.

        ``gpus``: what to simulate, or the hardware of an agent before it. Returns at once: wait for what you need.
        """
        hardware = await self.start_gpus(gpus) if isinstance(gpus, str) else gpus
        agent = Agent(self.world, hardware, self.folder / f"agent-{next(self._numbers)}", flags, config)
        self.agents.append(agent)
        agent.start()
        return agent

    # ------------------------------------------------------------ below

    def _write_kubelet_config(self, own: Mapping[str, settings.Setting]) -> None:
        minor = int(self.version.split(".")[1])
        text = settings.kubelet_config(self.folder, minor, self._gates(f"-1.{minor}"), own)
        (self.folder / "kubelet.json").write_text(text)

    def _gates(self, part: str) -> dict[str, bool]:
        minor = int(part.rpartition(".")[2])
        return {name: on for name, on in self.gates.items() if minor >= _GATES_SINCE.get(name, 0)}

    def _kubelet_path(self) -> str:
        folder = built(self.version, self.cache)[KUBELETS[self.version]]
        return ":".join([str(folder), *self._common, os.environ["PATH"]])

    def _lay_out(self) -> None:
        work = self.folder
        for name in ("log", "cert", "static", "cni", "cdi", "volume-plugins"):
            (work / name).mkdir()
        (work / "cert" / "tokens").write_text(settings.tokens())
        (work / "admin.kubeconfig").write_text(settings.kubeconfig(settings.ADMIN))
        (work / "kubelet.kubeconfig").write_text(settings.kubeconfig(settings.KUBELET))
        (work / "cni" / "10-pods.conflist").write_text(settings.cni(work))
        (work / "containerd.toml").write_text(settings.containerd(work, self._plugins))
        make = ["openssl", "genrsa", "-out", str(work / "cert" / "sa.key"), "2048"]
        subprocess.run(make, check=True, capture_output=True)


def _takes_pods(node: Object) -> bool:
    ready = [each["status"] for each in node["status"].get("conditions", []) if each["type"] == "Ready"]
    return ready == ["True"] and not node["spec"].get("taints")


def _offers_devices(node: Object) -> bool:
    return any("/" in name and int(number) for name, number in node["status"]["allocatable"].items())


def _brief(thing: Object | None) -> str:
    if thing is None:
        return "nothing"
    shown = {name: value for name, value in thing.get("status", thing).items() if name != "images"}
    return re.sub(r"\s+", " ", str(shown))[:1500]


@contextmanager
def _patience(seconds: float, told: Callable[[], str]) -> Iterator[None]:
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError:
        raise AssertionError(told()) from None


def _tail(log: Log, lines: int = 15) -> str:
    return "\n".join(log.text().splitlines()[-lines:])
