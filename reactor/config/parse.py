"""Text -> the typed ``Config``, or every problem of the text at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from reactor.config import values
from reactor.config.document import MapNode, Node, ScalarNode, load
from reactor.config.effective import settings
from reactor.config.overrides import lay_over
from reactor.config.problems import Mark, Problems, quote
from reactor.config.read import Plain, Reader, describe
from reactor.config.schema import File, FileFlags, GpuSelection, HealthSection, Replicated, Sharing, XidLists
from reactor.config.unserved import unserved
from reactor.model.condition import XidClass
from reactor.model.config import (
    Config,
    ConfigProblem,
    DeviceListStrategy,
    DeviceSelector,
    Flags,
    Health,
    Imex,
    ResourcePattern,
    Select,
    Selection,
    Setting,
    SharedResource,
    TimeSlicing,
)
from reactor.model.ids import ResourceName
from reactor.model.options import DRIVER_ROOT
from reactor.model.value import replace

_MANIFEST = frozenset({"apiVersion", "kind", "metadata", "data"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    config: Config
    digest: str
    """Of the bytes, SHA-256 in hex."""
    text: str
    """As it was read: encoded again it is the same bytes."""
    path: str
    notes: tuple[str, ...] = ()
    """What people should know of a text that is all right."""
    places: Mapping[str, Mark] = field(default_factory=dict, compare=False, repr=False)
    """Where the value of each key stands in the text, by its path."""
    written: Plain = field(default=None, compare=False, repr=False)
    """The values that the text itself has."""


class Rejected(Struct, frozen=True, kw_only=True):
    digest: str
    path: str
    problems: tuple[ConfigProblem, ...]
    """In the order of the text, at least one."""
    rest: Accepted
    """What the text comes to without its faults: to tell people more of it, never to be acted on."""


def parse(data: bytes, *, path: str, overrides: Sequence[Setting] = ()) -> Accepted | Rejected:
    """Read one config text; ``path`` is where it came from and is only passed on. Any bytes give one of the two.

    ``overrides``: what flags and variables say. They go before the text, which must be all right without them too.
    """
    digest = hashlib.sha256(data).hexdigest()
    problems = Problems()
    text, root = load(data, problems)
    empty = not problems and _is_empty(root)
    reader = Reader(problems)
    written: Plain = {} if empty or root is None else _read(root, reader)
    file = msgspec.convert(lay_over(written, overrides), File)
    flagged = any(setting.path == DRIVER_ROOT for setting in overrides)
    config = _config(file)
    config = replace(config, unserved=tuple(unserved(file, config, flagged=flagged)))
    config = replace(config, settings=settings(file, config, written, overrides))
    notes = ("the file is empty: the defaults are in force",) if empty else tuple(_notes(file, config))
    whole = Accepted(
        config=config, digest=digest, text=text, path=path, notes=notes, places=reader.marks, written=written
    )
    if problems:
        return Rejected(digest=digest, path=path, problems=problems.sorted(), rest=whole)
    return whole


def _is_empty(root: Node | None) -> bool:
    return root is None or (isinstance(root, ScalarNode) and root.value is None)


def _read(root: Node, reader: Reader) -> Plain:
    """The values that the text has, without defaults; problems are noted."""
    problems = reader.problems
    if not isinstance(root, MapNode):
        keys = ", ".join(key.encode_name for key in msgspec.structs.fields(File))
        problems.add(root.mark, "", f"the file must be a mapping of {keys}; got {describe(root)}")
        return {}
    if (wrapping := _wrapping(root)) is not None:
        peer = "reads it as an empty config: every GPU whole, nothing shared"
        problems.add(root.mark, "", f"this is {wrapping}", peer=peer)
        return {}
    written = reader.file(root)
    file = msgspec.convert(written, File)
    for name, sharing in (("timeSlicing", file.sharing.time_slicing), ("mps", file.sharing.mps)):
        if sharing is not None:
            _check_doubled(sharing, f"sharing.{name}", reader)
    _check_xids(file.health.xids, reader)
    if {"sharing.timeSlicing", "sharing.mps"} <= reader.marks.keys():
        message = "timeSlicing and mps exclude each other: keep one"
        problems.add(reader.marks["sharing.mps"], "sharing.mps", message, peer="mps counts, timeSlicing is ignored")
    return written


def _wrapping(root: MapNode) -> str | None:
    """What is around the config, in words, where more was mounted than the config itself."""
    keys = root.entries.keys()
    known = any(field.encode_name in keys for field in msgspec.structs.fields(File))
    if {"apiVersion", "kind"} <= keys or (keys & _MANIFEST and not known):
        return "a whole Kubernetes manifest, not a config: mount what stands under a key of its data"
    if keys and not known and all(_is_text_of_a_file(entry.value) for entry in root.entries.values()):
        first = quote(next(iter(keys)))
        return f"a mapping of whole files, not a config: mount what stands under a key of it, such as {first}"
    return None


def _is_text_of_a_file(node: Node) -> bool:
    return isinstance(node, ScalarNode) and isinstance(node.value, str) and ("\n" in node.value or ": " in node.value)


def _check_doubled(sharing: Sharing, path: str, reader: Reader) -> None:
    """No resource is shared twice on the same devices."""
    earlier: dict[ResourceName, list[tuple[int, DeviceSelector]]] = {}
    for index, entry in zip(reader.kept[f"{path}.resources"], sharing.resources, strict=True):
        selector = values.selector(entry.devices)
        others = earlier.setdefault(values.full_name(entry.name), [])
        first = next((other for other, devices in others if values.overlap(devices, selector)), None)
        if first is not None:
            where = f"{path}.resources[{index}].name"
            line = reader.marks[f"{path}.resources[{first}].name"].line
            peer = "applies both, the later one to the ids that they have in common"
            reader.problems.add(reader.marks[where], where, _doubled(entry, first, line), peer=peer)
        others.append((index, selector))


def _check_xids(lists: XidLists, reader: Reader) -> None:
    """No XID is in two classes, and none is told of for the same class twice."""
    earlier: dict[int, str] = {}
    for name, written in msgspec.structs.asdict(lists).items():
        path = f"health.xids.{name}"
        for index, item in zip(reader.kept.get(path, ()), written, strict=True):
            where = f"{path}[{index}]"
            numbers = values.xids([item])
            first = next((number for number in numbers if number in earlier), None)
            if first is not None:
                line = reader.marks[earlier[first]].line
                message = f"XID {first} has a class already, {earlier[first]} on line {line}: keep one"
                reader.problems.add(reader.marks[where], where, message)
            earlier |= dict.fromkeys(numbers, where)


def _doubled(entry: Replicated, first: int, line: int) -> str:
    name = values.full_name(entry.name)
    return f"{name} is shared twice, first on line {line} (resources[{first}]): keep one, or tell their devices apart"


def _final_name(entry: Replicated, sharing: Sharing) -> ResourceName | None:
    if entry.rename is not None:
        return values.full_name(entry.rename)
    if sharing.rename_by_default:
        return ResourceName(values.full_name(entry.name) + ".shared")
    return None


def _config(file: File) -> Config:
    slicing, mps = file.sharing.time_slicing, file.sharing.mps
    patterns = (
        ResourcePattern(pattern=entry.pattern, name=values.full_name(entry.name)) for entry in file.resources.gpus
    )
    return Config(
        flags=_flags(file.flags),
        gpus=tuple(patterns) or Config().gpus,
        time_slicing=TimeSlicing() if slicing is None else _time_slicing(slicing),
        mps=frozenset() if mps is None else _names(mps),
        imex=Imex(channels=tuple(file.imex.channel_ids), required=file.imex.required),
        select=Select(include=_selection(file.select.include), exclude=_selection(file.select.exclude)),
        health=_health(file.health),
        holds=file.holds,
    )


def _notes(file: File, config: Config) -> Iterator[str]:
    """What is allowed and yet hardly meant."""
    if not file.flags.plugin.device_list_strategy:
        yield "flags.plugin.deviceListStrategy is empty: envvar is meant (the device plugin would hand out nothing)"
    names = {entry.name for entry in config.gpus}
    for index, entry in enumerate(config.time_slicing.resources):
        if entry.name not in names and not entry.name.startswith(values.MIG_PREFIX):
            where = f"sharing.timeSlicing.resources[{index}].name"
            yield f"{where}: no entry of resources.gpus is called {entry.name}, so nothing is shared"


def _time_slicing(sharing: Sharing) -> TimeSlicing:
    return TimeSlicing(
        fail_requests_greater_than_one=bool(sharing.fail_requests_greater_than_one),
        resources=tuple(
            SharedResource(
                name=values.full_name(entry.name),
                rename=_final_name(entry, sharing),
                devices=values.selector(entry.devices),
                replicas=entry.replicas,
            )
            for entry in sharing.resources
        ),
    )


def _selection(written: GpuSelection | None) -> Selection | None:
    if written is None:
        return None
    return Selection(
        indices=frozenset(written.indices),
        uuids=frozenset(map(values.uuid, written.uuids)),
        pci=frozenset(map(values.pci, written.pci)),
        products=tuple(written.products),
    )


def _health(section: HealthSection) -> Health:
    lists, classes = msgspec.structs.asdict(section.xids), msgspec.structs.asdict(section.classes)
    return Health(
        xids=tuple(sorted((number, XidClass(name)) for name, xids in lists.items() for number in values.xids(xids))),
        classes=tuple((XidClass(name), given) for name, given in classes.items() if given is not None),
        quiet_unknown=values.seconds(section.quiet_times.unknown),
        quiet_unreachable=values.seconds(section.quiet_times.unreachable),
        relapse_limit=section.relapses.limit,
        relapse_window=values.seconds(section.relapses.window),
    )


def _names(sharing: Sharing) -> frozenset[ResourceName]:
    """The names of shared resources, before and after renaming."""
    finals = (_final_name(entry, sharing) for entry in sharing.resources)
    return frozenset([values.full_name(entry.name) for entry in sharing.resources] + [name for name in finals if name])


def _flags(flags: FileFlags) -> Flags:
    plugin = flags.plugin
    return Flags(
        mig_strategy=flags.mig_strategy,
        fail_on_init_error=flags.fail_on_init_error,
        nvidia_driver_root=flags.nvidia_driver_root,
        nvidia_dev_root=flags.nvidia_dev_root,
        pass_device_specs=plugin.pass_device_specs,
        device_list_strategy=_strategies(plugin.device_list_strategy),
        device_id_strategy=plugin.device_id_strategy,
        container_driver_root=plugin.container_driver_root,
        shared_devices_allocation_policy=plugin.shared_devices_allocation_policy,
        gdrcopy_enabled=flags.gdrcopy_enabled,
        gds_enabled=flags.gds_enabled,
        mofed_enabled=flags.mofed_enabled,
    )


def _strategies(written: str | list[DeviceListStrategy]) -> tuple[DeviceListStrategy, ...]:
    """String, list and comma string mean the same; empty is the default."""
    words = values.split_strategies(written) if isinstance(written, str) else list(written)
    return tuple(dict.fromkeys(DeviceListStrategy(word) for word in words)) or Flags().device_list_strategy
