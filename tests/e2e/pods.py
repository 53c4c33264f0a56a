"""Pods as objects: how tests write them, what they read from them, and what a container sees from within."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.e2e import settings
from tests.e2e.api import Object

GPU = "nvidia.com/gpu"
SLEEP = "trap 'exit 0' TERM; env; while :; do sleep 3600 & wait $!; done"
"""What a pod's container does if a test says nothing else: writes its environment and waits."""

Limits = Mapping[str, int] | None
"""Resource -> how many a container wants."""


def container_of(name: str = "c", limits: Limits = None, *, command: str = SLEEP, **fields: object) -> Object:
    """A container of busybox."""
    resources = {"limits": {resource: str(number) for resource, number in (limits or {}).items()}}
    base = {"name": name, "image": settings.BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", command]}
    return {**base, "resources": resources, **fields}


def pod_of(name: str, limits: Limits = None, *, command: str = SLEEP, **spec: object) -> Object:
    """A pod that runs until it is deleted, and then ends soon. Not with a grace of 0: that would force its deletion."""
    base: Object = {
        "containers": [container_of("c", limits, command=command)],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
    }
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**base, **spec}}


def phase(pod: Object) -> str:
    return str(pod["status"].get("phase", ""))


def reason(pod: Object) -> str:
    """Why it is where it is: its own reason and message, else that of the scheduler."""
    status = pod["status"]
    if "reason" in status:
        return f"{status['reason']}: {status.get('message', '')}"
    waits = [
        each for each in status.get("conditions", []) if each["type"] == "PodScheduled" and each["status"] == "False"
    ]
    return f"{waits[0]['reason']}: {waits[0].get('message', '')}" if waits else ""


def health(pod: Object, resource: str = GPU) -> dict[str, str]:
    """Device id -> health as the pod's status tells it (gate ResourceHealthStatus)."""
    return {
        each["resourceID"]: each["health"]
        for container in pod["status"].get("containerStatuses", [])
        for status in container.get("allocatedResourcesStatus", [])
        if status["name"] in (resource, f"claim:{resource}")
        for each in status["resources"]
    }


def count_of(node: Object, resource: str = GPU) -> tuple[int, int]:
    """(capacity, allocatable) of a Node object."""
    status = node["status"]
    return _count(status["capacity"].get(resource, "0")), _count(status["allocatable"].get(resource, "0"))


def _count(quantity: str) -> int:
    """A whole number as the API writes it: 56000 is 56k."""
    return int(quantity.removesuffix("k")) * (1000 if quantity.endswith("k") else 1)


class Inside:
    """A container from within, as its main process sees it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        """On the machine."""
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        self.environment = dict(each.decode().split("=", 1) for each in entries if b"=" in each)
        self.mounts = {line.split()[4] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()}
        """Where something is mounted."""
        dev = Path(f"/proc/{pid}/root/dev")
        self.devices = {str(each.relative_to(dev)) for each in dev.rglob("*") if each.is_char_device()}
        """Names of character devices below /dev."""
