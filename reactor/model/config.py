"""The typed config: what a k8s-device-plugin v1 file (and our own sections) comes to once it is accepted.

``reactor.config`` reads and checks text into these values; everything else only reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from reactor.model.condition import XidClass
from reactor.model.ids import GpuUuid, PciAddress, ResourceName

Plain: TypeAlias = "bool | int | float | str | tuple[Plain, ...] | Mapping[str, Plain] | None"
"""A value as JSON knows it."""


class Source(StrEnum):
    """Where a value of the config in force comes from; the later goes before the earlier."""

    DEFAULT = "default"
    FILE = "file"
    VARIABLE = "variable"
    FLAG = "flag"


class Setting(Struct, frozen=True, kw_only=True):
    """The value of one key of the config, and who says so."""

    path: str
    """Such as flags.plugin.passDeviceSpecs."""
    value: Plain
    source: Source
    name: str = ""
    """Of the flag or variable."""


class MigStrategy(StrEnum):
    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class DeviceListStrategy(StrEnum):
    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"


SERVED_STRATEGIES = (DeviceListStrategy.ENVVAR, DeviceListStrategy.VOLUME_MOUNTS)
"""Each of them tells a container its devices whatever else is asked for; the others wait for CDI."""


class DeviceIdStrategy(StrEnum):
    UUID = "uuid"
    INDEX = "index"


class AllocationPolicy(StrEnum):
    """Which shares are preferred."""

    DISTRIBUTED = "distributed"
    """Of the GPU that is used least."""
    PACKED = "packed"
    """Of the GPU that is used most."""


class HoldsPolicy(StrEnum):
    """What happens to a GPU that a pod owns under one identity when the config wants another."""

    WAIT = "wait"
    """The new ids are withheld until the pod ends."""
    ALLOW = "allow"
    """As the peer does: the new ids are handed out at once."""


class Flags(Struct, frozen=True, kw_only=True):
    """Section ``flags`` with ``flags.plugin`` folded in, defaults as upstream's."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    fail_on_init_error: bool = True
    nvidia_driver_root: str = "/"
    nvidia_dev_root: str = ""
    """Empty: the driver root."""
    pass_device_specs: bool = False
    device_list_strategy: tuple[DeviceListStrategy, ...] = (DeviceListStrategy.ENVVAR,)
    device_id_strategy: DeviceIdStrategy = DeviceIdStrategy.UUID
    container_driver_root: str = "/driver-root"
    shared_devices_allocation_policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False

    @property
    def dev_root(self) -> str:
        return self.nvidia_dev_root or self.nvidia_driver_root


class AllDevices(Struct, frozen=True):
    """``devices: all``"""


class FirstDevices(Struct, frozen=True):
    """``devices: N``: the N lowest indices."""

    count: int


class ListedDevices(Struct, frozen=True):
    """``devices: [..]``: each an index, a UUID, or a MIG index such as 0:1 (kept as text)."""

    indices: frozenset[int] = frozenset()
    uuids: frozenset[GpuUuid] = frozenset()
    mig: frozenset[str] = frozenset()


DeviceSelector = AllDevices | FirstDevices | ListedDevices


class SharedResource(Struct, frozen=True, kw_only=True):
    """One entry of ``sharing.timeSlicing.resources``."""

    name: ResourceName
    """Full name, prefix included."""
    rename: ResourceName | None = None
    """Name of the shares, None: as ``name``. renameByDefault is already applied."""
    devices: DeviceSelector = AllDevices()
    replicas: int


class TimeSlicing(Struct, frozen=True, kw_only=True):
    fail_requests_greater_than_one: bool = False
    resources: tuple[SharedResource, ...] = ()


class ResourcePattern(Struct, frozen=True, kw_only=True):
    """One entry of ``resources.gpus``: products that match ``pattern`` (``*``: any run) get ``name``."""

    pattern: str
    name: ResourceName


class Imex(Struct, frozen=True, kw_only=True):
    """Section ``imex``: channels that every container is given."""

    channels: tuple[int, ...] = ()
    required: bool = False
    """Nothing is handed out while a channel's node is missing."""


class Health(Struct, frozen=True, kw_only=True):
    """Section ``health``: what differs from the table of XIDs and from the times of ``condition.Policy``."""

    xids: tuple[tuple[int, XidClass], ...] = ()
    """By number."""
    classes: tuple[tuple[XidClass, XidClass], ...] = ()
    """Class of the table -> class in force."""
    quiet_unknown: float = 60.0
    """Seconds; FOREVER: time lifts nothing."""
    quiet_unreachable: float = 5.0
    relapse_limit: int = 3
    """0: never."""
    relapse_window: float = 24 * 3600.0


class Selection(Struct, frozen=True, kw_only=True):
    """GPUs that any of these names."""

    indices: frozenset[int] = frozenset()
    uuids: frozenset[GpuUuid] = frozenset()
    pci: frozenset[PciAddress] = frozenset()
    products: tuple[str, ...] = ()
    """Patterns."""


class Select(Struct, frozen=True, kw_only=True):
    """Section ``select``: which GPUs are listed at all."""

    include: Selection | None = None
    """None: all."""
    exclude: Selection | None = None
    """Goes before ``include``."""


class Unserved(Struct, frozen=True, kw_only=True):
    """A key that is valid upstream and that this version reads without acting on it."""

    path: str
    message: str


DEFAULT_RESOURCE = ResourceName("nvidia.com/gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One accepted config, whole."""

    flags: Flags = field(default_factory=Flags)
    gpus: tuple[ResourcePattern, ...] = (ResourcePattern(pattern="*", name=DEFAULT_RESOURCE),)
    time_slicing: TimeSlicing = field(default_factory=TimeSlicing)
    mps: frozenset[ResourceName] = frozenset()
    """Resources that ``sharing.mps`` names: not served yet, so not advertised (never as whole GPUs)."""
    imex: Imex = field(default_factory=Imex)
    select: Select = field(default_factory=Select)
    health: Health = field(default_factory=Health)
    holds: HoldsPolicy = HoldsPolicy.WAIT
    unserved: tuple[Unserved, ...] = field(default=())
    settings: tuple[Setting, ...] = field(default=(), compare=False, repr=False)
    """Every key of the file with its value and its source, for people: what is acted on are the fields above."""


class ConfigProblem(Struct, frozen=True, kw_only=True):
    """One fault of a config text. Lines and columns count from 1; 0: the file as a whole."""

    line: int
    column: int
    path: str
    """Such as sharing.timeSlicing.resources[0].replicas; empty for the document itself."""
    message: str
    """What is wrong and what to do, in one sentence."""
    peer: str = ""
    """What the device plugin makes of it instead. Empty: it refuses it as well, as far as is known."""

    def render(self, file: str) -> str:
        where = f"{file}:{self.line}:{self.column}: " if self.line else f"{file}: "
        return where + (f"{self.path}: " if self.path else "") + self.message
