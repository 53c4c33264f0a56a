"""``gpu-reactor check``: every error of a config text before it is rolled out, or the config that it comes to."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from reactor.cli import add_command
from reactor.cli.options import add_config_flags

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from reactor.cli import Parser
    from reactor.config import Accepted, Rejected

_DESCRIPTION = """\
Read a config as the agent would. Either every error is printed, each with its place and what was meant, or the whole
config that the text comes to, every default written out, with a word beside each value that the file, a variable or a
flag says. Nothing is changed, no GPU and no cluster is needed.

Flags and variables of 'gpu-reactor run' that go before the file are read here as well: with those of the agent, this
is the config that the agent has.

What a text asks for beyond what this version serves is accepted, and told on stderr.

With --from-peer the text is one that NVIDIA's device plugin reads now. Printed is each point in which this agent reads
it otherwise: keys that the plugin drops and that act here, keys that are refused here, keys that are not served yet;
and below, what differs whatever the text says.

examples:
  gpu-reactor check config.yaml
  kubectl get configmap gpu-config -o jsonpath='{.data.config\\.yaml}' | gpu-reactor check -
  gpu-reactor check --from-peer config.yaml                 before a node moves from the device plugin to this agent
  gpu-reactor check --print-schema > config.schema.json     for an editor that speaks JSON schema

exit codes: 0 accepted, 1 rejected or not readable, 2 wrong usage;
with --from-peer 0 means read as the plugin reads it, and 1 read otherwise in at least one point, or not readable"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(
        subparsers, "check", summary="every error of a config, with its line", description=_DESCRIPTION
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", nargs="?", type=_file, metavar="FILE", help="the config; - reads stdin")
    what.add_argument("--print-schema", action="store_true", help="print the JSON schema of the config and exit")
    parser.add_argument(
        "--from-peer", action="store_true", help="tell where the device plugin reads the same file otherwise"
    )
    add_config_flags(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from reactor.cli.options import read_options
    from reactor.config import MAX_BYTES, Rejected, json_schema, parse
    from reactor.model.errors import Refused

    if args.print_schema:
        print(json_schema(), end="")
        return 0
    file: str = args.file
    try:
        overrides = read_options(args, os.environ)
    except Refused as exc:
        for line in str(exc).splitlines():
            print(f"gpu-reactor check: {line}", file=sys.stderr)
        return 2
    try:
        data = _read(file, MAX_BYTES + 1)
    except OSError as exc:
        print(f"gpu-reactor check: {file}: {exc.strerror}", file=sys.stderr)
        return 1
    found = parse(data, path="stdin" if file == "-" else file, overrides=overrides)
    if args.from_peer:
        return _tell_differences(found)
    return _tell_rejected(found) if isinstance(found, Rejected) else _tell_accepted(found)


def _file(word: str) -> str:
    if not word:
        raise ArgumentTypeError("the name is empty")
    return word


def _read(file: str, limit: int) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(limit)
    with open(file, "rb") as stream:
        return stream.read(limit)


def _tell_rejected(found: Rejected) -> int:
    for problem in found.problems:
        print(problem.render(found.path))
    count = len(found.problems)
    print(f"{found.path}: rejected, {count} {'problem' if count == 1 else 'problems'}", file=sys.stderr)
    return 1


def _tell_accepted(found: Accepted) -> int:
    from reactor.config import effective

    print(effective(found.config), end="", flush=True)
    for note in found.notes:
        print(f"{found.path}: {note}", file=sys.stderr)
    for entry in found.config.unserved:
        print(f"{found.path}: not served yet: {entry.path}: {entry.message}", file=sys.stderr)
    return 0


def _tell_differences(found: Accepted | Rejected) -> int:
    from reactor.cli.migration import always, differences
    from reactor.cli.settings import HEALTH_VARIABLES
    from reactor.conditions.classes import policy_from_environment
    from reactor.config import Accepted
    from reactor.model.condition import Policy

    points = [point.render(found.path) for point in differences(found)]
    policy = policy_from_environment([(name, os.environ[name]) for name in HEALTH_VARIABLES if name in os.environ])
    if not isinstance(policy, Policy):
        there = "takes 0 for all, and ignores other words that are no XID"
        points += [f"here: refused, the variable {problem}; the device plugin: {there}" for problem in policy]
        policy = Policy()
    for point in points:
        print(point)
    whole = found if isinstance(found, Accepted) else found.rest
    for note in whole.notes:
        print(f"{found.path}: {note}", file=sys.stderr)
    print("whatever the file says:")
    for line in always(whole.config, policy):
        print(f"  {line}")
    said = f"{len(points)} {'point' if len(points) == 1 else 'points'}" if points else "no point"
    refused = "" if isinstance(found, Accepted) else ", and it is refused here"
    print(f"{found.path}: read otherwise in {said}{refused}", file=sys.stderr)
    return 1 if points else 0
