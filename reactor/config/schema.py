"""The shape of the config file: one struct a mapping, one field a key, each with its default and its doc line.

The reader (``read.py``) walks a text along these types, the published JSON schema is made from them, and ``parse.py``
turns a filled ``File`` into the model's ``Config``. A new key is a field here, and a line in ``unserved.py`` until
something acts on it. What a type cannot say about a value is a ``Rule``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from reactor.config import values
from reactor.model.condition import XidClass
from reactor.model.config import AllocationPolicy, DeviceIdStrategy, DeviceListStrategy, HoldsPolicy, MigStrategy


class Rule(msgspec.Struct, frozen=True):
    """What is expected of a value, in words, and a check that tells what is wrong with it (None: nothing)."""

    expected: str
    check: Callable[[object], str | None] = values.accept
    null: bool = True
    """Whether null is as good as leaving the key out."""
    peer: Callable[[object], str] = values.refused_too
    """What the device plugin makes of a value that is refused here."""


class DiscoveryStrategy(StrEnum):
    AUTO = "auto"
    NVML = "nvml"
    TEGRA = "tegra"


def _rule(
    expected: str,
    check: Callable[[object], str | None],
    pattern: str | None = None,
    peer: Callable[[object], str] = values.refused_too,
) -> Meta:
    return Meta(
        extra={"rule": Rule(expected, check, peer=peer)},
        extra_json_schema=None if pattern is None else {"pattern": pattern},
    )


Name: TypeAlias = Annotated[
    str,
    _rule(
        "a resource name such as gpu or nvidia.com/gpu",
        values.check_name,
        r"^(nvidia\.com/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
    ),
]
Path: TypeAlias = Annotated[str, _rule("an absolute path", values.check_path, "^/", values.peer_takes_text)]
Replicas: TypeAlias = Annotated[
    int,
    Meta(ge=2, le=100_000),
    _rule(
        "a whole number of 2 or more (for no sharing, leave the entry out)",
        values.check_replicas,
        peer=values.peer_replicas,
    ),
]
Device: TypeAlias = (
    Annotated[int, Meta(ge=0), _rule("an index of 0 or more", values.check_index)]
    | Annotated[
        str,
        _rule(
            "an index, a UUID (GPU-... or MIG-...), or a MIG index such as 0:1",
            values.check_device,
            peer=values.peer_device,
        ),
    ]
)
Devices: TypeAlias = Annotated[
    Literal["all"]
    | Annotated[int, Meta(ge=1), _rule("1 or more", values.check_count)]
    | Annotated[list[Device], Meta(min_length=1), _rule("a list", values.check_devices, peer=values.peer_devices)],
    _rule("the word all, a number of GPUs, or a list of indices and UUIDs", values.accept),
]
DeviceListStrategies: TypeAlias = Annotated[
    Annotated[str, _rule("a strategy, or several with commas", values.check_strategies)] | list[DeviceListStrategy],
    _rule("a strategy or a list of strategies: " + ", ".join(DeviceListStrategy), values.accept),
]
Duration: TypeAlias = Annotated[
    str,
    _rule(
        "a duration with its unit, such as 60s or 1m30s, or the word infinite",
        values.check_duration,
        peer=values.peer_duration,
    ),
]
Window: TypeAlias = Annotated[str, _rule("a duration with its unit, such as 24h", values.check_window)]
Xids: TypeAlias = list[
    Annotated[int, Meta(ge=1, le=values.MAX_XID), _rule("an XID such as 79", values.check_xid)]
    | Annotated[str, _rule("a range such as 144-150", values.check_xid_range, "^[0-9]+-[0-9]+$")]
]
Version: TypeAlias = Annotated[str, _rule("the text v1", values.check_version, "^(v1)?$")]


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Keys are camelCase in the file; a section is never changed once it is read."""


class PluginFlags(_Section, frozen=True, kw_only=True):
    """How devices are handed to containers."""

    pass_device_specs: Annotated[bool, Meta(description="Pass the device nodes in each answer to Allocate.")] = False
    device_list_strategy: Annotated[
        DeviceListStrategies,
        Meta(description="How a container is told its devices; one, a list, or several with commas. Empty: envvar."),
    ] = field(default_factory=lambda: [DeviceListStrategy.ENVVAR])
    device_id_strategy: Annotated[
        DeviceIdStrategy, Meta(description="Whether a container is told UUIDs or indices.")
    ] = field(name="deviceIDStrategy", default=DeviceIdStrategy.UUID)
    cdi_annotation_prefix: Annotated[str, Meta(description="Prefix of the CDI annotations.")] = "cdi.k8s.io/"
    nvidia_ctk_path: Annotated[Path, Meta(description="Host path of the hook program named in CDI specs.")] = field(
        name="nvidiaCTKPath", default="/usr/bin/nvidia-ctk"
    )
    container_driver_root: Annotated[
        Path, Meta(description="Where the driver root is mounted in the agent's container; by flag or variable.")
    ] = "/driver-root"
    shared_devices_allocation_policy: Annotated[
        AllocationPolicy, Meta(description="Spread shares over the GPUs, or fill one GPU after the other.")
    ] = AllocationPolicy.DISTRIBUTED


class GfdFlags(_Section, frozen=True, kw_only=True):
    """GPU feature discovery: the labels of the node."""

    oneshot: Annotated[bool, Meta(description="Label once and end.")] = False
    no_timestamp: Annotated[bool, Meta(description="Leave out the label with the time.")] = False
    sleep_interval: Annotated[Duration, Meta(description="Time between two labellings.")] = "60s"
    output_file: Annotated[Path, Meta(description="File that the labels are written to.")] = (
        "/etc/kubernetes/node-feature-discovery/features.d/gfd"
    )
    machine_type_file: Annotated[Path, Meta(description="File that names the machine type.")] = (
        "/sys/class/dmi/id/product_name"
    )


class FileFlags(_Section, frozen=True, kw_only=True):
    """What is so for the node as a whole."""

    mig_strategy: Annotated[MigStrategy, Meta(description="How MIG devices become resources.")] = MigStrategy.NONE
    fail_on_init_error: Annotated[
        bool, Meta(description="Not ready until NVML answers. The agent waits for the driver and never exits for it.")
    ] = True
    mps_root: Annotated[
        Annotated[str, _rule("an absolute path, or empty", values.check_path_or_empty, peer=values.peer_takes_text)],
        Meta(description="Host path of the MPS tree."),
    ] = ""
    nvidia_driver_root: Annotated[Path, Meta(description="Host path of the driver installation.")] = "/"
    nvidia_dev_root: Annotated[
        Annotated[str, _rule("an absolute path, or empty", values.check_path_or_empty, peer=values.peer_takes_text)],
        Meta(description="Host path above /dev with the device nodes. Empty: the driver root."),
    ] = ""
    gdrcopy_enabled: Annotated[bool, Meta(description="Ask the container runtime for the GDRCopy device.")] = False
    gds_enabled: Annotated[bool, Meta(description="Ask the container runtime for the GPUDirect Storage devices.")] = (
        False
    )
    mofed_enabled: Annotated[bool, Meta(description="Ask the container runtime for the Mellanox devices.")] = False
    use_node_feature_api: Annotated[bool, Meta(description="Publish labels as NodeFeature objects.")] = field(
        name="useNodeFeatureAPI", default=True
    )
    device_discovery_strategy: Annotated[DiscoveryStrategy, Meta(description="Where devices are looked for.")] = (
        DiscoveryStrategy.AUTO
    )
    plugin: Annotated[PluginFlags, Meta(description="How devices are handed to containers.")] = PluginFlags()
    gfd: Annotated[GfdFlags, Meta(description="GPU feature discovery.")] = GfdFlags()


class Pattern(_Section, frozen=True, kw_only=True):
    """Which devices get which name."""

    pattern: Annotated[
        Annotated[str, _rule("a pattern such as *A100*", values.check_pattern), Meta(min_length=1)],
        Meta(description="Product name, whole and with its case; * stands for any run of characters."),
    ]
    name: Annotated[Name, Meta(description="Resource name; the prefix nvidia.com/ may be left out.")]


class Resources(_Section, frozen=True, kw_only=True):
    """How devices are named. The first pattern that matches counts; a GPU that none matches is not listed."""

    gpus: Annotated[list[Pattern], Meta(description="Names of whole GPUs by product. Empty: * is nvidia.com/gpu.")] = []
    mig: Annotated[list[Pattern], Meta(description="Names of MIG devices by profile.")] = []


class Replicated(_Section, frozen=True, kw_only=True):
    """One resource that is shared."""

    name: Annotated[Name, Meta(description="Resource to share; the prefix nvidia.com/ may be left out.")]
    rename: Annotated[Name | None, Meta(description="Name of the shares. Default: as renameByDefault says.")] = None
    devices: Annotated[Devices, Meta(description="Which of the GPUs are shared; the others stay whole.")] = "all"
    replicas: Annotated[Replicas, Meta(description="Shares of each GPU, 2 or more.")]


class Sharing(_Section, frozen=True, kw_only=True):
    """One way of sharing, and the resources that it shares."""

    rename_by_default: Annotated[
        bool, Meta(description="Append .shared to the name of a shared resource that has no rename.")
    ] = False
    fail_requests_greater_than_one: Annotated[
        bool | None, Meta(description="Refuse a request for more than one share. Default: false; under mps true.")
    ] = None
    resources: Annotated[
        list[Replicated],
        Meta(min_length=1, description="The shared resources, at least one."),
        _rule("a list with at least one resource", values.check_resources),
    ]


class SharingModes(_Section, frozen=True, kw_only=True):
    """How GPUs are shared: by time-slicing or by MPS, not both."""

    time_slicing: Annotated[
        Sharing | None,
        Meta(
            description="Share by taking turns, without memory limits.",
            extra={"rule": Rule("a mapping with at least resources", null=False)},
        ),
    ] = None
    mps: Annotated[Sharing | None, Meta(description="Share through the MPS daemon, with memory limits.")] = None


class Imex(_Section, frozen=True, kw_only=True):
    """IMEX channels for multi-node NVLink."""

    channel_ids: Annotated[
        list[int],
        Meta(description="Channels to hand out: none, or [0]."),
        _rule("[] or [0]", values.check_channels),
    ] = field(name="channelIDs", default=[])
    required: Annotated[bool, Meta(description="Hand nothing out while a channel is missing.")] = False


class CdiFeature(StrEnum):
    EXPLICIT_DRIVER_LIBRARIES = "enable-explicit-driver-libraries"
    NO_SANDBOX_UTILS = "disable-nvsandboxutils"
    NO_SANDBOX_UTILS_MISSPELT = "disable-nvsandbox-utils"
    COHERENT_ANNOTATIONS = "enable-coherent-annotations"
    NO_MULTIPLE_CSV_DEVICES = "disable-multiple-csv-devices"
    NO_ADDITIONAL_GIDS = "no-additional-gids-for-device-nodes"
    NO_IPC_DISCOVERER = "disable-ipc-discoverer"


class CdiHook(StrEnum):
    ALL = "all"
    CREATE_SYMLINKS = "create-symlinks"
    CUDA_COMPAT = "enable-cuda-compat"
    UPDATE_LDCACHE = "update-ldcache"
    DEVICE_NODE_MODIFICATION = "disable-device-node-modification"
    APPLICATION_PROFILE = "update-application-profile"
    CHMOD = "chmod"


class Cdi(_Section, frozen=True, kw_only=True):
    """How CDI specs are made. The device plugin has flags for it and no key."""

    feature_flags: Annotated[list[CdiFeature], Meta(description="Features that are switched on or off.")] = []
    disable_hooks: Annotated[list[CdiHook], Meta(description="Hooks that are left out; all leaves out every one.")] = []


class XidLists(_Section, frozen=True, kw_only=True):
    """XIDs by number, each in the class that it shall have."""

    application: Annotated[Xids, Meta(description="A fault of the program: recorded, the GPU stays healthy.")] = []
    ignore: Annotated[Xids, Meta(description="Recorded, nothing else.")] = []
    reset: Annotated[Xids, Meta(description="Unhealthy until the GPU was reset.")] = []
    restart: Annotated[Xids, Meta(description="Unhealthy until the node has booted anew.")] = []
    hardware: Annotated[Xids, Meta(description="Unhealthy until a person says otherwise, or it is replaced.")] = []
    unknown: Annotated[Xids, Meta(description="Unhealthy until the GPU answers well and has been quiet.")] = []


class XidClasses(_Section, frozen=True, kw_only=True):
    """Whole classes of the table, each read as another one. A number in xids goes before."""

    application: Annotated[XidClass | None, Meta(description="What application XIDs count as.")] = None
    ignore: Annotated[XidClass | None, Meta(description="What ignored XIDs count as.")] = None
    reset: Annotated[XidClass | None, Meta(description="What XIDs that want a reset count as.")] = None
    restart: Annotated[XidClass | None, Meta(description="What XIDs that want a new boot count as.")] = None
    hardware: Annotated[XidClass | None, Meta(description="What XIDs that want a person count as.")] = None
    unknown: Annotated[XidClass | None, Meta(description="What XIDs that are in no class count as.")] = None


class QuietTimes(_Section, frozen=True, kw_only=True):
    """How long nothing new must be heard of a fault that time may lift. infinite: time lifts nothing."""

    unknown: Annotated[Duration, Meta(description="After an XID of class unknown.")] = "60s"
    unreachable: Annotated[Duration, Meta(description="After a GPU did not answer.")] = "5s"


class Relapses(_Section, frozen=True, kw_only=True):
    """When a GPU that fails again and again needs a person."""

    limit: Annotated[
        Annotated[int, Meta(ge=0, le=100), _rule("a whole number from 0 to 100", values.check_limit)],
        Meta(description="A fault after so many lifted ones is kept until a person clears it. 0: never."),
    ] = 3
    window: Annotated[Window, Meta(description="Time in which they count.")] = "24h"


class HealthSection(_Section, frozen=True, kw_only=True):
    """What makes a GPU unhealthy. The variables DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS go before it."""

    xids: Annotated[XidLists, Meta(description="XIDs by number, each in the class that it shall have.")] = XidLists()
    classes: Annotated[XidClasses, Meta(description="Whole classes, each read as another one.")] = XidClasses()
    quiet_times: Annotated[QuietTimes, Meta(description="Quiet times of faults that time may lift.")] = QuietTimes()
    relapses: Annotated[Relapses, Meta(description="When a GPU that fails again needs a person.")] = Relapses()


class GpuSelection(_Section, frozen=True, kw_only=True):
    """GPUs that any of these names."""

    indices: Annotated[
        list[Annotated[int, Meta(ge=0), _rule("an index of 0 or more", values.check_index)]],
        Meta(description="NVML indices. They move when a GPU goes: UUIDs and addresses stay."),
    ] = []
    uuids: Annotated[
        list[Annotated[str, _rule("a UUID such as GPU-...", values.check_uuid, "^GPU-")]], Meta(description="UUIDs.")
    ] = []
    pci: Annotated[
        list[Annotated[str, _rule("a PCI address such as 0000:3b:00.0", values.check_pci)]],
        Meta(description="PCI addresses, as sysfs or nvidia-smi has them."),
    ] = []
    products: Annotated[
        list[Annotated[str, Meta(min_length=1), _rule("a pattern such as *T4*", values.check_pattern)]],
        Meta(description="Product names, whole and with their case; * stands for any run of characters."),
    ] = []


class SelectSection(_Section, frozen=True, kw_only=True):
    """Which GPUs are listed at all. One that is not is told of with the reason; ids that pods hold stay until free."""

    include: Annotated[
        GpuSelection | None,
        Meta(description="Only these. Left out: all."),
        _rule("a mapping of indices, uuids, pci and products", values.check_selection),
    ] = None
    exclude: Annotated[
        GpuSelection | None,
        Meta(description="Not these, also where include names them."),
        _rule("a mapping of indices, uuids, pci and products", values.check_selection),
    ] = None


class File(_Section, frozen=True, kw_only=True):
    """Config of gpu-reactor: the k8s-device-plugin v1 file as it is, read strictly, and our own sections."""

    version: Annotated[Version, Meta(description="v1.")] = "v1"
    flags: Annotated[FileFlags, Meta(description="What is so for the node as a whole.")] = FileFlags()
    resources: Annotated[Resources, Meta(description="How devices are named.")] = Resources()
    sharing: Annotated[SharingModes, Meta(description="How GPUs are shared.")] = SharingModes()
    imex: Annotated[Imex, Meta(description="IMEX channels.")] = Imex()
    cdi: Annotated[Cdi, Meta(description="How CDI specs are made.")] = Cdi()
    select: Annotated[SelectSection, Meta(description="Which GPUs are listed at all.")] = SelectSection()
    health: Annotated[HealthSection, Meta(description="What makes a GPU unhealthy.")] = HealthSection()
    holds: Annotated[
        HoldsPolicy,
        Meta(
            description="When a pod owns a GPU that the config wants shared (or the reverse): wait for the pod's end, "
            "or allow both at once."
        ),
    ] = HoldsPolicy.WAIT
