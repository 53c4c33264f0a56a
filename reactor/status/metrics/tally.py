"""Counts what goes over the bus. Called for every event, so it does no more than a few additions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from reactor import events as e
from reactor import view
from reactor.conditions.classes import classify
from reactor.model.condition import XidClass
from reactor.model.gpu import DriverState, FailureKind
from reactor.model.ids import GpuUuid
from reactor.record.narrate import decision_on
from reactor.state import State
from reactor.status.describe import GONE, health
from reactor.status.loops import LOOPS
from reactor.status.metrics import families as f
from reactor.status.metrics.families import OTHER, XIDS, Histogram
from reactor.status.metrics.reactions import Reactions, Trigger

VERDICTS = ("recorded", "condemned", "counted")
_REMEMBERED = 64
"""Facts that a scan may come from, of which the time is kept."""
_HEALTH = (e.XidReported, e.EccReported, e.RecoveryActionChanged, e.GpuLost, e.FaultCleared)
_ASKED = (e.DevicesChanged, e.RecoveryActionChanged, e.WorkerLost, e.FaultUnattributed)
"""What a scan is made for: what it shows happened then."""
Pair = tuple[str, str]


@dataclass(slots=True)
class Tally:
    facts: Counter[type[e.Fact]] = field(default_factory=Counter)
    reloads: Counter[str] = field(default_factory=Counter)
    allocations: Counter[Pair] = field(default_factory=Counter)
    waits: dict[str, Histogram] = field(default_factory=dict)
    """Seconds of Allocate by resource."""
    registrations: Counter[Pair] = field(default_factory=Counter)
    sends: Counter[str] = field(default_factory=Counter)
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of the list sent last, by resource."""
    xids: Counter[Pair] = field(default_factory=Counter)
    """By GPU and by code, as ``XIDS`` bounds it."""
    decisions: Counter[Pair] = field(default_factory=Counter)
    turned: dict[GpuUuid, float] = field(default_factory=dict)
    """Unix time at which the health of a GPU changed last."""
    sources: Counter[str] = field(default_factory=Counter)
    """Failures by source."""
    heard: dict[str, float] = field(default_factory=dict)
    """Unix time at which a source told something last."""
    scans: Counter[str] = field(default_factory=Counter)
    nvml: dict[str, Histogram] = field(default_factory=lambda: _histograms(f.NVML_SECONDS, ("init", "scan")))
    """Seconds of NVML by call."""
    errors: Counter[Pair] = field(default_factory=Counter)
    """Of NVML, as in ``NVML_ERRORS``."""
    workers: Counter[str] = field(default_factory=Counter)
    runs: Counter[Pair] = field(default_factory=Counter)
    seconds: dict[str, Histogram] = field(default_factory=dict)
    lag: dict[str, Histogram] = field(default_factory=lambda: _histograms(f.LOOP_LAG, LOOPS))
    reactions: Reactions = field(default_factory=Reactions)
    _asked: dict[int, float] = field(default_factory=dict)

    def record(self, event: e.Event, before: State, after: State) -> None:
        """Count one event of the bus."""
        fact = event.fact
        self.facts[type(fact)] += 1
        match fact:
            case e.XidReported():
                self.xids[fact.gpu, xid_label(fact.xid)] += 1
                verdict, _ = decision_on(fact.gpu, before, after)
                self.decisions[classify(after.policy, fact.xid).value, verdict] += 1
            case e.ConfigRead() | e.ConfigRejected():
                self._config(fact, before, after)
            case e.Granted() | e.Refused():
                self._allocation(fact)
            case e.InventoryTaken() | e.InventoryFailed():
                self._scan(fact)
            case e.DevicesChanged() if fact.error:
                self.errors["wait", FailureKind.ERROR.value] += 1
            case e.WorkerLost():
                self.workers["hung" if fact.hung else "died"] += 1
            case _:
                self._served(fact)
        self._time(event, before, after)
        if before.conditions is not after.conditions or before.gpus is not after.gpus:
            self._turn(event, before, after)

    def ran(self, handler: str, seconds: float, *, ok: bool) -> None:
        """A handler ran."""
        self.runs[handler, "ok" if ok else "error"] += 1
        self.seconds.setdefault(handler, Histogram(f.RUN_SECONDS.buckets)).observe(seconds)

    def late(self, loop: str, seconds: float) -> None:
        """A loop came to a heartbeat."""
        self.lag[loop].observe(max(0.0, seconds))

    def _allocation(self, fact: e.Granted | e.Refused) -> None:
        self.allocations[fact.resource, "ok" if isinstance(fact, e.Granted) else "refused"] += 1
        self.waits.setdefault(fact.resource, Histogram(f.ALLOCATION_SECONDS.buckets)).observe(fact.took)

    def _scan(self, fact: e.InventoryTaken | e.InventoryFailed) -> None:
        if isinstance(fact, e.InventoryFailed):
            self.scans["failed"] += 1
            self.errors["scan", fact.state.value] += 1
            return
        self.scans["ok"] += 1
        for call, seconds in (("init", fact.inventory.opened), ("scan", fact.inventory.took)):
            if seconds is not None:
                self.nvml[call].observe(seconds)
        for failure in fact.inventory.failures:
            self.errors["gpu", failure.kind.value] += 1

    def _config(self, fact: e.ConfigRead | e.ConfigRejected, before: State, after: State) -> None:
        if isinstance(fact, e.ConfigRejected):
            if after is not before:  # the same text, refused again by a re-read, is no other text
                self.reloads["rejected"] += 1
        else:
            same = after.config.config == before.config.config
            self.reloads["unchanged" if same else "applied"] += 1

    def _served(self, fact: e.Fact) -> None:
        match fact:
            case e.PluginRegistered():
                self.registrations[fact.resource, "ok"] += 1
            case e.PluginRefused():
                self.registrations[fact.resource, "error"] += 1
            case e.HandlerFailed(handler="register"):
                self.registrations[fact.lane, "error"] += 1
            case e.Advertised(standing=False):
                self.sends[fact.resource] += 1
                self.sizes[fact.resource] = fact.size
            case e.SourceFailed():
                self.sources[fact.source] += 1

    def _time(self, event: e.Event, before: State, after: State) -> None:
        """Tell ``reactions`` of what moves the lists and of what reached the kubelet."""
        fact = event.fact
        if isinstance(fact, e.Advertised):
            self.reactions.told(fact.resource, fact.revision, event.at)
        elif isinstance(fact, e.KubeletUp):
            if before.kubelet.identity != after.kubelet.identity:
                self.reactions.kubelet_came(event.at)
        elif isinstance(fact, _ASKED):
            self._asked[event.seq] = event.at
            if len(self._asked) > _REMEMBERED:
                del self._asked[next(iter(self._asked))]
        if after is before or not view.moved(before, after):
            return
        if isinstance(fact, _HEALTH):
            self.reactions.happened(Trigger.HEALTH, event.at)
        elif isinstance(fact, e.ConfigRead):
            self.reactions.happened(Trigger.CONFIG, event.at)
        elif isinstance(fact, e.InventoryTaken | e.InventoryFailed):
            trigger = Trigger.HOTPLUG if before.conditions is after.conditions else Trigger.HEALTH
            self.reactions.happened(trigger, self._asked.get(event.cause or 0, event.at))

    def _turn(self, event: e.Event, before: State, after: State) -> None:
        old, new = healths(before), healths(after)
        for gpu, state in new.items():
            if old.get(gpu) != state:
                self.turned[gpu] = event.wall
        self.turned = {gpu: at for gpu, at in self.turned.items() if gpu in new}


def healths(state: State) -> dict[GpuUuid, str]:
    """The health of every GPU that is here or has a fault, in the words of ``status``."""
    here = {gpu.uuid: health(state.conditions.get(gpu.uuid, ())) for gpu in state.gpus}
    return here | {gpu: GONE for gpu, found in state.conditions.items() if found and gpu not in here}


def xid_label(xid: int) -> str:
    return str(xid) if xid in XIDS else OTHER


def _histograms(family: f.Family, values: Iterable[str]) -> dict[str, Histogram]:
    return {value: Histogram(family.buckets) for value in values}


NVML_ERRORS: tuple[Pair, ...] = (
    *(("scan", state.value) for state in DriverState if state not in (DriverState.UNKNOWN, DriverState.READY)),
    *(("gpu", kind.value) for kind in FailureKind),
    ("wait", FailureKind.ERROR.value),
)
CLASSES = tuple(each.value for each in XidClass)
