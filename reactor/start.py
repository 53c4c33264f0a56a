"""How an agent process starts: NVML first, since that is what everything waits for.

The worker takes as long to come up as the larger half of this process takes to load (gRPC, the config reader, the
bus and all that stands on it), so the two are done side by side: only trio and the NVML client are loaded before.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

import trio

from reactor.model.gpu import Inventory
from reactor.model.settings import Settings
from reactor.nvml import Nvml, NvmlClient
from reactor.nvml.notes import Note

Hardware = Callable[[Settings], AbstractAsyncContextManager[Nvml]]


def main(settings: Settings, hardware: Hardware | None = None) -> int:
    """Run the agent until it ends; the exit code. ``hardware``: NVML other than the host's (simulated)."""
    gc.disable()  # until all is loaded: there is no garbage yet, only more and more to look through
    return trio.run(_run, settings, hardware or host_nvml, strict_exception_groups=True)


@asynccontextmanager
async def host_nvml(settings: Settings) -> AsyncIterator[Nvml]:
    """The host's NVML, behind the worker process."""
    root = settings.container_driver_root
    yield NvmlClient(driver_root=root, dev_root=root if (root / "dev").is_dir() else Path("/"))


async def _run(settings: Settings, hardware: Hardware) -> int:
    async with hardware(settings) as nvml, trio.open_nursery() as nursery:
        await nursery.start(nvml.run)
        await trio.to_thread.run_sync(_load)
        gc.freeze()
        gc.enable()
        from reactor import agent

        code = await agent.run(settings, lambda settings: nullcontext(Running(nvml)))
        nursery.cancel_scope.cancel()
    return code


def _load() -> None:
    import reactor.agent  # noqa: F401 - in a thread, so that the loop can start the worker and hear of it


class Running:
    """NVML that somebody else runs."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    @property
    def notes(self) -> trio.MemoryReceiveChannel[Note]:
        return self._nvml.notes

    @property
    def beats(self) -> int:
        return self._nvml.beats

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep_forever()

    async def scan(self) -> Inventory:
        return await self._nvml.scan()

    async def renew(self, reason: str) -> None:
        await self._nvml.renew(reason)
