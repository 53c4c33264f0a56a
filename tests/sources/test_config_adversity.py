"""What can stand in the place of the config file, on a real file system: each has its word, and nothing is lost."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from reactor.config import MAX_BYTES, Fetch
from reactor.events import ConfigRead
from reactor.model.config import Setting, Source
from reactor.model.errors import Transient
from reactor.state import ConfigState
from tests.sources.test_config import shared_by, sourced


def _nothing(path: Path) -> None:
    """It is only gone."""


def _directory(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _dangling(path: Path) -> None:
    path.symlink_to("..data/config.yaml")


def _empty(path: Path) -> None:
    path.touch()


def _blank(path: Path) -> None:
    path.write_text(" \n\n")


def _huge(path: Path) -> None:
    path.write_bytes(b"#" * (MAX_BYTES + 1))


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _latin(path: Path) -> None:
    path.write_bytes("version: v1 # café".encode("latin-1"))


def _two(path: Path) -> None:
    path.write_text("version: v1\n---\nversion: v1\n")


def _manifest(path: Path) -> None:
    path.write_text("apiVersion: v1\nkind: ConfigMap\ndata:\n  config.yaml: x\n")


ADVERSITIES: list[tuple[Callable[[Path], None], str]] = [
    (_nothing, "No such file"),
    (_directory, "is a directory"),
    (_pipe, "is a pipe"),
    (_socket, "No such device or address"),
    (_loop, "Too many levels of symbolic links"),
    (_dangling, "No such file or directory: it is a link to ..data/config.yaml"),
    (_empty, "the file is empty now, and was not before: for the defaults write version: v1"),
    (_blank, "the file is empty now"),
    (_huge, "larger than"),
    (_endless, "larger than"),
    (_latin, "config.yaml:1:18: not UTF-8: byte 0xe9"),
    (_two, "a second document begins here"),
    (_manifest, "a whole Kubernetes manifest"),
]


@pytest.mark.parametrize(("happen", "word"), ADVERSITIES, ids=[happen.__name__ for happen, _ in ADVERSITIES])
async def test_whatever_happens_to_the_file_has_its_word_and_its_end(
    tmp_path: Path, happen: Callable[[Path], None], word: str
) -> None:
    """CFG-03, CFG-19, CFG-29, CFG-31"""
    path = tmp_path / "config.yaml"
    path.write_text(shared_by(2))
    async with sourced(path) as around:
        assert await around.replicas() == 2
        path.unlink()
        happen(path)
        refusal = await around.refusal()
        if "No such file" in refusal and happen is not _nothing and "link" not in refusal:
            refusal = await around.refusal()  # caught between the two steps
        assert word in refusal
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        path.write_text(shared_by(2))
        fact = await around.fact()
        if not isinstance(fact, ConfigRead):
            fact = await around.fact()  # that it was gone meanwhile
        assert isinstance(fact, ConfigRead)
        assert fact.text == shared_by(2)


async def test_a_device_that_ends_at_once_is_an_empty_file(tmp_path: Path) -> None:
    """The peer's config-manager links to /dev/null where no config is wanted."""
    path = tmp_path / "config.yaml"
    path.symlink_to("/dev/null")
    async with sourced(path) as around:
        assert isinstance(await around.fact(), ConfigRead)


async def test_a_file_that_was_emptied_while_the_agent_was_away_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("")
    async with sourced(path, start=ConfigState(text=shared_by(2))) as around:
        assert "the file is empty now, and was not before" in await around.refusal()
        path.write_text("version: v1\n")
        assert isinstance(await around.fact(), ConfigRead)


async def test_a_comment_in_place_of_everything_is_an_edit(tmp_path: Path) -> None:
    """CFG-18: someone wrote that."""
    path = tmp_path / "config.yaml"
    path.write_text(shared_by(2))
    async with sourced(path) as around:
        assert await around.replicas() == 2
        path.write_text("# nothing is shared any more\n")
        fact = await around.fact()
        assert isinstance(fact, ConfigRead)
        assert fact.config.time_slicing.resources == ()
        assert fact.notes == ("the file is empty: the defaults are in force",)


async def test_flags_go_before_every_reading(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("flags: {plugin: {passDeviceSpecs: false}}\n")
    flag = Setting(path="flags.plugin.passDeviceSpecs", value=True, source=Source.FLAG, name="--pass-device-specs")
    async with sourced(path, overrides=(flag,)) as around:
        for text in ("version: v1\n", shared_by(2)):
            fact = await around.fact()
            assert isinstance(fact, ConfigRead)
            assert fact.config.flags.pass_device_specs
            path.write_text(text)
    async with sourced(None, overrides=(flag,)) as around:
        fact = await around.fact()
        assert isinstance(fact, ConfigRead)
        assert fact.config.flags.pass_device_specs


async def test_a_file_that_never_answers_is_one_that_cannot_be_read(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    fetch = Fetch(deadline=5.0)
    async with trio.open_nursery() as nursery:
        await nursery.start(_hold, fetch)
        with pytest.raises(Transient, match="no answer within 5 s"):
            await fetch(tmp_path / "config.yaml")
        nursery.cancel_scope.cancel()


async def _hold(fetch: Fetch, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Be a reading that hangs."""
    async with fetch._one:
        task_status.started()
        await trio.sleep_forever()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_without_permission_has_its_word(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(shared_by(2))
    path.chmod(0)
    async with sourced(path) as around:
        assert "Permission denied" in await around.refusal()
