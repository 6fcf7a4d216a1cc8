"""A lake whose segments are in S3: all that is done with a lake, and what the sandbox keeps out."""

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.backends.storage import s3 as s3_store
from penstock.backends.storage.object_store import StoreRefused, StoreUnreachable
from penstock.core.errors import ExtraMissing
from penstock.ingest import partition_writer
from penstock.lake import LakeDamaged, QueryRefused
from penstock.lake.catalog import create_snapshot, current
from penstock.lake.query.pinned_files import FileTail, FileTails, PinnedFiles, make_filesystem
from penstock.lake.rows import RowGroupLimits
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from penstock_jobs.simulator.demo.server import running_server
from tests.support.commands import penstock
from tests.support.lakes import HandLake, body_of, hand_lake, make_event
from tests.support.servers.faults import FaultyProxy, Refuse, faulty_proxy
from tests.support.servers.s3 import S3Server
from tests.support.waiting import eventually


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3.url) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_store, "ATTEMPTS_MAX", 2)


@pytest.fixture
def url(s3: S3Server, proxy: FaultyProxy) -> str:
    return s3.store_url(s3.new_prefix(), proxy.url)


@pytest.fixture
def lake(url: str, tmp_path: Path) -> Iterator[HandLake]:
    with hand_lake(tmp_path, store_url=url) as lake:
        yield lake


def store_three(lake: HandLake) -> None:
    for number in range(3):
        lake.store([make_event("s", number), make_event(f"only-{number}", 0)])


def count(lake: HandLake, as_of: str | None = None, tenant: str = "default") -> int:
    [row] = lake.rows("select count(*) as n from events", as_of, tenant)
    return int(row["n"])


def test_all_that_is_done_with_a_lake(lake: HandLake) -> None:
    for _ in range(2):  # the second time all are duplicates
        store_three(lake)
    lake.store([make_event("theirs", 1)], tenant="other")
    assert (count(lake), count(lake, tenant="other")) == (6, 1)
    create_snapshot(lake.lake.database, "before")
    lake.store([make_event("s", 3)])
    lake.send([make_event("s", 4)])
    assert (count(lake), count(lake, "before")) == (8, 6)
    sessions = lake.rows("select session_id, events from sessions order by all")
    assert sessions[-1] == {"session_id": "s", "events": 5}
    both = "select count(*) as n from sessions join user_messages using (session_id)"
    assert lake.rows(both) == [{"n": 8}]

    before = lake.stored()
    mine = [one for one in current(lake.lake.database).segments if one.tenant == "default"]
    merge(lake.lake, mine)
    assert lake.stored() == before
    assert (count(lake), count(lake, "before")) == (8, 6)
    assert verify(lake.lake).findings == []
    assert collect(lake.lake, grace_s=0).segments == 1, "the snapshot holds the others"
    assert verify(lake.lake).findings == []
    assert count(lake, "before") == 6
    assert not (Path(lake.lake.settings.data) / "lake").exists()


def test_damage_is_found(lake: HandLake, s3: S3Server, url: str) -> None:
    store_three(lake)
    prefix = url.partition("/lake/")[2].partition("?")[0]
    first, second, third = (one.name for one in current(lake.lake.database).segments)
    path = s3.root / "lake" / prefix / first
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    lake.lake.store.delete(second)
    problems = {finding.name: finding.problem for finding in verify(lake.lake).findings}
    assert problems == {first: "its checksum does not match", second: "missing"}
    with pytest.raises(LakeDamaged, match="missing"):
        lake.rows("select * from events")
    assert third not in problems


# Reading


def test_a_selective_query_takes_few_requests_and_again_fewer(
    tmp_path: Path, url: str, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three requests a file: its size, its index, the columns; a second query knows the first
    two."""
    monkeypatch.setattr(partition_writer, "ROW_GROUPS", RowGroupLimits(100, 1 << 24))
    with hand_lake(tmp_path, store_url=url) as lake:
        for batch in range(3):
            lake.store(
                [make_event(f"s{n // 10:03d}", n) for n in range(batch * 1000, batch * 1000 + 1000)]
            )
        ask = "select count(*) as n from events where session_id = 's105'"
        seen = len(proxy.seen)
        assert lake.rows(ask) == [{"n": 10}]
        cold = len(proxy.seen) - seen
        assert lake.rows(ask) == [{"n": 10}]
        assert cold <= 3 * 4
        assert len(proxy.seen) - seen - cold <= 2


def test_what_is_read_is_kept_within_bounds() -> None:
    tails = FileTails(bytes_max=100)
    for number in range(10):
        tails.put(str(number), FileTail(30, b"x" * 30))
    assert [number for number in range(10) if tails.get(str(number))] == [7, 8, 9]


def test_without_the_extra_a_query_says_which(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_three(lake)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ExtraMissing, match=re.escape("penstock[s3]")):
        count(lake)


# The sandbox


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_parquet('penstock://events/a')",
        "select * from 'penstock://events/a'",
        "select * from read_text('s3://lake/x')",
        "copy events to 'penstock://events/b'",
    ],
)
def test_a_query_names_no_files(lake: HandLake, sql: str) -> None:
    store_three(lake)
    with pytest.raises(QueryRefused):
        lake.rows(sql)


def test_the_connection_opens_the_pinned_files_and_no_others(lake: HandLake) -> None:
    """The second wall, without the first and without the list of allowed paths."""
    for name in ("pinned", "other"):
        with lake.lake.store.create(name) as file:
            pq.write_table(pa.table({"a": [1]}), file)
    with duckdb.connect() as connection:
        files = PinnedFiles(lake.lake.store, FileTails(1000))
        [path] = files.paths(["pinned"])
        connection.register_filesystem(make_filesystem(files.distant))
        read = f"select a from read_parquet('{path}')"
        assert connection.execute(read).fetchall() == [(1,)]
        for refused in (
            read.replace("pinned", "other"),
            read.replace("pinned", "*"),
            read.replace("pinned", "../pinned"),
            "copy (select 1) to 'penstock://pinned'",
            "copy (select 1) to 'penstock://new'",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(refused)
    assert {found.name for found in lake.lake.store.list()} == {"pinned", "other"}


# Outages


def test_the_store_may_go_and_come_back(lake: HandLake, proxy: FaultyProxy) -> None:
    store_three(lake)
    segments = current(lake.lake.database).segments
    lake.send([make_event("s", 9)])
    proxy.script = lambda _seen: Refuse(503, "SlowDown")
    for ask in (
        lambda: lake.rows("select * from events"),
        lambda: merge(lake.lake, segments),
        lambda: verify(lake.lake),
        lambda: lake.writer().drain(),
    ):
        with pytest.raises(StoreUnreachable):
            ask()
    proxy.script = None
    lake.writer().drain()
    merge(lake.lake, segments)
    assert count(lake) == 7
    assert verify(lake.lake).findings == []


def test_a_query_says_that_the_store_failed_while_it_read(
    tmp_path: Path, url: str, proxy: FaultyProxy
) -> None:
    with hand_lake(tmp_path, store_url=url) as lake:
        lake.store(
            make_event("s", n, payload={"text": random.Random(n).randbytes(20_000).hex()})
            for n in range(20)
        )
        assert count(lake) == 20  # the index is known now
        proxy.script = lambda _seen: Refuse(403, "AccessDenied")
        with pytest.raises(StoreRefused, match="may not do that"):
            lake.rows("select sum(length(text)) as n from user_messages")


def test_a_server_goes_on_when_the_store_is_back(
    tmp_path: Path, url: str, proxy: FaultyProxy
) -> None:
    settings = {"PENSTOCK_STORE_URL": url}
    with running_server(tmp_path, settings=settings) as server, server.client() as client:
        proxy.script = lambda _seen: Refuse(503, "SlowDown")
        client.send_events(body_of(make_event("s", n) for n in range(5)))
        eventually(lambda: b"cannot be reached" in client.get("/readyz").body)
        client.send_events(body_of([make_event("s", 5)]))
        proxy.script = None
        eventually(lambda: client.get("/readyz").status == 200)
    with hand_lake(tmp_path, store_url=url) as lake:
        assert sum(lake.stored().values()) == 6
        assert verify(lake.lake).findings == []


def test_a_gateway_takes_events_in_without_a_store(tmp_path: Path, s3: S3Server) -> None:
    url = s3.store_url("x", "http://127.0.0.1:1")
    settings = {"PENSTOCK_STORE_URL": url}
    with (
        running_server(tmp_path, "--role", "gateway", settings=settings) as server,
        server.client() as client,
    ):
        assert client.send_events(body_of([make_event("s", 0)]))["accepted"] == 1


def test_serve_says_at_once_that_the_store_cannot_be_used(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = s3.store_url("x").replace("//lake/", "//no-such-bucket/")
    monkeypatch.setenv("PENSTOCK_STORE_URL", url)
    done = penstock("serve", "--port", "0", "--data", str(tmp_path))
    assert done.returncode == 3
    assert "there is no such bucket" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
