"""A kubelet on real unix sockets, as trio drives it. The names are those of ``memory.MemoryKubelet``, but awaited.

It has its own door to asyncio, so that a stuck agent does not hold it up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio

from reactor.aio import Door, open_door
from reactor.model.hold import PodDevices
from reactor.model.kubelet import SocketIdentity
from reactor.model.value import replace
from reactor.simulate.kubelet import directory
from reactor.simulate.kubelet.core import Traits
from reactor.simulate.kubelet.podresources import merged
from reactor.simulate.kubelet.pods import Container, Phase, Pod
from reactor.simulate.kubelet.socket_kubelet import Seen, SocketKubelet
from reactor.simulate.kubelet.socket_link import Break, SocketWeather

__all__ = ["Break", "Container", "GrpcKubelet", "Phase", "Pod", "Traits", "open_kubelet"]

T = TypeVar("T")


class GrpcKubelet:
    """Made by ``open_kubelet``; starts down. Pods are given out as copies: ask again for what became of one."""

    def __init__(self, door: Door, root: Path, kubelet: SocketKubelet) -> None:
        self.root = root
        self.directory = root / "device-plugins"
        self.socket = self.directory / directory.SOCKET
        self.registry = root / "plugins_registry"
        self.pod_resources_socket = root / "pod-resources" / directory.SOCKET
        self._door = door
        self._kubelet = kubelet

    async def _ask(self, question: Callable[[SocketKubelet], T]) -> T:
        async def ask() -> T:
            return question(self._kubelet)

        return await self._door.call(ask)

    async def _do(self, work: Callable[[SocketKubelet], Coroutine[object, object, T]]) -> T:
        return await self._door.call(lambda: work(self._kubelet))

    # ------------------------------------------------------------ lives

    async def start(self, *, api_silent: bool = False, mute: bool = False) -> None:
        """``mute``: kubelet.sock accepts connections and says nothing on them."""
        await self._do(lambda kubelet: kubelet.start(api_silent=api_silent, mute=mute))

    async def api_answers(self) -> None:
        await self._do(lambda kubelet: kubelet.api_answers())

    async def kill(self) -> None:
        await self._do(lambda kubelet: kubelet.kill())

    async def stop(self) -> None:
        await self._do(lambda kubelet: kubelet.stop())

    async def restart(
        self,
        down: float = 0.0,
        *,
        graceful: bool = False,
        api_silent: bool = False,
        keep_checkpoint: bool = True,
        reboot: bool = False,
    ) -> None:
        await (self.stop if graceful else self.kill)()
        if not keep_checkpoint:
            await self.lose_checkpoint()
        if reboot:
            await self.end_containers()
        if down:
            await trio.sleep(down)
        await self.start(api_silent=api_silent)

    async def reconfigure(self, traits: Traits) -> None:
        """Another version or policy, from the next start on."""

        def change(kubelet: SocketKubelet) -> None:
            kubelet.traits = traits

        await self._ask(change)

    @property
    def panicked(self) -> str | None:
        return self._kubelet.panicked

    # ------------------------------------------------------------ adversities

    async def weather(self, change: Callable[[SocketWeather], object]) -> None:
        """Change what goes wrong, on the asyncio side: ``lambda w: w.calm.clear()`` and the like."""
        await self._ask(lambda kubelet: change(kubelet.weather))

    async def break_stream(self, resource: str, how: Break = Break.RST) -> None:
        await self._ask(lambda kubelet: kubelet.break_stream(resource, how))

    async def sweep_sockets(self) -> None:
        """Somebody removes the plugins' socket files."""
        for path in await trio.Path(self.directory).iterdir():
            if await path.is_socket() and path.name != directory.SOCKET:
                await path.unlink()

    async def lose_checkpoint(self) -> None:
        await trio.Path(self.directory / directory.CHECKPOINT).unlink(missing_ok=True)

    # ------------------------------------------------------------ pods

    async def run_pod(
        self,
        name: str,
        limits: Mapping[str, int] | None = None,
        *,
        namespace: str = "default",
        init: Sequence[Container] = (),
        containers: Sequence[Container] = (),
    ) -> Pod:
        """Returns once the pod was admitted or refused, or while nobody is there to admit it."""

        async def run(kubelet: SocketKubelet) -> Pod:
            pod = kubelet.api.create(name, limits, namespace=namespace, init=init, containers=containers)
            await kubelet.run_pod(pod)
            return replace(pod)

        return await self._do(run)

    async def delete_pod(self, name: str, namespace: str = "default") -> None:
        await self._ask(lambda kubelet: kubelet.delete_pod(name, namespace))

    async def end_pod(self, name: str, *, phase: Phase = Phase.SUCCEEDED) -> None:
        """All containers of the pod ended; it stays on the API server."""

        def end(kubelet: SocketKubelet) -> None:
            pod = kubelet.api.find(name)
            pod.phase, pod.running = phase, frozenset()

        await self._ask(end)

    async def end_containers(self) -> None:
        """A reboot, as far as pods go: the runtime has nothing running."""
        await self._ask(_reboot)

    async def start_pod(self, name: str) -> None:
        """Try once more to start a pod that waits for it."""
        await self._do(lambda kubelet: kubelet.start_pod(name))

    async def restart_container(self, name: str, container: str) -> None:
        await self._do(lambda kubelet: kubelet.restart_container(name, container))

    async def pod_health(self, name: str) -> dict[str, dict[str, str]]:
        """``allocatedResourcesStatus`` of the pod."""
        return await self._ask(lambda kubelet: kubelet.core.pod_health(kubelet.api.find(name)))

    async def pod(self, name: str, namespace: str = "default") -> Pod:
        return await self._ask(lambda kubelet: replace(kubelet.api.find(name, namespace)))

    # ------------------------------------------------------------ what the kubelet shows

    async def capacity(self, resource: str) -> int:
        return await self._ask(lambda kubelet: kubelet.core.capacity().capacity.get(resource, 0))

    async def allocatable(self, resource: str) -> int:
        return await self._ask(lambda kubelet: kubelet.core.capacity().allocatable.get(resource, 0))

    async def node(self) -> Mapping[str, tuple[int, int]]:
        return await self._ask(lambda kubelet: dict(kubelet.core.sample()))

    async def devices(self, resource: str) -> dict[str, bool]:
        return await self._ask(lambda kubelet: kubelet.core.devices(resource))

    async def held(self, resource: str) -> frozenset[str]:
        return await self._ask(lambda kubelet: kubelet.core.held(resource))

    async def list_pods(self) -> tuple[PodDevices, ...]:
        return await self._ask(lambda kubelet: merged(kubelet.core.pod_resources()))

    async def streams(self, resource: str) -> int:
        return await self._ask(lambda kubelet: kubelet.streams(resource))

    async def checkpoint(self) -> bytes | None:
        try:
            return await trio.Path(self.directory / directory.CHECKPOINT).read_bytes()
        except FileNotFoundError:
            return None

    async def identity(self) -> SocketIdentity | None:
        try:
            found = await trio.Path(self.socket).lstat()
        except FileNotFoundError:
            return None
        return SocketIdentity(found.st_ino, found.st_ctime_ns)


def _reboot(kubelet: SocketKubelet) -> None:
    for pod in kubelet.api.pods.values():
        pod.running = frozenset()


@asynccontextmanager
async def open_kubelet(
    root: Path, traits: Traits | None = None, *, seen: Seen = lambda name, fields: None
) -> AsyncIterator[GrpcKubelet]:
    """A kubelet with this root, down at first; killed at the end. ``seen`` is called on the asyncio side."""
    async with open_door() as door:

        async def make() -> SocketKubelet:
            return SocketKubelet(root, traits or Traits(), seen)

        kubelet = GrpcKubelet(door, root, await door.call(make))
        try:
            yield kubelet
        finally:
            with trio.move_on_after(2, shield=True):
                await kubelet.kill()
