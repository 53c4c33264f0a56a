"""``gpu-reactor simulate``: the whole agent on a node in memory, following a script."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from reactor.cli import add_command

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from reactor.cli import Parser

_DESCRIPTION = """\
Run the whole agent on a simulated node: eight GPUs under the real NVML bindings, and a kubelet. Needs no GPU, no
cluster and no root. Without SCRIPT it tells a story of its own in under a minute: GPUs appear, a pod takes two of
them, the config is edited, an XID hits a shared GPU, the kubelet restarts, a GPU vanishes and returns, a broken config
is rejected. A live log says what happened and what caused it; a table at the end says what the kubelet sees.

examples:
  gpu-reactor simulate
  gpu-reactor simulate --color never my-story

exit codes: 0 the node ended as it should, 1 it did not, 2 wrong usage"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(
        subparsers, "simulate", summary="see it at work, without GPU or cluster", description=_DESCRIPTION
    )
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
