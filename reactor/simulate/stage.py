"""A whole node below one directory: simulated cards, a simulated kubelet on real sockets, and the real agent.

The agent runs as on any node (worker process, gRPC, inotify, state file), but in this process; of its surroundings
only NVML's C functions and the kubelet are not real. ``Stage`` is what a script acts on, and looks at.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import assert_never

import trio

from reactor import agent
from reactor.model.settings import Settings
from reactor.nvml import Nvml, NvmlClient
from reactor.simulate import steps as do
from reactor.simulate.kubelet.checkpoint import Books
from reactor.simulate.kubelet.directory import write_books
from reactor.simulate.kubelet.grpc import GrpcKubelet, open_kubelet
from reactor.simulate.nvml.files import lay_out
from reactor.simulate.nvml.hardware import Hardware
from reactor.simulate.nvml.host import Host
from reactor.simulate.sight import Sight

RESYNC = 2.0
"""Seconds between scans that nothing asked for; 30 on a real node, where nobody waits for the next scene."""
FIRST_CONFIG = "version: v1\n"


class Stage:
    """Made by ``open_stage``; dark until ``start``."""

    def __init__(
        self, node: str, root: Path, kubelet: GrpcKubelet, nursery: trio.Nursery, tell: Callable[[bytes], None]
    ) -> None:
        self.interrupted = False
        """A signal ended the agent, and with it everything."""
        self.started = False
        self.hardware = Hardware(node)
        self.root = root
        self._kubelet = kubelet
        self._nursery = nursery
        self._tell = tell
        self._host = Host(self.hardware, root / "nvml.sock")
        self._pods: list[str] = []
        self._stop: Callable[[], object] | None = None
        self._ended = trio.Event()
        for name in ("config", "state", "kubelet/device-plugins"):
            (root / name).mkdir(parents=True)
        # As on a node that has had a device plugin before; a missing checkpoint would be warned of.
        write_books(root / "kubelet/device-plugins", Books())
        self._write_config(FIRST_CONFIG)

    @property
    def settings(self) -> Settings:
        root = self.root
        return Settings(
            config=root / "config/config.yaml",
            kubelet_root=root / "kubelet",
            state_dir=root / "state",
            admin_socket=root / "agent.sock",
            probe_listen="",
            node_name="simulated",
            resync=RESYNC,
            allow_inject=True,
            simulate_nvml=self.hardware.spec,
        )

    # ------------------------------------------------------------ the agent's life

    async def start(self) -> None:
        """Cards, then the kubelet, then the agent."""
        self.started = True
        lay_out(self.hardware, self.root)
        await self._nursery.start(self._host.run)
        await self._kubelet.start()
        await self._start_agent()

    async def stop(self) -> None:
        """The agent ends as on SIGTERM."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
            await self._ended.wait()

    async def _start_agent(self) -> None:
        self._ended = trio.Event()
        self._stop = await self._nursery.start(self._run_agent)

    async def _run_agent(self, task_status: trio.TaskStatus[Callable[[], object]] = trio.TASK_STATUS_IGNORED) -> None:
        await agent.serve(self.settings, self._nvml, sink=self._tell, task_status=task_status)
        self._ended.set()
        if self._stop is not None:
            self.interrupted = True
            self._nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def _nvml(self, settings: Settings) -> AsyncIterator[Nvml]:
        yield NvmlClient(provider=self._host.provider, dev_root=self.root, sys_root=self.root / "sys")

    # ------------------------------------------------------------ what happens

    async def act(self, action: do.Act) -> None:
        match action:
            case do.WriteConfig():
                self._write_config(action.text)
            case do.RunPod():
                self._pods.append(action.name)
                await self._kubelet.run_pod(action.name, action.limits)
            case do.DeletePod():
                self._pods.remove(action.name)
                await self._kubelet.delete_pod(action.name)
            case do.Xid():
                self.hardware.xid(action.card, action.code)
            case do.Move():
                self._move(action)
            case do.Kubelet():
                await self._act_on_kubelet(action)
            case do.RestartAgent():
                await self.stop()
                await self._start_agent()
            case _:
                assert_never(action)

    def _write_config(self, text: str) -> None:
        """As an editor does: a new file takes the name of the old one."""
        path = self.root / "config/config.yaml"
        draft = path.with_name(".config.yaml.new")
        draft.write_text(text)
        os.replace(draft, path)

    def _move(self, move: do.Move) -> None:
        happens = {
            "unplug": self.hardware.unplug,
            "plug": self.hardware.plug,
            "lose": self.hardware.lose,
            "find": self.hardware.find,
        }
        happens[move.verb](move.card)

    async def _act_on_kubelet(self, action: do.Kubelet) -> None:
        match action.verb:
            case "restart":
                await self._kubelet.restart(action.down)
            case "stop":
                await self._kubelet.stop()
            case "start":
                await self._kubelet.start()

    # ------------------------------------------------------------ what is seen

    @property
    def panicked(self) -> str | None:
        """How the agent would have ended a real kubelet."""
        return self._kubelet.panicked

    async def look(self) -> Sight:
        resources = sorted(await self._kubelet.node())
        return Sight(
            cards=tuple(card.uuid for card in self.hardware.gpus),
            listed={resource: await self._kubelet.devices(resource) for resource in resources},
            used={resource: await self._kubelet.held(resource) for resource in resources},
            pods={name: (await self._kubelet.pod(name)).phase for name in self._pods},
        )


@asynccontextmanager
async def open_stage(node: str, root: Path, tell: Callable[[bytes], None]) -> AsyncIterator[Stage]:
    """A node in ``root``, an empty directory; all of it ends with the body. ``tell`` takes the agent's log."""
    async with open_kubelet(root / "kubelet") as kubelet, trio.open_nursery() as nursery:
        yield Stage(node, root, kubelet, nursery, tell)
        nursery.cancel_scope.cancel()
