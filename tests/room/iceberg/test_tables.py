"""Iceberg tables over the lake: what other engines read is what the lake holds."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any, Literal

import pytest
from pyiceberg.table import StaticTable

from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.core.files import tenant_folder
from penstock.core.metrics import Metrics
from penstock.lake.iceberg import event_table, publication
from penstock.lake.iceberg.event_table import (
    IcebergBusy,
    data_files,
    metadata_location,
    open_catalog,
)
from penstock.lake.iceberg.publication import (
    list_published,
    publish,
    publish_due,
    tenants_due,
    withdraw,
)
from penstock.lake.lake import Lake
from penstock.lake.upkeep.merges import compact
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from tests.support.commands import penstock
from tests.support.lakes import START_US, Event, HandLake, hand_lake, make_event
from tests.support.marker_search import places_with
from tests.support.servers.s3 import S3Server

Kind = Literal["user", "session", "tenant"]
MARKER = "planted-marker-7f3a"
_COLUMNS = ("session_id", "ts", "seq", "type", "event_id", "user", "payload", "schema_version")


def _scanned(lake: Lake, tenant: str = "default") -> list[Event]:
    """As another engine finds it: by the place of the metadata alone."""
    location = metadata_location(lake, tenant)
    assert location is not None
    properties: dict[str, str] = dict(open_catalog(lake).properties)
    table = StaticTable.from_metadata(location, properties)
    rows: list[Event] = table.scan(selected_fields=_COLUMNS).to_arrow().to_pylist()
    return _sorted(rows)


def _asked(lake: HandLake, tenant: str = "default") -> list[Event]:
    columns = ", ".join(f'"{name}"' for name in _COLUMNS if name != "payload")
    sql = f"select {columns}, payload::varchar as payload from events"
    return _sorted(lake.rows(sql, tenant=tenant))


def _sorted(rows: list[Event]) -> list[Event]:
    told = ({**row, "ts": row["ts"].isoformat()} for row in rows)
    return sorted(told, key=lambda row: json.dumps(row, sort_keys=True, default=str))


def _told(*arguments: str) -> dict[str, Any]:
    done = penstock("iceberg", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _fill(lake: HandLake, tenant: str = "default", flushes: int = 8) -> None:
    for number in range(flushes):
        events = [make_event(f"s-{n}", number, user=f"user-{n}") for n in range(5)]
        lake.store(events, tenant)


def _walk(lake: HandLake) -> None:
    """From an import by way of merges and an erasure: the table follows."""
    _fill(lake)
    marked = make_event("s-marked", 1, payload={"text": MARKER}, user=f"user-{MARKER}")
    lake.store([marked])
    assert publish(lake.lake, "default").added == 9
    assert _scanned(lake.lake) == _asked(lake)
    assert len(_scanned(lake.lake)) == 41
    assert compact(lake.lake, Metrics())
    change = publish(lake.lake, "default")
    assert (change.added, change.removed) == (1, 9)
    assert _scanned(lake.lake) == _asked(lake)
    _erase(lake, "default", "user", f"user-{MARKER}")
    assert len(_scanned(lake.lake)) == 40
    assert _scanned(lake.lake) == _asked(lake)
    assert tenants_due(lake.lake) == []
    assert places_with(lake.lake, MARKER) == []
    _holds_only_files_that_are_there(lake.lake)
    assert verify(lake.lake).findings == []


def _erase(
    lake: HandLake, tenant: str, kind: Literal["user", "session", "tenant"], value: str
) -> None:
    scope = ErasureScope(tenant, kind, value, START_US + 10**12)
    carry_out(lake.lake, order_erasure(lake.lake, scope, reason="asked for", by="tester"))


def _holds_only_files_that_are_there(lake: Lake) -> None:
    table = open_catalog(lake).load_table((tenant_folder("default"), "events"))
    there = {event_table.location_of(lake, stored.name) for stored in lake.store.list("events")}
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            named = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            assert {entry.data_file.file_path for entry in named} <= there


def test_the_table_follows_the_lake(tmp_path: Path, each_database: None) -> None:
    with hand_lake(tmp_path, compaction_segments_min=2) as lake:
        _walk(lake)


def test_the_table_follows_a_lake_in_s3(tmp_path: Path, s3: S3Server) -> None:
    url = s3.store_url(s3.new_prefix())
    with hand_lake(tmp_path, compaction_segments_min=2, store_url=url) as lake:
        _walk(lake)


def test_tenants_stay_apart(lake: HandLake) -> None:
    lake.store([make_event("s-a", 1)], "Acme & Co")
    lake.store([make_event("s-b", 1)], "umbrella")
    assert tenants_due(lake.lake) == ["Acme & Co", "umbrella"]
    for tenant in tenants_due(lake.lake):
        publish(lake.lake, tenant)
    assert [row["session_id"] for row in _scanned(lake.lake, "Acme & Co")] == ["s-a"]
    assert [row["session_id"] for row in _scanned(lake.lake, "umbrella")] == ["s-b"]
    assert publish(lake.lake, "nobody").files == 0
    assert metadata_location(lake.lake, "nobody") is None
    assert withdraw(lake.lake, "umbrella")
    assert not withdraw(lake.lake, "umbrella")
    assert tenants_due(lake.lake) == ["umbrella"]
    assert [row["session_id"] for row in _scanned(lake.lake, "Acme & Co")] == ["s-a"]


def test_metadata_has_no_bounds_of_texts_and_goes_with_its_tenant(lake: HandLake) -> None:
    lake.store([make_event("s-marked", 1, payload={"text": MARKER})], "acme")
    publish(lake.lake, "acme")
    table = open_catalog(lake.lake).load_table((tenant_folder("acme"), "events"))
    bounds: set[int] = set()
    for file in data_files(table).values():
        bounds |= {*file.lower_bounds, *file.upper_bounds}
    names = {table.schema().find_column_name(number) for number in bounds}
    assert names == {"ts", "received_at"}
    _erase(lake, "acme", "tenant", "acme")
    assert metadata_location(lake.lake, "acme") is None
    assert list(lake.lake.store.list("iceberg")) == []


def test_old_snapshots_go_with_the_files_of_the_lake(tmp_path: Path) -> None:
    with hand_lake(tmp_path, compaction_segments_min=2) as lake:
        _fill(lake, flushes=3)
        publish(lake.lake, "default")
        compact(lake.lake, Metrics())
        publish(lake.lake, "default")

        def snapshots() -> int:
            table = open_catalog(lake.lake).load_table((tenant_folder("default"), "events"))
            return len(table.snapshots())

        assert snapshots() == 2
        collect(lake.lake, grace_s=0)
        lake.store([make_event("s-new", 1)])
        publish(lake.lake, "default")
        assert snapshots() == 2  # before and after the new event
        _holds_only_files_that_are_there(lake.lake)
        for number in range(8):
            lake.store([make_event("s-new", number + 2)])
            publish(lake.lake, "default")
        assert snapshots() == 5
        metadata = [stored.name for stored in lake.lake.store.list("iceberg")]
    assert len([name for name in metadata if name.endswith(".metadata.json")]) == 2


def test_two_publishers_at_once_leave_one_whole_table(tmp_path: Path) -> None:
    problems: list[Exception] = []

    def work(data: Path) -> None:
        try:
            with hand_lake(data) as other:
                for _ in range(4):
                    publish(other.lake, "default")
        except Exception as error:  # noqa: BLE001  # the test says what it was
            problems.append(error)

    with hand_lake(tmp_path) as lake:
        _fill(lake, flushes=2)
        threads = [threading.Thread(target=work, args=(tmp_path,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(4):
            lake.store([make_event("s-more", number)])
        for thread in threads:
            thread.join()
        assert problems == []
        publish(lake.lake, "default")
        assert _scanned(lake.lake) == _asked(lake)
        _holds_only_files_that_are_there(lake.lake)


def test_a_publisher_that_lost_its_lease_changes_nothing(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(lake, flushes=2)
    publish(lake.lake, "default")
    lake.store([make_event("s-new", 1)])
    late = event_table.opened(lake.lake, "default")
    publish(lake.lake, "default")
    monkeypatch.setattr(event_table, "opened", lambda _lake, _tenant: late)
    with pytest.raises(IcebergBusy):
        publish(lake.lake, "default")
    monkeypatch.undo()
    assert _scanned(lake.lake) == _asked(lake)


def test_a_lake_that_was_moved_or_whose_metadata_is_gone_is_published_anew(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "before") as lake:
        _fill(lake, flushes=2)
        publish(lake.lake, "default")
        for stored in list(lake.lake.store.list("iceberg")):
            lake.lake.store.delete(stored.name)
        assert publish(lake.lake, "default").added == 2
        assert _scanned(lake.lake) == _asked(lake)
    shutil.move(tmp_path / "before", tmp_path / "after")
    with hand_lake(tmp_path / "after") as lake:
        assert tenants_due(lake.lake) == ["default"]
        assert publish(lake.lake, "default").added == 2
        assert _scanned(lake.lake) == _asked(lake)
        assert tenants_due(lake.lake) == []


def test_what_was_removed_and_collected_is_due_too(lake: HandLake) -> None:
    lake.store([make_event("s-a", 1)], "acme")
    lake.store([make_event("s-b", 1), make_event("s-c", 1)], "acme")
    publish(lake.lake, "acme")
    for session in ("s-a", "s-b", "s-c"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publication, "publish", lambda *_, **__: None)  # as if cut off
            _erase(lake, "acme", "session", session)
        assert tenants_due(lake.lake) == ["acme"]
        publish(lake.lake, "acme")
        assert tenants_due(lake.lake) == []
    assert metadata_location(lake.lake, "acme") is None


def test_upkeep_publishes_where_the_setting_says_so(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        _fill(lake, flushes=1)
        assert publish_due(lake.lake, Metrics()) is None
        assert list_published(lake.lake) == []
    with hand_lake(tmp_path, iceberg="on") as lake:
        assert publish_due(lake.lake, Metrics()) is not None
        assert publish_due(lake.lake, Metrics()) is None
        [table] = list_published(lake.lake)
        assert (table.rows, table.files, table.is_behind) == (5, 1, False)
        assert _scanned(lake.lake) == _asked(lake)


def test_commands_publish_show_and_drop(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        _fill(lake, flushes=2)
    place = ["--data", str(tmp_path)]
    [published] = _told("publish", *place)["published"]
    assert (published["files"], published["rows"]) == (2, 10)
    assert _told("publish", *place)["published"] == []
    [table] = _told("show", *place)["tables"]
    assert table["is_behind"] is False
    assert table["metadata"].endswith(".metadata.json")
    assert _told("drop", "default", *place)["dropped"] is True
