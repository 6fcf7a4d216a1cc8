"""Files of events come in as requests do, and a second run adds nothing."""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.backends.eventlog.log import Claim
from penstock.core.errors import Backlogged, InvalidInput
from penstock.ingest import event_files, file_import
from penstock.ingest.event_files import find_files
from penstock.ingest.file_import import FileImporter, ImportSummary
from penstock.ingest.ledger import read_ledger
from penstock.ingest.rejected_lines import list_rejected
from penstock.lake.catalog import current
from penstock.lake.lake import open_lake
from penstock_jobs.simulator.demo.server import running_server
from tests.support.lakes import HandLake, body_of, hand_lake, make_event

EVENTS = [make_event(f"s{number % 3}", number) for number in range(300)]
ARRAY = json.dumps(EVENTS, indent=1).encode()


def take(lake: HandLake, paths: Iterable[Path]) -> ImportSummary:
    importer = FileImporter(lake.lake, "default")
    for file in find_files(list(paths))[0]:
        for _ in importer.take(file):
            pass
    return importer.finish()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lines.jsonl", body_of(EVENTS)),
        ("windows.jsonl", body_of(EVENTS).replace(b"\n", b"\r\n")),
        ("lines.jsonl.gz", gzip.compress(body_of(EVENTS))),
        ("array.json.zst", pa.compress(ARRAY, "zstd", asbytes=True)),
    ],
)
def test_each_form_is_read_and_a_second_run_adds_nothing(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with hand_lake(tmp_path / "data") as lake:
        assert take(lake, [path]) == ImportSummary(1, 300, 0, 300, 0, waiting=False)
    with hand_lake(tmp_path / "data") as lake:
        assert take(lake, [path]) == ImportSummary(1, 300, 0, 0, 300, waiting=False)
        assert set(lake.stored().values()) == {1}
        assert read_ledger(lake.lake).discrepancies == []


def test_folders_are_searched_and_files_of_other_kinds_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(body_of(EVENTS[:100]))
    (folder / "deep" / "b.ndjson.gz").write_bytes(gzip.compress(body_of(EVENTS[100:200])))
    (folder / "deep" / "er" / "c.json").write_bytes(json.dumps(EVENTS[200:]).encode())
    (folder / "notes.txt").write_text("not events")
    with hand_lake(tmp_path / "data") as lake:
        assert take(lake, [folder]).stored == 300
        assert take(lake, [folder, folder / "a.jsonl"]).stored == 0


def test_a_path_that_holds_nothing_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"gone\.jsonl.*does not exist"):
        find_files([tmp_path / "gone.jsonl"])
    with pytest.raises(InvalidInput, match=r"it contains no file of \.jsonl"):
        find_files([tmp_path])


def test_lines_are_numbered_through_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_files, "BODY_BYTES", 1000)
    lines = body_of(EVENTS).splitlines()
    lines[1], lines[150], lines[299] = b"{", b"nonsense", b'{"type": "no_such"}'
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"\n".join(lines))
    with hand_lake(tmp_path / "data") as lake:
        done = take(lake, [path])
        assert (done.accepted, done.rejected, done.stored) == (297, 3, 297)
        assert [entry.line for entry in list_rejected(lake.lake, 10)] == [300, 151, 2]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.jsonl.gz", gzip.compress(body_of(EVENTS))[:-100]),
        ("not.jsonl.gz", body_of(EVENTS)),
        ("not.json.zst", ARRAY),
    ],
)
def test_a_bad_file_is_named_and_costs_nothing_that_was_read_before(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / "a.jsonl").write_bytes(body_of(EVENTS[:100]))
    (tmp_path / name).write_bytes(content)
    with hand_lake(tmp_path / "data") as lake:
        with pytest.raises(InvalidInput, match=name):
            take(lake, [tmp_path / "a.jsonl", tmp_path / name])
        lake.store()
        assert sum(lake.stored().values()) >= 100
        assert set(lake.stored().values()) == {1}
        assert read_ledger(lake.lake).discrepancies == []


def test_an_import_larger_than_the_log_is_stored_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(body_of(EVENTS * 20))
    limits = {"log_bytes_max": 500_000}
    with hand_lake(tmp_path / "data", **limits) as lake:
        done = take(lake, [path])
        assert (done.stored, done.duplicate) == (300, 5700)


def test_an_import_that_finds_no_room_says_so_instead_of_trying_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(body_of(EVENTS))
    with (
        hand_lake(tmp_path / "data", disk_reserve_bytes=2**60) as lake,
        pytest.raises(Backlogged, match="bytes are free on the disk"),
    ):
        take(lake, [path])


@pytest.mark.system
def test_a_running_server_stores_what_is_imported_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(body_of(EVENTS))
    data = tmp_path / "data"
    command = [sys.executable, "-m", "penstock", "import", str(path), "--data", str(data), "--json"]
    with running_server(data) as server:
        with closing(server.client()) as client:
            client.send_events(body_of(EVENTS[:200]))
        done = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        assert (done["accepted"], done["by_server"], done["waiting"]) == (300, True, False)
        assert (done["stored"], done["duplicate"]) == (100, 200)
        with open_lake(data) as lake:  # what is in segments, as rewards see it
            assert sum(one.rows for one in current(lake.database).segments) == 300
        body = json.dumps({"sql": "select count(*) as n from events"}).encode()
        # A connection that was kept meanwhile the server may have closed.
        with closing(server.client()) as client:
            reply = client.post("/v1/query", body, Content_Type="application/json")
        assert reply.json()["rows"] == [{"n": 300}]
    with hand_lake(data) as lake:
        lake.store()
        assert len(lake.stored()) == 300
        assert set(lake.stored().values()) == {1}
        assert read_ledger(lake.lake).discrepancies == []


def test_a_server_that_stores_nothing_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_import, "_STORE_SECONDS_MAX", 0.1)
    path = tmp_path / "some.jsonl"
    path.write_bytes(body_of(EVENTS))
    data = tmp_path / "data"
    with hand_lake(data) as stuck, hand_lake(data, flush_seconds_max=0) as lake:
        assert stuck.lake.log.hold(0) is Claim.MINE
        assert take(lake, [path]) == ImportSummary(1, 300, 0, 0, 0, by_server=True, waiting=True)
        assert list(lake.stored()) == []
