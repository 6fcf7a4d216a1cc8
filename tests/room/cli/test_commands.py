"""Each command as a person uses it: what it answers, and with which exit status."""

import csv
import io
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.servers.postgres import PostgresServer

Run = Callable[..., Any]


@pytest.fixture
def filled(run: Run, filled_lake: Path, data: Path) -> Run:
    """The commands, over a lake with three events and a rejected line."""
    shutil.copytree(filled_lake, data)
    return run


@pytest.fixture
def only_read(run: Run, filled_lake: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same, for what changes nothing."""
    monkeypatch.setenv("PENSTOCK_DATA", str(filled_lake))
    return run


def test_import_says_what_it_did_and_a_second_run_adds_nothing(run: Run, events_file: Path) -> None:
    first = run("import", str(events_file), "--json").json()
    second = run("import", str(events_file), "--json").json()
    assert (first["accepted"], first["stored"], first["rejected"]) == (3, 3, 1)
    assert (second["accepted"], second["stored"], second["duplicate"]) == (3, 0, 3)


def test_query_shows_a_table_and_the_message_of_a_mistake(only_read: Run) -> None:
    table = only_read("query", "select session_id, count(*) as n from events group by 1 order by 1")
    assert table.status == 0
    assert [line.split() for line in table.out.splitlines()] == [
        ["session_id", "n"],
        ["s-1", "2"],
        ["s-2", "1"],
    ]
    mistake = only_read("query", "select nonsense from events")
    assert mistake.status == 2
    assert "nonsense" in mistake.err
    assert "Traceback" not in mistake.err


def test_query_writes_every_format(only_read: Run, tmp_path: Path) -> None:
    sql = "select session_id, type, ts from events order by ts, type"
    rows = only_read("query", sql, "--json").json()
    assert [row["type"] for row in rows] == ["user_message", "x_own", "edit"]
    found = list(csv.reader(io.StringIO(only_read("query", sql, "--format", "csv").out)))
    assert found[0] == ["session_id", "type", "ts"]
    assert len(found) == 4
    out = tmp_path / "rows.parquet"
    assert only_read("query", sql, "--out", str(out)).status == 0
    assert pq.read_table(out)["type"].to_pylist() == [row["type"] for row in rows]
    arrow = tmp_path / "rows.arrow"
    assert only_read("query", sql, "--out", str(arrow)).status == 0
    with pa.ipc.open_stream(arrow.read_bytes()) as stream:
        assert stream.read_all().num_rows == 3
    assert not list(tmp_path.glob("*.unfinished"))


def test_query_writes_to_a_device_and_does_not_replace_it(only_read: Run, tmp_path: Path) -> None:
    device = tmp_path / "nothing"
    device.symlink_to(os.devnull)
    done = only_read("query", "select 1 as a", "--format", "csv", "--out", str(device))
    assert done.status == 0
    assert device.is_symlink()
    assert device.is_char_device()


def test_query_reads_the_statement_from_standard_input(
    only_read: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("select 1 as one"))
    assert only_read("query", "-", "--json").json() == [{"one": 1}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("query", "select 1", "--as-of", "nowhere"), "snapshot nowhere is unknown"),
        (("query", "select 1", "--out", "rows.xls"), "--format"),
        (("query", "drop table events"), "refused"),
        (("import", "no-such-file.jsonl"), "does not exist"),
        (("shards", "build", "nope.toml"), "nope.toml cannot be used: No such file or directory"),
        (("loop", "run", "nope.toml"), "cannot be used: No such file or directory"),
        (("query", "select 'infinity'::timestamp as t"), "cannot be shown"),
        (("query", "select 1 as a, 2 as a"), "two columns are named a"),
        (("query", "select 1", "--data", __file__), "is not a directory"),
        (("db", "upgrade", "--data", "/proc/nothing/here"), "cannot be used"),
        (("ledger", "--since", "soon"), "neither a time nor an age"),
        (("rejected", "show", "999"), "there is none"),
        (("keys", "revoke", "nobody"), "does not exist or is already revoked"),
        (("snapshots", "show", "nothing"), "snapshot nothing is unknown"),
        (("snapshots", "create", "2026-11-21T10:00:00Z"), "reads as a time"),
    ],
)
def test_wrong_input_is_said_in_a_sentence_and_exits_2(
    only_read: Run, arguments: tuple[str, ...], words: str
) -> None:
    outcome = only_read(*arguments)
    assert outcome.status == 2
    assert outcome.out == ""
    assert words in outcome.err
    assert outcome.err.startswith("penstock: ")
    assert "Errno" not in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("channels", "policy", "production", "--set", "/dev/zero"),
        ("gate", "plan", "core", "--policy", "/dev/zero"),
        ("shards", "build", "/dev/zero"),
        ("loop", "run", "/dev/zero"),
        ("rewards", "run", "--definition", "/dev/zero"),
        ("import", "/dev/zero"),
    ],
    ids=" ".join,
)
def test_a_file_without_an_end_is_refused(only_read: Run, arguments: tuple[str, ...]) -> None:
    outcome = only_read(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert re.search("it is longer than [0-9]+ bytes|it is a device", outcome.err)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("query", "drop table events"), "QueryRefused"),
        (("rejected", "show", "999"), "InvalidInput"),
        (("rejected", "show", "none"), "WrongUsage"),
        (("ledger", "--bogus"), "WrongUsage"),
        (("import", ""), "WrongUsage"),
        (("ledger", "--data", ""), "WrongUsage"),
        (("rejected", "show", "99999999999999999999"), "WrongUsage"),
    ],
)
def test_with_json_an_error_is_a_document_too(
    only_read: Run, arguments: tuple[str, ...], error: str
) -> None:
    outcome = only_read(*arguments, "--json")
    answer = outcome.json()
    assert (answer["error"], answer["exit_status"], outcome.status) == (error, 2, 2)
    assert answer["detail"].removesuffix(".") in " ".join(outcome.err.split())
    assert "Traceback" not in outcome.err
    assert only_read(*arguments).out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "select 1"),
        ("ledger",),
        ("rejected", "list"),
        ("lake", "verify"),
        ("snapshots", "list"),
        ("keys", "list"),
        ("db", "check"),
    ],
)
def test_a_lake_that_is_not_there_is_not_made_by_looking(
    run: Run, data: Path, arguments: tuple[str, ...]
) -> None:
    outcome = run(*arguments)
    assert outcome.status == 2
    assert "holds no lake" in outcome.err
    assert not data.exists()


def test_the_ledger_adds_up_and_counts_per_source(only_read: Run) -> None:
    shown = only_read("ledger")
    assert shown.status == 0
    assert "It adds up" in shown.err
    report = only_read("ledger", "--json", "--since", "1h").json()
    assert report["totals"] == {
        "accepted": 3,
        "stored": 3,
        "duplicate": 0,
        "rejected": 1,
        "waiting": 0,
        "erased": 0,
        "dropped": 0,
    }
    assert report["discrepancies"] == []


def test_rejected_lines_can_be_looked_at_and_sent_again(filled: Run) -> None:
    (entry,) = filled("rejected", "list", "--json").json()
    assert "ts" in entry["reason"]
    shown = filled("rejected", "show", str(entry["id"]))
    assert json.loads(shown.out)["ts"] == "yesterday"
    again = filled("rejected", "replay")
    assert again.status == 1
    assert "1 rejected again" in again.err


def test_a_snapshot_keeps_what_it_saw(filled: Run, tmp_path: Path) -> None:
    assert filled("snapshots", "create", "before", "--note", "why").status == 0
    more = tmp_path / "more.jsonl"
    more.write_text(
        '{"session_id":"s-3","event_id":"1","ts":"2026-11-22T10:00:00Z","type":"x_own","payload":{}}'
    )
    assert filled("import", str(more)).status == 0
    count = "select count(*) as n from events"
    assert filled("query", count, "--json").json() == [{"n": 4}]
    assert filled("query", count, "--as-of", "before", "--json").json() == [{"n": 3}]
    assert filled("snapshots", "create", "before").status == 2
    (listed,) = filled("snapshots", "list", "--json").json()
    assert (listed["name"], listed["note"]) == ("before", "why")
    assert filled("snapshots", "drop", "before").status == 0
    assert filled("snapshots", "list", "--json").json() == []


def test_the_lake_is_verified_compacted_and_collected(filled: Run) -> None:
    assert filled("lake", "verify", "--json").json()["findings"] == []
    assert filled("lake", "compact").status == 0
    assert filled("lake", "gc", "--grace", "0", "--json").json()["segments"] == 0
    assert filled("lake", "stats", "--json").json()["events"] == 3


def test_damage_makes_verify_exit_1_and_names_the_file(filled: Run, data: Path) -> None:
    victim = next((data / "lake").rglob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    outcome = filled("lake", "verify")
    assert outcome.status == 1
    assert victim.name in outcome.err


def test_keys_are_made_listed_without_secret_and_revoked(run: Run) -> None:
    made = run("keys", "create", "--role", "ingest", "--tenant", "t-1", "--json").json()
    assert made["secret"].startswith("pk_ingest_")
    listed = run("keys", "list")
    assert made["id"] in listed.out
    assert made["secret"] not in listed.out
    assert run("keys", "revoke", made["id"]).status == 0
    assert run("keys", "list", "--json").json()[0]["revoked_at"] is not None


def test_config_says_where_each_value_came_from(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.mkdir()
    (data / "penstock.toml").write_text("flush_rows_max = 7\nflush_seconds_max = 1\n")
    monkeypatch.setenv("PENSTOCK_FLUSH_SECONDS_MAX", "3")
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", "postgresql+psycopg://me:secret@db/x")
    found = run("config", "--json").json()
    assert found["flush_rows_max"] == {"value": 7, "origin": str(data / "penstock.toml")}
    assert found["flush_seconds_max"] == {"value": 3.0, "origin": "the environment"}
    assert found["log_partitions"]["origin"] == "default"
    assert "secret" not in found["database_url"]["value"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PENSTOCK_FLUSH_ROWS", "1", "did you mean flush_rows_max"),
        ("PENSTOCK_FLUSH_ROWS_MAX", "many", "is not a whole number"),
        ("PENSTOCK_FLUSH_ROWS_MAX", "0", "is below 1"),
        ("PENSTOCK_EVENT_BYTES_MAX", "999999999", "over body_decoded_bytes_max"),
        ("PENSTOCK_LOG_FORMAT", "xml", "text or json"),
        ("PENSTOCK_QUERY_SECONDS_MAX", "nan", "is below"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    outcome = run("config")
    assert outcome.status == 2
    assert words in outcome.err


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("database_url", "postgresql://me:geheim@db:5432/x?sslmode=require"),
        ("database_url", "postgresql://me:ge/heim@db/x"),
        ("database_url", "postgresql://me:ge@heim@db/x"),
        ("database_url", "postgresql://db/x?user=me&password=geheim&sslmode=require"),
        ("store_url", "s3://bucket/folder?access_key=geheim&secret=geheim&region=r"),
        ("store_url", "s3://me:geheim@bucket/folder"),
        ("log_url", "kafka://me:geheim@one:9092,two:9092/topic?sasl_password=geheim"),
        ("judge_key", "geheim"),
    ],
)
def test_config_shows_no_secret(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, url: str
) -> None:
    monkeypatch.setenv(f"PENSTOCK_{name.upper()}", url)
    for arguments in ((), ("--json",)):
        outcome = run("config", *arguments)
        assert "heim" not in outcome.out + outcome.err
        assert "***" in outcome.out
        assert "sslmode=require" in outcome.out or "sslmode" not in url


def test_the_database_is_made_and_checked(run: Run, data: Path) -> None:
    assert run("db", "upgrade", "--json").json() == run("db", "check", "--json").json()
    with closing(sqlite3.connect(data / "penstock.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    for command in ("check", "upgrade"):
        outcome = run("db", command)
        assert outcome.status == 1
        assert "at revision 9999" in outcome.err


def test_a_shared_database_is_made_and_upgraded_by_hand_alone(
    run: Run, data: Path, postgres: PostgresServer
) -> None:
    """Several processes use it: none changes it when it starts."""
    with postgres.database(migrated=False) as url:
        data.mkdir()
        (data / "penstock.toml").write_text(f'database_url = "{url}"\n')
        for command in (("db", "check"), ("serve",), ("lake", "stats")):
            outcome = run(*command)
            assert outcome.status == 1
            assert "at revision none" in outcome.err
            assert "penstock db upgrade" in outcome.err
        assert run("db", "upgrade").status == 0
        assert run("db", "check").status == 0
        assert run("lake", "stats").status == 0
        assert run("ledger", "--json").json()["rows"] == []
