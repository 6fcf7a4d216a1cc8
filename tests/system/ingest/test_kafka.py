"""The path into the lake over a real broker: who else writes to the topic, and what becomes of
the topic, must not cost an event nor store one twice."""

import json
import math
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from penstock.backends.eventlog.kafka_log import KafkaEventLog
from penstock.backends.eventlog.log import LogUnsuitable
from penstock.events.frames import partition_of
from penstock.ingest.ledger import read_ledger
from penstock.ingest.partition_writer import LogExpired
from penstock.ingest.rejected_lines import list_rejected
from penstock.lake import FencedOff, LogGrew
from penstock.lake.commits import agree_on_shape, survey_writers
from penstock.lake.tables import log_partition
from tests.support.lakes import Event, HandLake, body_of, hand_lake, make_event
from tests.support.servers.broker import Broker
from tests.support.waiting import eventually

Headers = list[tuple[str, bytes]]
VERSION_1: Headers = [("penstock-schema-version", b"1")]


@dataclass
class Cluster:
    """A topic, and lakes of one data directory that read it: as several processes do."""

    broker: Broker
    data: Path
    topic: str
    opened: ExitStack

    def lake(self, **limits: object) -> HandLake:
        url = f"kafka://{self.broker.address}/{self.topic}"
        settings = {"log_url": url, "lease_seconds": 30} | limits
        lake = self.opened.enter_context(hand_lake(self.data, **settings))
        assert lake.lake.log.id  # it is open, and the topic there
        return lake

    def admin(self) -> KafkaAdminClient:
        made = KafkaAdminClient(bootstrap_servers=self.broker.address)
        return self.opened.enter_context(closing(made))

    def produce(
        self,
        value: bytes,
        headers: Headers | None = None,
        *,
        key: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Write to the topic past the gateway, as an agent does."""
        with closing(KafkaProducer(bootstrap_servers=self.broker.address)) as producer:
            encoded = None if key is None else key.encode()
            producer.send(
                self.topic, value, encoded, headers or VERSION_1, partition=partition
            ).get(20)


@pytest.fixture
def cluster(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(KafkaEventLog, "refresh_s", 0)
    with ExitStack() as opened:
        yield Cluster(broker, tmp_path, uuid.uuid4().hex, opened)


def seqs(lake: HandLake, session: str = "s") -> list[int]:
    rows = lake.rows(f"select seq from events where session_id = '{session}' order by seq")
    return [row["seq"] for row in rows]


def adds_up(lake: HandLake) -> None:
    assert read_ledger(lake.lake).discrepancies == []
    assert set(lake.stored().values()) <= {1}


def line(event: Event) -> bytes:
    return json.dumps(event).encode()


# Producers past the gateway


def test_events_produced_directly_are_stored_once_like_those_of_the_gateway(
    cluster: Cluster,
) -> None:
    lake = cluster.lake(log_partitions=3)
    lake.send([make_event("s", 0)])
    cluster.produce(line(make_event("s", 1)), key="s")
    cluster.produce(body_of([make_event("s", 2), make_event("s", 3)]), key="s")
    cluster.produce(json.dumps([make_event("s", 4)]).encode(), key="s")
    assert seqs(lake) == [0, 1, 2, 3, 4]  # also while they are in the topic only
    adds_up(lake)
    lake.store()
    for number in range(5):
        cluster.produce(line(make_event("s", number)), key="s")
    lake.store([make_event("s", number) for number in range(5)])
    assert seqs(lake) == [0, 1, 2, 3, 4]
    adds_up(lake)


def framed(kind: str, body: bytes) -> bytes:
    fields = {"kind": kind, "tenant": "default", "received_us": 0, "counts": {"": 1}}
    header = json.dumps(fields).encode()
    return len(header).to_bytes(4, "little") + header + body


MARKED = [("penstock-value", b"1")]
POISON: dict[str, tuple[bytes, Headers, str]] = {
    "no JSON": (b"\x00\xff not JSON", VERSION_1, "JSON"),
    "no event": (b'{"type": "user_message"}', VERSION_1, "is missing"),
    "a later version": (b"{}", [("penstock-schema-version", b"2")], "schema version is 2"),
    "no version": (b"{}", [("penstock-schema-version", b"two")], "schema version is"),
    "no tenant": (b"{}", [*VERSION_1, ("penstock-tenant", b"")], "its tenant is empty"),
    "a tenant with NUL": (b"{}", [*VERSION_1, ("penstock-tenant", b"a\x00b")], "unprintable"),
    "marked, and no value": (b"ab", MARKED, "JSON"),
    "marked, and no header": (b"\xff\xff\xff\xff{}", MARKED, "JSON"),
    "marked, and no refused lines": (framed("rejected", b"!"), MARKED, "unreadable"),
    "marked, and no events": (framed("events", b"\x00\xff"), MARKED, "unreadable"),
}


def test_poison_is_set_aside_with_its_reason_and_costs_its_neighbours_nothing(
    cluster: Cluster,
) -> None:
    lake = cluster.lake()
    for number, (value, headers, _) in enumerate(POISON.values()):
        lake.send([make_event("s", number)])
        cluster.produce(value, headers, partition=0)
    assert seqs(lake) == [*range(len(POISON))]
    lake.store()
    assert seqs(lake) == [*range(len(POISON))]
    adds_up(lake)
    refused = reversed(list_rejected(lake.lake, 100))
    for entry, (name, (_, _, reason)) in zip(refused, POISON.items(), strict=True):
        assert reason in entry.reason, name


# Sessions that are not where they belong


def test_an_event_in_another_partition_reaches_the_owner_of_its_session(cluster: Cluster) -> None:
    lake = cluster.lake(log_partitions=3)
    lake.store([make_event("s", 0)])
    for partition in range(3):
        cluster.produce(line(make_event("s", 0)), partition=partition)
        cluster.produce(line(make_event("s", 1)), partition=partition)
    lake.store()  # what the first partitions send on may come too late for this round
    lake.store()
    assert seqs(lake) == [0, 1]
    adds_up(lake)
    home = partition_of("s", 3)
    assert {name.split("/")[2] for name in lake.files()} == {f"p-{home:04d}"}


def test_partitions_that_are_added_are_seen_at_once_and_store_nothing_twice(
    cluster: Cluster,
) -> None:
    lake = cluster.lake(log_partitions=1)
    events = [make_event(f"s-{number % 7}", number) for number in range(50)]
    lake.store(events[:20])
    lake.send(events[10:30])
    cluster.admin().create_partitions({cluster.topic: 3})
    cluster.produce(line(events[49]), partition=2)
    assert seqs(lake, "s-0")[-1] == 49
    lake.send(events[20:40])
    for event in events[15:50]:
        cluster.produce(line(event), key=event["session_id"])
    for _ in range(2):
        lake.store()
    assert sum(lake.stored().values()) == 50
    adds_up(lake)


def test_a_writer_that_does_not_know_of_new_partitions_commits_nothing(cluster: Cluster) -> None:
    lake = cluster.lake(log_partitions=1)
    slow = lake.partition_writer("slow")
    lake.send([make_event("s", 0)])
    slow.step()
    cluster.admin().create_partitions({cluster.topic: 2})
    agree_on_shape(lake.lake.database, lake.lake.log.id, 2)
    with pytest.raises(LogGrew, match="2 partitions now; this writer worked with 1"):
        slow.step(drain=True)
    slow.release()
    for _ in range(2):
        lake.store()
    assert seqs(lake) == [0]
    adds_up(lake)


def test_a_writer_that_is_told_of_new_partitions_places_sessions_as_the_others_do(
    cluster: Cluster,
) -> None:
    """The one has seen them; the other has not looked again, and knows their number only from the
    database. Were they to place sessions by different numbers, they would send the same events to
    each other for ever."""
    lakes = ahead, behind = [cluster.lake(log_partitions=1, lease_seconds=600) for _ in range(2)]
    behind.lake.log.refresh_s = math.inf  # type: ignore[attr-defined]
    writers = first, second = ahead.writer(), behind.writer()
    cluster.admin().create_partitions({cluster.topic: 4})
    first.round()
    second.round()
    behind.lake.log.refresh()

    def take_turns() -> None:
        for writer, lake in zip(writers, lakes, strict=True):
            lake.clock.advance(200)
            writer.round()

    take_turns()
    assert held(ahead) == {first.owner: 2, second.owner: 2}
    ahead.send([make_event(f"s-{number % 50}", number) for number in range(200)])
    for _ in range(3):
        take_turns()
    assert [row.waiting for row in read_ledger(ahead.lake).rows] == [0]
    adds_up(ahead)
    homes = {partition_of(session, 4) for _, session, _ in ahead.stored()}
    assert {name.split("/")[2] for name in ahead.files()} == {f"p-{home:04d}" for home in homes}


# Records and events that are too large


def test_a_topic_with_a_small_limit_takes_what_fits_and_says_what_does_not(
    cluster: Cluster,
) -> None:
    limit = 300 * 1024
    made = {cluster.topic: {"num_partitions": 1, "configs": {"max.message.bytes": str(limit)}}}
    cluster.admin().create_topics(made)
    lake = cluster.lake()
    noise = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(10_000))
    many = [make_event("s", number, payload={"text": noise}) for number in range(60)]
    large = make_event("s", 60, payload={"text": "x" * limit})
    answer = lake.send([*many, large])
    assert answer.accepted == 60
    [rejection] = answer.rejections
    assert "over the limit of" in rejection.reason
    lake.send(b"\n".join([b"?" * 2000] * 1000))
    lake.writer().drain()
    assert seqs(lake) == list(range(60))
    adds_up(lake)


def test_a_topic_that_takes_hardly_anything_is_refused(cluster: Cluster) -> None:
    made = {cluster.topic: {"num_partitions": 1, "configs": {"max.message.bytes": "1000"}}}
    cluster.admin().create_topics(made)
    with pytest.raises(LogUnsuitable, match=r"max\.message\.bytes is 1000; it has to be 262144"):
        cluster.lake()


# Topics that lose something


def delete_records(cluster: Cluster, before: int) -> None:
    """What retention does, at once."""
    cluster.admin().delete_records({TopicPartition(cluster.topic, 0): before})


def test_retention_that_runs_ahead_is_a_gap_in_the_ledger(cluster: Cluster) -> None:
    lake = cluster.lake()
    lake.store([make_event("s", 0)])
    for number in range(1, 6):
        lake.send([make_event("s", number)])
    delete_records(cluster, 4)
    lake.store()
    assert seqs(lake) == [0, 4, 5]
    [gap] = read_ledger(lake.lake).gaps
    assert (gap.from_offset, gap.to_offset) == (1, 4)
    [said] = read_ledger(lake.lake).discrepancies
    assert said == (
        "partition 0 has a gap from offset 1 to 4 (gap 1): "
        "the event log removed these offsets before the lake had them"
    )


def test_an_owner_notices_that_retention_ran_ahead_of_it(cluster: Cluster) -> None:
    lake = cluster.lake()
    lake.send([make_event("s", 0)])
    slow = lake.partition_writer("slow")
    slow.step(drain=True)
    slow.step(drain=True)
    for number in range(1, 4):
        lake.send([make_event("s", number)])
    delete_records(cluster, 3)
    with pytest.raises(LogExpired, match=r"now begins at 3, but the lake covers it only up\s*to 1"):
        slow.step()
    slow.start_over()
    while slow.step(drain=True):
        pass
    assert seqs(lake) == [0, 3]
    assert len(read_ledger(lake.lake).gaps) == 1


def test_a_gap_in_an_empty_partition_is_noticed_too(cluster: Cluster) -> None:
    lake = cluster.lake()
    slow = lake.partition_writer("slow")
    lake.send([make_event("s", 0)])
    slow.step()  # it has read the event, and not committed
    slow.start_over()
    slow.step(end=0)  # claimed again, and not read
    delete_records(cluster, 1)
    lake.clock.advance(20)
    with pytest.raises(LogExpired):
        slow.step(end=0)


def test_a_topic_made_anew_is_read_from_its_beginning_and_that_is_said(cluster: Cluster) -> None:
    lake = cluster.lake()
    lake.store([make_event("s", 0), make_event("s", 1)])
    admin = cluster.admin()
    admin.delete_topics([cluster.topic])
    again = cluster.lake()
    again.store([make_event("s", 1), make_event("s", 2)])
    assert seqs(again) == [0, 1, 2]
    [said] = read_ledger(again.lake).discrepancies
    assert "the event log was replaced" in said


# Owners that come and go


def test_a_zombie_is_fenced_by_its_epoch(cluster: Cluster) -> None:
    lake, other = cluster.lake(lease_seconds=2), cluster.lake(lease_seconds=2)
    zombie = lake.partition_writer("zombie")
    lake.send([make_event("s", 0)])
    zombie.step()
    lake.lake.database.engine.dispose()
    assert not other.partition_writer("other").step()  # the lease is held
    release_leases(lake)
    other.partition_writer("other").step(drain=True)
    zombie.step()
    with pytest.raises(FencedOff):
        zombie.step(drain=True)
    other.store()
    assert seqs(lake) == [0]
    adds_up(lake)


def release_leases(lake: HandLake) -> None:
    """As if their time were over."""
    with lake.lake.database.write() as connection:
        connection.execute(sa.update(log_partition).values(lease_until=0))


def test_writers_share_the_partitions(cluster: Cluster) -> None:
    lakes = [cluster.lake(log_partitions=5, lease_seconds=30) for _ in range(2)]
    first, second = (lake.writer() for lake in lakes)
    events = [make_event(f"s-{number}", number) for number in range(200)]
    first.round()
    assert held(lakes[0]) == {first.owner: 5}
    second.round()  # none is free yet, but it is there
    for lake in lakes:
        lake.clock.advance(10)
    first.round()
    second.round()
    assert sorted(held(lakes[0]).values()) == [2, 3]
    lakes[0].send(events)
    for _ in range(3):
        first.round()
        second.round()
        for lake in lakes:
            lake.clock.advance(3)
    assert sum(lakes[0].stored().values()) == 200
    adds_up(lakes[0])
    first.finish()
    lakes[1].clock.advance(10)
    second.round()
    assert held(lakes[1]) == {second.owner: 5}


def test_a_writer_that_starts_over_goes_on_before_its_leases_run_out(cluster: Cluster) -> None:
    lake = cluster.lake(log_partitions=2, lease_seconds=600)
    writer = lake.writer()
    writer.round()
    lake.send([make_event(f"s-{number}", number) for number in range(20)])
    writer._start_over()
    for _ in range(3):
        lake.clock.advance(200)  # it looks which others there are
        writer.round()
    assert sum(lake.stored().values()) == 20


def held(lake: HandLake) -> dict[str, int]:
    _, owners = survey_writers(lake.lake.database, "who-asks", lease_s=0.000001)
    return dict(Counter(owners.values()))


def test_the_group_shows_how_far_the_lake_is(cluster: Cluster) -> None:
    lake = cluster.lake()
    lake.store([make_event("s", 0)])
    lake.store([make_event("s", 1)])

    def committed() -> list[int]:
        offsets = cluster.admin().list_group_offsets({f"penstock-{cluster.topic}": None})
        return [one.offset for group in offsets.values() for one in group.values()]

    eventually(lambda: committed() == [2])
