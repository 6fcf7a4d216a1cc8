"""What a rate of events needs, from what an event was measured to cost. A pure function."""

from dataclasses import dataclass
from math import ceil, log

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
#: A sixth of `PENSTOCK_LEASE_SECONDS`.
LOOK_SECONDS = 5.0
#: Merges of eight segments leave alone what has this size (`PENSTOCK_COMPACTION_BYTES_TARGET` is
#: eight times as much), and most are some larger.
MERGED_BYTES_MIN = 16 * 1024 * 1024
MERGED_BYTES_MEAN = 32 * 1024 * 1024
MERGED_TOGETHER = 8
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
    merges: int
    commits_per_s: float
    transactions_per_s: float
    broker_cores: int
    log_mb_per_s: float
    files_per_hour: float
    lake_gb_per_day: float
    segments_per_day: float


def size(rate: float, cost: Cost) -> Size:
    """A gateway and a writer use one core each."""
    merges = 1
    for _ in range(2):  # how often an event is merged depends on how large the flushes are
        writers = ceil(rate * (cost.writer_cpu_s + merges * cost.merge_cpu_s) / BUSY)
        partitions = max(PARTITIONS_MIN, PARTITIONS_A_WRITER * writers)
        flush_s = max(FLUSH_SECONDS_MIN, partitions / COMMITS_PER_SECOND_MAX)
        flush_events = rate * flush_s / partitions
        merges = _merges(flush_events * cost.lake_bytes)
    commits_per_s = partitions / flush_s * (1 + 1 / MERGED_TOGETHER)
    merged_per_s = rate * cost.lake_bytes / MERGED_BYTES_MEAN
    return Size(
        events_per_s=rate,
        gateways=ceil(rate * cost.gateway_cpu_s / BUSY),
        writers=writers,
        partitions=partitions,
        flush_seconds=flush_s,
        flush_events=flush_events,
        merges=merges,
        commits_per_s=commits_per_s,
        # An intent goes before each; and writers look who else is there.
        transactions_per_s=2 * commits_per_s + writers / LOOK_SECONDS,
        broker_cores=ceil(REPLICAS * rate * cost.broker_cpu_s / BUSY),
        log_mb_per_s=REPLICAS * rate * cost.log_bytes / 1e6,
        # A segment is a file of events and one of sessions.
        files_per_hour=2 * partitions / flush_s * _HOUR,
        lake_gb_per_day=rate * cost.lake_bytes * _DAY / 1e9,
        segments_per_day=merged_per_s * _DAY,
    )


def _merges(flush_bytes: float) -> int:
    """How often an event is written again until its segment is left alone."""
    return max(0, ceil(log(MERGED_BYTES_MIN / flush_bytes, MERGED_TOGETHER)))


_COLUMNS = [
    ("events/s", "events_per_s"),
    ("gateways", "gateways"),
    ("writers", "writers"),
    ("partitions", "partitions"),
    ("seconds a flush", "flush_seconds"),
    ("events a flush", "flush_events"),
    ("merges of an event", "merges"),
    ("commits/s", "commits_per_s"),
    ("database transactions/s", "transactions_per_s"),
    ("broker cores", "broker_cores"),
    ("log, MB/s", "log_mb_per_s"),
    ("files an hour, before merges", "files_per_hour"),
    ("lake, GB a day", "lake_gb_per_day"),
    ("merged segments a day", "segments_per_day"),
]


def table(cost: Cost) -> str:
    """As it stands in bench/pages/sizing.md."""
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
