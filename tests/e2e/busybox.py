"""The images of a node's pods: static busybox, as a pause and as a shell, in one docker archive of one layer."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

from tests.e2e.settings import BUSYBOX, PAUSE
from tests.e2e.world import NotHere

_PAUSE = ["sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"]


def busybox_archive(cache: Path) -> Path:
    """The archive for ``ctr images import``; made once for each busybox."""
    found = next((each for each in (Path("/bin/busybox"), Path("/usr/bin/busybox")) if each.exists()), None)
    if found is None:
        raise NotHere("busybox is missing: apt-get install busybox-static")
    binary = found.read_bytes()
    if b"ld-linux" in binary[:4096]:
        raise NotHere("busybox must be static, since its image holds nothing else: apt-get install busybox-static")
    source = Path(__file__).read_bytes()
    archive = cache / "image" / f"busybox-{hashlib.sha256(binary + source).hexdigest()[:16]}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        new = archive.with_suffix(f".{os.getpid()}")
        new.write_bytes(_archive(_layer(found, binary)))
        new.rename(archive)
    return archive


def _layer(path: Path, binary: bytes) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as layer:
        for name in ("bin", "dev", "proc", "sys", "etc", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(folder)
        _add(layer, "bin/busybox", binary, 0o755)
        for applet in subprocess.run([path, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                layer.addfile(link)
    return data.getvalue()


def _archive(layer: bytes) -> bytes:
    digest = hashlib.sha256(layer).hexdigest()
    data, manifest = io.BytesIO(), []
    with tarfile.open(fileobj=data, mode="w") as whole:
        _add(whole, f"{digest}/layer.tar", layer)
        for tag, command in {PAUSE: _PAUSE, BUSYBOX: ["sh"]}.items():
            config = {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Cmd": command, "Env": ["PATH=/bin"]},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                "history": [{"created_by": "tests.e2e.busybox"}],
            }
            text = json.dumps(config).encode()
            name = hashlib.sha256(text).hexdigest() + ".json"
            _add(whole, name, text)
            manifest.append({"Config": name, "RepoTags": [tag], "Layers": [f"{digest}/layer.tar"]})
        _add(whole, "manifest.json", json.dumps(manifest).encode())
    return data.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))
