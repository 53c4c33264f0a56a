"""The node around real agents: kubelet, GPUs, config file, and the agents that were started on it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from reactor.simulate.kubelet.core import Traits
from reactor.simulate.kubelet.grpc import GrpcKubelet, open_kubelet
from reactor.simulate.nvml.files import lay_out
from reactor.simulate.nvml.hardware import Hardware
from reactor.simulate.nvml.host import Host
from tests.process.agent import Agent, start_agent
from tests.process.story import Story, soon

GPU = "nvidia.com/gpu"
WHOLE = "version: v1\n"


def shared(replicas: int) -> str:
    return f"version: v1\nsharing:\n  timeSlicing:\n    resources:\n      - {{name: {GPU}, replicas: {replicas}}}\n"


@asynccontextmanager
async def kubelet_at(root: Path) -> AsyncIterator[tuple[GrpcKubelet, Story]]:
    """A kubelet that is up, and what it sees: registered, listed, stream.ended and so on."""
    seen, token = Story(), trio.lowlevel.current_trio_token()

    def see(name: str, fields: dict[str, object]) -> None:
        token.run_sync_soon(seen.add, {"event": name, **fields})

    async with open_kubelet(root, Traits(), seen=see) as kubelet:
        await kubelet.start()
        yield kubelet, seen


class Node:
    """Made by ``Node.opened``: a kubelet that is up, and two GPUs."""

    def __init__(self, root: Path, nursery: trio.Nursery, kubelet: GrpcKubelet, gpus: Hardware, seen: Story) -> None:
        self.root = root
        self.kubelet = kubelet
        self.gpus = gpus
        self.seen = seen
        self.config = root / "config" / "config.yaml"
        self.state_dir = root / "state"
        self.admin = root / "agent.sock"
        self.agents: list[Agent] = []
        self._nursery = nursery

    @classmethod
    @asynccontextmanager
    async def opened(cls, root: Path, nursery: trio.Nursery) -> AsyncIterator[Node]:
        gpus = Hardware("2xH100")
        machine = root / "machine"
        machine.mkdir()
        lay_out(gpus, machine)
        await nursery.start(Host(gpus, machine / "nvml.sock").run)
        async with kubelet_at(root / "kubelet") as (kubelet, seen):
            node = cls(root, nursery, kubelet, gpus, seen)
            node.config.parent.mkdir()
            node.config.write_text(WHOLE)
            yield node

    async def start(
        self,
        *flags: str,
        environment: Mapping[str, str] | None = None,
        log: int = subprocess.PIPE,
        wrap: Sequence[str] = (),
        **settings: str | None,
    ) -> Agent:
        """Start an agent on this node. A setting replaces one of the defaults (``state_dir="/x"``), None removes it."""
        chosen: dict[str, str | None] = {
            "config": str(self.config),
            "kubelet_root": str(self.kubelet.root),
            "state_dir": str(self.state_dir),
            "admin_socket": str(self.admin),
            "simulate_nvml": str(self.root / "machine" / "nvml.sock"),
            "probe_listen": "",
            "node_name": "node-1",
            **settings,
        }
        given = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items() if value is not None]
        agent = await start_agent(
            [*given, *flags],
            admin=Path(chosen["admin_socket"] or ""),
            complaints=self.root / f"stderr-{len(self.agents)}",
            environment=environment or {},
            log=log,
            wrap=wrap,
        )
        self.agents.append(agent)
        if agent.process.stdout is not None:
            self._nursery.start_soon(agent.follow)
        return agent

    async def end_agents(self) -> None:
        """Those that still run get a chance to end well; what any of them wrote to stderr fails the test."""
        for agent in self.agents:
            if agent.process.poll() is None:
                assert (await agent.end()).code == 0, agent.log
        for agent in self.agents:
            assert agent.complaints == "", agent.complaints

    def kill_agents(self) -> None:
        for agent in self.agents:
            if agent.process.poll() is None:
                agent.send(signal.SIGKILL)

    async def settled(self, *, grace: float = 5.0) -> Agent:
        """An agent that serves two GPUs, and answers at its admin socket."""
        agent = await self.start(grace=str(grace))
        await agent.settled()
        await self.seen.until("listed", resource=GPU, healthy=2)
        await agent.state()
        return agent

    async def allocate(self, name: str, count: int, resource: str = GPU) -> str:
        """Run a pod; why it was refused, empty if it runs and has its devices."""
        with trio.fail_after(10):
            pod = await self.kubelet.run_pod(name, {resource: count})
        if not pod.message:
            # A kubelet that has not read a list yet runs a pod without its devices, and says nothing.
            (devices,) = [each.devices for each in await self.kubelet.list_pods() if each.pod.name == name]
            assert len(devices) == count
        return pod.message

    def watches(self) -> set[int]:
        """The event sets in which a worker has put every GPU; a new worker has a new one."""
        return {number for number, made in self.gpus._sets.items() if len(made.masks) == len(self.gpus.present)}

    async def served(self) -> str:
        """The socket of the one resource, as soon as there is one."""
        await soon(lambda: bool(self.plugin_sockets()), "a socket")
        (name,) = self.plugin_sockets()
        return name

    def plugin_sockets(self) -> list[str]:
        return sorted(path.name for path in self.kubelet.directory.glob("gpu-reactor-*"))


class ConfigMap:
    """A config file as the kubelet mounts a ConfigMap: ``config.yaml -> ..data/config.yaml``, ``..data -> ..N``."""

    def __init__(self, directory: Path, text: str) -> None:
        self.directory = directory
        self._number = 0
        self.swap(text)
        (directory / "config.yaml").symlink_to("..data/config.yaml")

    @property
    def file(self) -> Path:
        return self.directory / "config.yaml"

    def swap(self, text: str) -> None:
        """A new directory, a link to it by rename, then the old one goes."""
        old = self.directory / f"..{self._number}"
        self._number += 1
        new = self.directory / f"..{self._number}"
        new.mkdir(parents=True)
        (new / "config.yaml").write_text(text)
        link = self.directory / "..data_tmp"
        link.symlink_to(new.name)
        os.replace(link, self.directory / "..data")
        if old.is_dir():
            (old / "config.yaml").unlink()
            old.rmdir()
