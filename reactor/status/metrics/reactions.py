"""How long the kubelet waits to hear of what happened: from the event to the list that shows it, sent.

An event that moves the lists is noted; the next posted snapshot says in which resources it shows; the first list of
such a resource with that content ends the wait. What happens before there is any list is no reaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from reactor.model.ids import ResourceName
from reactor.model.snapshot import Offer, Snapshot
from reactor.status.metrics.families import REACTION, Histogram


class Trigger(StrEnum):
    HEALTH = "health"
    CONFIG = "config"
    HOTPLUG = "hotplug"
    KUBELET = "kubelet"


Began = dict[Trigger, float]
"""When the oldest event of each kind happened that was not yet told."""


@dataclass(frozen=True, slots=True)
class _Untold:
    revision: int
    began: Began


class Reactions:
    def __init__(self) -> None:
        self.seconds = {trigger: Histogram(REACTION.buckets) for trigger in Trigger}
        self._offers: Mapping[ResourceName, Offer] = {}
        self._began: Began = {}
        self._untold: dict[ResourceName, _Untold] = {}

    def happened(self, trigger: Trigger, at: float) -> None:
        """Something that moves the lists, at this time."""
        self._began.setdefault(trigger, at)

    def kubelet_came(self, at: float) -> None:
        """It knows nothing yet: from now on it waits for every list, and what waited for its forerunner does not."""
        self._untold = {name: _Untold(offer.revision, {Trigger.KUBELET: at}) for name, offer in self._offers.items()}

    def posted(self, snapshot: Snapshot) -> None:
        """Streams may take these offers from now on."""
        if self._offers:
            for name, offer in snapshot.offers.items():
                if offer is not self._offers.get(name) and self._began:
                    known = self._untold.get(name)
                    self._untold[name] = _Untold(offer.revision, self._began | (known.began if known else {}))
        self._untold = {name: untold for name, untold in self._untold.items() if name in snapshot.offers}
        self._began = {}
        self._offers = snapshot.offers

    def told(self, resource: ResourceName, revision: int, at: float) -> None:
        """A list with the content of ``revision`` is with the kubelet."""
        untold = self._untold.get(resource)
        if untold is None or revision < untold.revision:
            return
        del self._untold[resource]
        for trigger, began in untold.began.items():
            self.seconds[trigger].observe(max(0.0, at - began))
