"""One node, driven step by step, with everything that must hold looked at whenever anything happens."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pynvml
import trio

from reactor import events as e
from reactor import view
from reactor.model.ids import GpuUuid
from reactor.model.kubelet import StreamId
from reactor.record.recorder import Recorder
from reactor.simulate.kubelet import texts
from reactor.simulate.kubelet.core import Traits
from reactor.simulate.kubelet.link import Hold
from reactor.simulate.kubelet.memory import MemoryKubelet
from reactor.simulate.kubelet.plugin import KubeletPanic
from reactor.simulate.kubelet.pods import Container, Phase, Pod
from reactor.simulate.node import SimNode
from reactor.simulate.nvml import codes
from reactor.state import State
from tests.loglines import LogLines
from tests.properties import checks
from tests.properties import steps as s
from tests.properties.shapes import RESOURCES, Shape

UNKNOWN_ERROR: int = pynvml.NVML_ERROR_UNKNOWN
HUNG_CALL = "nvmlDeviceGetMemoryInfo"


_CALM = s.Pass | s.Edit | s.EditBroken | s.RunPod | s.EndPod | s.DeletePod | s.Xid | s.Hangup | s.HoldAllocate


@dataclass
class Truth:
    """What the test itself knows of the node, beside what agent and kubelet think."""

    shape: Shape
    held: dict[str, frozenset[checks.Id]] = field(default_factory=dict)
    """Of each pod that runs, by uid: the ids that the kubelet gave it, also when its books lost them."""
    condemned: set[str] = field(default_factory=set)
    """GPUs with a fault that does not heal by itself."""
    troubles: dict[str, int] = field(default_factory=dict)


class WatchedKubelet(MemoryKubelet):
    """Never Register while a stream of ours is live (invariant 6)."""

    broken: list[str]

    async def register(self, resource: str, socket: str, deadline: float = 12.0) -> None:
        if self.streams(resource):
            self.broken.append(f"Register of {resource} while a stream of it lives")
        await super().register(resource, socket, deadline)


class World:
    def __init__(self, nursery: trio.Nursery, *, gpus: str, traits: Traits) -> None:
        self.log = LogLines()
        self.broken: list[str] = []
        self.node = SimNode(nursery, self, gpus=gpus, traits=traits)
        self.kubelet = self.node.kubelet = WatchedKubelet(nursery, traits)
        self.kubelet.broken = self.broken
        self.kubelet.on_list = self._listed
        self.truth = Truth(Shape())
        self.desk_log = checks.DeskLog()
        self.running = False
        self._calm = True
        """No step so far was of the kind that ends streams."""
        self._nursery = nursery
        self._names = 0
        self._shown: dict[str, tuple[int, frozenset[str]]] = {}
        self._sent: dict[StreamId, tuple[int, int]] = {}
        self._uuids = [gpu.uuid for gpu in self.node.hardware.gpus]
        self._begin()

    def _begin(self) -> None:
        self._recorder = Recorder(self.log, node="node")
        self._checks = checks.StateChecks()
        self._sent = {}

    # ------------------------------------------------------------ what is looked at

    def record(self, event: e.Event, before: State, after: State) -> None:
        """The bus tells of every event."""
        self._recorder.record(event, before, after)
        self.broken += self._checks.event(event, before, after)
        match event.fact:
            case e.Granted() as fact:
                self.broken += checks.granted_twice_the_same(self.node.desk.snapshot, fact)
            case e.Advertised() as fact:
                now = (fact.revision, fact.nudge)
                if self._sent.get(fact.stream) == now:
                    self.broken.append(f"the same list of {fact.resource} went out twice on a stream: {fact}")
                self._sent[fact.stream] = now
            case e.StreamEnded(resource=resource) if self._calm and resource in view.names(before):
                self.broken.append(f"the stream of {resource} ended, though it is served and nothing disturbed it")
            case _:
                pass
        self.look()

    def _listed(self, resource: str) -> None:
        """The kubelet took a list in: no id that a pod has may have gone from it (invariant 4)."""
        life, before = self._shown.get(resource, (0, frozenset()))
        now = frozenset(self.kubelet.devices(resource))
        gone = before - now if life == self.kubelet.lives else frozenset()
        self._shown[resource] = (self.kubelet.lives, now)
        self.learn()
        for uid, ids in self._on_the_books().items():
            missing = {one for name, one in ids if name == resource} - now
            if missing:
                self.broken.append(f"{missing} of {resource}, held by {uid}, are not in the list (gone: {gone})")
        self.look()

    def look(self) -> None:
        """What can be seen at any moment from outside."""
        self.learn()
        if self.kubelet.panicked:
            self.broken.append(f"the kubelet would have ended: {self.kubelet.panicked}")
        for resource in RESOURCES:
            if self.kubelet.streams(resource) > 1:
                self.broken.append(f"{self.kubelet.streams(resource)} streams of {resource}")
        self.broken += checks.owners(self.truth.held)
        self.broken += self.desk_log.told
        for pod in self.kubelet.api.pods.values():
            gone = texts.CONNECTION_CLOSING in pod.message or "has been stopped" in pod.message
            if "GetPreferredAllocation" in pod.message and not gone:
                self.broken.append(f"{pod.ref}: {pod.message}")

    def _on_the_books(self) -> dict[str, frozenset[checks.Id]]:
        """What the kubelet has on its books for pods that are not over."""
        core = self.kubelet.core
        found = {}
        for uid, containers in core.manager.pods.items():
            pod = core.known.get(uid)
            if pod is not None and not pod.over:
                found[uid] = frozenset(
                    (resource, one)
                    for resources in containers.values()
                    for resource, allocation in resources.items()
                    for one in allocation.ids
                )
        return found

    def learn(self) -> None:
        """Keep what each running pod was given, for as long as it runs."""
        there = {pod.uid for pod in self.kubelet.api.pods.values() if not pod.over}
        held = {uid: ids for uid, ids in self.truth.held.items() if uid in there}
        on_the_books = {uid: ids for uid, ids in self._on_the_books().items() if uid in there and ids}
        given = frozenset().union(*on_the_books.values())
        # A kubelet that lost its books may give an id away anew: from then on it is the new pod's for everybody.
        forgotten = {uid: ids - given for uid, ids in held.items() if uid not in on_the_books}
        self.truth.held = {uid: ids for uid, ids in forgotten.items() if ids} | on_the_books

    def sound(self, when: object) -> None:
        self.look()
        assert not self.broken, f"after {when}:\n" + "\n".join(dict.fromkeys(self.broken))

    # ------------------------------------------------------------ steps

    async def begin(self) -> None:
        logging.getLogger("reactor.kubelet.desk").addHandler(self.desk_log)
        self.node.edit_config(self.truth.shape.text)
        await self.kubelet.start()
        await self.start_agent()
        await self.node.settle()

    def end(self) -> None:
        logging.getLogger("reactor.kubelet.desk").removeHandler(self.desk_log)

    async def do(self, step: s.Step) -> None:
        self._calm = self._calm and isinstance(step, _CALM)
        match step:
            case s.Pass():
                await trio.sleep(step.seconds)
            case s.Edit():
                self.truth.shape = step.shape
                self.node.edit_config(step.shape.text)
            case s.EditBroken():
                await trio.sleep(0.1)  # what was accepted a moment ago is on disk then, should the agent be killed
                self._edit_broken(step.text)
            case s.StopAgent() | s.KillAgent() | s.StartAgent() | s.Hangup():
                await self._agent(step)
            case s.RunPod() | s.EndPod() | s.DeletePod():
                self._pod(step)
            case s.Xid() | s.Unplug() | s.Plug() | s.Lose() | s.Find() | s.Clear():
                self._gpu(step)
            case s.Hang() | s.FailCalls() | s.Mend() | s.Driver():
                self._nvml(step)
            case s.RestartKubelet() | s.EndKubelet() | s.StartKubelet() | s.AnswerApi():
                await self._kubelet(step)
            case s.SpoilCheckpoint() | s.LoseCheckpoint():
                self._books(step)
            case _:
                self._weather(step)
        await trio.sleep(0.001)
        self.sound(step)

    def _edit_broken(self, text: str) -> None:
        if not self.running:
            return  # a broken text at a start is another property
        self.node.edit_config(text)

    async def _agent(self, step: s.StopAgent | s.KillAgent | s.StartAgent | s.Hangup) -> None:
        match step:
            case s.StartAgent():
                await self.start_agent()
            case s.Hangup() if self.running:
                self.node.publish(e.SignalReceived(name="HUP"))
            case s.StopAgent() if self.running:
                self.running = False
                await self.node.stop_agent()
            case s.KillAgent() if self.running:
                self.running = False
                await self.node.kill_agent()
            case _:
                pass

    async def start_agent(self) -> None:
        if self.running:
            return
        self._begin()
        await self.node.start_agent()
        self.running = True

    def _pods(self, *phases: Phase) -> list[Pod]:
        return [pod for pod in self.kubelet.api.pods.values() if pod.phase in phases]

    def _pod(self, step: s.RunPod | s.EndPod | s.DeletePod) -> None:
        match step:
            case s.RunPod():
                self._names += 1
                resource = self._served(step.which)
                init = [Container("i", {resource: step.init})] if step.init else []
                name, limits = f"pod-{self._names}", {resource: step.count}
                self._background(lambda: self.kubelet.run_pod(name, limits, init=init))
            case s.EndPod():
                running = self._pods(Phase.RUNNING)
                if running:
                    self.kubelet.end_pod(running[step.which % len(running)].ref.name)
            case s.DeletePod():
                admitted = self._pods(Phase.RUNNING, Phase.FAILED, Phase.SUCCEEDED)
                if admitted:
                    self.kubelet.delete_pod(admitted[step.which % len(admitted)].ref.name)

    def _served(self, which: int) -> str:
        served = [resource for resource in RESOURCES if self.kubelet.devices(resource)]
        return served[which % len(served)] if served else RESOURCES[0]

    def _background(self, work: Callable[[], Awaitable[object]]) -> None:
        async def run() -> None:
            try:
                await work()
            except KubeletPanic as panic:
                self.broken.append(f"the kubelet would have ended: {panic}")

        self._nursery.start_soon(run)

    def _trouble(self, uuid: str) -> None:
        self.truth.troubles[uuid] = self.truth.troubles.get(uuid, 0) + 1

    def _gpu(self, step: s.Xid | s.Unplug | s.Plug | s.Lose | s.Find | s.Clear) -> None:
        hardware = self.node.hardware
        gpu = hardware.gpus[step.gpu % len(hardware.gpus)]
        if not isinstance(step, s.Clear | s.Find):
            self._trouble(gpu.uuid)
        match step:
            case s.Xid() if gpu.present:
                hardware.xid(gpu, step.code)
                if step.code in (s.RESET, s.RESTART):
                    self.truth.condemned.add(gpu.uuid)
            case s.Unplug() if gpu.present:
                hardware.unplug(gpu)
            case s.Plug() if not gpu.present:
                hardware.plug(gpu)
            case s.Lose() if gpu.present:
                hardware.lose(gpu)
            case s.Find():
                hardware.find(gpu)
            case s.Clear() if self.running:
                self.node.publish(e.FaultCleared(gpu=GpuUuid(gpu.uuid), reason="a person said so"))
            case _:
                pass

    def _nvml(self, step: s.Hang | s.FailCalls | s.Mend | s.Driver) -> None:
        hardware = self.node.hardware
        count = len(hardware.gpus)
        for uuid in self._uuids:
            self._trouble(uuid)
        match step:
            case s.Hang(gpu=None):
                hardware.hang("nvmlDeviceGetCount_v2", seconds=step.seconds)
            case s.Hang(gpu=int(which)):
                hardware.hang(HUNG_CALL, which % count, step.seconds)
            case s.FailCalls():
                hardware.fail("nvmlDeviceGetUUID", UNKNOWN_ERROR, step.gpu % count, step.times)
            case s.Mend():
                hardware.mend()
            case s.Driver():
                hardware.set_driver(codes.READY if step.there else codes.UNLOADED)
            case _:
                pass

    async def _kubelet(self, step: s.RestartKubelet | s.EndKubelet | s.StartKubelet | s.AnswerApi) -> None:
        kubelet = self.kubelet
        match step:
            case s.RestartKubelet():
                if kubelet.up:
                    (kubelet.stop if step.graceful else kubelet.kill)()
                if step.down:
                    await trio.sleep(step.down)
                if not kubelet.up:
                    self._background(lambda: kubelet.start(api_silent=step.silent))
            case s.EndKubelet() if kubelet.up:
                (kubelet.stop if step.graceful else kubelet.kill)()
            case s.StartKubelet() if not kubelet.up:
                self._background(kubelet.start)
            case s.AnswerApi() if kubelet.up and not kubelet.api.answering:
                self._background(kubelet.api_answers)
            case _:
                pass

    def _books(self, step: s.SpoilCheckpoint | s.LoseCheckpoint) -> None:
        if isinstance(step, s.SpoilCheckpoint):
            self.kubelet.spoil_checkpoint(b"{")
        else:
            self.kubelet.lose_checkpoint()

    def _weather(self, step: s.Step) -> None:
        weather = self.kubelet.weather
        match step:
            case s.RefuseRegister():
                weather.refuse_register = step.times
            case s.SlowRegister():
                # Up to 1.34 a Register goes on when its caller gave up, and may then bring a second stream.
                bounded = self.kubelet.traits.version.bounds_dial_back
                weather.register_delay = step.seconds if bounded else min(step.seconds, 5.0)
            case s.SlowRead():
                weather.read_delay = step.seconds
            case s.ResetStream():
                self.kubelet.reset_stream(self._served(step.which))
            case s.SweepSockets():
                self.kubelet.sweep_sockets()
            case s.StopReading() if not weather.unread:
                weather.shut()
            case s.ReadAgain():
                weather.open()
            case s.HoldAllocate() if weather.hold is None:
                weather.hold = Hold(answered=step.answered)
            case s.ReleaseAllocate():
                self.release()
            case _:
                pass

    def release(self) -> None:
        hold, self.kubelet.weather.hold = self.kubelet.weather.hold, None
        if hold is not None:
            hold.release()
