"""The simulated kubelet as a kubelet under test: real sockets, its own clock cut short where nobody wants to wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from reactor.model.value import replace
from reactor.simulate.kubelet.core import Traits
from reactor.simulate.kubelet.grpc import GrpcKubelet, open_kubelet
from reactor.simulate.kubelet.plugin import KubeletPanic
from reactor.simulate.kubelet.pods import Container, Pod
from reactor.simulate.kubelet.topology import Policy
from reactor.simulate.kubelet.version import Version
from tests.contract.table.under_test import Counts, PodSeen, Shape, parse_checkpoint

PATIENCE = 5.0


class Simulated:
    def __init__(self, kubelet: GrpcKubelet, traits: Traits, nursery: trio.Nursery) -> None:
        self.version = traits.version
        self.directory = kubelet.directory
        self.pod_resources = kubelet.pod_resources_socket
        self.registry = kubelet.root / "plugins_registry"
        self.quiet = 0.15
        self.dial_timeout = traits.dial_timeout
        self.grace = traits.grace
        self.news = trio.Event()
        self._kubelet = kubelet
        self._traits = traits
        self._nursery = nursery
        self._cdi: dict[str, Mapping[str, str]] = {}

    def stir(self) -> None:
        self.news.set()
        self.news = trio.Event()

    def name(self, stem: str) -> str:
        return stem

    async def _until(self, said: Callable[[], object]) -> bool:
        """Whether ``said`` (awaited) came true in time. Looked at when something happened, and each 20 ms, for what
        only a look moves (the grace period)."""
        with trio.move_on_after(PATIENCE):
            while True:
                news = self.news
                if await said():
                    return True
                with trio.move_on_after(0.02):
                    await news.wait()
        return False

    # ------------------------------------------------------------ pods

    async def run(self, name: str, *shapes: Shape, settled: bool = True) -> PodSeen:
        made = [Container(each.name, dict(each.limits), sidecar=each.kind == "sidecar") for each in shapes]
        init = [one for one, shape in zip(made, shapes, strict=True) if shape.kind != "app"]
        apps = [one for one, shape in zip(made, shapes, strict=True) if shape.kind == "app"]
        ends = all(each.finishes for each in shapes if each.kind == "app")

        async def run() -> None:
            with suppress(KubeletPanic):
                await self._kubelet.run_pod(name, init=init, containers=apps)
                if ends:
                    await self._kubelet.end_pod(name)
            self.stir()

        if settled:
            await run()
        else:
            self._nursery.start_soon(run)
            await self._until(lambda: self._known(name))
        return _seen(await self._kubelet.pod(name))

    async def _known(self, name: str) -> bool:
        with suppress(KeyError):
            await self._kubelet.pod(name)
            return True
        return False

    async def until_pod(self, name: str, said: Callable[[PodSeen], bool]) -> PodSeen:
        async def look() -> bool:
            return said(_seen(await self._kubelet.pod(name)))

        await self._until(look)
        return _seen(await self._kubelet.pod(name))

    async def delete(self, name: str) -> None:
        await self._kubelet.delete_pod(name)
        self.stir()

    async def environment(self, pod: str, container: str) -> Mapping[str, str]:
        told = (await self._kubelet.pod(pod)).told[container]
        found = dict(told.envs)
        for each in told.cdi:
            found |= self._cdi[each]
        return found

    async def restart_container(self, pod: str, container: str) -> PodSeen:
        await self._kubelet.restart_container(pod, container)
        return _seen(await self._kubelet.pod(pod))

    async def retried(self, pod: str) -> None:
        await self._kubelet.start_pod(pod)

    async def health(self, pod: str) -> Mapping[str, Mapping[str, str]]:
        return await self._kubelet.pod_health(pod)

    async def until_health(self, pod: str, health: Mapping[str, Mapping[str, str]]) -> bool:
        async def look() -> bool:
            return await self.health(pod) == health

        return await self._until(look)

    # ------------------------------------------------------------ the node

    async def counts(self, resource: str) -> Counts | None:
        return (await self._kubelet.node()).get(resource)

    async def until_counts(self, resource: str, counts: Counts | None, seconds: float = 0) -> Counts | None:
        async def look() -> bool:
            return await self.counts(resource) == counts

        await self._until(look)
        return await self.counts(resource)

    def checkpoint(self) -> Mapping[str, object]:
        return parse_checkpoint(self.directory / "kubelet_internal_checkpoint")

    async def until_checkpoint(self, said: Callable[[Mapping[str, object]], bool]) -> bool:
        async def look() -> bool:
            return said(self.checkpoint())

        return await self._until(look)

    @asynccontextmanager
    async def spec(self, kind: str, names: Mapping[str, Mapping[str, str]]) -> AsyncIterator[None]:
        self._cdi |= {f"{kind}={name}": environment for name, environment in names.items()}
        yield

    # ------------------------------------------------------------ lives

    @property
    def ended(self) -> str | None:
        return self._kubelet.panicked

    async def until_ended(self) -> bool:
        async def look() -> bool:
            return self.ended is not None

        return await self._until(look)

    async def kill(self) -> None:
        await self._kubelet.kill()

    async def stop(self) -> None:
        await self._kubelet.kill()  # a kubelet that is told to end leaves as much behind

    async def start(self, *, api_silent: bool = False, policy: Policy | None = None) -> None:
        if policy is not None:
            self._traits = replace(self._traits, policy=policy)
            await self._kubelet.reconfigure(self._traits)
        with suppress(KubeletPanic):
            await self._kubelet.start(api_silent=api_silent)

    async def api_answers(self) -> None:
        with suppress(KubeletPanic):
            await self._kubelet.api_answers()

    async def reboot(self) -> None:
        await self._kubelet.end_containers()


def _seen(pod: Pod) -> PodSeen:
    waiting = {}
    if not pod.over and pod.message:
        waiting = {pod.containers[0].name: pod.message.partition(":")[0]}
    return PodSeen(pod.ref.name, str(pod.phase), pod.reason, pod.message, waiting)


@asynccontextmanager
async def simulated(root: Path, version: Version) -> AsyncIterator[Simulated]:
    """A kubelet of this version that runs, with its dial-back and its grace period cut short."""
    traits = Traits(version=version, dial_timeout=1.5, grace=2.0)
    token = trio.lowlevel.current_trio_token()
    under: list[Simulated] = []

    def seen(name: str, fields: dict[str, object]) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(lambda: under[0].stir() if under else None)

    async with trio.open_nursery() as nursery, open_kubelet(root, traits, seen=seen) as kubelet:
        under.append(Simulated(kubelet, traits, nursery))
        await under[0].start()
        yield under[0]
        nursery.cancel_scope.cancel()
