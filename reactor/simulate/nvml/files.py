"""/dev and /sys of a simulated node, as far as the agent looks: device nodes (plain files), NUMA nodes, bindings.

Laid out below a directory, which is then both the dev root and the parent of the sysfs root, and kept in step with
what is plugged in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from reactor.simulate.nvml.codes import ABSENT, UNLOADED
from reactor.simulate.nvml.hardware import Hardware, SimGpu

_COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


class NodeFiles:
    def __init__(self, hardware: Hardware, root: Path) -> None:
        self._hardware = hardware
        self._dev = root / "dev"
        self._devices = root / "sys/bus/pci/devices"
        self._driver = root / "sys/bus/pci/drivers/nvidia"
        self._seen: tuple[object, ...] = ()
        for directory in (self._dev, self._devices):
            directory.mkdir(parents=True, exist_ok=True)
        for node in sorted({gpu.numa for gpu in hardware.gpus if gpu.numa >= 0}):
            (root / f"sys/devices/system/node/node{node}").mkdir(parents=True, exist_ok=True)

    def update(self) -> None:
        """Make the files say what is plugged in now; cheap if nothing moved."""
        away = self._hardware.driver in (ABSENT, UNLOADED)
        seen = (away, *((gpu.present, gpu.minor, gpu.numa) for gpu in self._hardware.gpus))
        if seen == self._seen:
            return
        self._seen = seen
        if not away:
            self._driver.mkdir(parents=True, exist_ok=True)
        for gpu in self._hardware.gpus:
            self._update_gpu(gpu, away)
        for name in _COMMON:
            _exist(self._dev / name, not away)
        if away and self._driver.is_dir():
            self._driver.rmdir()

    def _update_gpu(self, gpu: SimGpu, away: bool) -> None:
        device = self._devices / gpu.pci
        if gpu.present:
            device.mkdir(exist_ok=True)
            (device / "numa_node").write_text(f"{gpu.numa}\n")
        elif device.is_dir():
            (device / "numa_node").unlink(missing_ok=True)
            device.rmdir()
        _exist(self._dev / f"nvidia{gpu.minor}", gpu.present and not away)
        if self._driver.is_dir():
            _exist(self._driver / gpu.pci, gpu.present and not away)


def _exist(path: Path, wanted: bool) -> None:
    if wanted:
        path.touch()
    else:
        path.unlink(missing_ok=True)


def lay_out(hardware: Hardware, root: Path) -> Callable[[], None]:
    """Lay the files out and keep them in step; returns what ends that."""
    files = NodeFiles(hardware, root)
    files.update()
    return hardware.on_change(files.update)
