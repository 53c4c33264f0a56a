"""Finding the C functions of NVML: the real library by path, or a provider by dotted name.

The worker is told a provider by name, so that nothing below the simulation imports the simulation.
"""

from __future__ import annotations

import ctypes
import os
from importlib import import_module

_NAME = "libnvidia-ml.so.1"
_DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)


class NvmlFailed(Exception):
    """NVML as a whole cannot be used; ``state`` is a value of DriverState."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state


def locate(driver_root: str) -> str:
    """Path of the library: LD_LIBRARY_PATH, the driver root, and last the plain name, which the loader looks up."""
    given = [d for d in os.environ.get("LD_LIBRARY_PATH", "").split(":") if d]
    below = [os.path.join(driver_root, d) for d in _DIRECTORIES] if driver_root not in ("", "/") else []
    for directory in given + below:
        path = os.path.join(directory, _NAME)
        if os.path.exists(path):
            return path
    return _NAME


def identity(driver_root: str) -> tuple[str, int, int]:
    """Tells one library file from another that took its place."""
    path = locate(driver_root)
    try:
        found = os.stat(path)
    except OSError:
        return (path, 0, 0)
    return (path, found.st_ino, found.st_mtime_ns)


def load(driver_root: str, provider: str = "") -> object:
    """The functions: of the library on this host, or of ``module:function:argument``."""
    if provider:
        module, function, argument = provider.split(":", 2)
        found: object = getattr(import_module(module), function)(argument)
        return found
    check_binding()
    path = locate(driver_root)
    try:
        return ctypes.CDLL(path)
    except OSError as exc:
        raise NvmlFailed("absent", f"{_NAME} cannot be loaded: {exc}") from exc


def check_binding(module: str = "pynvml", distribution: str = "nvidia-ml-py") -> None:
    """Refuse a foreign package that has the same import name (NVM-04): it would fail later and less clearly."""
    found = import_module(module)
    where = os.path.realpath(found.__file__ or "")
    metadata = [n for n in os.listdir(os.path.dirname(where)) if n.endswith(".dist-info")]
    own = distribution.replace("-", "_") + "-"
    versions = [n.removeprefix(own).removesuffix(".dist-info") for n in metadata if n.startswith(own)]
    if not versions:
        raise NvmlFailed("failed", f"the module {module} in {where} is not the one of the package {distribution}")
    if not hasattr(found, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"):
        raise NvmlFailed("failed", f"{distribution} {versions[0]} in {where} is too old")
