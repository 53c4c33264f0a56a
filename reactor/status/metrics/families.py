"""The catalogue: every metric family, with its labels, how many series it can have, and how long it keeps.

Names end in their unit. Label values come from closed sets, or from what is on this node (GPUs, resources, handlers).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum

PREFIX = "gpu_reactor_"
FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Bounds for what ought to take milliseconds."""
SLOW = (0.001, 0.01, 0.1, 1.0, 5.0, 30.0, 120.0)
"""Bounds for what may wait for a driver."""
LAG = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0)

XIDS = (13, 31, 43, 45, 48, 74, 79, 95, 119)
"""Codes with a series of their own: programs' usual ones and those that condemn most; the log has every number."""
OTHER = "other"


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Stability(StrEnum):
    STABLE = "stable"
    """Name, type and labels stay for nine months or three releases after they are declared to go."""
    BETA = "beta"
    """Labels may be added."""
    ALPHA = "alpha"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    name: str
    """Without the prefix."""
    kind: Kind
    text: str
    """HELP, one sentence."""
    labels: tuple[str, ...] = ()
    bound: str = "1"
    """How many series at the most."""
    stability: Stability = Stability.STABLE
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def help(self) -> str:
        return f"{self.text} [{self.stability}]"


@dataclass(slots=True)
class Histogram:
    """Counts by upper bound; the last count is that of what is above all bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


def _gauge(name: str, text: str, *labels: str, bound: str = "1", stability: Stability = Stability.STABLE) -> Family:
    return Family(name=name, kind=Kind.GAUGE, text=text, labels=labels, bound=bound, stability=stability)


def _counter(name: str, text: str, *labels: str, bound: str = "1", stability: Stability = Stability.STABLE) -> Family:
    return Family(name=name, kind=Kind.COUNTER, text=text, labels=labels, bound=bound, stability=stability)


BETA, ALPHA = Stability.BETA, Stability.ALPHA

BUILD_INFO = _gauge("build_info", "Version that runs; simulated: NVML is", "version", "simulated")
READY = _gauge("ready", "1 if all that the config asks for is served, as /readyz says")
DRIVER_INFO = _gauge("driver_info", "Driver in use", "driver_version", "cuda_version")
DRIVER_STATE = _gauge("driver_state", "1 for how far NVML gets now", "state", bound="states of the driver")
CONFIG_INFO = _gauge("config_info", "Config in force; digest: its first 12 characters", "origin", "digest")
CONFIG_LAST = _gauge("config_last_reload_successful", "1 if the newest config text was accepted")
CONFIG_LAST_AT = _gauge("config_last_reload_success_timestamp_seconds", "When a config text was accepted last")
CONFIG_RELOADS = _counter("config_reloads_total", "Config texts read, by outcome", "result", bound="3")
CONFIG_UNSERVED = _gauge("config_unserved_keys", "Keys of the config in force without effect in this version")

GPU_INFO = _gauge(
    "gpu_info", "A GPU, for joins", "gpu_uuid", "index", "pci_bus_id", "product", "resource_name", bound="GPUs"
)
GPU_HEALTH = _gauge("gpu_health", "1 for the state that a GPU is in", "gpu_uuid", "state", bound="5 x GPUs")
GPU_TURNED = _gauge(
    "gpu_health_transition_timestamp_seconds",
    "When the health of a GPU changed last, or was first seen",
    "gpu_uuid",
    bound="GPUs",
)
GPU_FAULT = _gauge(
    "gpu_fault_info",
    "1 for each standing fault of a GPU: its class says what lifts it; absent when there is none",
    *("gpu_uuid", "fault", "reason", "xid", "recovery_action", "synthetic"),
    bound="standing faults",
    stability=BETA,
)
XID_ERRORS = _counter(
    "xid_errors_total", "XIDs that the driver reported", "gpu_uuid", "xid", bound=f"{len(XIDS) + 1} x GPUs"
)
DECISIONS = _counter(
    "health_decisions_total",
    "What was decided on XIDs: recorded, condemned, or counted for a fault that stood already",
    *("error_class", "verdict"),
    bound="classes x 3",
    stability=BETA,
)

DEVICES = _gauge(
    "devices",
    "Ids in the list of a resource, each in one state; leaving: no longer planned, the others add up to the plan",
    *("resource_name", "state"),
    bound="4 x resources",
)
ALLOCATED = _gauge("devices_allocated", "Ids that pods hold", "resource_name", bound="resources")
ALLOCATED_UNHEALTHY = _gauge(
    "devices_allocated_unhealthy", "Ids that pods hold on a GPU with a fault", "resource_name", bound="resources"
)
ALLOCATIONS = _counter("allocations_total", "Answers to Allocate", "resource_name", "result", bound="2 x resources")
REGISTRATIONS = _counter(
    "registrations_total", "Attempts to serve and register a resource", "resource_name", "result", bound="2 x resources"
)
ALLOCATION_SECONDS = Family(
    name="allocation_duration_seconds",
    kind=Kind.HISTOGRAM,
    text="From the arrival of an Allocate to its answer being on its way: the agent's share of the kubelet's time",
    labels=("resource_name",),
    bound="resources",
    buckets=FAST,
)
STREAMS = _gauge("watch_streams", "Streams on which the kubelet listens", "resource_name", bound="resources")
SENDS = _counter("watch_sends_total", "Lists sent to the kubelet", "resource_name", bound="resources")
MESSAGE = _gauge(
    "watch_message_bytes",
    "Size of the list sent last; 4 MiB is the most that the kubelet takes",
    "resource_name",
    bound="resources",
    stability=BETA,
)
KUBELET_UP = _gauge("kubelet_up", "1 if the kubelet's socket answers")
REACTION = Family(
    name="reaction_seconds",
    kind=Kind.HISTOGRAM,
    text="From an event that changes a list to that list being with the kubelet; not counted before the first list",
    labels=("trigger",),
    bound="4",
    buckets=FAST,
)

FAULT = _gauge(
    "fault_info",
    "1 for each thing of the agent itself that does not work, named as in status and log; absent when there is none",
    "name",
    bound="standing faults",
    stability=BETA,
)
EVENTS = _counter("events_total", "Events on the bus", "event", bound="kinds of events", stability=BETA)
LOST_LINES = _counter(
    "log_lines_dropped_total",
    "Log lines not written: summed up in a storm, or not read fast enough",
    "reason",
    bound="2",
)
RUNS = _counter("handler_runs_total", "Runs of handlers", "handler", "result", bound="2 x handlers", stability=ALPHA)
RUN_SECONDS = Family(
    name="handler_duration_seconds",
    kind=Kind.HISTOGRAM,
    text="How long a run of a handler takes",
    labels=("handler",),
    bound="handlers",
    stability=ALPHA,
    buckets=SLOW,
)
MAILBOX = _gauge("handler_mailbox_depth", "Events that wait for a handler", "handler", bound="handlers", stability=BETA)
FAILING = _gauge(
    "handler_consecutive_failures", "Failed runs since the last good one", "handler", bound="handlers", stability=BETA
)
SOURCE_UP = _gauge("source_up", "1 if a source senses", "source", bound="sources", stability=BETA)
SOURCE_FAILURES = _counter("source_failures_total", "Failures of a source", "source", bound="sources", stability=BETA)
SOURCE_HEARD = _gauge(
    "source_last_event_timestamp_seconds",
    "When a source told something last; absent until it does",
    "source",
    bound="sources",
    stability=BETA,
)
SCANS = _counter("scans_total", "Looks at driver and GPUs", "result", bound="2", stability=BETA)
WORKERS_LOST = _counter(
    "nvml_workers_lost_total", "NVML processes that died or hung", "cause", bound="2", stability=BETA
)
NVML_SECONDS = Family(
    name="nvml_call_duration_seconds",
    kind=Kind.HISTOGRAM,
    text="How long NVML took: to be initialised, and for a scan of driver and GPUs; without those that failed",
    labels=("call",),
    bound="2",
    stability=BETA,
    buckets=SLOW,
)
NVML_ERRORS = _counter(
    "nvml_errors_total",
    "Errors of NVML: of a scan as a whole, of one GPU in a scan, of waits for events (the first of a row)",
    *("call", "error"),
    bound="10",
    stability=BETA,
)
LOOP_LAG = Family(
    name="loop_lag_seconds",
    kind=Kind.HISTOGRAM,
    text="How late a loop came to a heartbeat, one in 5 s; asyncio's with the way there and back",
    labels=("loop",),
    bound="2",
    stability=ALPHA,
    buckets=LAG,
)

SECTIONS: tuple[tuple[str, tuple[Family, ...]], ...] = (
    (
        "Agent, driver, config",
        (
            BUILD_INFO,
            READY,
            DRIVER_INFO,
            DRIVER_STATE,
            CONFIG_INFO,
            CONFIG_LAST,
            CONFIG_LAST_AT,
            CONFIG_RELOADS,
            CONFIG_UNSERVED,
        ),
    ),
    ("GPUs and their health", (GPU_INFO, GPU_HEALTH, GPU_TURNED, GPU_FAULT, XID_ERRORS, DECISIONS)),
    (
        "Resources and the kubelet",
        (
            DEVICES,
            ALLOCATED,
            ALLOCATED_UNHEALTHY,
            ALLOCATIONS,
            ALLOCATION_SECONDS,
            REGISTRATIONS,
            STREAMS,
            SENDS,
            MESSAGE,
            KUBELET_UP,
            REACTION,
        ),
    ),
    (
        "The agent itself",
        (
            FAULT,
            EVENTS,
            LOST_LINES,
            RUNS,
            RUN_SECONDS,
            MAILBOX,
            FAILING,
            SOURCE_UP,
            SOURCE_FAILURES,
            SOURCE_HEARD,
            SCANS,
            NVML_SECONDS,
            NVML_ERRORS,
            WORKERS_LOST,
            LOOP_LAG,
        ),
    ),
)
FAMILIES = tuple(family for _, families in SECTIONS for family in families)
