"""Device nodes that a scan sees."""

from __future__ import annotations

from pathlib import Path

import trio

from reactor.simulate.nvml.direct import direct
from reactor.simulate.nvml.files import lay_out
from reactor.simulate.nvml.hardware import Hardware


async def test_imex_channels_are_seen_as_they_come(nursery: trio.Nursery, tmp_path: Path) -> None:
    hardware = Hardware("1xH100")
    lay_out(hardware, tmp_path)
    nvml = direct(hardware, tmp_path)
    await nursery.start(nvml.run)
    channel = "/dev/nvidia-caps-imex-channels/channel0"
    assert channel not in (await nvml.scan()).nodes
    (tmp_path / "dev/nvidia-caps-imex-channels").mkdir()
    (tmp_path / channel.removeprefix("/")).touch()
    assert channel in (await nvml.scan()).nodes
