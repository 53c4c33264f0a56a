"""Single files that are mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from reactor.watch import is_mount_point

LINE = "2038 2034 0:43 /src {place} ro,relatime - tmpfs tmpfs rw\n"


@pytest.mark.parametrize(
    ("place", "path", "is_one"),
    [
        ("/etc/gpu-reactor/config.yaml", "/etc/gpu-reactor/config.yaml", True),
        ("/etc/gpu-reactor", "/etc/gpu-reactor/config.yaml", False),
        (r"/etc/gpu\040reactor/config.yaml", "/etc/gpu reactor/config.yaml", True),
    ],
)
def test_a_file_that_is_mounted_alone_is_told_from_one_in_a_mounted_directory(
    tmp_path: Path, place: str, path: str, is_one: bool
) -> None:
    """CFG-31"""
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text("short\n" + LINE.format(place="/") + LINE.format(place=place))
    assert is_mount_point(Path(path), mountinfo) is is_one


def test_the_mounts_of_this_process_are_known(tmp_path: Path) -> None:
    assert is_mount_point(Path("/proc"))
    assert not is_mount_point(tmp_path)


def test_without_a_list_of_mounts_nothing_is_one(tmp_path: Path) -> None:
    assert not is_mount_point(Path("/proc"), tmp_path / "none")
