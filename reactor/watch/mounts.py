"""Whether a file is a mount of its own, which no edit of what was mounted ever reaches."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


def is_mount_point(path: Path, mountinfo: Path = _MOUNTINFO) -> bool:
    """Whether something is mounted exactly at ``path``, such as a single file (subPath) of a ConfigMap.

    Comparing devices would not tell: a bind mount from the same file system has the device of its directory.
    """
    try:
        lines = mountinfo.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    place = os.path.realpath(path)
    return any(_point(line) == place for line in lines)


def _point(line: str) -> str:
    """The fifth field; blanks in it are written as octal numbers."""
    fields = line.split(" ", 5)
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]) if len(fields) > 4 else ""
