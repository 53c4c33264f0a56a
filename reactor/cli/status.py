"""``gpu-reactor status``: what a running agent serves, and what is wrong."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from reactor.cli import add_command
from reactor.cli.client import DEFAULT_SOCKET, NoAgent, ask

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from reactor.cli import Parser
    from reactor.status.document import Document

_PAUSE = 1.0
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K\n", "\x1b[J"
"""Painting over what is there flickers less than wiping the screen first."""

_DESCRIPTION = """\
Show what the agent on this node serves: resources as the kubelet sees them, GPUs with their health and who holds them,
the config in force and why a newer one was rejected, and what of the agent itself does not work.

'-o json' prints the agent's own document. Its field "v" is the version: fields may be added within a version.

--check says in one line whether all is well, for monitors such as node-problem-detector: not ready, a GPU with a fault
or a fault of the agent itself is not well.

examples:
  gpu-reactor status
  gpu-reactor status -w
  gpu-reactor status -o json | jq '.gpus[] | select(.health != "healthy")'
  kubectl exec -n kube-system ds/gpu-reactor -- gpu-reactor status

exit codes: 0 shown, 1 no agent could be asked, 2 wrong usage
            with --check: 0 all is well, 1 something is not, 2 cannot tell"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(subparsers, "status", summary="what it serves, and what is wrong", description=_DESCRIPTION)
    parser.add_argument("-o", "--output", choices=("table", "wide", "json"), default="table", help="default: table")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("-w", "--watch", action="store_true", help="show it anew each second until interrupted")
    how.add_argument("--check", action="store_true", help="one line and an exit code: is all well?")
    parser.add_argument("--admin-socket", default=DEFAULT_SOCKET, metavar="PATH", help="default: %(default)s")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    if args.check:
        return _check(args.admin_socket)
    while True:
        code = _show(args.admin_socket, args.output, redraw=args.watch)
        if code or not args.watch:
            return code
        time.sleep(_PAUSE)


def _show(path: str, output: str, *, redraw: bool) -> int:
    try:
        answer = _ask(path)
        text = answer.decode() if output == "json" else _render(answer, wide=output == "wide")
    except NoAgent as exc:
        print(f"gpu-reactor status: {exc}", file=sys.stderr)
        return 1
    if redraw and sys.stdout.isatty():
        text = _HOME + text.replace("\n", _REST_OF_LINE) + _REST_OF_SCREEN
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _check(path: str) -> int:
    from reactor.cli.table import troubles

    try:
        document = _read(_ask(path))
    except NoAgent as exc:
        print(f"cannot tell: {exc}")
        return 2
    found = troubles(document)
    if not found:
        print(f"ok: {len(document['gpus'])} GPUs, {len(document['resources'])} resources, nothing amiss")
        return 0
    print("; ".join(found))
    return 1


def _ask(path: str) -> bytes:
    status, answer = ask(path, "GET", "/debug/state")
    if status != 200:
        raise NoAgent(f"the agent answers {status}: {answer.decode(errors='replace').strip()}")
    return answer


def _read(answer: bytes) -> Document:
    from reactor.cli.table import VERSION

    document: Document = json.loads(answer)
    if document["v"] != VERSION:
        raise NoAgent(f"the agent's document is of version {document['v']}, this command reads {VERSION}: use -o json")
    return document


def _render(answer: bytes, *, wide: bool) -> str:
    from reactor.cli.table import render

    return render(_read(answer), now=time.time(), wide=wide)
