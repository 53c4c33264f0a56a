"""The config in force as a file would have it: what ``check`` prints. Read again, it is the same config."""

from __future__ import annotations

import yaml

from reactor.model.config import (
    AllDevices,
    Config,
    DeviceSelector,
    FirstDevices,
    Flags,
    ListedDevices,
    SharedResource,
)


def effective(config: Config) -> str:
    """YAML text of ``config``, every default written out; what is not served follows as comments."""
    tree: dict[str, object] = {
        "version": "v1",
        "flags": _flags(config.flags),
        "resources": {"gpus": [{"pattern": entry.pattern, "name": entry.name} for entry in config.gpus]},
    }
    if config.time_slicing.resources:
        tree["sharing"] = {
            "timeSlicing": {
                "failRequestsGreaterThanOne": config.time_slicing.fail_requests_greater_than_one,
                "resources": [_shared(entry) for entry in config.time_slicing.resources],
            }
        }
    tree["holds"] = config.holds.value
    text = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return text + "".join(f"# not served yet: {entry.path}: {entry.message}\n" for entry in config.unserved)


class _Dumper(yaml.SafeDumper):
    """Writes lists indented below their key, as people do, and never an anchor."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _flags(flags: Flags) -> dict[str, object]:
    return {
        "migStrategy": flags.mig_strategy.value,
        "failOnInitError": flags.fail_on_init_error,
        "nvidiaDriverRoot": flags.nvidia_driver_root,
        "nvidiaDevRoot": flags.nvidia_dev_root,
        "plugin": {
            "passDeviceSpecs": flags.pass_device_specs,
            "deviceListStrategy": [strategy.value for strategy in flags.device_list_strategy],
            "deviceIDStrategy": flags.device_id_strategy.value,
            "containerDriverRoot": flags.container_driver_root,
        },
    }


def _shared(entry: SharedResource) -> dict[str, object]:
    rename = {} if entry.rename is None else {"rename": entry.rename}
    return {"name": entry.name, **rename, "devices": _devices(entry.devices), "replicas": entry.replicas}


def _devices(devices: DeviceSelector) -> object:
    match devices:
        case AllDevices():
            return "all"
        case FirstDevices(count):
            return count
        case ListedDevices(indices, uuids, mig):
            return [*sorted(indices), *sorted(uuids), *sorted(mig)]
