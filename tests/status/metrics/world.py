"""A bus that is looked at as the agent's is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from reactor import view
from reactor.events import Event, Fact
from reactor.model.snapshot import Snapshot
from reactor.reducer import reduce
from reactor.state import State
from reactor.status.http import Request
from reactor.status.metrics.collect import Sight
from reactor.status.metrics.metrics import answer_metrics
from reactor.status.metrics.tally import Tally
from tests.status.node import READY, SNAPSHOT, WALL

LOAD: Mapping[str, tuple[int, int]] = {"discover": (0, 0), "register": (2, 3)}


@dataclass
class Watched:
    """Folds facts, counts them, and can be scraped."""

    state: State = READY
    snapshot: Snapshot = SNAPSHOT
    tally: Tally = field(default_factory=Tally)
    seq: int = 100
    at: float = 0.0

    def publish(self, *facts: Fact, later: float = 0.0, cause: int | None = None) -> int:
        for fact in facts:
            self.seq += 1
            self.at += later
            event = Event(seq=self.seq, cause=cause, at=self.at, wall=WALL + self.at, fact=fact)
            before, self.state = self.state, reduce(self.state, event)
            self.tally.record(event, before, self.state)
        return self.seq

    def post(self) -> None:
        """What the advertise handler does."""
        self.snapshot = view.snapshot(self.state, self.snapshot)
        self.tally.reactions.posted(self.snapshot)

    def look(self) -> Sight:
        return Sight(
            state=self.state,
            snapshot=self.snapshot,
            tally=self.tally,
            load=LOAD,
            sources=("kubelet", "health"),
            lost={"storm": 7, "backpressure": 0},
        )

    def text(self, accept: str = "") -> str:
        reply = answer_metrics(self.look)(Request(method="GET", path="/metrics", accept=accept))
        assert reply.status == 200
        return reply.body.decode()

    def scrape(self) -> Scrape:
        return Scrape(parse(self.text()))


def parse(text: str) -> Iterable[tuple[str, Mapping[str, str], float]]:
    """By the parser of Prometheus' own client."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


class Scrape:
    def __init__(self, samples: Iterable[tuple[str, Mapping[str, str], float]]) -> None:
        self.samples = list(samples)

    def all(self, name: str, /, **labels: str) -> list[float]:
        return [
            value
            for sample, found, value in self.samples
            if sample == f"gpu_reactor_{name}" and labels.items() <= found.items()
        ]

    def one(self, name: str, /, **labels: str) -> float:
        (value,) = self.all(name, **labels)
        return value

    def labels(self, name: str) -> list[Mapping[str, str]]:
        return [found for sample, found, _ in self.samples if sample == f"gpu_reactor_{name}"]
