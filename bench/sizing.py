"""What a rate of events needs, from what an event was measured to cost. A pure function."""

from dataclasses import dataclass
from math import ceil

#: A core is planned to be so busy: the rest is for peaks, merges that lag, and a process that died.
BUSY = 0.5
REPLICAS = 3
#: A partition has one owner at a time, and there should be enough to divide evenly.
PARTITIONS_A_WRITER = 2
PARTITIONS_MIN = 12
#: As set by default; longer where the database could not follow.
FLUSH_SECONDS_MIN = 2.0
#: Under half of what a small PostgreSQL was measured to take.
COMMITS_PER_SECOND_MAX = 100
#: Of a segment that merges leave alone, of `PENSTOCK_COMPACTION_BYTES_TARGET` an eighth and more.
MERGED_BYTES = 128 * 1024 * 1024
RATES = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
_HOUR, _DAY = 3_600, 86_400


@dataclass(frozen=True)
class Cost:
    """Of one event, as measured."""

    gateway_cpu_s: float
    writer_cpu_s: float
    merge_cpu_s: float
    broker_cpu_s: float
    log_bytes: float
    lake_bytes: float


@dataclass(frozen=True)
class Size:
    """`flush_seconds` and `flush_events` are what a partition gathers before it commits."""

    events_per_s: float
    gateways: int
    writers: int
    partitions: int
    flush_seconds: float
    flush_events: float
    commits_per_s: float
    broker_cores: int
    log_mb_per_s: float
    files_per_hour: float
    lake_gb_per_day: float
    segments_per_day: float


def size(rate: float, cost: Cost) -> Size:
    """A gateway and a writer use one core each."""
    gateways = ceil(rate * cost.gateway_cpu_s / BUSY)
    writers = ceil(rate * (cost.writer_cpu_s + cost.merge_cpu_s) / BUSY)
    partitions = max(PARTITIONS_MIN, PARTITIONS_A_WRITER * writers)
    flush_s = max(FLUSH_SECONDS_MIN, partitions / COMMITS_PER_SECOND_MAX)
    merged_per_s = rate * cost.lake_bytes / MERGED_BYTES
    return Size(
        events_per_s=rate,
        gateways=gateways,
        writers=writers,
        partitions=partitions,
        flush_seconds=flush_s,
        flush_events=rate * flush_s / partitions,
        commits_per_s=partitions / flush_s + merged_per_s,
        broker_cores=ceil(REPLICAS * rate * cost.broker_cpu_s / BUSY),
        log_mb_per_s=REPLICAS * rate * cost.log_bytes / 1e6,
        # A segment is a file of events and one of sessions.
        files_per_hour=2 * partitions / flush_s * _HOUR,
        lake_gb_per_day=rate * cost.lake_bytes * _DAY / 1e9,
        segments_per_day=merged_per_s * _DAY,
    )


_COLUMNS = [
    ("events/s", "events_per_s"),
    ("gateways", "gateways"),
    ("writers", "writers"),
    ("partitions", "partitions"),
    ("seconds a flush", "flush_seconds"),
    ("events a flush", "flush_events"),
    ("commits/s", "commits_per_s"),
    ("broker cores", "broker_cores"),
    ("log, MB/s", "log_mb_per_s"),
    ("files an hour, before merges", "files_per_hour"),
    ("lake, GB a day", "lake_gb_per_day"),
    ("merged segments a day", "segments_per_day"),
]


def table(cost: Cost) -> str:
    """As it stands in docs/scale.md."""
    names = [name for name, _ in _COLUMNS]
    lines = [names, ["--:"] * len(names)]
    lines += [
        [_short(getattr(found, field)) for _, field in _COLUMNS]
        for found in (size(rate, cost) for rate in RATES)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(value: float) -> str:
    """Two digits are more than the plan knows."""
    if value < 10:
        return f"{value:.2g}"
    digits = len(str(round(value))) - 2
    return f"{round(value, -digits):,.0f}"
