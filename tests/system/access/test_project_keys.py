"""Keys for one project: what they send is of that project, and what they read too."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key, rotate_key
from penstock.errors import InvalidInput, PenstockError
from penstock.ingest.project_lines import keep_project
from penstock.lake.lake import open_lake, open_or_make
from penstock.redaction.line_redaction import RedactedLines
from penstock.settings import load_settings
from penstock_jobs.demo.server import Server, running_server
from tests.support.access.hostile_sql import corpus
from tests.support.commands import penstock
from tests.support.lakes import Event, body_of, make_event
from tests.system.access.test_role_matrix import OF_PROJECTS, OPEN_TO, place_of

MARKER = "zebra-7141"
SHOP, BANK = "shop/web", "bank"
#: Errors of the engine quote values, whatever a view leaves out afterwards.
LEAKS = [
    "select count(*) from events where cast(payload as int) > 0",
    "select cast(payload as int) from events",
    "select * from events where error(payload) is null",
    "select count(*) from user_messages where cast(text as date) > date '2020-01-01'",
    'select * from sessions where cast("user" as int) = 1',
    "select * from stored_events",
    "select * from fresh_events",
    "select * from whole_event_rows",
    "select * from event_rows",
    "select * from project_sessions",
]


@dataclass
class World:
    data: Path
    server: Server
    keys: dict[str, str]


def session(name: str, project: str | None, text: str, user: str) -> list[Event]:
    facts: dict[str, Any] = {"project": project, "user": user}
    return [
        make_event(name, 0, "session_start", payload={"repo": text}, **facts),
        make_event(name, 1, payload={"text": text}, **facts),
        make_event(
            name, 2, "edit", payload={"edit_id": "d", "path": text, "before": "a", "after": text},
            **facts,
        ),
        make_event(name, 3, payload={"text": f"this is wrong, {text}"}, **facts),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("projects")
    data = folder / "data"
    with open_or_make(load_settings(data, environment={})) as lake:
        keys = {
            f"{role} {project}": create_key(lake.database, role, "default", project=project)[1]
            for role in ("ingest", "read")
            for project in (SHOP, BANK)
        }
        keys["admin"] = create_key(lake.database, "admin", "default")[1]
    stored = [
        *session("bank-1", BANK, MARKER, f"{MARKER}-user"),
        *session("nobodys", None, MARKER, f"{MARKER}-user"),
        *session("shop-1", SHOP, "a lamp", "ada"),
        # Somebody who may send for the shop names it in sessions of others.
        make_event("bank-1", 9, payload={"text": "mine"}, project=SHOP),
        make_event("nobodys", 9, payload={"text": "mine"}, project=SHOP),
    ]
    (folder / "events.jsonl").write_bytes(body_of(stored))
    for command in (["import", str(folder / "events.jsonl")], ["rewards", "run"]):
        done = penstock(*command, "--data", str(data))
        assert done.returncode == 0, done.stderr
    with running_server(data) as server:
        yield World(data, server, keys)


def post(world: World, key: str, path: str, body: bytes) -> tuple[int, object]:
    with world.server.client(world.keys[key]) as client:
        reply = client.post(path, body)
    return reply.status, reply.json()


def asked(world: World, key: str, sql: str) -> object:
    status, answer = post(world, key, "/v1/query", json.dumps({"sql": sql}).encode())
    assert isinstance(answer, dict)
    return answer["rows"] if status == 200 else answer


# Sending


def test_what_names_no_project_is_stamped_and_what_names_another_is_refused(world: World) -> None:
    events = [
        make_event("fresh", 0),
        make_event("fresh", 1, project=SHOP),
        make_event("fresh", 2, project=BANK, payload={"text": "not to be kept"}),
    ]
    body = body_of(events) + body_of([make_event("fresh", 3)]).replace(b"{", b'{"project":null,', 1)
    status, answer = post(world, f"ingest {SHOP}", "/v1/events", body)
    assert status == 200
    assert isinstance(answer, dict)
    assert answer["accepted"] == 3
    [refused] = answer["rejected"]
    assert refused["line"] == 3
    assert "'bank'" in refused["error"]
    assert "'shop/web'" in refused["error"]
    sql = "select seq, project from events where session_id = 'fresh' order by seq"
    rows = [{"seq": seq, "project": SHOP} for seq in (0, 1, 3)]
    assert asked(world, f"read {SHOP}", sql) == rows
    assert asked(world, f"read {BANK}", sql) == []
    # Who replays rejected lines does not let it in.
    with world.server.client(world.keys["admin"]) as client:
        assert b"not to be kept" not in client.get("/v1/rejected").body


@pytest.mark.parametrize(
    "line",
    [
        b'{"project": "bank", "type": "x"}',
        b'{"pro\\u006aect": "bank"}',
        b'{"project": "shop", "project": "bank"}',
        b'  {"a": {"project": "shop"}, "project": "ba\\u006ek"}',
    ],
)
def test_however_it_is_written_another_project_is_refused(line: bytes) -> None:
    lines = RedactedLines([line])
    keep_project(lines, "shop")
    assert (lines.lines, [refused.masked for refused in lines.refused]) == ([b""], [b""])


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"project": 7}', b"\xff", b"{}", b"1"])
def test_what_is_no_event_is_left_to_those_who_say_why(line: bytes) -> None:
    lines = RedactedLines([line])
    keep_project(lines, "shop")
    assert not lines.refused
    if line != b"{}":
        assert lines.lines == [line]


# Reading


def test_a_key_reads_the_sessions_of_its_project_alone(world: World) -> None:
    read = f"read {SHOP}"
    for view in ("events", "sessions", "user_messages", "edits", "rewards", "outcomes"):
        sql = f"select distinct session_id from {view} where session_id not like 'fresh%'"
        assert asked(world, read, sql) == [{"session_id": "shop-1"}], view
    sql = "select \"user\", repo from sessions where session_id = 'shop-1'"
    assert asked(world, read, sql) == [{"user": "ada", "repo": "a lamp"}]
    assert asked(world, read, "select count(*) as n from labels") == [{"n": 0}]


def test_a_session_that_others_name_their_project_in_is_nobodys(world: World) -> None:
    for project in (SHOP, BANK):
        sql = "select session_id from events where session_id in ('bank-1', 'nobodys')"
        assert asked(world, f"read {project}", sql) == []
    rows = asked(world, "admin", "select count(*) as n from events where session_id = 'bank-1'")
    assert rows == [{"n": 5}]


@pytest.mark.parametrize(
    "view", ["shards", "samples", "checkpoints", "benchmark_scores", "promotions"]
)
def test_views_of_the_whole_tenant_are_refused(world: World, view: str) -> None:
    answer = asked(world, f"read {SHOP}", f"select * from {view}")
    assert isinstance(answer, dict)
    assert "this key is for the project shop/web" in answer["detail"]


@pytest.mark.parametrize("sql", LEAKS)
def test_no_error_says_what_a_row_of_another_project_holds(world: World, sql: str) -> None:
    assert MARKER not in str(asked(world, f"read {SHOP}", sql))


def test_no_statement_gives_anything_of_another_project(world: World) -> None:
    [segment, *_] = sorted((world.data / "lake").rglob("*.parquet"))
    paths = {"segment": str(segment), "data": str(world.data), "database": "penstock.db"}
    answered = 0
    with open_lake(world.data) as lake:
        for sql in corpus(paths):
            try:
                text = str(lake.query(sql, project=SHOP).arrow().to_pylist())
                answered += 1
            except PenstockError as error:
                text = str(error)
            assert MARKER not in text, sql
            assert "bank-1" not in text, sql
    assert answered > 100


def test_the_engine_itself_has_no_other_rows(world: World) -> None:
    """Also where the check of the statement fails: SQL of our own is not checked."""
    from penstock.lake.query import LakeQuery
    from penstock.lake.statements import LocalStatement

    left: list[str] = []

    class Unguarded(LocalStatement):
        def views(self, sql: str, names: frozenset[str]) -> frozenset[str]:
            return frozenset({"events", "sessions", "rewards"}) & names

        def confine(self, paths: object) -> None:
            left.extend(str(path) for path in paths)  # type: ignore[attr-defined]

    with open_lake(world.data) as lake, pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.lake.query.LocalStatement", Unguarded)
        for sql in (
            "select * from duckdb_views() where not internal",
            "select * from duckdb_tables()",
            "select * from event_rows",
            "select * from session_parts",
            "select * from stored_rewards",
            *(f"select * from whole_{n}" for n in ("event_rows", "session_parts")),
            *(f"select * from {n}" for n in ("stored_events", "fresh_events", "consent_changes")),
            "select * from read_parquet(getvariable('stored_events_files'))",
            "select * from read_parquet(getvariable('stored_rewards_files'))",
        ):
            try:
                text = str(LakeQuery(lake, sql, None, "default", SHOP).arrow().to_pylist())
            except PenstockError as error:
                text = str(error)
            assert MARKER not in text, sql
            assert "bank-1" not in text, sql
    assert left
    assert not [path for path in left if "/lake/" in path]


def test_the_list_of_sessions_and_their_records_are_the_projects(world: World) -> None:
    with world.server.client(world.keys[f"read {SHOP}"]) as client:
        listed = client.get("/v1/sessions").json()["sessions"]
        assert {one["session_id"] for one in listed} <= {"shop-1", "fresh"}
        assert client.get("/v1/sessions?project=bank").json()["sessions"] == []
        record = client.get("/v1/sessions/shop-1").json()
        assert record["session"]["project"] == SHOP
        assert len(record["events"]) == 4
        for other in ("bank-1", "nobodys", "none"):
            assert client.get(f"/v1/sessions/{other}").status == 404


def test_what_is_of_the_whole_tenant_is_refused(world: World) -> None:
    for role in ("ingest", "read"):
        with world.server.client(world.keys[f"{role} {SHOP}"]) as client:
            assert client.get("/v1/keys/own").json()["project"] == SHOP
            for route, roles in OPEN_TO.items():
                method, path = place_of(route)
                if role not in roles.split() or route in OF_PROJECTS:
                    continue
                reply = client.get(path) if method == "GET" else client.post(path, b"{")
                assert reply.status == 403, route
                assert reply.json()["error"] == "WholeTenantAsked", route


# Keys


def test_a_key_that_takes_its_place_is_of_the_same_project(tmp_path: Path) -> None:
    with open_or_make(load_settings(tmp_path, environment={})) as lake:
        key, _ = create_key(lake.database, "read", "acme", project=SHOP)
        rotated, _ = rotate_key(lake.database, key.id, key.created_at + 10**12)
        assert (key.project, rotated.project) == (SHOP, SHOP)


@pytest.mark.parametrize("role", ["serve", "train", "promote", "admin"])
def test_what_other_roles_ask_is_of_the_whole_tenant(tmp_path: Path, role: str) -> None:
    with open_or_make(load_settings(tmp_path, environment={})) as lake:
        with pytest.raises(InvalidInput, match="of one project are ingest, read"):
            create_key(lake.database, role, "acme", project=SHOP)
        with pytest.raises(InvalidInput, match="empty, too long or unprintable"):
            create_key(lake.database, "read", "acme", project="")


def test_the_command_makes_one_and_lists_it(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "data")]
    made = penstock("keys", "create", "--role", "read", "--project", SHOP, *data)
    assert made.returncode == 0, made.stderr
    assert "project shop/web" in made.stderr
    [key] = json.loads(penstock("keys", "list", "--json", *data).stdout)
    assert (key["role"], key["project"]) == ("read", SHOP)
