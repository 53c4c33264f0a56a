"""``gpu-reactor explain``: why a GPU, a resource or an id is as it is, and the chain of events that led there."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from reactor.cli import add_command
from reactor.cli.client import DEFAULT_SOCKET, NoAgent, ask, follow

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Iterator

    from reactor.cli import Parser
    from reactor.cli.chain import Key, Line
    from reactor.status.document import ConditionDoc, DeviceDoc, Document, GpuDoc, HoldDoc, ResourceDoc

_SHOWN = 8
"""Newest events about the subject of which the chains are drawn."""

_DESCRIPTION = """\
Say why a GPU, a resource or an id is as it is: its faults and what lifts them, why it is not listed or not handed out,
which pods hold it, and the newest events about it, each under the ones that led to it.

examples:
  gpu-reactor explain gpu 3                       index, UUID or PCI address
  gpu-reactor explain resource nvidia.com/gpu
  gpu-reactor explain id GPU-5f3c...::2           as the kubelet's log or a pod's status names it

exit codes: 0 explained, 1 no such thing or no agent, 2 wrong usage"""

_LIFTS = {
    "reset": "a reset of the GPU, a new driver or a reboot lifts it",
    "restart": "a reboot lifts it",
    "hardware": "a person lifts it, or another GPU in its place",
    "unknown": "it lifts when the GPU answers and nothing new comes for a while",
    "unreachable": "it lifts when the GPU answers again",
}


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(
        subparsers, "explain", summary="why a GPU, resource or id is as it is", description=_DESCRIPTION
    )
    parser.add_argument("kind", choices=("gpu", "resource", "id"), help="what NAME is")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: on a terminal")
    parser.add_argument("--admin-socket", default=DEFAULT_SOCKET, metavar="PATH", help="default: %(default)s")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    try:
        told = list(_explain(args))
    except (NoAgent, Unknown) as exc:
        print(f"gpu-reactor explain: {exc}", file=sys.stderr)
        return 1
    print("\n".join(told))
    return 0


class Unknown(Exception):
    """There is no such thing; the text says what there is."""


def _explain(args: Namespace) -> Iterator[str]:
    document: Document = json.loads(_get(args.admin_socket, "/debug/state"))
    now = time.time()
    match args.kind:
        case "gpu":
            gpu = find_gpu(document, args.name)
            facts, subjects = list(tell_gpu(gpu, now)), {gpu["uuid"]}
        case "resource":
            resource = find_resource(document, args.name)
            facts, subjects = list(tell_resource(resource, document)), {resource["name"]}
        case _:
            device: DeviceDoc = json.loads(_get(args.admin_socket, f"/debug/device?id={_quoted(args.name)}"))
            facts, subjects = list(tell_device(device, document, now)), {device["id"], device["gpu"] or device["id"]}
    yield from map(_printable, facts)
    yield from _story(args, subjects)


def _story(args: Namespace, subjects: set[str]) -> Iterator[str]:
    from reactor.cli.chain import Chains
    from reactor.cli.events import parse_lines, writer

    lines = list(parse_lines(follow(args.admin_socket, "/debug/events")))
    chains = Chains(lines)
    keys = newest_about(lines, subjects)
    yield ""
    if not keys:
        yield "No event about it is in the agent's memory."
        return
    yield f"The newest {len(keys)} events about it, with what led to each:"
    shows = partial(is_of_interest, subjects=subjects)
    yield from chains.tree(keys, writer("text", args.color), effects=False, shows=shows)


def newest_about(lines: list[Line], subjects: set[str]) -> list[Key]:
    """The newest events with a line about one of the subjects, oldest first."""
    from reactor.cli.chain import key_of

    found = dict.fromkeys(key for line in lines if _names(line) & subjects and (key := key_of(line)) is not None)
    return list(found)[-_SHOWN:]


def is_of_interest(line: Line, subjects: set[str]) -> bool:
    """One event may tell of many GPUs: lines about others than the subject are not worth showing."""
    names = _names(line)
    return not names or bool(names & subjects)


def _names(line: Line) -> set[str]:
    lists = (line.get(name) for name in ("gpus", "ids", "gpus_added", "gpus_removed", "gpus_changed"))
    single = {str(line[name]) for name in ("gpu", "resource", "id") if line.get(name)}
    return single.union(*(map(str, names) for names in lists if isinstance(names, list)))


def find_gpu(document: Document, name: str) -> GpuDoc:
    for gpu in document["gpus"]:
        if name.lower() in (str(gpu["index"]), gpu["uuid"].lower(), (gpu["pci"] or "").lower()):
            return gpu
    known = ", ".join(f"{gpu['index']} ({gpu['uuid']})" for gpu in document["gpus"]) or "no GPU at all"
    raise Unknown(f"no GPU {name!r}; this node shows {known}")


def find_resource(document: Document, name: str) -> ResourceDoc:
    for resource in document["resources"]:
        if resource["name"] in (name, f"nvidia.com/{name}"):  # as the config has it
            return resource
    known = ", ".join(resource["name"] for resource in document["resources"]) or "none at all"
    raise Unknown(f"no resource {name!r}; this node serves {known}")


def tell_gpu(gpu: GpuDoc, now: float) -> Iterator[str]:
    name = "GPU gone" if gpu["index"] is None else f"GPU {gpu['index']}"
    place = ", ".join(filter(None, (gpu["product"], gpu["uuid"], gpu["pci"])))
    yield f"{name} ({place}) is {gpu['health']}"
    yield from (f"  {_condition(condition, now)}" for condition in gpu["conditions"])
    if gpu["recovery"] not in (None, "none"):
        yield f"  the driver asks for {gpu['recovery']}"
    if gpu["unlisted"]:
        yield f"  not listed: {gpu['unlisted']}"
    elif gpu["resource"]:
        yield f"  listed as {gpu['resource']}" + (f", shared by {gpu['replicas']}" if gpu["replicas"] else ", whole")
    yield from (f"  {_hold(hold, now)}" for hold in gpu["holds"])
    if gpu["index"] is not None and not gpu["monitored"]:
        yield "  its XIDs are not seen: only scans show its faults"


def _why(resource: ResourceDoc, document: Document) -> str:
    """What the kubelet's plugin watcher had to say of it, where that is to find us."""
    name = f"registration.refused:{resource['name']}"
    refusals = [fault for fault in document["faults"] if fault["name"] == name]
    if refusals:
        return f", which said: {refusals[0]['message']}"
    return ": its plugin watcher has not taken it yet" if document["kubelet"]["registration"] == "watcher" else ""


def tell_resource(resource: ResourceDoc, document: Document) -> Iterator[str]:
    yield (
        f"{resource['name']}: {resource['planned']} ids planned, {resource['healthy']} healthy, "
        f"{resource['unhealthy']} not handed out, {resource['held']} held"
    )
    yield from (f"  {count} x {reason}" for reason, count in resource["reasons"].items())
    if resource["tombstones"]:
        yield f"  {resource['tombstones']} are listed though no longer planned: held, or listed a moment ago"
    if not document["kubelet"]["up"]:
        yield f"  the kubelet is away: {document['kubelet']['reason'] or 'not looked for yet'}"
    elif not resource["registered"]:
        yield f"  not registered with the kubelet{_why(resource, document)}"
    elif not resource["streams"]:
        yield "  the kubelet does not watch it"
    else:
        yield "  the kubelet has the newest list" if resource["current"] else "  the newest list is on its way"
    for gpu in document["gpus"]:
        if gpu["resource"] == resource["name"]:
            yield f"  GPU {gpu['index']}: {gpu['health']}" + (
                f": {'; '.join(gpu['reasons'])}" if gpu["reasons"] else ""
            )


def tell_device(device: DeviceDoc, document: Document, now: float) -> Iterator[str]:
    gpu = next((gpu for gpu in document["gpus"] if gpu["uuid"] == device["gpu"]), None)
    if not device["listed"] and not device["holds"] and gpu is None:
        raise Unknown(f"no id {device['id']!r}: it is in no list, nobody holds it, and it names no GPU of this node")
    for listed in device["listed"]:
        state = "is handed out" if listed["healthy"] else f"is not handed out: {listed['reason']}"
        left = "" if listed["resource"] in device["planned"] else " (no longer planned)"
        yield f"{device['id']} {state}, in the list of {listed['resource']}{left}"
    if not device["listed"]:
        share = f"share {device['share']}" if device["share"] is not None else "the GPU as a whole"
        yield f"{device['id']} is in no list: {share} is not planned"
    yield from (f"  {_hold(hold, now)}" for hold in device["holds"])
    if gpu is not None:
        yield from tell_gpu(gpu, now)


def _condition(condition: ConditionDoc, now: float) -> str:
    times = f", {condition['count']} times" if condition["count"] > 1 else ""
    lifts = (
        "a person must clear it: it came back too often" if condition["needs_person"] else _LIFTS[condition["fault"]]
    )
    injected = ", INJECTED" if condition["synthetic"] else ""
    return f"{condition['message']}, for {now - condition['since']:.0f} s{times}{injected}: {lifts}"


def _hold(hold: HoldDoc, now: float) -> str:
    who = hold["pod"] or (f"pod {hold['pod_uid']}" if hold["pod_uid"] else "a pod not known yet")
    return f"held by {who} as {hold['id']} of {hold['resource']}, for {now - hold['since']:.0f} s"


def _get(path: str, target: str) -> bytes:
    status, body = ask(path, "GET", target)
    if status != 200:
        raise NoAgent(f"the agent answers {status}: {body.decode(errors='replace').strip()}")
    return body


def _quoted(text: str) -> str:
    """For a query: every byte that is not a letter, a digit, - or : is escaped."""
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or byte in b"-:" else f"%{byte:02X}"
        for byte in text.encode("utf-8", "surrogateescape")
    )


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
