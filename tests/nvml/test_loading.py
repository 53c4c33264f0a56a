"""Which libnvidia-ml.so.1 is loaded, and that a real shared library works under the worker."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from reactor.model.gpu import DriverState, MigMode
from reactor.nvml import NvmlClient, NvmlUnavailable
from reactor.nvml.link import import_paths
from reactor.nvml.loading import NvmlFailed, check_binding, identity, locate
from reactor.nvml.notes import Xid

NAME = "libnvidia-ml.so.1"
COMPILER = shutil.which("cc")


def place(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / NAME).touch()
    return directory / NAME


def test_the_library_is_looked_for_below_the_driver_root_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert locate(str(tmp_path)) == NAME
    later = place(tmp_path / "usr/lib/x86_64-linux-gnu")
    assert locate(str(tmp_path)) == str(later)
    first = place(tmp_path / "usr/lib64")
    assert locate(str(tmp_path)) == str(first)
    assert locate("/") == NAME


def test_ld_library_path_comes_before_the_driver_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(tmp_path / "root/usr/lib64")
    given = place(tmp_path / "given")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path / 'empty'}:{given.parent}")
    assert locate(str(tmp_path / "root")) == str(given)


def test_a_library_that_took_the_place_of_another_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    file = place(tmp_path / "usr/lib64")
    before = identity(str(tmp_path))
    assert identity(str(tmp_path)) == before
    (tmp_path / "new").write_bytes(b"another")
    (tmp_path / "new").rename(file)
    assert identity(str(tmp_path)) != before


def test_the_binding_in_use_is_that_of_nvidia() -> None:
    """NVM-04"""
    check_binding()


def test_a_foreign_module_of_the_same_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVM-04"""
    (tmp_path / "foreign_nvml.py").write_text("def nvmlInit(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NvmlFailed, match=r"foreign_nvml in .* is not the one of the package nvidia-ml-py"):
        check_binding("foreign_nvml")


def test_a_binding_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVM-04"""
    (tmp_path / "old_nvml.py").write_text("def nvmlInit(): ...\n")
    (tmp_path / "nvidia_ml_py-11.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NvmlFailed, match=r"nvidia-ml-py 11\.0 in .* is too old"):
        check_binding("old_nvml")


Build = Callable[[Path, str], Path]


@pytest.fixture(scope="module")
def build() -> Build:
    if COMPILER is None:
        pytest.skip("needs a C compiler")

    def build(root: Path, version: str) -> Path:
        """A library below a driver root, put there whole."""
        directory = root / "usr/lib64"
        directory.mkdir(parents=True, exist_ok=True)
        source = Path(__file__).with_name("stub.c")
        fresh = directory / "fresh.so"
        flags = ["-shared", "-fPIC", "-w", f'-DVERSION="{version}"']
        subprocess.run([COMPILER, *flags, "-o", fresh, source], check=True)
        return fresh.rename(directory / NAME)

    return build


async def test_a_shared_library_is_scanned_and_watched(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build
) -> None:
    """NVM-05"""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    build(tmp_path, "550.1")
    nvml = NvmlClient(driver_root=tmp_path, dev_root=tmp_path, sys_root=tmp_path)
    await nursery.start(nvml.run)
    found = await nvml.scan()
    (gpu,) = found.gpus
    assert (found.driver.version, found.driver.cuda) == ("550.1", (12, 4))
    assert (gpu.pci, gpu.minor, gpu.product) == ("10000:af:01.0", 5, "Stub GPU")
    assert (gpu.memory, gpu.mig, gpu.recovery, gpu.monitored) == (None, MigMode.UNSUPPORTED, None, True)
    with trio.fail_after(5):
        while not isinstance(note := await nvml.notes.receive(), Xid):
            pass
    assert note == Xid(gpu=gpu.uuid, pci=gpu.pci, code=79)


async def test_a_library_installed_later_is_loaded_and_a_newer_one_after_a_failure(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Build
) -> None:
    """DRV-01"""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setenv("STUB_INIT", "9")
    nvml = NvmlClient(driver_root=tmp_path, dev_root=tmp_path, sys_root=tmp_path)
    await nursery.start(nvml.run)
    for _ in range(2):
        with pytest.raises(NvmlUnavailable, match=r"libnvidia-ml.so.1 cannot be loaded") as caught:
            await nvml.scan()
        assert caught.value.state is DriverState.ABSENT
    build(tmp_path, "550.1")
    with pytest.raises(NvmlUnavailable, match="Driver Not Loaded") as caught:
        await nvml.scan()
    assert caught.value.state is DriverState.ABSENT
    monkeypatch.delenv("STUB_INIT")
    build(tmp_path, "560.2")  # only a new process sees that file, and the changed environment
    found = await nvml.scan()
    assert (found.driver.version, found.generation) == ("560.2", 1)


def test_the_worker_imports_nothing_heavy() -> None:
    code = "import sys; sys.path += sys.argv[1:]; import reactor.nvml.worker; print(*sorted(sys.modules))"
    command = [sys.executable, "-I", "-S", "-c", code, *import_paths()]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert not {"trio", "asyncio", "msgspec", "typing", "dataclasses", "inspect", "reactor.model"} & set(loaded)
