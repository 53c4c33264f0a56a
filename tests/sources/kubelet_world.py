"""A state that facts about the kubelet change, as much of it as the kubelet and podresources sources look at."""

from __future__ import annotations

from collections.abc import Callable

import trio

from reactor.events import Fact, KubeletDown, KubeletUp
from reactor.model.ids import ResourceName
from reactor.model.kubelet import StreamId
from reactor.model.value import replace
from reactor.state import Plugin, State

GPU = ResourceName("nvidia.com/gpu")


class World:
    """Folds what a source publishes and wakes who waits for a state."""

    def __init__(self) -> None:
        self.state = State()
        self.facts: list[Fact] = []
        self.times: list[float] = []
        self._changed = trio.Event()

    def publish(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.times.append(trio.current_time())
        kubelet = self.state.kubelet
        match fact:
            case KubeletUp(identity=identity):
                kubelet = replace(kubelet, identity=identity, doubted=False, life=kubelet.life + 1)
            case KubeletDown():
                kubelet = replace(kubelet, identity=None, doubted=False)
            case _:
                pass
        self.set(replace(self.state, kubelet=kubelet))

    def set(self, state: State) -> None:
        self.state = state
        self._changed.set()
        self._changed = trio.Event()

    def streams(self, *numbers: int, doubted: bool = False) -> None:
        """Our streams as they are now; ``doubted``: one has ended."""
        plugin = Plugin(socket="a.sock", streams=frozenset(map(StreamId, numbers)))
        kubelet = replace(self.state.kubelet, plugins={GPU: plugin}, doubted=doubted)
        self.set(replace(self.state, kubelet=kubelet))

    async def until(self, predicate: Callable[[State], bool]) -> State:
        while not predicate(self.state):
            await self._changed.wait()
        return self.state

    async def seen(self, count: int) -> None:
        with trio.fail_after(100):
            await self.until(lambda state: len(self.facts) >= count)
