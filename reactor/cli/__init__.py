"""The command ``gpu-reactor``: one module a command, imported only when it is called.

A command has ``add_parser(subparsers)``, which sets ``run``, and ``run(args) -> int``, the exit code. Results go to
stdout, talk to stderr. The codes: 0 well, 1 not well, 2 wrong usage; ``run`` has 78 for a bad flag or variable.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Callable, Sequence

COMMANDS = ("run", "simulate", "check", "diff", "status", "explain", "events", "inject", "replay", "completion")

_DESCRIPTION = """\
One process that serves the GPUs of a node to the kubelet and keeps what it serves true: it reacts to the config, to
the kubelet and to the GPUs, and never restarts itself in order to change its mind."""

_EPILOG = """\
examples:
  gpu-reactor simulate                   see it at work, with no GPU and no cluster
  gpu-reactor check config.yaml          every error of a config, with its line, before it is rolled out
  gpu-reactor run --config config.yaml   the agent
  gpu-reactor status                     what it serves now, and what is wrong
  gpu-reactor explain gpu 3              why that GPU is as it is
  gpu-reactor diff config.yaml           what a config would do to this node now

'gpu-reactor COMMAND --help' tells more about each."""


class Help(RawDescriptionHelpFormatter):
    """Of a fixed width: measuring the terminal would load shutil, which costs more than the rest of a short call."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)


class Parser(ArgumentParser):
    """Long options are written out, help keeps its lines, and a command may have its own code for wrong usage."""

    usage_code = 2

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(self.usage_code, f"{self.prog}: {message}\n(see '{self.prog} --help')\n")


def add_command(subparsers: _SubParsersAction[Parser], name: str, *, summary: str, description: str) -> Parser:
    """A parser for one command, in the house's form."""
    return subparsers.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=Help,
        allow_abbrev=False,
    )


def make_parser(commands: Sequence[str]) -> tuple[Parser, _SubParsersAction[Parser]]:
    """The parser of these commands, and where each has its own."""
    parser = Parser(
        prog="gpu-reactor",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in commands:
        importlib.import_module(f"reactor.cli.{name}").add_parser(subparsers)
    return parser, subparsers


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is returned, but --help, --version and wrong usage raise SystemExit."""
    words = sys.argv[1:] if argv is None else list(argv)
    parser, subparsers = make_parser(words[:1] if words[:1] and words[0] in COMMANDS else COMMANDS)
    args, unknown = parser.parse_known_args(_long(words))
    if args.version:
        return _call(_print_version, args)
    if args.command is None:
        parser.error("a COMMAND is missing")
    if unknown:
        subparsers.choices[args.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    return _call(args.run, args)


def _long(words: list[str]) -> list[str]:
    """The device plugin takes -flag for --flag, and manifests that start it may say so; the agent takes it as well."""
    if words[:1] != ["run"]:
        return words
    return ["run", *("-" + word if re.match(r"-[a-z][a-z]+(-|=|$)", word) else word for word in words[1:])]


def _call(run: Callable[[Namespace], int], args: Namespace) -> int:
    try:
        code = run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output left (head, less). Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _print_version(args: Namespace) -> int:
    from reactor import __version__

    print(f"gpu-reactor {__version__}")
    return 0
