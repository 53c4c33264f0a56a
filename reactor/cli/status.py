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

_DESCRIPTION = """\
Show what the agent on this node serves: resources as the kubelet sees them, GPUs with their health and who holds them,
the config in force and why a newer one was rejected, and what of the agent itself does not work.

'-o json' prints the agent's own document. Its field "v" is the version: fields may be added within a version.

examples:
  gpu-reactor status
  gpu-reactor status -o json | jq '.gpus[] | select(.health != "healthy")'
  kubectl exec -n kube-system ds/gpu-reactor -- gpu-reactor status

exit codes: 0 shown, 1 no agent could be asked, 2 wrong usage"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(subparsers, "status", summary="what it serves, and what is wrong", description=_DESCRIPTION)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: %(default)s")
    parser.add_argument("--admin-socket", default=DEFAULT_SOCKET, metavar="PATH", help="default: %(default)s")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    try:
        status, answer = ask(args.admin_socket, "GET", "/debug/state")
    except NoAgent as exc:
        return _complain(str(exc))
    if status != 200:
        return _complain(f"the agent answers {status}: {answer.decode(errors='replace').strip()}")
    if args.output == "json":
        sys.stdout.write(answer.decode())
        return 0
    from reactor.cli.table import VERSION, render

    document: Document = json.loads(answer)
    if document["v"] != VERSION:
        return _complain(
            f"the agent's document is of version {document['v']}, this command reads {VERSION}: use -o json"
        )
    sys.stdout.write(render(document, now=time.time()))
    return 0


def _complain(text: str) -> int:
    print(f"gpu-reactor status: {text}", file=sys.stderr)
    return 1
