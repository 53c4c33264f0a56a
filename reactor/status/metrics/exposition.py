"""Samples in the forms that Prometheus reads. Loaded when the first listener opens: an agent without metrics has no
use for the client library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from reactor.status.metrics.collect import Samples
from reactor.status.metrics.families import Family, Histogram, Kind

Look = Callable[[], Iterable[tuple[Family, Samples]]]


class Exposition:
    """Renders what ``look`` sees, and what the client library knows of the process."""

    def __init__(self, look: Look) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Pull(look))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """(body, content type) in the form that an Accept header asks for."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type


class _Pull(Collector):
    def __init__(self, look: Look) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        for family, samples in self._look():
            yield _metric(family, samples)


def _metric(family: Family, samples: Samples) -> Metric:
    name, text, labels = family.full_name, family.help, family.labels
    if family.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for values, sample in samples.items():
            if isinstance(sample, Histogram):
                histogram.add_metric(values, list(_buckets(sample)), sample.sum)
        return histogram
    kind = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = kind(name, text, labels=labels)
    for values, sample in samples.items():
        if not isinstance(sample, Histogram):
            metric.add_metric(values, sample)
    return metric


def _buckets(histogram: Histogram) -> Iterator[tuple[str, float]]:
    total = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        total += count
        yield "+Inf" if bound == float("inf") else repr(bound), total
