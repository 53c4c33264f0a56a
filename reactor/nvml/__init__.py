"""NVML: the calls (``library``, ``watch``), the child that makes them (``worker``), the trio side (``client``).

``Nvml`` is what the rest of the agent sees. ``NvmlClient`` runs the child, ``DirectNvml`` makes the calls in place,
over simulated functions. The worker imports this package too and must stay lean, so a name is imported when it
is asked for.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reactor.nvml.client import NvmlClient as NvmlClient
    from reactor.nvml.direct import DirectNvml as DirectNvml
    from reactor.nvml.interface import Nvml as Nvml
    from reactor.nvml.interface import NvmlUnavailable as NvmlUnavailable

_HOME = {
    "Nvml": "reactor.nvml.interface",
    "NvmlUnavailable": "reactor.nvml.interface",
    "NvmlClient": "reactor.nvml.client",
    "DirectNvml": "reactor.nvml.direct",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    value: object = getattr(import_module(_HOME[name]), name)
    return value
