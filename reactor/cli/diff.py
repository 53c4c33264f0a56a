"""``gpu-reactor diff``: what a config would do to this node now, asked of the running agent, changing nothing."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from reactor.cli import add_command
from reactor.cli.client import DEFAULT_SOCKET, NoAgent, ask

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Iterator

    from reactor.cli import Parser
    from reactor.status.document import CountsDoc, PodMattersDoc, PreviewDoc

_TOO_LARGE = (1 << 20) + 1
"""One byte more than a config may have; the agent says so."""

_DESCRIPTION = """\
Show what a config would do to this node now: keys that differ from the config in force, resources and ids, how each GPU
would be handed out, which pods its change waits for or disturbs, and what this node cannot do. The running agent works
it out from the GPUs, faults and pods that it knows at this moment, and changes nothing. Its own flags and variables
count as they would for the file.

examples:
  gpu-reactor diff config.yaml
  kubectl exec -i -n kube-system ds/gpu-reactor -- gpu-reactor diff - < config.yaml
  gpu-reactor diff -o json config.yaml | jq '.waits[].pod'

exit codes: 0 nothing would change, 1 it would, 2 error (faulty config, no agent, wrong usage), 3 not possible here"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(
        subparsers, "diff", summary="what a config would do to this node now", description=_DESCRIPTION
    )
    parser.add_argument("file", metavar="FILE", help="the config; - reads stdin")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--admin-socket", default=DEFAULT_SOCKET, metavar="PATH", help="default: %(default)s")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    file: str = args.file
    try:
        status, body = ask(args.admin_socket, "POST", "/debug/plan", _read(file))
    except NoAgent as exc:
        return _complain(str(exc))
    except OSError as exc:
        return _complain(f"{file}: {exc.strerror}")
    if status == 422:
        for problem in json.loads(body)["problems"]:
            print(problem.replace("config:", f"{file}:", 1))
        return _complain(f"{file}: no config; see 'gpu-reactor check'")
    if status != 200:
        return _complain(f"the agent answers {status}: {body.decode(errors='replace').strip()}")
    found: PreviewDoc = json.loads(body)
    if args.output == "json":
        sys.stdout.write(body.decode())
    else:
        print("\n".join("".join(char if char.isprintable() else "?" for char in line) for line in tell(found)))
    return verdict(found)


def verdict(found: PreviewDoc) -> int:
    if found["impossible"]:
        return 3
    return int(bool(found["changes"] or found["resources"] or found["gpus"]))


def tell(found: PreviewDoc) -> Iterator[str]:
    """For people: - as it is, + as it would be."""
    for change in found["changes"]:
        yield f"~ {change['path']}: {change['before'] or '(nothing)'} -> {change['after'] or '(nothing)'}"
    for resource in found["resources"]:
        mark = "+" if resource["before"] is None else "-" if resource["after"] is None else "~"
        moved = f"{_counts(resource['before'])} -> {_counts(resource['after'])}"
        yield f"{mark} {resource['name']}: {moved} ({resource['added']} ids new, {resource['removed']} gone)"
        yield from (f"    {count} x {reason}" for reason, count in resource["reasons"].items())
    for gpu in found["gpus"]:
        yield f"~ GPU {gpu['index']} ({gpu['product']}): {gpu['before']} -> {gpu['after']}"
    yield from (f"! {text}" for text in found["impossible"])
    yield from (f"  no effect: {key['path']}: {key['message']}" for key in found["unserved"])
    yield from (f"  note: {note}" for note in found["notes"])
    yield from (f"  waits for {_pod(pod)}" for pod in found["waits"])
    yield from (f"! disturbs {_pod(pod)}" for pod in found["disturbs"])
    yield _sum(found)


def _sum(found: PreviewDoc) -> str:
    if not verdict(found):
        return "nothing would change on this node"
    waits, disturbs = ({pod["pod"] for pod in pods} for pods in (found["waits"], found["disturbs"]))
    return f"disturbs {_many(len(disturbs))}" + (f"; waits for {_many(len(waits))} to end" if waits else "")


def _many(count: int) -> str:
    return f"{count} running {'pod' if count == 1 else 'pods'}"


def _pod(pod: PodMattersDoc) -> str:
    gpu = pod["uuid"] if pod["index"] is None else f"GPU {pod['index']}"
    return f"{pod['pod']}, which holds {gpu} {'whole' if pod['held'] == 'whole' else 'in shares'} as {pod['resource']}"


def _counts(counts: CountsDoc | None) -> str:
    if counts is None:
        return "not served"
    ill = f" + {counts['unhealthy']} not handed out" if counts["unhealthy"] else ""
    return f"{counts['healthy']} healthy{ill}"


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(_TOO_LARGE)
    with open(file, "rb") as stream:
        return stream.read(_TOO_LARGE)


def _complain(text: str) -> int:
    print(f"gpu-reactor diff: {text}", file=sys.stderr)
    return 2
