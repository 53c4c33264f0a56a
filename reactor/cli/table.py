"""The document of ``/debug/state`` as text for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reactor.status.document import ConfigDoc, Document, GpuDoc, HoldDoc, ResourceDoc

VERSION = 1
"""Of the document; as in ``status/document.py``, which is not loaded for a client."""
_SHOWN = 3


def troubles(document: Document) -> list[str]:
    """What is not well, each in a few words: what ``status --check`` judges by."""
    agent = document["agent"]
    unready = [] if agent["ready"] else [f"not ready: {'; '.join(agent['unready']) or 'stopping'}"]
    gpus = [
        f"GPU {gpu['uuid'] if gpu['index'] is None else gpu['index']} {gpu['health']}: {'; '.join(gpu['reasons'])}"
        for gpu in document["gpus"]
        if gpu["conditions"]
    ]
    faults = [f"{fault['name']}: {fault['message']}" for fault in document["faults"]]
    return [_printable(one) for one in (*unready, *gpus, *faults)]


def render(document: Document, *, now: float, wide: bool = False) -> str:
    """Names and messages come from files and devices: what a terminal would obey rather than show is replaced."""
    sections = (
        _summary(document, now),
        _resources(document),
        _gpus(document, wide=wide),
        _elsewhere(document),
        _faults(document, now),
    )
    text = "\n\n".join("\n".join(lines) for section in sections if (lines := list(section))) + "\n"
    return _printable(text)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def _summary(document: Document, now: float) -> Iterator[str]:
    agent, driver, kubelet = document["agent"], document["driver"], document["kubelet"]
    if agent["simulated"]:
        yield "*** SIMULATED NVML: no GPU below is real ***"
        yield ""
    verdict = "stopping" if agent["stopping"] else "ready" if agent["ready"] else "NOT READY"
    yield f"agent    {verdict}, version {agent['version']}, up {_age(agent['started'], now)}"
    yield from (f"         {reason}" for reason in agent["unready"])
    about = f"{driver['version']}, CUDA {driver['cuda'] or 'unknown'}" if driver["version"] else driver["error"]
    yield f"driver   {driver['state']}" + (f": {about}" if about else "")
    if driver["version"] and driver["error"]:
        yield f"         {driver['error']}"
    yield from _config(document["config"], now)
    up = "up, its plugin watcher finds this agent" if kubelet["registration"] == "watcher" else "up"
    yield "kubelet  " + (up if kubelet["up"] else f"away: {kubelet['reason'] or 'not looked for yet'}")
    yield from (f"         {error}" for error in (kubelet["checkpoint_error"], kubelet["list_error"]) if error)


def _config(config: ConfigDoc, now: float) -> Iterator[str]:
    if not config["in_force"]:
        yield "config   none in force: nothing is served"
    else:
        origin = {"default": "built-in defaults", "last_accepted": "last accepted one, kept on disk"}
        what = origin.get(config["origin"], config["path"])
        since = "" if config["accepted"] is None else f", for {_age(config['accepted'], now)}"
        yield f"config   {what}{since}" + (f" ({config['digest'][:12]})" if config["digest"] else "")
    if config["rejected"] is not None:
        yield "         REJECTED, what was in force stays:"
        yield from (f"           {problem['text']}" for problem in config["rejected"]["problems"])
    yield from (f"         not served yet: {key['path']}: {key['message']}" for key in config["unserved"])
    yield from (f"         {notice}" for notice in config["notices"])


def _resources(document: Document) -> Iterator[str]:
    if not document["resources"]:
        yield "No resource is served."
        return
    head = ("RESOURCE", "HEALTHY", "UNHEALTHY", "HELD", "LEAVING", "KUBELET")
    rows = [
        (
            resource["name"],
            str(resource["healthy"]),
            str(resource["unhealthy"]),
            str(resource["held"]),
            str(resource["tombstones"]),
            _standing(resource, kubelet_up=document["kubelet"]["up"]),
        )
        for resource in document["resources"]
    ]
    yield from _columns(head, rows)
    for resource in document["resources"]:
        yield from (f"  {resource['name']}: {count} x {reason}" for reason, count in resource["reasons"].items())


def _standing(resource: ResourceDoc, *, kubelet_up: bool) -> str:
    if not kubelet_up:
        return "away"
    if not resource["registered"]:
        return "NOT REGISTERED"
    if not resource["streams"]:
        return "NOT WATCHED"
    return "up to date" if resource["current"] else "list on its way"


def _gpus(document: Document, *, wide: bool) -> Iterator[str]:
    if not document["gpus"]:
        yield "No GPU."
        return
    head: tuple[str, ...] = ("GPU", "PRODUCT", "PCI", "RESOURCE", "HEALTH", "HELD BY", "UUID")
    rows = [_gpu_row(gpu) for gpu in document["gpus"]]
    if wide:
        head += ("MINOR", "MEMORY", "NUMA", "MIG", "RECOVERY")
        rows = [row + _more(gpu) for row, gpu in zip(rows, document["gpus"], strict=True)]
    yield from _columns(head, rows)
    for gpu in document["gpus"]:
        name = f"GPU {gpu['index']}" if gpu["index"] is not None else gpu["uuid"]
        for condition in gpu["conditions"]:
            marks = [f"{condition['count']} times"] if condition["count"] > 1 else []
            marks += ["INJECTED"] if condition["synthetic"] else []
            marks += ["a person must look at it"] if condition["needs_person"] else []
            yield f"  {name}: {condition['message']}" + (f" ({', '.join(marks)})" if marks else "")
        if gpu["unlisted"]:
            yield f"  {name}: not listed: {gpu['unlisted']}"
        if gpu["index"] is not None and not gpu["monitored"]:
            yield f"  {name}: its XIDs are not seen"


def _gpu_row(gpu: GpuDoc) -> tuple[str, ...]:
    resource = gpu["resource"] or "-"
    return (
        "-" if gpu["index"] is None else str(gpu["index"]),
        gpu["product"] or "-",
        gpu["pci"] or "-",
        f"{resource} x{gpu['replicas']}" if gpu["replicas"] else resource,
        gpu["health"] if gpu["health"] == "healthy" else gpu["health"].upper(),
        _holders(gpu["holds"]),
        gpu["uuid"],
    )


def _more(gpu: GpuDoc) -> tuple[str, ...]:
    memory = "-" if gpu["memory"] is None else f"{gpu['memory'] / (1 << 30):.0f}GiB"
    known = (gpu["minor"], memory, gpu["numa"], gpu["mig"] or None, gpu["recovery"])
    return tuple("-" if value is None else str(value) for value in known)


def _holders(holds: Sequence[HoldDoc]) -> str:
    names = list(dict.fromkeys(_holder(hold) for hold in holds))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) + more) or "-"


def _holder(hold: HoldDoc) -> str:
    return hold["pod"] or (f"pod {hold['pod_uid']}" if hold["pod_uid"] else "a pod not known yet")


def _elsewhere(document: Document) -> Iterator[str]:
    """Holds of ids that name no GPU of ours."""
    for hold in document["holds"]:
        if hold["gpu"] is None:
            yield f"{hold['resource']}: {hold['id']} of another plugin, held by {_holder(hold)}"


def _faults(document: Document, now: float) -> Iterator[str]:
    if not document["faults"]:
        return
    head = ("FAULT", "FOR", "COUNT", "MESSAGE")
    rows = [
        (fault["name"], _age(fault["since"], now), str(fault["count"]), fault["message"])
        for fault in document["faults"]
    ]
    yield from _columns(head, rows)


def _columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _age(since: float, now: float) -> str:
    seconds = max(0, int(now - since))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
