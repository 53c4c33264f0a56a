"""A node in memory around the real agent: its bus, handlers and sources, on simulated NVML and a simulated kubelet.

Runs under trio's clock, so that a test with the autojump clock lives hours in milliseconds. What the agent reaches of
the outside is the simulation; what it is made of is not. Reports of the desk reach the bus through a queue, as they do
through the real door: facts of the kubelet's calls may come after a snapshot that did not know of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from reactor import agent, allocate, view
from reactor import events as e
from reactor.bus import Bus, Recorder
from reactor.config import Accepted, parse
from reactor.handlers.remember import recall
from reactor.kubelet.books import parse_checkpoint
from reactor.kubelet.desk import Desk
from reactor.model.condition import Policy
from reactor.model.errors import Transient
from reactor.model.hold import Checkpoint
from reactor.model.ids import DeviceId, GpuUuid, ResourceName, device_id
from reactor.model.kubelet import Registration, SocketIdentity
from reactor.nvml import Nvml
from reactor.simulate.kubelet.core import Traits
from reactor.simulate.kubelet.memory import MemoryKubelet
from reactor.simulate.kubelet.memory_servers import MemoryServers
from reactor.simulate.nvml.direct import direct
from reactor.simulate.nvml.hardware import Hardware
from reactor.sources.health import HealthSource
from reactor.sources.kubelet import KubeletSource
from reactor.sources.podresources import PodResourcesSource
from reactor.sources.timer import TimerSource
from reactor.state import State

GPU = ResourceName("nvidia.com/gpu")
DIRECTORY = Path("/kubelet")


class SimNode:
    """One node: ``hardware`` and ``kubelet`` outlive the agent, which can be ended and begun again."""

    def __init__(
        self,
        nursery: trio.Nursery,
        recorder: Recorder,
        *,
        gpus: str,
        traits: Traits,
        boot: str = "boot-1",
        registration: Registration = Registration.SOCKET,
        nvml: Callable[[Hardware], Nvml] = direct,
    ) -> None:
        self.hardware = Hardware(gpus)
        self.kubelet = MemoryKubelet(nursery, traits)
        self.boot = boot
        self.registration = registration
        """Of each life of the agent that begins."""
        self.policy = Policy()
        self.disk: bytes | None = None
        """Content of the state file."""
        self.disk_fails = ""
        """Why writing the state file fails; empty: it does not."""
        self.nvml = nvml
        """Makes the NVML client of each life of the agent."""
        self._nursery = nursery
        self._recorder = recorder
        self._epoch = time.time() - trio.current_time()
        self._config: str | None = None
        self._agent: _Agent | None = None
        self._gpus = tuple(GpuUuid(gpu.uuid) for gpu in self.hardware.present)

    def wall(self) -> float:
        """Unix time that passes as trio's does, so that quiet times pass with the autojump clock."""
        return self._epoch + trio.current_time()

    def step_clock(self, seconds: float) -> None:
        """Somebody sets the clock of the machine."""
        self._epoch += seconds

    # ------------------------------------------------------------ the agent's life

    async def start_agent(self) -> None:
        """Begin a new life of the agent: what it knows is the state file, the config and what it sees."""
        if self._agent is not None:
            raise RuntimeError("the agent runs already")
        self._agent = _Agent(self)
        await self._nursery.start(self._agent.run)
        if self._config is not None:
            self._read(self._config)

    async def stop_agent(self) -> None:
        """SIGTERM, and wait for the end."""
        self.publish(e.SignalReceived(name="TERM"))
        await self._running.ended.wait()
        self._agent = None

    async def kill_agent(self) -> None:
        """SIGKILL: connections end, socket files stay."""
        running = self._running
        running.scope.cancel()
        await running.ended.wait()
        self._agent = None

    @property
    def running(self) -> bool:
        """Whether the agent runs."""
        return self._agent is not None

    @property
    def _running(self) -> _Agent:
        if self._agent is None:
            raise RuntimeError("the agent does not run")
        return self._agent

    @property
    def bus(self) -> Bus:
        return self._running.bus

    @property
    def state(self) -> State:
        return self.bus.state

    @property
    def desk(self) -> Desk:
        return self._running.desk

    @property
    def servers(self) -> MemoryServers:
        return self._running.servers

    def publish(self, fact: e.Fact) -> None:
        self.bus.publish(fact)

    # ------------------------------------------------------------ what a person does

    def edit_config(self, text: str) -> None:
        """Write the mounted config; a running agent reads it at once."""
        self._config = text
        if self._agent is not None:
            self._read(text)

    def _read(self, text: str) -> None:
        read = parse(text.encode(), path="config.yaml")
        if isinstance(read, Accepted):
            self.publish(e.ConfigRead(config=read.config, digest=read.digest, path="config.yaml", text=read.text))
        else:
            self.publish(e.ConfigRejected(digest=read.digest, path="config.yaml", problems=read.problems))

    def share(self, replicas: int, *, rename: str = "", more: str = "") -> None:
        """Have every GPU shared; 0: whole again. ``more`` is config text beside it."""
        if not replicas:
            self.edit_config("version: v1\n" + more)
            return
        entry = f"{{name: nvidia.com/gpu, replicas: {replicas}{f', rename: {rename}' if rename else ''}}}"
        self.edit_config(f"version: v1\nsharing: {{timeSlicing: {{resources: [{entry}]}}}}\n{more}")

    # ------------------------------------------------------------ waiting and looking

    async def until(self, true: Callable[[], bool], *, within: float = 60.0) -> None:
        """Wait until the node is so; looked at whenever nothing else goes on, for at most ``within`` seconds."""
        with trio.move_on_after(within):
            while not true():  # noqa: ASYNC110 - what is waited for may be anything, the simulated kubelet included
                await trio.sleep(0.01)
        if not true():
            raise TimeoutError(f"not so within {within} s: {self.listed() if self._agent else 'no agent'}")

    async def settle(self, seconds: float = 0.0) -> None:
        """Let ``seconds`` pass, and then whatever goes on come to rest."""
        await trio.sleep(seconds + 0.05)
        await self.bus.quiet()
        await trio.sleep(0.02)

    def gpu(self, index: int) -> DeviceId:
        """The whole id of the GPU that had this index at the beginning."""
        return device_id(self._gpus[index])

    def share_of(self, index: int, number: int) -> DeviceId:
        return device_id(self._gpus[index], number)

    def shares(self, *indices: int, replicas: int) -> set[DeviceId]:
        return {self.share_of(index, number) for index in indices for number in range(replicas)}

    def listed(self, resource: str = GPU) -> dict[str, bool]:
        """The list as the kubelet has it: id -> healthy."""
        return self.kubelet.devices(resource)

    def healthy(self, resource: str = GPU) -> set[str]:
        return {one for one, healthy in self.listed(resource).items() if healthy}

    def unhealthy(self, resource: str = GPU) -> set[str]:
        return {one for one, healthy in self.listed(resource).items() if not healthy}


class _Agent:
    """One life of the agent in memory."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.bus = Bus((), recorder=node._recorder, wall=node.wall)
        self._queue: deque[e.Fact] = deque()
        self._woken = trio.Event()
        reports = agent.Reports(self.emit)
        self.desk = Desk(answer=allocate.answer, prefer=allocate.prefer, reports=reports)
        found = node.registration is Registration.WATCHER
        self.servers = MemoryServers(node.kubelet, self.desk, reports.notified if found else None)
        self.nvml = node.nvml(node.hardware)
        agent.add_handlers(self.bus, scan=self.nvml.scan, servers=self.servers, post=self.servers.post, save=self._save)

    def emit(self, fact: e.Fact) -> None:
        self._queue.append(fact)
        self._woken.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._drain)
                    await nursery.start(self.nvml.run)
                    self._begin()
                    task_status.started()
                    await agent.work(self.bus, self._sources(), grace=5.0)
                    await self.servers.aclose(1.0)
                    nursery.cancel_scope.cancel()
        finally:
            self.servers.drop()
            self.ended.set()

    def _begin(self) -> None:
        node = self.node
        self.bus.publish(
            e.AgentStarted(
                version="sim",
                run=f"run-{id(self)}",
                boot=node.boot,
                policy=node.policy,
                registration=node.registration,
            )
        )
        self.bus.publish(recall(node.disk, agent.reparse))

    def _sources(self) -> tuple[PodResourcesSource, KubeletSource, HealthSource, TimerSource]:
        bus, kubelet = self.bus, self.node.kubelet
        return (
            PodResourcesSource(
                kubelet.read_list,
                self._checkpoint,
                publish=bus.publish,
                until=bus.until,
                state=lambda: bus.state,
                wants=view.waiting,
            ),
            KubeletSource(
                DIRECTORY,
                DIRECTORY / "kubelet.sock",
                self.servers.sockets,
                publish=bus.publish,
                until=bus.until,
                state=lambda: bus.state,
                look=self._look,
                identity=lambda _: kubelet.identity(),
                watch=self._watch,
                exists=lambda path: kubelet.exists(path.name),
            ),
            HealthSource(self.nvml, publish=bus.publish),
            TimerSource(publish=bus.publish, until=bus.until),
        )

    async def _drain(self) -> None:
        while True:
            await self._woken.wait()
            self._woken = trio.Event()
            while self._queue:
                self.bus.publish(self._queue.popleft())

    async def _save(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self.node.disk_fails:
            raise Transient(self.node.disk_fails)
        self.node.disk = data

    async def _checkpoint(self) -> Checkpoint:
        await trio.lowlevel.checkpoint()
        data = self.node.kubelet.checkpoint()
        if data is None:
            raise Transient("the checkpoint is missing") from FileNotFoundError()
        return parse_checkpoint(data)

    def _look(self, path: Path) -> SocketIdentity | str:
        identity = self.node.kubelet.identity()
        if identity is None:
            return "no such socket"
        return identity if self.node.kubelet.accepts() else "connection refused"

    async def _watch(
        self,
        directory: Path,
        changed: Callable[[], None],
        *,
        poll: float,
        step: float,
        names: Callable[[str], bool] | None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        task_status.started()
        while True:
            with trio.move_on_after(poll):
                await self.node.kubelet.changed()
                await trio.sleep(step)
            changed()


@asynccontextmanager
async def sim_node(
    recorder: Recorder,
    *,
    gpus: str = "2xH100",
    traits: Traits | None = None,
    config: str | None = "version: v1\n",
    started: bool = True,
    registration: Registration = Registration.SOCKET,
    nvml: Callable[[Hardware], Nvml] = direct,
) -> AsyncIterator[SimNode]:
    """A node for the body. ``started``: kubelet and agent are up, and the first list has been sent."""
    async with trio.open_nursery() as nursery:
        node = SimNode(nursery, recorder, gpus=gpus, traits=traits or Traits(), registration=registration, nvml=nvml)
        if config is not None:
            node.edit_config(config)
        if started:
            await node.kubelet.start()
            await node.start_agent()
            await node.settle()
        yield node
        nursery.cancel_scope.cancel()
