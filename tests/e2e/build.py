"""Builds the parts of a node from their Go modules into a cache; each part once for its go.mod, go.sum and flags.

    python -m tests.e2e.build             # or: make node; all of them
    python -m tests.e2e.build 1.34        # the parts of one version

``parts/PART`` holds go.mod and go.sum only: what to build are its ``tool`` lines. The result lies in
``CACHE/PART-HASH/``, CACHE being ``.node`` or what NODE_CACHE names. One process builds at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.e2e.image import default_cache
from tests.e2e.world import NotHere

PARTS = Path(__file__).with_name("parts")
COMMON = ("containerd", "runc", "cni", "etcd")
KUBELETS = {"1.29": "kubelet-1.29", "1.34": "kubernetes-1.34", "1.37": "kubernetes-1.37"}
"""The part that holds the kubelet of each version."""
CONTROL_PLANES = {"1.29": "kubernetes-1.34", "1.34": "kubernetes-1.34", "1.37": "kubernetes-1.37"}
"""The part that holds the control plane which a kubelet runs under."""
_TAGS = {"containerd": "no_btrfs,no_devmapper,no_zfs,no_aufs", "runc": "seccomp"}
_NAMES = {"etcd": {"server": "etcd-server"}}
_GO = (1, 26)


def parts_of(version: str) -> tuple[str, ...]:
    """The parts that a node with this kubelet is made of."""
    return tuple(dict.fromkeys((KUBELETS[version], CONTROL_PLANES[version], *COMMON)))


def folder_of(part: str, cache: Path) -> Path:
    """Where a part's programs lie once it is built."""
    found = hashlib.sha256(repr(_flags(part)).encode())
    for name in ("go.mod", "go.sum"):
        found.update((PARTS / part / name).read_bytes())
    return cache.resolve() / f"{part}-{found.hexdigest()[:16]}"


def built(version: str, cache: Path) -> Mapping[str, Path]:
    """The folders of a version's parts. Raises NotHere with what to do if one is not built."""
    folders = {part: folder_of(part, cache) for part in parts_of(version)}
    missing = [part for part, folder in folders.items() if not folder.is_dir()]
    if missing:
        raise NotHere(f"not built yet: {', '.join(missing)}; make node builds the parts of real nodes (needs Go)")
    return folders


def build(parts: Iterable[str], cache: Path) -> None:
    """Build what is missing. Raises NotHere."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "parts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in cache.glob("part-*"):  # of a build that was killed: nobody else builds now
            shutil.rmtree(left)
        wanted = [part for part in dict.fromkeys(parts) if not folder_of(part, cache).is_dir()]
        if wanted:
            _need()
        for part in wanted:
            begun = time.monotonic()
            print(f"building {part} ...", flush=True)
            _build(part, folder_of(part, cache))
            print(f"         {part} took {time.monotonic() - begun:.0f} s", flush=True)


def _need() -> None:
    if shutil.which("go") is None:
        raise NotHere("the parts of real nodes are built from Go modules: install Go >= 1.26 (make node)")
    version = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"go(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < _GO:
        raise NotHere(f"Go >= 1.26 is needed, this is {version.strip()}")
    probe = ["sh", "-c", "echo '#include <seccomp.h>' | cc -E -"]
    if subprocess.run(probe, check=False, capture_output=True).returncode:
        raise NotHere("runc needs a C compiler and libseccomp: apt-get install gcc libseccomp-dev")


def _flags(part: str) -> tuple[str, ...]:
    settings = "-s -w"
    if part.startswith("kube"):
        found = re.search(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.\d+", (PARTS / part / "go.mod").read_text())
        assert found is not None, f"{part}/go.mod names no version"
        said = {"gitVersion": found[0].split()[1], "gitMajor": found[1], "gitMinor": found[2], "gitTreeState": "clean"}
        settings += "".join(f" -X k8s.io/component-base/version.{name}={value}" for name, value in said.items())
    tags = ("-tags", _TAGS[part]) if part in _TAGS else ()
    return ("-trimpath", "-ldflags", settings, *tags)


def _build(part: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="part-") as scratch:
        source, out = Path(scratch) / "source", Path(scratch) / "out"
        shutil.copytree(PARTS / part, source)
        done = subprocess.run(
            ["go", "build", *_flags(part), "-o", f"{out}/", "tool"],
            check=False,
            cwd=source,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "1", "GOWORK": "off"},
        )
        if done.returncode:
            raise NotHere(f"{part} could not be built: go build says why above")
        for old, new in _NAMES.get(part, {}).items():
            (out / old).rename(out / new)
        out.rename(folder)


def main() -> int:
    versions = sys.argv[1:] or list(KUBELETS)
    try:
        build((part for version in versions for part in parts_of(version)), default_cache())
    except NotHere as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
