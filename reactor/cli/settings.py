"""Flags and environment -> Settings. The command line wins over a variable, a variable over the default.

A variable that is set to nothing counts as set, as it does in the peer. What the config file can say as well becomes
overrides of it (``cli.options``). No I/O: a path that does not exist is not an
error here, it may come.
"""

from __future__ import annotations

import math
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from reactor.cli.options import read_options
from reactor.conditions.classes import policy_from_environment
from reactor.model.config import Setting
from reactor.model.errors import Refused
from reactor.model.kubelet import LONGEST_DIRECTORY, LONGEST_REGISTRY, Registration
from reactor.model.options import DRIVER_ROOT
from reactor.model.settings import Settings
from reactor.simulate.nvml.products import parse
from reactor.status.address import parse_listen

HEALTH_VARIABLES = ("DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS")
_SOCKET_PATH_BYTES = 107
"""Longest path that an address of a unix socket can hold."""
_DEFAULT = Settings()


class _Given(Struct, frozen=True):
    text: str
    where: str
    variable: bool = False

    def path(self) -> Path:
        if not self.text:
            raise Refused(f"{self.where} is empty: write a path, or leave it out")
        return Path(self.text)

    def socket(self) -> Path:
        path = self.path()
        if (size := len(os.fsencode(path))) > _SOCKET_PATH_BYTES:
            raise Refused(
                f"{self.where}: {path} is {size} bytes long, a unix socket takes {_SOCKET_PATH_BYTES}: "
                "choose a shorter path"
            )
        return path


class _Lookup:
    def __init__(self, args: Namespace, environ: Mapping[str, str]) -> None:
        self._args = args
        self._environ = environ

    def find(self, flag: str, *variables: str) -> _Given | None:
        text: str | None = getattr(self._args, flag.removeprefix("--").replace("-", "_"))
        if text is not None:
            return _Given(text, flag)
        for name in variables:
            if name in self._environ:
                return _Given(self._environ[name], f"the variable {name}", variable=True)
        return None

    def path(self, flag: str, default: Path) -> Path:
        given = self.find(flag)
        return default if given is None else given.path()

    def text(self, flag: str, default: str, *variables: str) -> str:
        given = self.find(flag, *variables)
        return default if given is None else given.text


def read_settings(args: Namespace, environ: Mapping[str, str]) -> Settings:
    """Refused says what is wrong, where it was said, and what to write instead."""
    look = _Lookup(args, environ)
    overrides = read_options(args, environ)
    settings = Settings(
        config=_config(look),
        kubelet_root=look.path("--kubelet-root", _DEFAULT.kubelet_root),
        plugin_dir=_plugin_dir(look),
        registration=_registration(look),
        pod_resources_socket=_socket(look, "--pod-resources-socket"),
        state_dir=look.path("--state-dir", _DEFAULT.state_dir),
        admin_socket=_socket(look, "--admin-socket") or _DEFAULT.admin_socket,
        probe_listen=_listen(look, "--probe-listen", _DEFAULT.probe_listen),
        journal=given.path() if (given := look.find("--journal")) is not None else None,
        metrics_listen=_listen(look, "--metrics-listen", _DEFAULT.metrics_listen),
        node_name=look.text("--node-name", _DEFAULT.node_name, "NODE_NAME"),
        container_driver_root=_driver_root(overrides),
        resync=_seconds(look, "--resync", _DEFAULT.resync, least=1),
        grace=_seconds(look, "--grace", _DEFAULT.grace, least=0),
        allow_inject=bool(args.allow_inject),
        simulate_nvml=_simulate(look),
        environment=_health_variables(environ),
        overrides=overrides,
    )
    if settings.registration is Registration.SOCKET:
        _check_room(settings.directory)
    return settings


def _check_room(directory: Path) -> None:
    if (size := len(os.fsencode(os.path.abspath(directory)))) > LONGEST_DIRECTORY:
        raise Refused(
            f"the plugin directory {directory} is {size} bytes long, at most {LONGEST_DIRECTORY} leave room for a "
            "socket's name: choose a shorter --plugin-dir, --kubelet-socket or --kubelet-root"
        )


def _config(look: _Lookup) -> Path | None:
    given = look.find("--config", "CONFIG_FILE")
    if given is None:
        return _DEFAULT.config
    return given.path() if given.text else None


def _socket(look: _Lookup, flag: str) -> Path | None:
    given = look.find(flag)
    return None if given is None else given.socket()


def _plugin_dir(look: _Lookup) -> Path | None:
    """The directory of kubelet.sock is also where our own sockets, the checkpoint and the lock are."""
    directory = look.find("--plugin-dir")
    socket = look.find("--kubelet-socket", "KUBELET_SOCKET")
    if socket is None or (directory is not None and socket.variable):
        return None if directory is None else directory.path()
    if not socket.text:
        return None if directory is None else directory.path()
    path = socket.socket()
    if path.name != "kubelet.sock":
        raise Refused(f"{socket.where}: {path} must end in kubelet.sock, as the kubelet always names it")
    if directory is not None and directory.path() != path.parent:
        raise Refused(f"--plugin-dir {directory.text} and --kubelet-socket {path} disagree: give one of them")
    return path.parent


def _registration(look: _Lookup) -> Registration:
    """No kubelet.sock to register on: its plugin watcher is to find us, below the kubelet's root."""
    socket = look.find("--kubelet-socket", "KUBELET_SOCKET")
    if socket is None or socket.text:
        return Registration.SOCKET
    registry = Settings(kubelet_root=look.path("--kubelet-root", _DEFAULT.kubelet_root).absolute()).registry
    if (size := len(os.fsencode(registry))) > LONGEST_REGISTRY:
        raise Refused(
            f"{socket.where} is empty, so sockets are in {registry}, whose path is {size} bytes long: at most "
            f"{LONGEST_REGISTRY} leave room for a socket's name; choose a shorter --kubelet-root"
        )
    return Registration.WATCHER


def _listen(look: _Lookup, flag: str, default: str) -> str:
    text = look.text(flag, default)
    if text:
        try:
            parse_listen(text)
        except Refused as exc:
            raise Refused(f"{flag}: {exc}; empty for none") from exc
    return text


def _driver_root(overrides: Sequence[Setting]) -> Path:
    """Where the driver is mounted here; the library is looked for before any file is read."""
    said = next((setting.value for setting in overrides if setting.path == DRIVER_ROOT), None)
    return _DEFAULT.container_driver_root if said is None else Path(str(said))


def _seconds(look: _Lookup, flag: str, default: float, least: float) -> float:
    given = look.find(flag)
    if given is None:
        return default
    try:
        seconds = float(given.text)
    except ValueError:
        seconds = math.nan
    if not least <= seconds < math.inf:
        raise Refused(
            f"{given.where}: {given.text!r} is not a number of seconds from {least:g} on, such as {default:g}"
        )
    return seconds


def _simulate(look: _Lookup) -> str:
    given = look.find("--simulate-nvml")
    if given is None:
        return ""
    if given.text.startswith("/"):
        return str(given.socket())
    try:
        gpus = parse(given.text)
    except ValueError as exc:
        raise Refused(f"{given.where}: {exc}") from exc
    if not gpus:
        raise Refused(f"{given.where} is empty: write what to simulate, such as 8xH100, or leave it out")
    return given.text


def _health_variables(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = tuple((name, environ[name]) for name in HEALTH_VARIABLES if name in environ)
    policy = policy_from_environment(found)
    if isinstance(policy, tuple):
        raise Refused(f"the variable {'; '.join(policy)}")
    return found
