"""The catalogue of metrics, with their meanings, and their values in this process."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Any, TypeVar

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample


@dataclass(frozen=True)
class Metric:
    kind: type[Counter] | type[Gauge] | type[Histogram]
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SLOW = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60, 300)

CATALOGUE: dict[str, Metric] = {
    "build_info": Metric(
        Gauge, "1, with the running release as labels", ("version", "python", "role")
    ),
    "events_accepted_total": Metric(Counter, "events acknowledged, on disk", ("tenant",)),
    "events_rejected_total": Metric(Counter, "lines refused", ("tenant",)),
    "redactions_total": Metric(
        Counter,
        "matches of each redaction rule; token_ids are model calls that lost their token ids",
        ("rule",),
    ),
    "near_miss_keys_total": Metric(
        Counter, "keys of accepted events that nothing reads and that resemble known ones"
    ),
    "keys_refused_total": Metric(
        Counter, "requests without a valid key: missing, unknown, expired, limited", ("reason",)
    ),
    "events_stored_total": Metric(Counter, "events committed to the lake", ("tenant",)),
    "events_duplicate_total": Metric(Counter, "events that the lake had already", ("tenant",)),
    "request_seconds": Metric(
        Histogram, "time to answer POST /v1/events, the sync included", buckets=_FAST
    ),
    "requests_refused_total": Metric(
        Counter, "requests that were refused whole, by status", ("status",)
    ),
    "otlp_records_total": Metric(
        Counter,
        "spans, log records and data points: they became events, were no agent's, or were refused",
        ("signal", "outcome"),
    ),
    "http_answers_total": Metric(
        Counter,
        "answers of all routes, by status; 0 is a client that had gone",
        ("route", "status"),
    ),
    "inflight_bytes": Metric(Gauge, "bodies and events not yet on disk"),
    "log_append_seconds": Metric(Histogram, "time of one append with its sync", buckets=_FAST),
    "log_append_failures_total": Metric(Counter, "appends that failed: disk full, read-only, …"),
    "log_lag_bytes": Metric(Gauge, "bytes in the log that no segment covers", ("partition",)),
    "values_forwarded_total": Metric(
        Counter, "log values that a writer moved to the partition of their sessions"
    ),
    "segments_written_total": Metric(Counter, "segments committed"),
    "segment_bytes_total": Metric(Counter, "bytes of the segments committed"),
    "flush_seconds": Metric(Histogram, "time to write and commit a segment", buckets=_SLOW),
    "queryable_seconds": Metric(
        Histogram, "age of the oldest event of a segment at its commit", buckets=_SLOW
    ),
    "writer_failures_total": Metric(Counter, "tries of the writer that failed and are repeated"),
    "writer_stopped": Metric(Gauge, "1 when the writer stopped and waits for a person"),
    "segments_live": Metric(Gauge, "segments that a query of the latest reads"),
    "segments_merged_total": Metric(Counter, "segments that compaction merged into larger ones"),
    "files_collected_total": Metric(Counter, "files that collection deleted"),
    "upkeep_failures_total": Metric(Counter, "rounds of upkeep that failed"),
    "query_seconds": Metric(Histogram, "time of POST /v1/query", buckets=_SLOW),
    "queries_running": Metric(Gauge, "queries that run, or wait for their turn"),
    "channel_waiters": Metric(Gauge, "requests that wait for a change of a channel"),
    "notices_delivered_total": Metric(Counter, "changes of channels sent to webhooks"),
    "notice_failures_total": Metric(
        Counter, "failed tries to send a change of a channel to a webhook; they are repeated"
    ),
    "notices_waiting": Metric(
        Gauge, "changes of channels that still have to be sent to a webhook", ("target",)
    ),
    "notice_target_failing": Metric(
        Gauge, "1 when the last try to send to a webhook failed", ("target",)
    ),
    "process_restarts": Metric(
        Gauge, "how often the gateway or the writer ended unasked and was started again", ("part",)
    ),
    "replicas": Metric(
        Gauge,
        "replicas that serve a channel, by their last report: waiting, fetching, loading, "
        "loaded, failed, or silent",
        ("tenant", "channel", "part", "state"),
    ),
    "replicas_behind": Metric(
        Gauge,
        "replicas that have not loaded their channel's checkpoint, silent ones included",
        ("tenant", "channel", "part"),
    ),
    "fleet_mixed": Metric(
        Gauge,
        "1 while replicas of a channel have loaded different checkpoints",
        ("tenant", "channel", "part"),
    ),
}
PREFIX = "penstock_"
#: Labels that a scrape without a tenant does not show.
_TENANT_LABELS = ("tenant", "channel")

M = TypeVar("M", Counter, Gauge, Histogram)
#: Samples of another process by their metric: name, labels, value.
Samples = dict[str, list[tuple[str, dict[str, str], float]]]


class Metrics:
    """The values of one process. Safe to share between threads."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)  # CPU, memory, files, start: process_*
        self._all: dict[str, Counter | Gauge | Histogram] = {}
        for name, metric in CATALOGUE.items():
            options: dict[str, Any] = {"buckets": metric.buckets} if metric.buckets else {}
            self._all[name] = metric.kind(
                PREFIX + name, metric.meaning, metric.labels, registry=self._registry, **options
            )

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        self._of(Counter, name, labels).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        self._of(Gauge, name, labels).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        self._of(Histogram, name, labels).observe(value)

    def value(self, name: str, **labels: str) -> float:
        """The value of a counter or gauge as it would be scraped."""
        return self._registry.get_sample_value(PREFIX + name, labels) or 0.0

    def exposition(self, tenant: str | None = None, others: Samples | None = None) -> bytes:
        """Write the metrics for Prometheus, and another process's values: the tenant's series, and
        series without a tenant. Without a tenant all series are added up, and no label names
        one."""
        return generate_latest(_Scrape(self._registry, tenant, others or {}))

    def samples(self) -> Samples:
        """The values for another process, without CPU and memory."""
        return {
            family.name: [(each.name, each.labels, each.value) for each in family.samples]
            for metric in self._all.values()
            for family in metric.collect()
        }

    def _of(self, kind: type[M], name: str, labels: dict[str, str]) -> M:
        metric = self._all[name]
        if not isinstance(metric, kind):
            raise TypeError(f"{name} is no {kind.__name__}")
        return metric.labels(**labels) if labels else metric


class _Scrape(msgspec.Struct, frozen=True):
    """The part of a registry that somebody may see."""

    registry: CollectorRegistry
    tenant: str | None
    others: Samples

    def collect(self) -> Iterator[Family]:
        for family in self.registry.collect():
            # The time at which each counter began would double the series.
            samples = [*family.samples, *starmap(Sample, self.others.get(family.name, ()))]
            samples = [each for each in samples if not each.name.endswith("_created")]
            if self.tenant is None:
                family.samples = list(_added_up(samples, without=_TENANT_LABELS))
            else:
                own = ("", self.tenant)
                samples = [each for each in samples if each.labels.get("tenant", "") in own]
                family.samples = list(_added_up(samples))
            yield family


def _added_up(samples: Iterable[Sample], without: Collection[str] = ()) -> Iterator[Sample]:
    """Add up samples that differ at most in these labels."""
    alike: defaultdict[tuple[str, tuple[tuple[str, str], ...]], list[Sample]] = defaultdict(list)
    for sample in samples:
        left = ((name, text) for name, text in sample.labels.items() if name not in without)
        alike[sample.name, tuple(left)].append(sample)
    for (_name, labels), group in alike.items():
        yield group[0]._replace(labels=dict(labels), value=sum(each.value for each in group))
