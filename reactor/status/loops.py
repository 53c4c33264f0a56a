"""Whether both loops turn, and how late: the probe itself runs on trio's, asyncio's is asked now and then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

HEARTBEAT = 5.0
"""Seconds between two questions to the asyncio loop whether it turns."""
TRIO, ASYNCIO = "trio", "asyncio"
LOOPS = (TRIO, ASYNCIO)


class Loops:
    def __init__(self, living: Callable[[], Awaitable[int]], late: Callable[[str, float], None]) -> None:
        """``living`` asks the asyncio loop for its number of tasks; ``late`` is told by how many seconds a loop came
        late to a heartbeat.
        """
        self._living = living
        self._late = late
        self._turned = trio.current_time()
        self._asyncio_tasks = 0

    async def watch(self) -> None:
        while True:
            asked = trio.current_time()
            self._asyncio_tasks = await self._living()
            self._turned = trio.current_time()
            self._late(ASYNCIO, self._turned - asked)
            await trio.sleep(HEARTBEAT)
            self._late(TRIO, trio.current_time() - self._turned - HEARTBEAT)

    def ages(self) -> Mapping[str, float]:
        return {TRIO: 0.0, ASYNCIO: max(0.0, trio.current_time() - self._turned - HEARTBEAT)}

    def tasks(self) -> Mapping[str, int]:
        return {TRIO: trio.lowlevel.current_statistics().tasks_living, ASYNCIO: self._asyncio_tasks}
