"""(what is so now, what was counted) -> samples of every family. Pure.

A family whose label values are known has every one of its series from the start, at 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from reactor.events import Fact
from reactor.model.condition import Condition
from reactor.model.gpu import DriverState, RecoveryAction
from reactor.model.hold import HoldKey
from reactor.model.ids import ResourceName
from reactor.model.snapshot import Listed, Offer, Snapshot
from reactor.reducer import Known
from reactor.state import State
from reactor.status.describe import GONE, HEALTHS
from reactor.status.metrics import families as f
from reactor.status.metrics.families import Family, Histogram
from reactor.status.metrics.tally import CLASSES, NVML_ERRORS, VERDICTS, Tally, healths, xid_label
from reactor.status.ready import why_unready

Labels = tuple[str, ...]
Samples = Mapping[Labels, float | Histogram]
Load = Mapping[str, tuple[int, int]]
"""By handler: events that wait for it, failed runs since the last good one."""

DEVICE_STATES = ("healthy", "unhealthy", "withheld", "leaving")
ONE: Labels = ()
Ids = tuple[Listed, ...]
Found = dict[Family, Samples]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One look at everything that is exposed."""

    state: State
    snapshot: Snapshot
    tally: Tally
    load: Load
    sources: tuple[str, ...]
    lost: Mapping[str, int]
    """Log lines that nobody sees, by why."""


class Collector:
    """Looks at each scrape; remembers only how it counted groups of ids that did not change."""

    def __init__(self, look: Callable[[], Sight]) -> None:
        self._look = look
        self._healthy: dict[int, tuple[Ids, int]] = {}

    def samples(self) -> Iterator[tuple[Family, Samples]]:
        """Every family of the catalogue, in its order."""
        sight = self._look()
        found = _agent(sight) | _gpus(sight) | _served(sight) | _inside(sight)
        found[f.DEVICES] = self._devices(sight)
        for family in f.FAMILIES:
            yield family, found[family]

    def _devices(self, sight: Sight) -> Samples:
        known, self._healthy = self._healthy, {}
        samples: dict[Labels, float] = {}
        for name in _resources(sight):
            offer = sight.snapshot.offers.get(name)
            counts = self._states(offer, sight.state, known) if offer else Counter[str]()
            samples |= {(name, state): counts[state] for state in DEVICE_STATES}
        return samples

    def _states(self, offer: Offer, state: State, known: Mapping[int, tuple[Ids, int]]) -> Counter[str]:
        total = Counter[str]()
        for group in offer.groups:
            entry = known.get(id(group))
            if entry is None or entry[0] is not group:
                entry = (group, sum(one.healthy for one in group))
            self._healthy[id(group)] = entry
            total["healthy"] += entry[1]
            if entry[1] < len(group):
                total.update(_why(group, len(group) - entry[1], offer.resource, state))
        return total


def _why(group: Ids, ill: int, resource: ResourceName, state: State) -> Counter[str]:
    """Why ids of a group are not handed out. Ids that leave are groups of their own, and a GPU's fault is that of all
    its ids: only ids that were refused one by one are looked at one by one.
    """
    first = group[0]
    if HoldKey(resource, first.id) in state.leaving:
        return Counter(leaving=ill)
    if first.gpu is not None and state.conditions.get(first.gpu):
        return Counter(unhealthy=ill)
    faulty = sum(HoldKey(resource, one.id) in state.refused for one in group) if state.refused else 0
    return Counter(unhealthy=min(faulty, ill), withheld=max(ill - faulty, 0))


def _resources(sight: Sight) -> list[ResourceName]:
    planned = {resource.name for resource in sight.state.plan.resources}
    return sorted({*planned, *sight.snapshot.offers, *sight.state.kubelet.plugins})


def _flag(value: object) -> float:
    return 1.0 if value else 0.0


def _agent(sight: Sight) -> Found:
    state, config = sight.state, sight.state.config
    driver = state.driver.driver
    cuda = f"{driver.cuda[0]}.{driver.cuda[1]}" if driver and driver.cuda else ""
    in_force = config.config is not None
    return {
        f.BUILD_INFO: {(state.version, str(state.simulated).lower()): 1.0},
        f.READY: {ONE: _flag(not why_unready(state))},
        f.DRIVER_INFO: {(driver.version, cuda): 1.0} if driver else {},
        f.DRIVER_STATE: {(each.value,): _flag(state.driver.state is each) for each in DriverState},
        f.CONFIG_INFO: {(config.origin.value if config.origin else "", config.digest[:12]): 1.0} if in_force else {},
        f.CONFIG_LAST: {ONE: _flag(in_force and not config.problems)},
        f.CONFIG_LAST_AT: {ONE: config.accepted_wall} if config.accepted_wall is not None else {},
        f.CONFIG_RELOADS: {(result,): sight.tally.reloads[result] for result in ("applied", "unchanged", "rejected")},
        f.CONFIG_UNSERVED: {ONE: len(config.config.unserved) if config.config else 0},
    }


def _gpus(sight: Sight) -> Found:
    state, tally = sight.state, sight.tally
    known = healths(state)
    homes = {group.gpu: resource.name for resource in state.plan.resources for group in resource.groups}
    recovery = {gpu.uuid: gpu.recovery for gpu in state.gpus}
    return {
        f.GPU_INFO: {
            (gpu.uuid, str(gpu.index), gpu.pci, gpu.product, homes.get(gpu.uuid, "")): 1.0 for gpu in state.gpus
        },
        f.GPU_HEALTH: {
            (uuid, name): _flag(health == name) for uuid, health in known.items() for name in (*HEALTHS, GONE)
        },
        f.GPU_TURNED: {(uuid,): tally.turned[uuid] for uuid in known if uuid in tally.turned},
        f.GPU_FAULT: {
            _fault(uuid, condition, recovery.get(uuid)): 1.0
            for uuid, conditions in state.conditions.items()
            for condition in conditions
        },
        f.XID_ERRORS: {
            (uuid, label): tally.xids[uuid, label] for uuid in known for label in (*map(str, f.XIDS), f.OTHER)
        },
        f.DECISIONS: {(each, verdict): tally.decisions[each, verdict] for each in CLASSES for verdict in VERDICTS},
    }


def _fault(uuid: str, condition: Condition, recovery: RecoveryAction | None) -> Labels:
    xid = "" if condition.xid is None else xid_label(condition.xid)
    action = recovery.value if recovery else ""
    return (uuid, condition.fault.value, condition.reason, xid, action, str(condition.synthetic).lower())


def _served(sight: Sight) -> Found:
    state, tally = sight.state, sight.tally
    names, plugins = _resources(sight), sight.state.kubelet.plugins
    held = Counter(hold.resource for hold in state.holds.values())
    ill = Counter(hold.resource for hold in state.holds.values() if hold.gpu and state.conditions.get(hold.gpu))
    return {
        f.ALLOCATED: {(name,): held[name] for name in sorted({*names, *held})},
        f.ALLOCATED_UNHEALTHY: {(name,): ill[name] for name in sorted({*names, *held})},
        f.ALLOCATIONS: {
            (name, result): tally.allocations[name, result] for name in names for result in ("ok", "refused")
        },
        f.ALLOCATION_SECONDS: {
            (name,): tally.waits.get(name, Histogram(f.ALLOCATION_SECONDS.buckets)) for name in names
        },
        f.REGISTRATIONS: {
            (name, result): tally.registrations[name, result] for name in names for result in ("ok", "error")
        },
        f.STREAMS: {(name,): len(plugins[name].streams) if name in plugins else 0 for name in names},
        f.SENDS: {(name,): tally.sends[name] for name in names},
        f.MESSAGE: {(name,): tally.sizes[name] for name in names if name in tally.sizes},
        f.KUBELET_UP: {ONE: _flag(state.kubelet.there)},
        f.REACTION: {(trigger.value,): seconds for trigger, seconds in tally.reactions.seconds.items()},
    }


def _inside(sight: Sight) -> Found:
    state, tally = sight.state, sight.tally
    handlers, sources = sorted(sight.load), sorted({*sight.sources, *tally.sources})
    return {
        f.FAULT: {(name,): 1.0 for name in sorted(state.faults)},
        f.EVENTS: {(name,): tally.facts[kind] for kind, name in EVENT_NAMES.items()},
        f.LOST_LINES: {(reason,): count for reason, count in sight.lost.items()},
        f.RUNS: {(name, result): tally.runs[name, result] for name in handlers for result in ("ok", "error")},
        f.RUN_SECONDS: {(name,): tally.seconds.get(name, Histogram(f.RUN_SECONDS.buckets)) for name in handlers},
        f.MAILBOX: {(name,): sight.load[name][0] for name in handlers},
        f.FAILING: {(name,): sight.load[name][1] for name in handlers},
        f.SOURCE_UP: {(name,): _flag(f"source.{name}" not in state.faults) for name in sources},
        f.SOURCE_FAILURES: {(name,): tally.sources[name] for name in sources},
        f.SOURCE_HEARD: {(name,): tally.heard[name] for name in sources if name in tally.heard},
        f.SCANS: {(result,): tally.scans[result] for result in ("ok", "failed")},
        f.NVML_SECONDS: {(call,): seconds for call, seconds in tally.nvml.items()},
        f.NVML_ERRORS: {pair: tally.errors[pair] for pair in NVML_ERRORS},
        f.LOOP_LAG: {(loop,): seconds for loop, seconds in tally.lag.items()},
        f.WORKERS_LOST: {(cause,): tally.workers[cause] for cause in ("died", "hung")},
    }


def _event_name(kind: type[Fact]) -> str:
    """XidReported -> xid.reported"""
    words = "".join(f".{char.lower()}" if char.isupper() else char for char in kind.__name__)
    return words.removeprefix(".")


EVENT_NAMES: dict[type[Fact], str] = {kind: _event_name(kind) for kind in get_args(Known)}
