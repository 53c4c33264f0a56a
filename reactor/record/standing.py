"""Faults of the agent itself, under the names that ``status`` and the metrics have for them. Pure.

Most are told by the line of what made them; that line then names them. One that no line tells has a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from reactor.events import Event
from reactor.record import catalogue as say
from reactor.record import served
from reactor.record.line import Line
from reactor.state import Fault, State

Kinds = tuple[type[Line], ...]

_BEGIN: Mapping[str, Kinds] = {
    "agent.waiting": (say.AgentDelayed,),
    "checkpoint": (served.CheckpointFailed,),
    "config.rejected": (say.ConfigRejected,),
    "driver": (say.DriverLost, say.DriverMismatched, say.InventoryFailed),
    "handler.": (say.HandlerFailed,),
    "plan.oversize": (say.PlanMade,),
    "podresources.list": (served.PodresourcesFailed,),
    "registration.refused": (served.PluginRefused,),
    "source.": (say.SourceFailed,),
}
"""Lines that tell of a fault whose name begins so."""
_END: Mapping[str, Kinds] = {
    "agent.waiting": (say.AgentStarted,),
    "checkpoint": (served.CheckpointRead,),
    "config.rejected": (say.ConfigRead,),
    "driver": (say.DriverFound,),
    "handler.": (say.HandlerRecovered,),
    "plan.oversize": (say.PlanMade,),
    "podresources.list": (served.PodresourcesAnswered,),
    "registration.refused": (served.PluginRegistered, served.PluginClosed),
    "source.": (say.SourceRecovered,),
}


def name_faults(lines: Iterable[Line], event: Event, before: State, after: State) -> tuple[Line, ...]:
    """The lines of one event, with every fault that it began or ended."""
    told = list(lines)
    for name, fault in after.faults.items():
        if name not in before.faults:
            _name(told, name, _BEGIN, _begun(fault))
    for name, fault in before.faults.items():
        if name not in after.faults:
            _name(told, name, _END, _ended(fault, event))
    return tuple(told)


def _name(told: list[Line], name: str, homes: Mapping[str, Kinds], own: Line) -> None:
    kinds = next((kinds for prefix, kinds in homes.items() if name.startswith(prefix)), ())
    for place, line in enumerate(told):
        if isinstance(line, kinds):
            told[place] = msgspec.structs.replace(line, faults=(*line.faults, name))
            return
    told.append(own)


def _begun(fault: Fault) -> Line:
    return say.FaultBegun(
        name=fault.name, error=fault.message, faults=(fault.name,), msg=f"{fault.name}: {fault.message}"
    )


def _ended(fault: Fault, event: Event) -> Line:
    seconds = round(max(event.wall - fault.since, 0.0), 3)
    told = f"{fault.name} is over after {seconds:.0f} s"
    return say.FaultEnded(name=fault.name, seconds=seconds, faults=(fault.name,), msg=told)
