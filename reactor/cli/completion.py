"""``gpu-reactor completion``: a script that completes commands, flags and their choices, made from the parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reactor.cli import COMMANDS, add_command, make_parser

if TYPE_CHECKING:
    from argparse import Action, Namespace, _SubParsersAction
    from collections.abc import Iterator, Sequence

    from reactor.cli import Parser

_DESCRIPTION = """\
Print a script that lets a shell complete the commands of gpu-reactor, their flags, and the words that a flag takes.

examples:
  gpu-reactor completion bash > /etc/bash_completion.d/gpu-reactor
  gpu-reactor completion zsh > "${fpath[1]}/_gpu-reactor"
  gpu-reactor completion fish > ~/.config/fish/completions/gpu-reactor.fish

exit codes: 0 printed, 2 wrong usage"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(subparsers, "completion", summary="a script for bash, zsh or fish", description=_DESCRIPTION)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    _, subparsers = make_parser(COMMANDS)
    commands = {name: subparsers.choices[name] for name in COMMANDS}
    summaries = {action.dest: _first(action) for action in subparsers._get_subactions()}
    make = {"bash": bash, "zsh": zsh, "fish": fish}[args.shell]
    print("\n".join(make(commands, summaries)))
    return 0


def _first(action: Action) -> str:
    """Help in a few words that no shell reads as code."""
    text = (action.help or "") % {"default": action.default}
    plain = "".join(char for char in text if char.isalnum() or char in " -_./,=")
    return plain[:80].strip()


def _actions(parser: Parser) -> list[Action]:
    return parser._actions


def _choices(action: Action) -> Sequence[str]:
    return [str(choice) for choice in action.choices or ()]


def _words(parser: Parser) -> list[str]:
    """Choices of what is given without a flag."""
    return [word for action in _actions(parser) if not action.option_strings for word in _choices(action)]


def bash(commands: dict[str, Parser], summaries: dict[str, str]) -> Iterator[str]:
    yield "# bash completion of gpu-reactor"
    yield "_gpu_reactor() {"
    yield "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}"
    yield "    local command=${COMP_WORDS[1]} flags= words="
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        COMPREPLY=($(compgen -W "{" ".join(commands)} --help --version" -- "$cur"))'
    yield "        return"
    yield "    fi"
    yield '    case "$command $prev" in'
    for name, parser in commands.items():
        for action in _actions(parser):
            if action.option_strings and _choices(action):
                cases = "|".join(f'"{name} {flag}"' for flag in action.option_strings)
                yield f'    {cases}) COMPREPLY=($(compgen -W "{" ".join(_choices(action))}" -- "$cur")); return ;;'
    yield "    esac"
    yield '    case "$command" in'
    for name, parser in commands.items():
        flags = " ".join(flag for action in _actions(parser) for flag in action.option_strings)
        yield f'    {name}) flags="{flags}" words="{" ".join(_words(parser))}" ;;'
    yield "    esac"
    yield '    if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$cur"))'
    yield '    else COMPREPLY=($(compgen -W "$words" -- "$cur") $(compgen -f -- "$cur")); fi'
    yield "}"
    yield "complete -o filenames -F _gpu_reactor gpu-reactor"


def zsh(commands: dict[str, Parser], summaries: dict[str, str]) -> Iterator[str]:
    yield "#compdef gpu-reactor"
    yield "_gpu_reactor() {"
    yield "    local -a commands=("
    yield from (f"        '{name}:{summaries[name]}'" for name in commands)
    yield "    )"
    yield "    if (( CURRENT == 2 )); then _describe command commands; return; fi"
    yield "    local command=$words[2]"
    yield "    shift words; (( CURRENT-- ))"
    yield "    case $command in"
    for name, parser in commands.items():
        specs = " ".join(spec for action in _actions(parser) for spec in _zsh_specs(action))
        yield f"    {name}) _arguments {specs} '*:file:_files' ;;"
    yield "    esac"
    yield "}"
    yield '_gpu_reactor "$@"'


def _zsh_specs(action: Action) -> Iterator[str]:
    takes = f":{action.dest}:({' '.join(_choices(action))})" if _choices(action) else f":{action.dest}:_files"
    if not action.option_strings and _choices(action):
        yield f"'1{takes}'"
    for flag in action.option_strings:
        yield f"'{flag}[{_first(action)}]{takes if action.nargs != 0 else ''}'"


def fish(commands: dict[str, Parser], summaries: dict[str, str]) -> Iterator[str]:
    yield "# fish completion of gpu-reactor"
    for name, parser in commands.items():
        yield f"complete -c gpu-reactor -n __fish_use_subcommand -f -a {name} -d '{summaries[name]}'"
        here = f"complete -c gpu-reactor -n '__fish_seen_subcommand_from {name}'"
        yield from (f"{here} -a '{word}'" for word in _words(parser))
        for action in _actions(parser):
            for flag in action.option_strings:
                form = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                takes = (
                    "" if action.nargs == 0 else f" -x -a '{' '.join(_choices(action))}'" if _choices(action) else " -r"
                )
                yield f"{here} {form}{takes} -d '{_first(action)}'"
