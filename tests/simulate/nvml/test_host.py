"""Hardware behind a socket: for workers, and for scripts that say what happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from reactor.simulate.nvml.files import lay_out
from reactor.simulate.nvml.hardware import Hardware
from reactor.simulate.nvml.host import Host
from reactor.simulate.nvml.remote import Control, Remote

ROOT = Path(__file__).parents[3]


@pytest.fixture
async def host(nursery: trio.Nursery, tmp_path: Path) -> Host:
    host = Host(Hardware("2xH100"), tmp_path / "gpus.sock")
    await nursery.start(host.run)
    return host


async def test_a_script_tells_the_hardware_what_happens(host: Host) -> None:
    def script() -> None:
        control = Control(str(host.path))
        control.do("unplug", 0)
        control.do("fail", "nvmlDeviceGetName", 999, None, 1)
        with pytest.raises(RuntimeError, match="none of"):
            control.do("__init__")
        with pytest.raises(RuntimeError, match="missing"):
            control.do("xid")
        control.close()

    await trio.to_thread.run_sync(script)
    assert not host.hardware.gpus[0].present


async def test_what_a_process_had_goes_with_its_last_connection(host: Host) -> None:
    def worker() -> tuple[int, list[int | str]]:
        remote = Remote(str(host.path))
        remote.call("nvmlInitWithFlags", [0])
        answer = remote.call("nvmlEventSetCreate", [])
        remote.close()
        return answer

    code, (made,) = await trio.to_thread.run_sync(worker)
    assert code == 0
    with trio.fail_after(1):
        while not host.hardware.pending(int(made)):  # an unknown set is answered at once
            await trio.lowlevel.checkpoint()


async def test_files_follow_what_is_plugged_in(tmp_path: Path) -> None:
    hardware = Hardware("2xH100", minors=[5, 0])
    off = lay_out(hardware, tmp_path)
    numa = tmp_path / "sys/bus/pci/devices/0000:0b:00.0/numa_node"
    assert numa.read_text() == "1\n"
    assert {path.name for path in (tmp_path / "dev").iterdir()} >= {"nvidia5", "nvidia0", "nvidiactl"}
    hardware.unplug(0)
    assert not (tmp_path / "dev/nvidia5").exists()
    hardware.set_driver("unloaded")
    assert not list((tmp_path / "dev").iterdir())
    assert numa.exists()
    off()
    hardware.set_driver("ready")
    assert not list((tmp_path / "dev").iterdir())


async def test_hardware_can_live_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "gpus.sock"
    command = [sys.executable, "-m", "reactor.simulate.nvml.host", "1xT4", str(path), str(tmp_path)]
    process = await trio.lowlevel.open_process(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with trio.fail_after(10):
        assert await process.stdout.receive_some() == b"ready\n"

    def ask() -> tuple[int, list[int | str]]:
        remote = Remote(str(path))
        remote.call("nvmlInitWithFlags", [0])
        found = remote.call("nvmlDeviceGetCount_v2", [])
        remote.close()
        return found

    assert await trio.to_thread.run_sync(ask) == (0, [1])
    assert (tmp_path / "dev/nvidia0").exists()
    process.terminate()
    await process.wait()
    await process.stdout.aclose()
