"""A kubelet in memory, under trio's clock: the agent's desk on one side, tests and the demo on the other.

What the kubelet keeps on disk and on the API server outlives its lives: the plugin directory (``sockets``), the
checkpoint, the pods. ``MemoryServers`` is the agent's way in, in the shape of ``reactor.kubelet.servers``.

A plugin that would end a real kubelet ends this one: ``panicked`` says how, for good, and ``KubeletPanic`` comes out of
whatever was being done (of the nursery, if nobody was waiting).
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from reactor.model.errors import Transient
from reactor.model.hold import PodDevices
from reactor.model.kubelet import SocketIdentity
from reactor.simulate.kubelet import texts
from reactor.simulate.kubelet.checkpoint import Books, parse
from reactor.simulate.kubelet.core import KubeletCore, Traits
from reactor.simulate.kubelet.life import Life
from reactor.simulate.kubelet.link import Hold, Plug, Weather
from reactor.simulate.kubelet.memory_servers import MemoryServers
from reactor.simulate.kubelet.plugin import KubeletPanic
from reactor.simulate.kubelet.podresources import RateLimit, merged
from reactor.simulate.kubelet.pods import ApiServer, Container, Phase, Pod

__all__ = ["Container", "Hold", "MemoryKubelet", "MemoryServers", "Phase", "Pod", "Traits", "Weather"]


class MemoryKubelet:
    """Starts down. ``nursery`` runs its streams; cancel that, or ``kill``, to be rid of them."""

    def __init__(
        self,
        nursery: trio.Nursery,
        traits: Traits | None = None,
        *,
        api: ApiServer | None = None,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.traits = traits or Traits()
        self.api = api or ApiServer()
        self.weather = Weather()
        self.sockets: dict[str, Plug] = {}
        """Plugin sockets that are files in the directory. One that is swept can still be served, but not be found."""
        self.registry: dict[str, Plug] = {}
        """Sockets that are files in the directory of the plugin watcher. No start wipes it."""
        self.panicked: str | None = None
        self.lives = 0
        self.on_list: Callable[[str], None] = lambda resource: None
        """Told after each list of a resource that was taken in."""
        self._nursery = nursery
        self._clock = clock
        self._books: Books | None = None
        self._raw: bytes | None = None
        self._node: dict[str, tuple[int, int]] = {}
        self._identity: SocketIdentity | None = None
        self._ctimes = itertools.count(1_000_000_000, 1_000_000)
        self._moved = trio.Event()
        self._limit = RateLimit(clock)
        self._life = self._new_life(KubeletCore(self.traits, self.api, clock), over=True)

    def _new_life(self, core: KubeletCore, *, over: bool = False) -> Life:
        return Life(self._nursery, core, self.sockets, self.registry, self.weather, over=over, on_list=self._heard)

    def _heard(self, resource: str) -> None:
        self.on_list(resource)

    # ------------------------------------------------------------ lives

    @property
    def core(self) -> KubeletCore:
        """Of this life, or of the last one while it is down."""
        return self._life.core

    @property
    def up(self) -> bool:
        return not self._life.over

    async def start(self, *, api_silent: bool = False) -> None:
        """Start: checkpoint read, directory wiped, kubelet.sock new, then the pods of the API server admitted."""
        if self.up:
            raise RuntimeError("the kubelet runs already")
        self._begin()
        if api_silent:
            self.api.answering = False
        else:
            await self.api_answers()

    def _begin(self) -> None:
        self.lives += 1
        books = self._books if self._raw is None else parse(self._raw)
        core = KubeletCore(self.traits, self.api, self._clock, books=books, write=self._write)
        core.node = self._node
        self._life = self._new_life(core)
        self.sockets.clear()
        # The inode number of the socket before is reused at once, as seen on real nodes.
        self._identity = SocketIdentity(inode=4711, ctime_ns=next(self._ctimes))
        self._life.watch_registry(self.changed)
        self._stir()

    async def api_answers(self) -> None:
        """The API server answers (again): pods that this life has not heard of yet are admitted."""
        self.api.answering = True
        life = self._life
        if not life.over and not life.core.ready:
            await self._step(life, life.core.hear)

    def kill(self) -> None:
        """SIGKILL: connections are reset, kubelet.sock stays behind and refuses."""
        self._life.end()

    def stop(self) -> None:
        """An end that unlinks kubelet.sock, as its device manager can. Real kubelets leave it, also at SIGTERM."""
        self._life.end()
        self._identity = None
        self._stir()

    async def restart(
        self,
        down: float = 0.0,
        *,
        graceful: bool = False,
        api_silent: bool = False,
        keep_checkpoint: bool = True,
        reboot: bool = False,
    ) -> None:
        """End and start again after ``down`` seconds; with 0 nothing gets to run in between.

        A ``reboot`` ends all containers as well, so that their pods are admitted like new ones.
        """
        (self.stop if graceful else self.kill)()
        if not keep_checkpoint:
            self.lose_checkpoint()
        if reboot:
            for pod in self.api.pods.values():
                pod.running = frozenset()
        if down:
            await trio.sleep(down)
        await self.start(api_silent=api_silent)

    def _write(self, books: Books) -> None:
        self._books, self._raw = books, None

    def _stir(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    async def _step(self, life: Life, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await life.step(work)
        except KubeletPanic as panic:
            self.panicked = self.panicked or str(panic)
            raise

    # ------------------------------------------------------------ the directory, as the agent's kubelet source sees it

    def identity(self) -> SocketIdentity | None:
        """What lstat says of kubelet.sock; None: there is none. A killed kubelet leaves it."""
        return self._identity

    def accepts(self) -> bool:
        """Whether a connect to kubelet.sock would succeed."""
        return self.up

    def exists(self, socket: str) -> bool:
        return socket in self.sockets or socket in self.registry

    async def changed(self) -> None:
        """Wait for the next change in the plugin directory (checkpoint noise left out)."""
        await self._moved.wait()

    def sweep_sockets(self) -> None:
        """Somebody removes the plugins' socket files; their streams live on, but for those the plugin watcher found."""
        self.sockets.clear()
        self.registry.clear()
        self._stir()

    # ------------------------------------------------------------ plugins

    def bind(self, plug: Plug) -> None:
        """The agent serves a socket in the directory."""
        self.sockets[plug.socket] = plug
        self._stir()

    def show(self, plug: Plug) -> None:
        """The agent serves a socket where the plugin watcher finds it."""
        self.registry[plug.socket] = plug
        self._stir()

    def unbind(self, plug: Plug) -> None:
        """The agent ends a server; its file goes if it is still the same."""
        plug.close()
        for directory in (self.sockets, self.registry):
            if directory.get(plug.socket) is plug:
                del directory[plug.socket]
                self._stir()

    async def register(self, resource: str, socket: str, deadline: float = 12.0) -> None:
        """Register as a plugin calls it. Refused or Transient, with the kubelet's text."""
        await self._life.register(resource, socket, deadline)

    def reset_stream(self, resource: str) -> None:
        """The connections of this resource break, while both sides live."""
        for link in self._life.links:
            if link.resource == resource:
                link.end()

    def streams(self, resource: str) -> int:
        """Live ListAndWatch streams of this resource."""
        return sum(1 for each in self._life.links if each.resource == resource and each.streaming)

    # ------------------------------------------------------------ pods

    async def run_pod(
        self,
        name: str,
        limits: Mapping[str, int] | None = None,
        *,
        namespace: str = "default",
        init: Sequence[Container] | Mapping[str, int] = (),
        containers: Sequence[Container] = (),
    ) -> Pod:
        """Bind a pod to the node; returns once it was admitted or refused, or while nobody is there to admit it.

        ``init`` may be the limits of one plain init container ``i``.
        """
        if isinstance(init, Mapping):
            init = (Container("i", dict(init)),)
        pod = self.api.create(name, limits, namespace=namespace, init=init, containers=containers)
        life = self._life
        if self.up and self.api.answering and life.core.ready:
            await self._step(life, lambda: life.core.add(pod))
        return pod

    def delete_pod(self, name: str, namespace: str = "default") -> None:
        """The pod is gone from the API server; a kubelet that hears of it ends its containers."""
        pod = self.api.delete(name, namespace)
        if pod is not None and self.api.answering:
            self.core.forget(pod)

    def end_pod(self, name: str, namespace: str = "default", *, phase: Phase = Phase.SUCCEEDED) -> None:
        """All containers of the pod ended; it stays on the API server."""
        pod = self.api.find(name, namespace)
        pod.phase, pod.running = phase, frozenset()

    def pod(self, name: str, namespace: str = "default") -> Pod:
        return self.api.find(name, namespace)

    # ------------------------------------------------------------ what the kubelet shows

    def capacity(self, resource: str) -> int:
        return self.core.capacity().capacity.get(resource, 0)

    def allocatable(self, resource: str) -> int:
        return self.core.capacity().allocatable.get(resource, 0)

    def node(self) -> Mapping[str, tuple[int, int]]:
        """(capacity, allocatable) by resource, as the Node object shows it after a sample now. Keys never go."""
        return dict(self.core.sample()) if self.up else dict(self._node)

    def devices(self, resource: str) -> dict[str, bool]:
        """The list as it stands with the kubelet: id and whether it is healthy there."""
        return self.core.devices(resource)

    def held(self, resource: str) -> frozenset[str]:
        """Ids that the device manager thinks are in use."""
        return self.core.held(resource)

    def list_pods(self) -> tuple[PodDevices, ...]:
        """podresources List, merged. Transient while the kubelet is down."""
        if not self.up:
            raise Transient("listing pods: Connection refused")
        return merged(self.core.pod_resources())

    async def read_list(self) -> tuple[PodDevices, ...]:
        """``list_pods`` as the agent calls it: rate limited."""
        await trio.lowlevel.checkpoint()
        if self.up and not self._limit.take():
            raise Transient(f"listing pods: RESOURCE_EXHAUSTED: {texts.RATE_LIMITED}")
        return self.list_pods()

    def checkpoint(self) -> bytes | None:
        """The checkpoint file; None: there is none."""
        if self._raw is not None:
            return self._raw
        return None if self._books is None else self._books.text

    def lose_checkpoint(self) -> None:
        self._books = self._raw = None

    def spoil_checkpoint(self, text: bytes) -> None:
        """Somebody else writes the file; the next write of the kubelet mends it."""
        self._raw = text
