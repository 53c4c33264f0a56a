"""The agent's image: what is in it, how large it is, and when it is made anew."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from reactor import __version__
from tests.e2e.image import CONTAINERFILE, ROOT, NotBuilt, agent_archive, default_cache, layers, settings

PAGE = ROOT / "docs" / "deploy.md"
SITE = "opt/gpu-reactor/lib/python3.11/site-packages"
UNCHECKED_HASH = b"\x01\0\0\0"


@pytest.fixture(scope="module")
def archive() -> Path:
    try:
        return agent_archive(default_cache())
    except NotBuilt as exc:
        raise pytest.fail.Exception(str(exc), pytrace=False) from None


def files(archive: Path) -> dict[str, bytes]:
    """What a container sees: the files of all layers, less what a later one has taken away; ours with their content."""
    found: dict[str, bytes] = {}
    for number, layer in enumerate(layers(archive)):
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            for member in tar:
                folder, _, name = member.name.removeprefix("./").rpartition("/")
                if name.startswith(".wh."):
                    gone = f"{folder}/{name.removeprefix('.wh.')}"
                    found = {path: data for path, data in found.items() if not f"{path}/".startswith(f"{gone}/")}
                elif not member.isdir():
                    content = tar.extractfile(member) if number and member.isfile() else None
                    found[f"{folder}/{name}"] = b"" if content is None else content.read()
    return found


def unpacked(layer: bytes) -> int:
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        return sum(member.size for member in tar)


def test_neither_an_installer_nor_a_compiler_is_left(archive: Path):
    seen = files(archive)
    assert f"{SITE}/reactor/agent.py" in seen
    assert "usr/bin/python3.11" in seen
    programs = {path for path in seen if re.search(r"bin/(pip|gcc|g\+\+|cc|c\+\+|clang|ld|as|make|uv)[\d.]*$", path)}
    installers = {
        path for path in seen if re.search(r"/(pip|setuptools|wheel|ensurepip|python-wheels)(-[\d.]+)?/", path)
    }
    assert (programs, installers) == (set(), set())


def test_all_that_we_bring_is_compiled_and_never_looked_at_again(archive: Path):
    """Bytecode without a time or a hash to compare: the files in a layer have no time of their own."""
    seen = files(archive)
    for path in seen:
        if path.startswith(SITE) and path.endswith(".py"):
            folder, _, name = path.rpartition("/")
            compiled = seen[f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-311.pyc"]
            assert compiled[4:8] == UNCHECKED_HASH, path


def test_what_only_developers_read_is_left_out(archive: Path):
    seen = [path for path in files(archive) if path.startswith(SITE)]
    assert not [path for path in seen if re.search(r"\.(pyi|pyx|pxd|c|h)$|/_?tests?/", path)]
    assert any("nvidia_ml_py-" in path and path.endswith("METADATA") for path in seen)


def test_its_size_is_as_the_page_says(archive: Path):
    _, *own = layers(archive)
    sizes = sum(map(unpacked, own)), sum(len(gzip.compress(layer, 6)) for layer in own)
    said = re.search(r"is ([\d.]+) MB unpacked and ([\d.]+) MB as gzip", PAGE.read_text())
    assert said is not None
    assert [size / 1e6 for size in sizes] == pytest.approx([float(said[1]), float(said[2])], rel=0.03)


def test_it_starts_the_agent(archive: Path):
    found = settings(archive)
    assert found["Entrypoint"] == ["/opt/gpu-reactor/bin/gpu-reactor"]
    assert (found["Cmd"], found["User"], found["StopSignal"]) == (["run"], "0:0", "SIGTERM")
    assert "PATH=/opt/gpu-reactor/bin:" in " ".join(map(str, found["Env"]))  # type: ignore[call-overload]


def test_it_is_made_anew_for_a_change_of_the_agent_and_only_then(tmp_path: Path):
    for name in ("reactor", "deploy"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("requirements.lock", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    first = agent_archive(default_cache(), tmp_path)
    made = first.stat().st_ino
    (tmp_path / "reactor" / "__pycache__").mkdir()
    (tmp_path / "reactor" / "__pycache__" / "left.pyc").write_text("of this machine")
    (tmp_path / "deploy" / "static" / "gpu-reactor.yaml").write_text("not in the image")
    assert agent_archive(default_cache(), tmp_path).stat().st_ino == made
    package = tmp_path / "reactor" / "__init__.py"
    package.write_text(package.read_text().replace(__version__, "9.9.9"))
    other = agent_archive(default_cache(), tmp_path)
    assert b'"9.9.9"' in files(other)[f"{SITE}/reactor/__init__.py"]
    other.unlink()


def test_it_is_built_on_any_base_and_only_of_what_is_locked():
    text = (ROOT / CONTAINERFILE).read_text()
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert re.search(r"^ARG BASE=python:3\.\d+-slim$", text, re.MULTILINE)
    assert "--require-hashes" in text
