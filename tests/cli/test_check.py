"""The command as a person calls it: output, complaints, exit code."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from reactor.cli import main
from reactor.config import Accepted, json_schema, parse


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return str(path)


def test_a_good_config_is_printed_with_every_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}\n")
    assert main(["check", file]) == 0
    out, err = capsys.readouterr()
    again = parse(out.encode(), path="")
    assert isinstance(again, Accepted)
    assert again.config.time_slicing.resources[0].replicas == 4
    assert "failOnInitError: true" in out
    assert err == ""


def test_the_source_of_each_value_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CFG-35"""
    monkeypatch.setenv("DEVICE_ID_STRATEGY", "index")
    file = write(tmp_path, "flags: {migStrategy: none, mpsRoot: /m, plugin: {deviceIDStrategy: uuid}}\n")
    assert main(["check", file, "--mig-strategy", "single", "--gds-enabled=false"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "migStrategy: single  # flag --mig-strategy" in lines
    assert "gdsEnabled: false  # flag --gds-enabled" in lines
    assert "deviceIDStrategy: index  # variable DEVICE_ID_STRATEGY" in lines
    assert "mpsRoot: /m  # file" in lines
    assert "mofedEnabled: false" in lines


def test_a_bad_flag_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", write(tmp_path, ""), "--mig-strategy", "x"]) == 2
    assert capsys.readouterr().err.startswith("gpu-reactor check: --mig-strategy: 'x' is not one of")


def test_every_error_is_printed_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CFG-01, CFG-02"""
    file = write(tmp_path, "sharring: {}\nflags: {renameByDefault: true}\n")
    assert main(["check", file]) == 1
    out, err = capsys.readouterr()
    assert [line.split(" ", 1)[0] for line in out.splitlines()] == [f"{file}:1:1:", f"{file}:2:9:"]
    assert err == f"{file}: rejected, 2 problems\n"


def test_what_is_not_served_is_told_beside_the_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "flags: {mpsRoot: /mps}\n")
    assert main(["check", file]) == 0
    out, err = capsys.readouterr()
    assert "# not served yet: flags.mpsRoot: " in out
    assert err.startswith(f"{file}: not served yet: flags.mpsRoot: ")


def test_an_empty_file_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CFG-18"""
    file = write(tmp_path, "")
    assert main(["check", file]) == 0
    assert capsys.readouterr().err == f"{file}: the file is empty: the defaults are in force\n"


def test_a_missing_file_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "none.yaml")]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_stdin_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"version: v2\n")))
    assert main(["check", "-"]) == 1
    assert capsys.readouterr().out.startswith("stdin:1:10: version: ")


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--print-schema"]) == 0
    assert capsys.readouterr().out == json_schema()


@pytest.mark.parametrize("words", [["check"], ["check", "a", "--print-schema"], ["check", ""]])
def test_wrong_usage_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err
