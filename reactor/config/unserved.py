"""Keys that are valid for the device plugin and that this version reads without acting on them.

Each is told of only if it is set to something else than its default. When something comes to act on a key, its line
here goes.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reactor.config.schema import File
from reactor.model.config import SERVED_STRATEGIES, Config, Flags, ListedDevices, Unserved

_MESSAGES: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("flags.migStrategy", (), "MIG devices are not served yet"),
    ("flags.mpsRoot", (), "MPS is not served yet"),
    ("flags.useNodeFeatureAPI", (), "node labels are not written yet"),
    ("flags.deviceDiscoveryStrategy", ("nvml",), "devices are found through NVML only"),
    ("flags.plugin.cdiAnnotationPrefix", (), "CDI is not served yet"),
    ("flags.plugin.nvidiaCTKPath", (), "CDI is not served yet"),
    ("flags.gfd", (), "node labels are not written yet"),
    ("resources.mig", (), "MIG devices are not served yet"),
    ("sharing.mps", (), "MPS is not served yet; the resources that it names are not advertised"),
    ("cdi.featureFlags", (), "CDI is not served yet"),
    ("cdi.disableHooks", (), "CDI is not served yet"),
)
"""(path, values that are served beside the default, message)"""

MESSAGES = {path: message for path, _, message in _MESSAGES}


def unserved(file: File, config: Config, *, flagged: bool) -> Iterator[Unserved]:
    """What of an accepted file, and of what it was read as, has no effect in this version.

    ``flagged``: where the driver root is mounted was said by a flag or a variable.
    """
    written, default = msgspec.to_builtins(file), msgspec.to_builtins(File())
    for path, served, message in _MESSAGES:
        value = _at(written, path)
        if value != _at(default, path) and value not in served:
            yield Unserved(path=path, message=message)
    if config.flags.container_driver_root != Flags().container_driver_root and not flagged:
        message = "the driver is looked for before the file is read: say it by --driver-root-ctr-path or its variable"
        yield Unserved(path="flags.plugin.containerDriverRoot", message=message)
    others = [strategy for strategy in config.flags.device_list_strategy if strategy not in SERVED_STRATEGIES]
    if others:
        known = " and ".join(SERVED_STRATEGIES)
        message = f"containers are told their devices by {known} only, so far, not by {', '.join(others)}"
        yield Unserved(path="flags.plugin.deviceListStrategy", message=message)
    for index, resource in enumerate(config.time_slicing.resources):
        if isinstance(resource.devices, ListedDevices) and resource.devices.mig:
            path = f"sharing.timeSlicing.resources[{index}].devices"
            yield Unserved(path=path, message="MIG devices are not served yet, so they are not shared either")


def _at(plain: object, path: str) -> object:
    for key in path.split("."):
        plain = plain.get(key) if isinstance(plain, dict) else None
    return plain
