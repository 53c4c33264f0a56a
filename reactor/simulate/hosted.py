"""Simulated NVML for an agent on a real node: ``gpu-reactor run --simulate-nvml 8xH100``.

The hardware lives in the agent's process, outside the worker. With the path of a socket in place of a spec it lives in
a process of its own (``python -m reactor.simulate.nvml.host SPEC SOCKET ROOT``) and outlives the agent, too; the socket
is looked for in ROOT's neighbourhood: device nodes and sysfs files are taken from its directory.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from reactor.model.settings import Settings
from reactor.nvml import Nvml, NvmlClient
from reactor.simulate.nvml import provider


@asynccontextmanager
async def simulated_nvml(settings: Settings) -> AsyncIterator[Nvml]:
    """The NVML client of an agent whose settings ask for simulated GPUs."""
    if "/" in settings.simulate_nvml:
        socket = Path(settings.simulate_nvml)
        yield NvmlClient(provider=provider(str(socket)), dev_root=socket.parent, sys_root=socket.parent / "sys")
        return
    # Only here: an agent with a host beside it is as lean as one on real GPUs.
    from reactor.simulate.nvml.files import lay_out
    from reactor.simulate.nvml.hardware import Hardware
    from reactor.simulate.nvml.host import Host

    with tempfile.TemporaryDirectory(prefix="gpu-reactor-sim-") as folder:
        root = Path(folder)
        hardware = Hardware(settings.simulate_nvml)
        host = Host(hardware, root / "nvml.sock")
        lay_out(hardware, root)
        async with trio.open_nursery() as nursery:
            await nursery.start(host.run)
            yield NvmlClient(provider=host.provider, dev_root=root, sys_root=root / "sys")
            nursery.cancel_scope.cancel()
