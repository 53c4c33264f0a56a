"""Completion, by the shells that are here, and the page of exit codes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from reactor.cli import COMMANDS, main, make_parser

PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_flag_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]):
    text = script(shell, capsys)
    _, subparsers = make_parser(COMMANDS)
    for name in COMMANDS:
        assert name in text
        for flag in subparsers.choices[name]._option_string_actions:
            assert flag.lstrip("-") in text
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text.encode(), check=True, timeout=10)


def complete(text: str, *words: str) -> set[str]:
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _gpu_reactor; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    done = subprocess.run(["bash", "-c", text + ask], capture_output=True, text=True, check=True, timeout=10, cwd="/")
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_flags_and_their_choices(capsys: pytest.CaptureFixture[str]):
    text = script("bash", capsys)
    assert complete(text, "gpu-reactor", "st") == {"status"}
    assert complete(text, "gpu-reactor", "") >= set(COMMANDS)
    assert complete(text, "gpu-reactor", "status", "--ch") == {"--check"}
    assert complete(text, "gpu-reactor", "status", "-o", "") == {"table", "wide", "json"}
    assert complete(text, "gpu-reactor", "explain", "re") == {"resource"}
    assert complete(text, "gpu-reactor", "check", "us") == {"usr"}, "files"


def test_the_page_of_exit_codes_has_every_command_with_the_codes_of_its_help(capsys: pytest.CaptureFixture[str]):
    rows = {}
    for row in PAGE.read_text().splitlines():
        if row.startswith("| `"):
            name, *cells = (cell.strip() for cell in row.strip("|").split("|"))
            rows[name.strip("`")] = {str(code) for code, cell in enumerate(cells[:3]) if cell} | set(
                re.findall(r"\b(78|130|3)\b", cells[3])
            )
    assert set(rows) == {*COMMANDS, "status --check"}
    _, subparsers = make_parser(COMMANDS)
    for name in COMMANDS:
        told = subparsers.choices[name].format_help().rpartition("exit codes:")[2]
        told = told.partition("with --check")[0]
        codes = set(re.findall(r"(?:^|[,:;] |^ )(\d+) ", " " + " ".join(told.split())))
        assert codes == rows[name], name
