"""Files hold one tenant, and each tenant is stored when its turn comes. Nothing is lost by that,
and nothing counted twice, whoever dies when."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.files import tenant_folder
from penstock.ingest.ledger import read_ledger
from penstock.ingest.partition_writer import LogTruncated
from penstock.ingest.tables import rejected
from penstock.lake.catalog import current, read_next_offsets
from penstock.lake.segments import sessions_name
from penstock.lake.tables import tenant_offset
from penstock.lake.upkeep.verification import verify
from tests.support.lakes import Event, HandLake, hand_lake, make_event

COUNT = "select count(*) as n from events"
#: Five events of a tenant fill the writer's memory: the largest is written then.
FULL = 5
SMALL_MEMORY = {"flush_rows_max": FULL, "flush_seconds_max": 10.0}


class Died(BaseException):
    """Not an Exception: nothing between here and the test may go on after it."""


def dies_at(point: str, after: int = 0) -> Callable[[str], None]:
    left = [after]

    def crash_point(where: str) -> None:
        if where == point:
            if not left[0]:
                raise Died
            left[0] -= 1

    return crash_point


def events_of(tenant: str, *numbers: int) -> list[Event]:
    return [make_event(f"s-{tenant}", number) for number in numbers]


def ahead(lake: HandLake) -> dict[str, int]:
    with lake.lake.database.read() as connection:
        rows = connection.execute(sa.select(tenant_offset))
        return {row.tenant: row.next_offset for row in rows}


def base(lake: HandLake) -> int:
    with lake.lake.database.read() as connection:
        return read_next_offsets(connection)[0].next_offset


def accepted(lake: HandLake) -> dict[str, int]:
    """What the ledger says, which has to add up."""
    report = read_ledger(lake.lake)
    assert report.discrepancies == []
    counts: Counter[str] = Counter()
    for row in report.rows:
        counts[row.tenant] += row.accepted
    return dict(counts)


def counts(lake: HandLake, *tenants: str) -> list[int]:
    """What a query of the latest sees."""
    return [lake.rows(COUNT, tenant=tenant)[0]["n"] for tenant in tenants]


def send_one_ahead(lake: HandLake) -> None:
    """The large tenant is stored, the small one, whose event came first, still waits."""
    lake.send(events_of("small", 0), "small")
    for number in range(FULL):
        lake.send(events_of("large", number), "large")
    writer = lake.partition_writer("first")
    while writer.step():
        pass
    writer.release()
    assert [stored.tenant for stored in current(lake.lake.database).segments] == ["large"]


def test_a_file_holds_one_tenant_and_lies_in_its_folder(tmp_path: Path) -> None:
    names = ["a", "b", "Firma Überall/..", "a b"]
    with hand_lake(tmp_path) as lake:
        for tenant in names:
            lake.send(events_of("s", 1, 2), tenant)
        lake.store()
        lake.summarise()
        segments = current(lake.lake.database).segments
        assert sorted(str(stored.tenant) for stored in segments) == sorted(names)
        for stored in segments:
            assert stored.tenant is not None
            assert stored.name.startswith(f"events/{tenant_folder(stored.tenant)}/p-0000/")
            for name in (stored.name, sessions_name(stored.name)):
                with lake.lake.store.open(name) as file:
                    tenants = pq.read_table(file, columns=["tenant"])["tenant"].unique()
                assert tenants.to_pylist() == [stored.tenant]
        assert verify(lake.lake).findings == []


def test_rejected_lines_of_two_tenants_are_in_two_files(lake: HandLake) -> None:
    for tenant in ("a", "b"):
        lake.send(b"{}\n[]\n", tenant)
    lake.store()
    with lake.lake.database.read() as connection:
        files = connection.execute(sa.select(rejected.c.tenant, rejected.c.file).distinct()).all()
    assert sorted(row.tenant for row in files) == ["a", "b"]
    for row in files:
        assert row.file.startswith(f"rejected/{tenant_folder(row.tenant)}/")


def test_a_tenant_that_is_stored_further_is_seen_and_counted_once(tmp_path: Path) -> None:
    with hand_lake(tmp_path, **SMALL_MEMORY) as lake:
        send_one_ahead(lake)
        assert list(ahead(lake)) == ["large"]
        assert base(lake) < ahead(lake)["large"]
        assert counts(lake, "small", "large") == [1, FULL]
        assert accepted(lake) == {"small": 1, "large": FULL}
        lake.send(events_of("large", FULL), "large")
        assert counts(lake, "small", "large") == [1, FULL + 1]
        lake.store()  # by another writer, which reads the log again
        assert ahead(lake) == {}
        assert accepted(lake) == {"small": 1, "large": FULL + 1}
        assert set(lake.stored().values()) == {1}
        assert len(lake.stored()) == FULL + 2


def test_the_log_keeps_what_somebody_still_waits_for(tmp_path: Path) -> None:
    with hand_lake(tmp_path, **SMALL_MEMORY) as lake:
        send_one_ahead(lake)
        assert lake.lake.log.bounds(0).first <= base(lake)
        assert counts(lake, "small") == [1]


@pytest.mark.parametrize(
    ("point", "after"),
    [
        *(("intent written", 0), ("file half written", 1), ("between files", 0)),
        *(("file written", 1), ("committed", 0), ("committed", 1)),
    ],
)
def test_a_writer_of_several_tenants_dies_and_the_next_goes_on(
    tmp_path: Path, point: str, after: int
) -> None:
    tenants = ["a", "b", "c"]
    with hand_lake(tmp_path, **SMALL_MEMORY) as lake:
        send_one_ahead(lake)
        for number in range(3):
            for tenant in tenants:
                lake.send(events_of(tenant, number), tenant)
        try:
            lake.writer(dies_at(point, after)).drain()
        except Died:
            assert counts(lake, *tenants, "large", "small") == [3, 3, 3, FULL, 1]
    with hand_lake(tmp_path, **SMALL_MEMORY) as lake:
        lake.store()
        assert accepted(lake) == {"small": 1, "large": FULL} | dict.fromkeys(tenants, 3)
        assert set(lake.stored().values()) == {1}
        assert verify(lake.lake).findings == []


def test_offsets_of_tenants_end_with_their_log(tmp_path: Path) -> None:
    """In a log that began anew, the same offsets are of other events."""
    with hand_lake(tmp_path, **SMALL_MEMORY) as lake:
        send_one_ahead(lake)
    (tmp_path / "log").rename(tmp_path / "old")
    with hand_lake(tmp_path) as lake:
        lake.store(events_of("large", 100), "large")
        assert ahead(lake) == {}
        assert counts(lake, "large") == [FULL + 1]


def test_a_log_that_ends_before_what_a_tenant_has_stored_is_refused(tmp_path: Path) -> None:
    """It is an older copy: new events would take the places of others."""
    with hand_lake(tmp_path, **SMALL_MEMORY) as lake:
        send_one_ahead(lake)
        end = lake.lake.log.bounds(0).end
        beyond = sa.update(tenant_offset).values(next_offset=end + 1)
        with lake.lake.database.write() as connection:
            connection.execute(beyond)
        with pytest.raises(LogTruncated):
            lake.partition_writer("second").step()


def test_what_was_let_go_of_is_read_again_when_its_turn_comes(tmp_path: Path) -> None:
    """The writer has memory for most of the small tenants, and not for all."""
    tenants = [f"t{number:03}" for number in range(90)]
    limits = {"flush_bytes_max": 13_000, "flush_seconds_max": 10.0}
    with hand_lake(tmp_path, **limits) as lake:
        for number in range(2):
            for tenant in tenants:
                lake.send(events_of(tenant, number), tenant)
        writer = lake.partition_writer("first")
        while writer.step():
            pass
        assert current(lake.lake.database).segments == ()
        assert counts(lake, "t000", "t089") == [2, 2]
        lake.clock.advance(1000)
        writer.step()
        stored = len(current(lake.lake.database).segments)
        assert 0 < stored < len(tenants)  # as many as are read again at a time
        lake.send(events_of("t000", 0, 5), "t000")
        writer.release()
        with pytest.raises(Died):
            lake.writer(dies_at("between files")).drain()
        lake.store()
        assert accepted(lake) == dict.fromkeys(tenants, 2) | {"t000": 4}
        assert set(lake.stored().values()) == {1}
        assert len(lake.stored()) == 2 * len(tenants) + 1


steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from("abcd"), st.integers(0, 30)),
    st.tuples(st.just("work"), st.just(""), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.just(""), st.sampled_from([1, 5, 11])),
    st.tuples(
        st.just("die"), st.sampled_from(["between files", "file written", "committed"]), st.just(0)
    ),
)


@settings(max_examples=12, deadline=None)
@given(st.lists(steps, min_size=5, max_size=15))
def test_every_event_is_stored_once_whatever_happens(plan: list[tuple[str, str, int]]) -> None:
    sent: Counter[str] = Counter()
    known: dict[str, set[int]] = {}
    with TemporaryDirectory() as data, hand_lake(Path(data), **SMALL_MEMORY) as lake:
        writer = lake.partition_writer("0")
        for number, (kind, name, amount) in enumerate(plan):
            if kind == "send":
                lake.send(events_of(name, amount), name)
                sent[name] += 1
                known.setdefault(name, set()).add(amount)
            elif kind == "wait":
                lake.clock.advance(amount)
            elif kind == "work":
                for _ in range(amount):
                    writer.step()
            else:
                writer.release()
                writer = lake.partition_writer(str(number), dies_at(name))
                try:
                    while writer.step(drain=True):
                        pass
                except Died:
                    pass
                writer.release()
                writer = lake.partition_writer(f"{number}-next")
                assert accepted(lake) == dict(sent)
                assert counts(lake, *known) == [len(numbers) for numbers in known.values()]
        writer.release()
        lake.store()
        assert ahead(lake) == {}
        assert accepted(lake) == dict(sent)
        assert lake.stored() == Counter(
            (name, f"s-{name}", f"e{number}") for name, of in known.items() for number in of
        )
