"""``gpu-reactor events``: the event log for people, from a running agent, a file or a pipe."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from reactor.cli import add_command
from reactor.cli.client import DEFAULT_SOCKET, NoAgent, ask, follow
from reactor.cli.filters import LEVELS, Filter, read_age, stamp

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from reactor.cli import Parser
    from reactor.cli.chain import Line

_DESCRIPTION = """\
Show the event log. Without FILE the agent on this node is asked for the newest lines it has in memory (4096); FILE is a
log that was kept, - reads stdin. What is no line of the log is passed over, also what 'kubectl logs --prefix' puts
before each.

In (#9 <- #7), 9 is the number of the event and 7 that of the one which led to it; --cause draws the whole chain."""

_EPILOG = """\
examples:
  gpu-reactor events -f                                   what happens now
  gpu-reactor events --since 10m --level warning          what went wrong lately
  gpu-reactor events --gpu 3 --event 'xid.*'
  gpu-reactor events --cause 412                          why, and what came of it
  kubectl logs -n kube-system ds/gpu-reactor | gpu-reactor events --since 1h -
  gpu-reactor events --schema > events.schema.json        JSON schema of a line

docs/events.md lists every event.

exit codes: 0 shown, 1 no agent or no such file or event, 2 wrong usage"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(
        subparsers, "events", summary="the event log: what happened, and why", description=_DESCRIPTION
    )
    parser.epilog = _EPILOG
    parser.add_argument("file", nargs="?", metavar="FILE", help="a log; - reads stdin; default: the running agent")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as events come (running agent)")
    parser.add_argument("--since", type=_age, metavar="AGE", help="not older than 90s, 10m, 2h, 1d")
    parser.add_argument("--event", default="", metavar="PATTERN", help="such as xid.reported or 'gpu.*'")
    parser.add_argument("--gpu", default="", metavar="GPU", help="index, UUID or PCI address")
    parser.add_argument("--resource", default="", metavar="NAME", help="such as nvidia.com/gpu")
    parser.add_argument("--level", choices=LEVELS, default="debug", help="this level and above")
    parser.add_argument("--cause", type=int, metavar="SEQ", help="only what led to this event and what it led to")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: on a terminal")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of a line and exit")
    parser.add_argument("--admin-socket", default=DEFAULT_SOCKET, metavar="PATH", help="default: %(default)s")
    parser.set_defaults(run=run)


def _age(text: str) -> float:
    try:
        return read_age(text)
    except ValueError as exc:
        raise ArgumentTypeError(str(exc)) from exc


def run(args: Namespace) -> int:
    if args.schema:
        from reactor.record.schema import schema_text

        sys.stdout.write(schema_text())
        return 0
    if args.follow and (args.file is not None or args.cause is not None):
        print("gpu-reactor events: --follow is for the running agent, without FILE and --cause", file=sys.stderr)
        return 2
    try:
        return _show(args, _read(args))
    except NoAgent as exc:
        print(f"gpu-reactor events: {exc}", file=sys.stderr)
    except OSError as exc:
        if isinstance(exc, BrokenPipeError):
            raise
        print(f"gpu-reactor events: {args.file}: {exc.strerror}", file=sys.stderr)
    return 1


def _read(args: Namespace) -> Iterator[Line]:
    if args.file is None:
        yield from parse_lines(follow(args.admin_socket, f"/debug/events?follow={int(args.follow)}"))
    elif args.file == "-":
        yield from parse_lines(sys.stdin.buffer)
    else:
        with open(args.file, "rb") as log:
            yield from parse_lines(log)


def parse_lines(raw: Iterable[bytes]) -> Iterator[Line]:
    """What of these texts is a line of the event log."""
    for text in raw:
        begin = text.find(b"{")
        try:
            line: object = json.loads(text[begin:]) if begin >= 0 else None
        except ValueError:
            continue
        if isinstance(line, dict) and "event" in line:
            yield line


def _show(args: Namespace, lines: Iterator[Line]) -> int:
    write = writer(args.output, args.color)
    if args.cause is not None:
        return _show_chain(args.cause, lines, write)
    wanted = Filter(
        since=stamp(time.time() - args.since) if args.since is not None else "",
        event=args.event,
        gpu=args.gpu,
        resource=args.resource,
        level=args.level,
        indices=_indices(args),
    )
    for line in lines:
        if wanted.passes(line):
            print(write(line), flush=args.follow)
    return 0


def _show_chain(seq: int, lines: Iterator[Line], write: Callable[[Line], str]) -> int:
    from reactor.cli.chain import Chains

    chains = Chains(lines)
    key = chains.newest(seq)
    if key is None:
        print(f"gpu-reactor events: no line of event #{seq} is here: too old, or of level debug", file=sys.stderr)
        return 1
    for text in chains.tree([key], write, effects=True):
        print(text)
    return 0


def _indices(args: Namespace) -> Mapping[str, str]:
    """GPU indices of the running agent: its oldest lines may no longer tell them."""
    if args.file is not None or not args.gpu.isdecimal():
        return {}
    status, body = ask(args.admin_socket, "GET", "/debug/state")
    document = json.loads(body) if status == 200 else {"gpus": []}
    return {str(gpu["index"]): gpu["uuid"].lower() for gpu in document["gpus"] if gpu["index"] is not None}


def writer(output: str, color: str) -> Callable[[Line], str]:
    """How a line is written."""
    if output == "json":
        return lambda line: json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    from reactor.record.render import render, wants_colour

    colour = color == "always" or (color == "auto" and wants_colour(os.environ, terminal=sys.stdout.isatty()))
    return lambda line: render(line, colour=colour)
