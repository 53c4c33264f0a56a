"""``gpu-reactor inject``: publish a synthetic fact in a running agent that allows it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from reactor.cli import add_command
from reactor.cli.client import DEFAULT_SOCKET, NoAgent, ask

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from reactor.cli import Parser

_DESCRIPTION = """\
Publish a fact in a running agent, as if a GPU or a person had reported it. The agent must have been started with
--allow-inject. The fact takes the same way as a real one: an XID really withdraws the GPU from the kubelet until it is
cleared. It is marked synthetic in the log and in the status.

facts:
  xid=NUMBER gpu=GPU [gi=N [ci=N]]    the driver reported this XID (gi, ci: for one MIG device only)
  ecc gpu=GPU [gi=N [ci=N]]           a double-bit ECC error
  gpu-lost gpu=GPU [error=TEXT]       the GPU fell off the bus
  recovery gpu=GPU action=ACTION      the driver asks for none, reset, reboot, drain_p2p, drain_and_reset or other
  clear gpu=GPU reason=TEXT           a person says that the GPU is mended
  rescan                              look at the GPUs again

GPU is an index, a UUID or a PCI address, as 'gpu-reactor status' shows them.

examples:
  gpu-reactor inject xid=79 gpu=0
  gpu-reactor inject clear gpu=0 reason='board replaced'

exit codes: 0 published, 1 refused or no agent, 2 wrong usage"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(
        subparsers, "inject", summary="publish a synthetic fact (if the agent allows it)", description=_DESCRIPTION
    )
    parser.add_argument("words", nargs="+", metavar="FACT", help="one fact, as above")
    parser.add_argument("--admin-socket", default=DEFAULT_SOCKET, metavar="PATH", help="default: %(default)s")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    words: list[str] = args.words
    try:
        status, answer = ask(args.admin_socket, "POST", "/debug/inject", json.dumps(words).encode())
    except NoAgent as exc:
        print(f"gpu-reactor inject: {exc}", file=sys.stderr)
        return 1
    text = answer.decode(errors="replace").strip()
    if status != 200:
        print(f"gpu-reactor inject: {text}", file=sys.stderr)
        return 1
    print(text)
    return 0
