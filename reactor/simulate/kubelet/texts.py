"""What the kubelet says when it refuses, in its own words: plugins, people and alerts match on these."""

from __future__ import annotations

import re

SUPPORTED = "v1beta1"
UNEXPECTED = "UnexpectedAdmissionError"
AFFINITY = "TopologyAffinityError"
AFFINITY_MESSAGE = "Resources cannot be allocated with Topology locality"

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def valid_resource(name: str) -> bool:
    """Whether the kubelet takes this extended resource name."""
    prefix, slash, tail = name.partition("/")
    if not slash or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    qualified = f"requests.{prefix}"
    return len(qualified) <= 253 and _PREFIX.fullmatch(qualified) is not None and _NAME.fullmatch(tail) is not None


def wrong_version(version: str) -> str:
    return f'requested API version "{version}" is not supported by kubelet. Supported version is ["{SUPPORTED}"]'


def invalid_resource(name: str) -> str:
    return f'the ResourceName "{name}" is invalid'


def unhandled(kind: str, socket: str) -> str:
    return f"RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {socket}"


def not_valid(cause: str) -> str:
    return f"RegisterPlugin error -- plugin validation failed with err: {cause}"


def not_registered(cause: str) -> str:
    return f"RegisterPlugin error -- plugin registration failed with err: {cause}"


def dial_failed(cause: str = "context deadline exceeded") -> str:
    return f"failed to dial device plugin: {cause}"


def already_connected(path: str) -> str:
    return f"device plugin already connected: {path}"


def options_failed(cause: str) -> str:
    return f"failed to get device plugin options: {cause}"


def rpc_error(code: str, description: str) -> str:
    return f"rpc error: code = {code} desc = {description}"


def allocate_failed(cause: str) -> str:
    return f"Allocate failed due to {cause}, which is unexpected"


def preferred_failed(cause: str) -> str:
    return f"device plugin GetPreferredAllocation rpc failed with err: {cause}"


def unavailable(resource: str, wanted: int, available: int) -> str:
    return f"requested number of devices unavailable for {resource}. Requested: {wanted}, Available: {available}"


def none_healthy(resource: str) -> str:
    return f"no healthy devices present; cannot allocate unhealthy devices {resource}"


def no_longer_healthy(resource: str) -> str:
    return f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"


def unregistered(resource: str) -> str:
    return f"cannot allocate unregistered device {resource}"


def unknown_plugin(resource: str) -> str:
    return f"unknown Device Plugin {resource}"


def changed_request(uid: str, container: str, resource: str, before: int, after: int) -> str:
    return f'pod "{uid}" container "{container}" changed request for resource "{resource}" from {before} to {after}'


def endpoint_stopped(resource: str) -> str:
    return f"endpoint {{{resource}}} has been stopped"


def out_of(resource: str, wanted: int, used: int, capacity: int) -> tuple[str, str]:
    """Reason and message of the general predicate that runs after the allocation."""
    message = f"Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
    return f"OutOf{resource}", message


NO_CONTAINERS = "no containers return in allocation response"
CONNECTION_CLOSING = rpc_error("Canceled", "grpc: the client connection is closing")
RATE_LIMITED = "rejected by rate limit"
GET_DISABLED = "PodResources API Get method disabled"
