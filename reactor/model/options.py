"""The device plugin's flags and variables that say what the file can say as well, in one table.

``cli`` makes flags of it, ``config.overrides`` reads their values, ``docs/options.md`` lists it. It stands here since
the agent reads its command line first, and loads what stands on YAML while the NVML worker starts. Flags that have no
key in the file (where the kubelet is, where the file is) are ``cli.settings``' own.
"""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from reactor.model.config import Source


class Kind(Enum):
    """How the text of a flag or variable is read; the key's own rules then judge the value."""

    TEXT = auto()
    BOOL = auto()
    """1, t, T, TRUE, true, True and their opposites, as Go has them; the bare flag is true."""
    LIST = auto()
    """Commas, and a flag may be repeated."""
    NUMBERS = auto()
    """A list of whole numbers, also 0x1f, 0o17 and 0b11."""


class Option(Struct, frozen=True, kw_only=True):
    flags: tuple[str, ...]
    """All are the same option; only one of them may be given."""
    variables: tuple[str, ...]
    """The first that is set counts."""
    path: str
    """Key of the file."""
    kind: Kind = Kind.TEXT
    empty: str | None = None
    """What an empty value stands for. None: it is refused."""


class Given(Struct, frozen=True, kw_only=True):
    """What was said of one option: each text of a flag that was repeated, or the text of a variable."""

    option: Option
    source: Source
    name: str
    texts: tuple[str, ...]


def _option(path: str, flags: str, variables: str, kind: Kind = Kind.TEXT, empty: str | None = None) -> Option:
    if kind is Kind.BOOL:
        empty = "false"
    return Option(flags=tuple(flags.split()), variables=tuple(variables.split()), path=path, kind=kind, empty=empty)


OPTIONS = (
    _option("flags.migStrategy", "--mig-strategy", "MIG_STRATEGY"),
    _option("flags.failOnInitError", "--fail-on-init-error", "FAIL_ON_INIT_ERROR", Kind.BOOL),
    _option("flags.nvidiaDriverRoot", "--driver-root --nvidia-driver-root", "NVIDIA_DRIVER_ROOT", empty="/"),
    _option("flags.nvidiaDevRoot", "--dev-root --nvidia-dev-root", "NVIDIA_DEV_ROOT", empty=""),
    _option("flags.mpsRoot", "--mps-root", "MPS_ROOT", empty=""),
    _option("flags.gdrcopyEnabled", "--gdrcopy-enabled", "GDRCOPY_ENABLED", Kind.BOOL),
    _option("flags.gdsEnabled", "--gds-enabled", "GDS_ENABLED", Kind.BOOL),
    _option("flags.mofedEnabled", "--mofed-enabled", "MOFED_ENABLED", Kind.BOOL),
    _option("flags.deviceDiscoveryStrategy", "--device-discovery-strategy", "DEVICE_DISCOVERY_STRATEGY"),
    _option("flags.plugin.passDeviceSpecs", "--pass-device-specs", "PASS_DEVICE_SPECS", Kind.BOOL),
    _option("flags.plugin.deviceListStrategy", "--device-list-strategy", "DEVICE_LIST_STRATEGY", Kind.LIST),
    _option("flags.plugin.deviceIDStrategy", "--device-id-strategy", "DEVICE_ID_STRATEGY"),
    _option("flags.plugin.cdiAnnotationPrefix", "--cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX", empty=""),
    _option(
        "flags.plugin.nvidiaCTKPath",
        "--nvidia-cdi-hook-path --nvidia-ctk-path",
        "NVIDIA_CDI_HOOK_PATH NVIDIA_CTK_PATH",
    ),
    _option(
        "flags.plugin.containerDriverRoot",
        "--driver-root-ctr-path --container-driver-root",
        "DRIVER_ROOT_CTR_PATH CONTAINER_DRIVER_ROOT",
        empty="/",
    ),
    _option(
        "flags.plugin.sharedDevicesAllocationPolicy",
        "--shared-devices-allocation-policy",
        "SHARED_DEVICES_ALLOCATION_POLICY",
    ),
    # An empty list of channels is one that says nothing, in the peer too: the file's stays.
    _option("imex.channelIDs", "--imex-channel-ids", "IMEX_CHANNEL_IDS", Kind.NUMBERS, empty=""),
    _option("imex.required", "--imex-required", "IMEX_REQUIRED", Kind.BOOL),
    _option("cdi.featureFlags", "--cdi-feature-flags", "CDI_FEATURE_FLAGS", Kind.LIST, empty=""),
    _option("cdi.disableHooks", "--cdi-disable-hooks", "CDI_DISABLE_HOOKS", Kind.LIST, empty=""),
)
"""Names, aliases and variables are the peer's; the last two have a key only here."""

DRIVER_ROOT = "flags.plugin.containerDriverRoot"
"""What it says, the process needs before there is a config."""
