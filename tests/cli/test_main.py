"""The dispatcher, as people and scripts call it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from reactor.cli import COMMANDS, main
from reactor.cli.client import DEFAULT_SOCKET
from reactor.cli.simulate import wants_colour
from reactor.model.settings import Settings


def code_of(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    return caught.value.code


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]):
    assert code_of("--help") == 0
    text = capsys.readouterr().out
    assert all(f"\n    {command}" in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples_and_exit_codes(command: str, capsys: pytest.CaptureFixture[str]):
    assert code_of(command, "--help") == 0
    text = capsys.readouterr().out.lower()
    assert f"gpu-reactor {command}" in text
    assert "example" in text
    assert "exit code" in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_version_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gpu-reactor 0.")


@pytest.mark.parametrize("words", [(), ("frobnicate",), ("status", "-o", "xml"), ("inject",), ("status", "--nonsense")])
def test_wrong_usage_is_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert code_of(*words) == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--nonsense",), ("--grace",), ("stray",), ("--conf", "abbreviated")])
def test_a_bad_flag_of_run_is_78(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert code_of("run", *words) == 78
    assert "gpu-reactor run" in capsys.readouterr().err


def test_a_bad_value_for_run_is_78_and_says_where_it_was(capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--grace", "soon"]) == 78
    assert capsys.readouterr().err == (
        "gpu-reactor run: --grace: 'soon' is not a number of seconds from 0 on, such as 5\n"
    )


def test_run_takes_the_long_flags_of_go_with_one_dash(capsys: pytest.CaptureFixture[str]):
    assert main(["run", "-mig-strategy=x", "-device-id-strategy", "y"]) == 78
    assert [line.split(":")[1] for line in capsys.readouterr().err.splitlines()] == [
        " --mig-strategy",
        " --device-id-strategy",
    ]


def test_clients_look_where_the_agent_listens_by_default():
    assert str(Settings().admin_socket) == DEFAULT_SOCKET


def test_a_client_command_loads_nothing_of_the_agent():
    """kubectl exec ... status is the main path: it must start at once."""
    program = (
        "import sys; from reactor.cli import main; main(['status', '--admin-socket', '/nonexistent']); "
        "print(*(m for m in sys.modules if m in "
        "{'trio', 'asyncio', 'h11', 'yaml', 'msgspec', 'http.client', 'shutil', 'dataclasses', 'reactor.state'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.strip() == ""
    assert "no agent at /nonexistent" in done.stderr


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "reactor", "--version"], capture_output=True, check=True, timeout=20)
    assert done.stdout.startswith(b"gpu-reactor ")


def test_output_that_nobody_reads_is_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        command = [sys.executable, "-m", "reactor", "--version"]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=False, timeout=20)
    assert (done.returncode, done.stderr) == (1, b"")


def test_colour_is_for_terminals_unless_told_otherwise():
    assert wants_colour("auto", terminal=True, no_color="")
    assert not wants_colour("auto", terminal=False, no_color="")
    assert not wants_colour("auto", terminal=True, no_color="1")
    assert wants_colour("always", terminal=False, no_color="1")
    assert not wants_colour("never", terminal=True, no_color="")
