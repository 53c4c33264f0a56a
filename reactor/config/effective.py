"""The config in force, key by key with the source of each value, and as a file would have it: what ``check`` prints.

Read again, that text is the same config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import yaml

from reactor.config.read import Plain, freeze
from reactor.config.schema import File
from reactor.model import config as model
from reactor.model.config import (
    AllDevices,
    Config,
    DeviceSelector,
    FirstDevices,
    ListedDevices,
    Setting,
    SharedResource,
    Source,
)


def settings(file: File, config: Config, written: Plain, overrides: Sequence[Setting]) -> tuple[Setting, ...]:
    """Every key of ``file``, which ``written`` and ``overrides`` came to; sections that it lacks are left out."""
    said = {setting.path: setting for setting in overrides}
    final = _final(config)
    found: list[Setting] = []
    for path, value in _leaves(msgspec.to_builtins(file), ""):
        value = final.get(path, value)
        if value is None:
            continue
        override = said.get(path)
        if override is not None:
            found.append(Setting(path=path, value=value, source=override.source, name=override.name))
        else:
            found.append(Setting(path=path, value=value, source=Source.FILE if _has(written, path) else Source.DEFAULT))
    return tuple(found)


def _leaves(tree: Plain, path: str) -> Iterator[tuple[str, model.Plain]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, f"{path}.{key}" if path else key)
    else:
        yield path, freeze(tree)


def _has(written: Plain, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(written, dict) or key not in written:
            return False
        written = written[key]
    return True


def _final(config: Config) -> dict[str, model.Plain]:
    """What is better shown as it was understood than as it was written: names in full, strategies one by one."""
    final: dict[str, model.Plain] = {
        "flags.plugin.deviceListStrategy": tuple(one.value for one in config.flags.device_list_strategy),
        "resources.gpus": tuple({"pattern": entry.pattern, "name": entry.name} for entry in config.gpus),
    }
    if config.time_slicing.resources:
        final["sharing.timeSlicing.failRequestsGreaterThanOne"] = config.time_slicing.fail_requests_greater_than_one
        final["sharing.timeSlicing.resources"] = tuple(_shared(entry) for entry in config.time_slicing.resources)
    return final


def _shared(entry: SharedResource) -> Mapping[str, model.Plain]:
    rename = {} if entry.rename is None else {"rename": entry.rename}
    return {"name": entry.name, **rename, "devices": _devices(entry.devices), "replicas": entry.replicas}


def _devices(devices: DeviceSelector) -> model.Plain:
    match devices:
        case AllDevices():
            return "all"
        case FirstDevices(count):
            return count
        case ListedDevices(indices, uuids, mig):
            return (*sorted(indices), *sorted(uuids), *sorted(mig))


# ---------------------------------------------------------------- as a file


def effective(config: Config) -> str:
    """YAML text of a parsed config: every key, who said it where it is no default; what is not served follows."""
    lines = ["version: v1"]
    open_: list[str] = []
    for setting in config.settings:
        *outer, key = setting.path.split(".")
        if setting.path == "version":
            continue
        shared = _common(open_, outer)
        lines += [f"{'  ' * depth}{outer[depth]}:" for depth in range(shared, len(outer))]
        open_ = outer
        first, *rest = _dump({key: _thaw(setting.value)})
        indent = "  " * len(outer)
        lines += [indent + first + _comment(setting), *(indent + line for line in rest)]
    lines += [f"# not served yet: {entry.path}: {entry.message}" for entry in config.unserved]
    return "\n".join(lines) + "\n"


def _common(one: list[str], other: list[str]) -> int:
    for depth, (here, there) in enumerate(zip(one, other, strict=False)):
        if here != there:
            return depth
    return min(len(one), len(other))


def _comment(setting: Setting) -> str:
    match setting.source:
        case Source.DEFAULT:
            return ""
        case Source.FILE:
            return "  # file"
        case Source.VARIABLE | Source.FLAG:
            return f"  # {setting.source} {setting.name}"


def _dump(tree: Plain) -> list[str]:
    text = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, width=1 << 30, allow_unicode=True)
    return text.rstrip("\n").split("\n")


def _thaw(value: model.Plain) -> Plain:
    if isinstance(value, tuple):
        return [_thaw(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _thaw(item) for key, item in value.items()}
    return value


class _Dumper(yaml.SafeDumper):
    """Writes lists indented below their key, as people do, each scalar on one line, and never an anchor."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = text.isprintable() and text.isascii()
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _text)
