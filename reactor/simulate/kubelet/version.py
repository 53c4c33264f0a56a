"""Which kubelet is simulated, and in what its versions differ as far as a plugin can tell.

The facts are those of ``spec/kubelet.md`` (sections 1, 4, 7a, 14); each is named here once and asked for by name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Version:
    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read ``1.34``, ``v1.34.4`` and the like; ValueError if it is not such a thing."""
        parts = text.removeprefix("v").split(".")
        if len(parts) < 2:
            raise ValueError(f"kubelet version {text!r} is not of the form 1.34")
        return cls(int(parts[0]), int(parts[1]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    def _from(self, minor: int) -> bool:
        return (self.major, self.minor) >= (1, minor)

    @property
    def wipes_sockets_only(self) -> bool:
        """Before, a start removed every file of its directory but the checkpoint."""
        return self._from(33)

    @property
    def panics_on_missing_ids(self) -> bool:
        """The device map holds pointers: a missing id is a nil dereference."""
        return self._from(34)

    @property
    def frees_at_list(self) -> bool:
        """podresources List drops ended pods, so that the next device list writes a checkpoint without them."""
        return self._from(34)

    @property
    def lists_active_pods_only(self) -> bool:
        return self._from(34)

    @property
    def lists_sidecars(self) -> bool:
        """podresources has sidecars: seen with 1.34, and not with 1.29."""
        return self._from(30)

    @property
    def gets_one_pod(self) -> bool:
        """podresources Get is on."""
        return self._from(34)

    @property
    def bounds_dial_back(self) -> bool:
        """The plugin's own Register deadline holds for the dial-back and the options call too."""
        return self._from(35)

    @property
    def tells_health(self) -> bool:
        """The pod status has the health of allocated devices (by a gate that is on by itself from 1.36)."""
        return self._from(31)

    @property
    def hints_from_hosting_nodes_only(self) -> bool:
        return self._from(36)

    @property
    def many_endpoints(self) -> bool:
        """Several live endpoints for each resource, told apart by their sockets."""
        return self._from(37)

    @property
    def undoes_failed_plugins(self) -> bool:
        """The plugin watcher forgets a plugin whose dial-back failed or that did not take its notice, and tries again.

        Before, it counted as registered, so nothing came of its file any more.
        """
        return self._from(37)

    @property
    def notifies_by_resource(self) -> bool:
        """A change of health makes the kubelet look at the pod that has this id of this resource, not just this id."""
        return self._from(37)
