"""What single values of the file must be: each check gives what is wrong, in words, or None; each reader the value."""

from __future__ import annotations

import re

from reactor.config.problems import nearest, quote
from reactor.model.condition import FOREVER
from reactor.model.config import (
    AllDevices,
    DeviceListStrategy,
    DeviceSelector,
    FirstDevices,
    ListedDevices,
)
from reactor.model.ids import GpuUuid, PciAddress, ResourceName

PREFIX = "nvidia.com/"
MIG_PREFIX = "nvidia.com/mig-"
MAX_NAME = 63
"""Of a written name, prefix included: the device plugin's rule. It leaves at most 59 after the slash with .shared
appended, and Kubernetes takes 63, so a name that comes out of a renaming needs no check of its own."""
MAX_RESOURCES = 500
"""Far above any node; doubled entries are found by comparing pairs."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_HEX_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_INDEX = re.compile(r"0|[1-9][0-9]{0,3}")
_MIG_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,3}):(?:0|[1-9][0-9]{0,3})")
_GPU_UUID = re.compile(rf"GPU-{_HEX_UUID}")
_MIG_UUID = re.compile(rf"MIG-{_HEX_UUID}|MIG-GPU-{_HEX_UUID}/[0-9]{{1,4}}/[0-9]{{1,4}}")
_LOOSE_UUID = re.compile(r"(?:GPU|MIG)-(?:[0-9a-fA-F]{32}|\{[-0-9a-fA-F]{36}\}|urn:uuid:[-0-9a-fA-F]{36})")
"""Spellings that the device plugin takes as well."""
_PCI = re.compile(
    r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}:[01][0-9a-fA-F])(?:\.([0-7]))?",
)
_OLD_NUMBER = re.compile(
    r"0[xX]_*[0-9a-fA-F][0-9a-fA-F_]{0,15}|0[oO]?_*[0-7][0-7_]{0,18}|0[bB]_*[01][01_]{0,60}|[1-9][0-9]*_[0-9_]{0,18}"
)
"""A whole number in YAML 1.1 that is text here."""
_XID_RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})")
MAX_XID = 9999
_DURATION = re.compile(r"\+?(?:(?:[0-9]{1,12}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(?:ns|us|µs|μs|ms|s|m|h))+")
_DURATION_PART = re.compile(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def accept(value: object) -> str | None:
    """Nothing to say beyond the type."""
    return None


def check_version(value: object) -> str | None:
    return None if value in ("", "v1") else f"the version is v1, got {quote(str(value))}"


def full_name(text: str) -> ResourceName:
    return ResourceName(text if text.startswith(PREFIX) else PREFIX + text)


def check_name(value: object) -> str | None:
    text = str(value)
    name = full_name(text)
    part = name.removeprefix(PREFIX)
    if not part:
        return "the name is empty"
    if "/" in part:
        return f"the only prefix is {PREFIX}, got {quote(text)}"
    if len(name) > MAX_NAME:
        return f"a name has at most {MAX_NAME} characters with its prefix, {quote(name)} has {len(name)}"
    return _not_a_subdomain(part)


def _not_a_subdomain(part: str) -> str | None:
    if _SUBDOMAIN.fullmatch(part):
        return None
    return f"{quote(part)} is no resource name: lower case letters, digits, - and . between letters or digits"


def check_path(value: object) -> str | None:
    text = str(value)
    if not text.startswith("/"):
        return f"must be an absolute path, got {quote(text)}"
    if ".." in text.split("/"):
        return f"must be a path without .., got {quote(text)}"
    return None if text.isprintable() else f"must be a path of characters that can be seen, got {quote(text)}"


def check_path_or_empty(value: object) -> str | None:
    return check_path(value) if value else None


def check_pattern(value: object) -> str | None:
    return None if value else "the pattern is empty: write * for all"


def check_replicas(value: object) -> str | None:
    if isinstance(value, int) and value < 2:
        return f"must be 2 or more (for no sharing, leave the entry out), got {value}"
    if isinstance(value, int) and value > 100_000:
        return f"no list of so many ids fits into a message to the kubelet, got {value}"
    return None


def check_index(value: object) -> str | None:
    return f"an index is 0 or more, got {value}" if isinstance(value, int) and value < 0 else None


def check_count(value: object) -> str | None:
    return f"a number of GPUs is 1 or more, got {value}" if isinstance(value, int) and value < 1 else None


def check_device(value: object) -> str | None:
    text = str(value)
    if any(form.fullmatch(text) for form in (_INDEX, _MIG_INDEX, _GPU_UUID, _MIG_UUID)):
        return None
    return f"{quote(text)} is no index such as 0, no MIG index such as 0:1, no GPU-<uuid> and no MIG-<uuid>"


def check_devices(value: object) -> str | None:
    return None if value else "the list is empty: name devices, or leave the key out for all"


def check_resources(value: object) -> str | None:
    if isinstance(value, list) and len(value) > MAX_RESOURCES:
        return f"more than {MAX_RESOURCES} resources, got {len(value)}"
    return None if value else "the list is empty: name at least one resource, or leave the section out"


def check_xid(value: object) -> str | None:
    if isinstance(value, int) and not 1 <= value <= MAX_XID:
        return f"an XID is a number from 1 to {MAX_XID}, got {value}"
    return None


def check_xid_range(value: object) -> str | None:
    text = str(value)
    match = _XID_RANGE.fullmatch(text)
    if match is None:
        hint = ": write it without quotes" if _INDEX.fullmatch(text) else ""
        return f"{quote(text)} is no XID such as 79 and no range such as 144-150{hint}"
    low, high = int(match[1]), int(match[2])
    if not 1 <= low <= high <= MAX_XID:
        return f"a range of XIDs goes up, from 1 to {MAX_XID} at most, got {quote(text)}"
    return None


def xids(written: list[int | str]) -> list[int]:
    """Every number of a list of XIDs and ranges, after its checks."""
    numbers: list[int] = []
    for item in written:
        low, _, high = str(item).partition("-")
        numbers.extend(range(int(low), int(high or low) + 1))
    return numbers


def check_limit(value: object) -> str | None:
    return None if isinstance(value, int) and 0 <= value <= 100 else f"must be from 0 to 100, got {value}"


def check_uuid(value: object) -> str | None:
    return None if _GPU_UUID.fullmatch(str(value)) else f"{quote(str(value))} is no GPU-<uuid>"


def check_pci(value: object) -> str | None:
    if _PCI.fullmatch(str(value)):
        return None
    return f"{quote(str(value))} is no PCI address such as 0000:3b:00.0"


def uuid(text: str) -> GpuUuid:
    """As NVML spells it: in lower case."""
    return GpuUuid("GPU-" + text[4:].lower())


def pci(text: str) -> PciAddress:
    """As sysfs spells it: lower case, a domain of 4 digits, the function; nvidia-smi has 8 and capitals."""
    match = _PCI.fullmatch(text)
    if match is None:
        raise ValueError(text)
    domain, rest, function = match.groups()
    return PciAddress(f"{int(domain or '0', 16):04x}:{rest.lower()}.{function or '0'}")


def check_selection(value: object) -> str | None:
    if isinstance(value, dict) and not any(value.values()):
        return "it names no GPU: name some, or leave the key out"
    return None


def check_channels(value: object) -> str | None:
    return None if value in ([], [0]) else f"must be [] or [0], got {value}"


def check_strategies(value: object) -> str | None:
    for word in split_strategies(str(value)):
        if word not in list(DeviceListStrategy):
            close = nearest(word, DeviceListStrategy)
            meant = f"; did you mean {close!r}?" if close else ""
            return f"{quote(word)} is not one of {', '.join(DeviceListStrategy)}{meant}"
    return None


def split_strategies(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]


def check_duration(value: object) -> str | None:
    text = str(value)
    if text.casefold() == "infinite":
        return None
    if re.fullmatch(r"[0-9.]+", text):
        return f"a duration needs its unit: write {text}s"
    if not _DURATION.fullmatch(text):
        return f"{quote(text)} is no duration such as 60s, 1m30s or infinite (units: h, m, s, ms)"
    return None if seconds(text) >= 1 else f"must be 1s or more, got {quote(text)}"


def check_window(value: object) -> str | None:
    if str(value).casefold() == "infinite":
        return "must have an end, such as 24h"
    return check_duration(value)


def seconds(text: str) -> float:
    """A duration after its checks."""
    if text.casefold() == "infinite":
        return FOREVER
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


def selector(devices: str | int | list[int | str]) -> DeviceSelector:
    """Read ``devices`` of a shared resource, after its checks."""
    if isinstance(devices, str):
        return AllDevices()
    if isinstance(devices, int):
        return FirstDevices(devices)
    words = [str(item) for item in devices]
    return ListedDevices(
        indices=frozenset(int(word) for word in words if _INDEX.fullmatch(word)),
        uuids=frozenset(uuid(word) for word in words if _GPU_UUID.fullmatch(word)),
        mig=frozenset(word for word in words if _MIG_INDEX.fullmatch(word) or _MIG_UUID.fullmatch(word)),
    )


def overlap(one: DeviceSelector, other: DeviceSelector) -> bool:
    """Whether two selectors are sure to name one device twice. A UUID and an index may, but only an inventory tells."""
    match one, other:
        case (AllDevices(), _) | (_, AllDevices()):
            return True
        case FirstDevices(), FirstDevices():
            return True
        case (FirstDevices(count), ListedDevices() as listed) | (ListedDevices() as listed, FirstDevices(count)):
            return any(index < count for index in listed.indices)
        case ListedDevices(), ListedDevices():
            return bool(one.indices & other.indices or one.uuids & other.uuids or one.mig & other.mig)
    return False


# ---------------------------------------------------------------- what the device plugin makes of values refused here


def refused_too(value: object) -> str:
    """It is as strict, as far as is known."""
    return ""


def peer_takes_text(value: object) -> str:
    return "takes it as it is" if isinstance(value, str) else ""


def peer_replicas(value: object) -> str:
    if isinstance(value, int) and value > 100_000:
        return "takes it, and the kubelet drops the list"
    return peer_old_number(value)


def peer_old_number(value: object) -> str:
    """It reads YAML 1.1, where 010, 0x8 and 1_000 are numbers."""
    if isinstance(value, str) and _OLD_NUMBER.fullmatch(value):
        return f"takes it for {_old_number(value.replace('_', ''))}, unless it stands in quotes"
    return ""


def peer_device(value: object) -> str:
    if isinstance(value, str) and _LOOSE_UUID.fullmatch(value):
        return "takes it for a UUID, and shares every GPU all the same"
    return peer_old_number(value)


def peer_devices(value: object) -> str:
    return "takes it, every GPU is shared" if value == [] else ""


def _old_number(digits: str) -> int:
    return int(digits, 8) if re.fullmatch("0[0-7]+", digits) else int(digits, 0)


def peer_duration(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"takes it for {value} nanoseconds"
    if isinstance(value, str) and (value == "0" or _DURATION.fullmatch(value.removeprefix("-"))):
        return "takes it as it is"
    return ""
