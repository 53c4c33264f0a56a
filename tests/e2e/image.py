"""The agent's image as an archive for ``ctr images import``, built offline on a Debian base, made anew only if need be.

    python -m tests.e2e.image            # or: make image; prints the path
    archive = await trio.to_thread.run_sync(agent_archive, cache)      # IMAGE is the name to put into a manifest

Three things lie in ``cache``/image, each under a name with the hash of all that it is made of: the base (mmdebstrap),
the wheels of the lock (pip) and the archives. Wheels are fetched outside the build and installed in it without a
network. One process builds at a time; the others wait and find the result.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/gpu-reactor:dev"
"""As deploy/static names it."""
CONTAINERFILE = Path("deploy/image/Containerfile")
KEPT = 3
"""Archives of earlier contents that stay: a node that is starting may be reading one."""
STEPS_KEPT = 60
"""Of builds, as overlay layers; 3 for each change of the agent, together 80 MB. All go when there are more."""
_CONTEXT = (Path("requirements.lock"), Path("LICENSE"), Path("reactor"), Path("deploy/image"))
_SUITE, _PYTHON = "bookworm", "3.11"
_BASE = (
    "mmdebstrap",
    "--quiet",
    "--variant=essential",
    "--include=python3,python3-venv",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")),
    _SUITE,
)


class NotBuilt(Exception):
    """In one sentence, what is missing or went wrong."""


def default_cache() -> Path:
    """Where everything that real-node tests build is kept."""
    return Path(os.environ.get("NODE_CACHE") or ROOT / ".node")


def agent_archive(cache: Path, root: Path = ROOT) -> Path:
    """A docker archive of IMAGE with the agent as it is in the checkout. Takes some seconds when something changed."""
    _need("buildah", "mmdebstrap")
    folder = cache.resolve() / "image"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder), tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch:
        context = Path(scratch) / "context"
        _copy_context(root, context)
        base = _base(folder)
        archive = folder / f"agent-{_digest(context, base.name)}.tar"
        if archive.exists():
            os.utime(archive)
        else:
            _build(folder, context, _wheels(folder, context / "requirements.lock"), base, archive)
            _forget(folder, archive)
        return archive


def layers(archive: Path) -> Iterator[bytes]:
    """Its layers as tars: first that of the base, then ours."""
    with tarfile.open(archive) as whole:
        for name in json.load(_member(whole, "manifest.json"))[0]["Layers"]:
            yield _member(whole, name).read()


def settings(archive: Path) -> dict[str, object]:
    """What a container of it starts with."""
    with tarfile.open(archive) as whole:
        config = json.load(_member(whole, "manifest.json"))[0]["Config"]
        found: dict[str, object] = json.load(_member(whole, config))["config"]
        return found


def _member(whole: tarfile.TarFile, name: str) -> IO[bytes]:
    member = whole.extractfile(name)
    assert member is not None, f"{name} is no file"
    return member


def _need(*tools: str) -> None:
    if os.geteuid() != 0:
        raise NotBuilt("the image is built with chroot and device nodes: run this as root")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise NotBuilt(f"{' and '.join(missing)} is missing: apt-get install {' '.join(missing)}")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for left in folder.glob("build-*"):  # of a process that was killed: nobody else builds now
            shutil.rmtree(left)
        yield


def _copy_context(root: Path, context: Path) -> None:
    for name in _CONTEXT:
        source, target = root / name, context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def _digest(context: Path, *words: str) -> str:
    found = hashlib.sha256("\0".join(words).encode())
    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        found.update(f"\0{path.relative_to(context)}\0{path.stat().st_mode & 0o111}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _base(folder: Path) -> Path:
    """A docker archive of Debian with Python; from the outside it stands for any public image with Python."""
    base = folder / f"base-{hashlib.sha256(repr(_BASE).encode()).hexdigest()[:16]}.tar"
    if not base.exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch:
            layer, whole = Path(scratch) / "layer.tar", Path(scratch) / "base.tar"
            _call(*_BASE, str(layer))
            write_archive(whole, layer, "localhost/base:1")
            whole.rename(base)
    return base


def write_archive(whole: Path, layer: Path, name: str) -> None:
    """A docker archive of one layer."""
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": name}],
    }
    text = json.dumps(config).encode()
    called = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": called, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(whole, "w") as tar:
        for file_name, data in ((called, text), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(file_name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        tar.add(layer, "layer.tar")


def _wheels(folder: Path, lock: Path) -> Path:
    wheels = folder / f"wheels-{_PYTHON}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not wheels.exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch:
            fetched = Path(scratch) / "wheels"
            pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps")
            which = ("--python-version", _PYTHON, "--only-binary", ":all:", "--require-hashes")
            _call(*pip, *which, "--dest", str(fetched), "--requirement", str(lock))
            fetched.rename(wheels)
    return wheels


def _build(folder: Path, context: Path, wheels: Path, base: Path, archive: Path) -> None:
    # With overlay the steps that did not change are kept. vfs copies all files for each: it works everywhere, slowly.
    overlay = _overlay(context.parent)
    store = folder / "store" if overlay else context.parent / "store"
    if len(list(store.glob("overlay/*"))) > STEPS_KEPT:
        shutil.rmtree(store)
    given = {"BASE": f"docker-archive:{base}", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
    buildah = ["buildah", "--root", str(store), "--runroot", str(context.parent / "run")]
    buildah += ["--storage-driver", "overlay" if overlay else "vfs"]
    _call(
        *(
            *buildah,
            "build",
            "--quiet",
            "--isolation",
            "chroot",
            f"--layers={str(overlay).lower()}",
            "--timestamp",
            "0",
        ),
        *(word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")),
        *("--volume", f"{wheels}:/wheels:ro", "--file", str(context / CONTAINERFILE), "--tag", IMAGE, str(context)),
    )
    made = context.parent / "agent.tar"
    _call(*buildah, "push", "--quiet", IMAGE, f"docker-archive:{made}:{IMAGE}")
    made.rename(archive)


def _overlay(scratch: Path) -> bool:
    """Whether this kernel mounts overlays here: not in a container whose own root is one."""
    lower, upper, work, merged = (scratch / "overlay" / name for name in ("lower", "upper", "work", "merged"))
    for path in (lower, upper, work, merged):
        path.mkdir(parents=True)
    what = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount = ("unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", what, str(merged))
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def _forget(folder: Path, newest: Path) -> None:
    others = sorted((a for a in folder.glob("agent-*.tar") if a != newest), key=lambda a: a.stat().st_mtime)
    for old in others[: -KEPT or None]:
        old.unlink()


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise NotBuilt(f"{command[0]} ended with {done.returncode}:\n{said}")


if __name__ == "__main__":
    try:
        print(agent_archive(default_cache()))
    except NotBuilt as exc:
        sys.exit(f"image: {exc}")
