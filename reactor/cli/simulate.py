"""``gpu-reactor simulate``: the whole agent on a simulated node, following a script."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from reactor.cli import add_command

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from reactor.cli import Parser

_DESCRIPTION = """\
Run the whole agent on a simulated node: simulated GPUs under the real NVML bindings, and a simulated kubelet on real
sockets. Needs no GPU, no cluster and no root, and leaves nothing behind. Without SCRIPT it tells a story of its own in
under a minute: GPUs appear, a pod takes two of them, the config is edited, an XID hits a shared GPU, the kubelet
restarts, a GPU vanishes and returns, a broken config is rejected. A live log says what happened and what caused it; a
table at the end says what the kubelet sees."""

_EPILOG = """\
steps of a script, one a line; lines that begin with '#' mean nothing (docs/simulate.md says more):
  node SPEC                       which cards, such as 8xH100 (the default); first of all
  say TEXT                        a headline
  wait SECONDS                    let time pass
  config <<END                    the lines up to END become the config file
  pod NAME RESOURCE=N ...         a pod asks for devices, such as gpu=2
  delete NAME                     that pod is gone
  xid CARD CODE                   the driver reports an XID on a card (0 is the first)
  unplug CARD, plug CARD          a card goes, and comes back
  lose CARD, find CARD            a card stops answering without a word, and answers again
  kubelet restart [SECONDS]       killed, and started so much later; also: kubelet stop, kubelet start
  agent restart                   the agent ends and starts again under running pods
  show                            what the kubelet sees, in a line
  expect RESOURCE healthy=N unhealthy=N [within SECONDS]
  expect card CARD healthy|unhealthy|absent [within SECONDS]
  expect pod NAME running|rejected [within SECONDS]
  expect log EVENT TEXT           the log has such a line since the last headline
                                  an expectation has 10 s to come true; in vain: told, and exit code 1

examples:
  gpu-reactor simulate
  gpu-reactor simulate --color never my-story

exit codes: 0 all that was expected came true, 1 something did not, 2 wrong usage or a faulty script, 130 interrupted"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(
        subparsers, "simulate", summary="see it at work, without GPU or cluster", description=_DESCRIPTION
    )
    parser.epilog = _EPILOG
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="file to follow; default: the built-in story")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto (default): on a terminal, unless NO_COLOR is set",
    )
    parser.set_defaults(run=run)


def wants_colour(choice: str, *, terminal: bool, no_color: str) -> bool:
    return choice == "always" or (choice == "auto" and terminal and not no_color)


def run(args: Namespace) -> int:
    from pathlib import Path

    from reactor.simulate import story

    script = None if args.script is None else Path(args.script)
    colour = wants_colour(args.color, terminal=sys.stdout.isatty(), no_color=os.environ.get("NO_COLOR", ""))
    return story.main(script, colour=colour)
