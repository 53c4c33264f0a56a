"""Which connection belongs to which resource: the plugin client registry, before and from 1.37.

Up to 1.36 there is one place for each resource. A second Register takes it while the first connection lives on, and
whichever connection ends first takes down the one in the place; a failed Register empties the place, so that the end
of an older connection goes unnoticed. From 1.37 there is one place for each socket of a resource. A Register for a
socket that is still thought alive is dialled back and then refused, and as a failed Register empties its place, the
live connection is forgotten: its end goes unnoticed, and that socket is refused for as long as the kubelet lives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from reactor.simulate.kubelet import texts
from reactor.simulate.kubelet.devices import Connected, DeviceManager
from reactor.simulate.kubelet.plugin import Endpoint, Options

BACKOFF = (0.0, 1.0, 1.6, 2.6, 4.1, 6.5)
"""Seconds between the attempts of a dial-back, about as grpc-go spaces them."""


class RegisterError(Exception):
    """Register is refused with code Unknown and this text."""


def check(version: str, resource: str) -> None:
    """What the kubelet checks before it dials back."""
    if version != texts.SUPPORTED:
        raise RegisterError(texts.wrong_version(version))
    if not texts.valid_resource(resource):
        raise RegisterError(texts.invalid_resource(resource))


class Hangup(Protocol):
    def __call__(self) -> None:
        """Close the kubelet's side of the connection. May be called more than once."""


@dataclass(slots=True, eq=False)
class Client:
    """One connection to a plugin's socket."""

    resource: str
    socket: str
    endpoint: Endpoint
    hang_up: Hangup
    connected: Connected | None = None


@dataclass(slots=True)
class Registry:
    manager: DeviceManager
    clients: dict[tuple[str, str], Client] = field(default_factory=dict)

    def _key(self, resource: str, socket: str) -> tuple[str, str]:
        return (resource, socket) if self.manager.version.many_endpoints else (resource, "")

    def begin(self, client: Client) -> None:
        """A Register came in."""
        self.clients[self._key(client.resource, client.socket)] = client

    def failed(self, client: Client) -> None:
        """The dial-back, the options call or the connecting failed. Whoever has the place by now is forgotten too."""
        self.clients.pop(self._key(client.resource, client.socket), None)

    def connected(self, client: Client, options: Options) -> None:
        """Dialled back, and the options are known. RegisterError: this socket is thought to be alive (1.37 on)."""
        connected = self.manager.connect(client.resource, client.socket, client.endpoint, options)
        if connected is None:
            raise RegisterError(texts.already_connected(client.socket))
        client.connected = connected

    def removed(self, resource: str, socket: str) -> None:
        """The plugin watcher misses a socket that it had registered. Up to 1.36 whoever has the place by now goes."""
        current = self.clients.get(self._key(resource, socket))
        if current is not None:
            current.hang_up()

    def ended(self, client: Client) -> None:
        """The ListAndWatch of a connection ended, by whichever side."""
        current = self.clients.pop(self._key(client.resource, client.socket), None)
        if current is None:
            return
        if self.manager.version.many_endpoints:
            client.hang_up()
            self.manager.disconnect(client.resource, client.connected)
        else:
            current.hang_up()
            self.manager.disconnect(client.resource)
