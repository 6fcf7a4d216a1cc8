"""What each view shows, on events written by hand; and that parts of a session merge in any way."""

import datetime as dt
import itertools
import json
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake.buckets import SessionId
from penstock.lake.query.view_sources import LAKE_VIEWS
from penstock.lake.rows import EVENT_ROWS
from penstock.lake.segments import SESSION_PARTS
from penstock_jobs.rewards.history.session_chains import Link, places_of

Row = dict[str, Any]

LAKE = files("penstock.lake")
VIEWS = sorted(LAKE_VIEWS)
START = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
_keys = itertools.count(1)


def event(kind: str, payload: object = None, *, at: float = 0, **fields: Any) -> Row:
    """One row of event_rows, `at` seconds after START; the rest has defaults."""
    moment = START + dt.timedelta(seconds=at)
    return {
        "tenant": "acme",
        "session_id": "s-1",
        "ts": moment,
        "type": kind,
        "consent": "unknown",
        "payload": payload if isinstance(payload, str) else json.dumps(payload or {}),
        "schema_version": 1,
        "received_at": moment,
        "key": next(_keys).to_bytes(16, "big"),
        **fields,
    }


def table(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=EVENT_ROWS)


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": "1", "python_enable_replacements": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def sql_of(path: str) -> str:
    return LAKE.joinpath(path).read_text(encoding="utf-8")


def summarise(rows: pa.Table) -> pa.Table:
    with connect() as connection:
        connection.register("rows", rows)
        parts = connection.sql(sql_of("summary.sql")).to_arrow_table()
    assert parts.schema.names == SESSION_PARTS.names
    assert parts.schema.types == SESSION_PARTS.types
    return parts.cast(SESSION_PARTS)


def query(sql: str, rows: Iterable[Row], parts: Iterable[pa.Table] | None = None) -> list[Row]:
    """Run `sql` over the views of `rows`, whose summaries are `parts` (by default: one part)."""
    stored = table(rows)
    with connect() as connection:
        connection.register("event_rows", stored)
        summaries = [summarise(stored)] if parts is None else list(parts)
        connection.register("session_parts", pa.concat_tables(summaries))
        for view in VIEWS:
            connection.execute(f"CREATE VIEW {view} AS {sql_of(f'query/views/{view}.sql')}")
        answer: list[Row] = connection.sql(sql).to_arrow_table().to_pylist()
    return answer


ODD = [
    event("x_anything", "{}"),
    event("x_other", '{"usage": "no", "ok": 7, "tool_calls": {}}'),
    *(
        event(kind, payload)
        for kind in (
            "session_start", "session_end", "user_message", "model_call", "tool_result", "edit",
            "file_observed", "feedback", "compaction", "vcs_commit", "interrupt", "error",
        )
        for payload in (
            "{}",
            '{"text": 1, "call_id": [], "usage": {"prompt": "x", "completion": 1e400}}',
            '{"usage": {"prompt": 9223372036854775807, "completion": -1}, "latency_ms": "soon"}',
            '{"usage": 3, "tool_calls": "no", "tokens": 1, "ok": "maybe", "duration_ms": {}}',
            '{"tool_calls": [1, null, {}, {"id": 7, "name": null, "arguments": [1]}], "ok": null}',
            '{"before": 1, "after": null, "path": {}, "edit_ids": "x", "deleted": "perhaps"}',
            '{"edit_ids": [1, {}], "branch_changed": 2, "kind": "thumbs", "value": {"a": 1}}',
            '{"kind": 1, "value": [], "consent": 5, "client": {"a": [1]}, "reason": false}',
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_may_be_empty_and_no_odd_payload_makes_it_fail(view: str) -> None:
    columns = {row["column_name"] for row in query(f"describe {view}", [])}
    assert columns
    assert not columns & {"tenant", "key"}
    assert query(f"from {view}", []) == []
    assert query(f"from {view}", ODD)


def test_events_are_as_stored_and_x_events_are_there() -> None:
    rows = [event("x_lint", {"warnings": 3}, seq=4, user="u", extra='{"host": "a"}')]
    (found,) = query("select *, payload ->> 'warnings' as warnings from events", rows)
    assert found["type"] == "x_lint"
    assert found["warnings"] == "3"
    assert (found["seq"], found["user"], found["extra"]) == (4, "u", '{"host": "a"}')


def test_user_messages() -> None:
    rows = [event("user_message", {"text": "hé"}), event("edit", {"text": "no"})]
    (found,) = query("from user_messages", rows)
    assert (found["text"], found["text_chars"]) == ("hé", 2)


def test_model_calls() -> None:
    payload = {
        "call_id": "m1",
        "model": "composer",
        "text": "ok",
        "tool_calls": [{"id": "c1", "name": "grep"}, {"id": "c2", "name": "ls"}],
        "usage": {"prompt": 10, "completion": 5.0, "cached": "7"},
        "latency_ms": 12.5,
        "sampling": {"temperature": 1},
        "tokens": {"tokenizer": "t", "prompt_ids": [1, 2]},
    }
    first, second = query(
        "from model_calls order by ts", [event("model_call", payload), event("model_call", at=1)]
    )
    assert (first["call_id"], first["model"], first["text"]) == ("m1", "composer", "ok")
    assert first["tool_call_count"] == 2
    assert (first["prompt_tokens"], first["completion_tokens"]) == (10, 5)
    assert (first["cached_tokens"], first["thinking_tokens"]) == (7, None)
    assert first["latency_ms"] == 12.5
    assert json.loads(first["sampling"]) == {"temperature": 1}
    assert json.loads(first["tokens"])["prompt_ids"] == [1, 2]
    assert (second["tool_call_count"], second["text"], second["tokens"]) == (0, None, None)


def test_edits_have_sizes_and_a_new_file_has_no_before() -> None:
    payload = {"edit_id": "e1", "call_id": "c1", "path": "a.py", "after": "x\nyé", "language": "py"}
    (found,) = query("from edits", [event("edit", payload)])
    assert (found["edit_id"], found["path"], found["language"]) == ("e1", "a.py", "py")
    assert (found["before"], found["before_chars"], found["before_lines"]) == (None, None, None)
    assert (found["after_chars"], found["after_lines"]) == (4, 2)


def test_observations() -> None:
    rows = [
        event("file_observed", {"path": "a", "text": "abc", "edit_ids": ["e1", "e2"]}),
        event("file_observed", {"path": "b", "deleted": True, "branch_changed": True}, at=1),
    ]
    here, gone = query("from observations order by ts", rows)
    assert (here["text_chars"], here["deleted"], here["branch_changed"]) == (3, False, None)
    assert here["edit_ids"] == ["e1", "e2"]
    assert (gone["deleted"], gone["branch_changed"], gone["text"]) == (True, True, None)


FEEDBACK: list[tuple[str, object, bool | None]] = [
    ("accept", None, True),
    ("reject", None, False),
    ("undo", 1, False),
    ("thumbs", 1, True),
    ("thumbs", 0, False),
    ("thumbs", -1, False),
    ("thumbs", "up", True),
    ("thumbs", "Down", False),
    ("thumbs", True, True),
    ("thumbs", False, False),
    ("thumbs", "sideways", None),
    ("thumbs", None, None),
    ("rating", 5, None),
    ("comment", None, None),
]


@pytest.mark.parametrize(("kind", "value", "positive"), FEEDBACK)
def test_feedback_is_judged_alike_in_the_view_and_in_sessions(
    kind: str, value: object, positive: bool | None
) -> None:
    rows = [event("feedback", {"kind": kind, "value": value, "target": "e1"})]
    (found,) = query("from feedback", rows)
    (session,) = query("from sessions", rows)
    assert (found["target"], found["kind"], found["positive"]) == ("e1", kind, positive)
    assert session["feedback"] == 1
    assert session["feedback_positive"] == (positive is True)
    assert session["feedback_negative"] == (positive is False)


def called(*ids: str | None, at: float = 0, tool: str = "grep", **fields: Any) -> Row:
    calls = [{"name": tool, "arguments": {"q": i}} | ({"id": i} if i else {}) for i in ids]
    return event("model_call", {"call_id": f"m{at}", "tool_calls": calls}, at=at, **fields)


def result(call_id: str | None, *, at: float, **payload: object) -> Row:
    named = {"call_id": call_id} if call_id else {}
    return event("tool_result", {"tool": "grep", "output": "out", **named, **payload}, at=at)


def test_tool_calls_join_the_call_with_its_result() -> None:
    rows = [
        called("c1", "c2", checkpoint="k1"),
        result("c1", at=1, ok=False, error_class="timeout", duration_ms=9),
        result("c9", at=2, ok=True),
    ]
    first, open_call, alone = query("from tool_calls order by call_id", rows)
    assert (first["tool"], json.loads(first["arguments"])) == ("grep", {"q": "c1"})
    assert (first["ok"], first["error_class"], first["duration_ms"]) == (False, "timeout", 9)
    assert (first["ts"], first["called_ts"]) == (START, START)
    assert first["result_ts"] == START + dt.timedelta(seconds=1)
    assert (first["checkpoint"], first["model_call_id"]) == ("k1", "m0")
    assert (open_call["call_id"], open_call["ok"], open_call["result_ts"]) == ("c2", None, None)
    assert (alone["call_id"], alone["ok"], alone["called_ts"]) == ("c9", True, None)
    assert (alone["tool"], alone["ts"]) == ("grep", START + dt.timedelta(seconds=2))


def test_duplicates_of_a_call_id_are_one_row_and_the_earliest_counts() -> None:
    rows = [
        called("c1", "c1", at=0),
        called("c1", at=5, tool="later"),
        result("c1", at=2, ok=True, output="first"),
        result("c1", at=3, ok=False, output="second"),
        called("c1", at=1, session_id="s-2"),
    ]
    first, other = query("from tool_calls order by session_id", rows)
    assert (first["tool"], first["ok"], first["output"]) == ("grep", True, "first")
    assert (other["session_id"], other["ok"]) == ("s-2", None)


def test_calls_and_results_without_an_id_stay_apart() -> None:
    rows = [called(None, at=0), called(None, at=1), result(None, at=2), result(None, at=3)]
    assert len(query("from tool_calls", rows)) == 4


def test_turns_begin_at_user_messages_and_what_precedes_them_is_turn_0() -> None:
    rows = [
        event("session_start", at=0),
        event("model_call", {"usage": {"prompt": 3}}, at=1),
        event("user_message", {"text": "one"}, at=2, seq=1),
        event("model_call", {"usage": {"prompt": 5, "completion": 2}}, at=2, seq=2),
        result("c1", at=3, ok=False),
        event("edit", at=4),
        event("user_message", {"text": "two"}, at=5),
        event("interrupt", at=6),
        event("user_message", {"text": "elsewhere"}, at=1, session_id="s-2"),
    ]
    zero, one, two, other = query("from turns order by session_id, turn", rows)
    assert [zero["turn"], one["turn"], two["turn"], other["turn"]] == [0, 1, 2, 1]
    assert [zero["text"], one["text"], two["text"]] == [None, "one", "two"]
    assert (zero["prompt_tokens"], zero["events"], zero["seq"]) == (3, 2, None)
    assert (one["prompt_tokens"], one["completion_tokens"], one["seq"]) == (5, 2, 1)
    assert (one["tool_calls"], one["failed_tool_calls"], one["edits"]) == (1, 1, 1)
    assert (one["ts"], one["last_ts"]) == (
        START + dt.timedelta(seconds=2),
        START + dt.timedelta(seconds=4),
    )
    assert two["interrupts"] == 1


def test_sessions() -> None:
    start = {"client": "ed", "repo": "r", "consent": "train", "group_id": "g", "link": "fork"}
    rows = [
        event("session_start", start, at=0, user="u1", project="p", checkpoint="k2"),
        event("user_message", {"text": "x"}, at=1, checkpoint="k1"),
        event("model_call", {"usage": {"prompt": 3, "completion": 4}, "model": "m"}, at=2),
        event("model_call", {"text": "no model said"}, at=2),
        result("c1", at=3, ok=False),
        result("c2", at=4, ok=True),
        result("c3", at=5, output='{"ok": false}'),
        event("session_end", {"reason": "completed"}, at=10, user="u2"),
        event("x_other", at=1, session_id="s-2", consent="train"),
    ]
    one, two = query("from sessions order by session_id", rows)
    assert (one["events"], one["duration_s"]) == (8, 10.0)
    assert (one["user"], one["project"], one["checkpoint"]) == ("u2", "p", "k1")
    assert one["checkpoints"] == ["k1", "k2"]
    assert (one["user_messages"], one["model_calls"], one["model"]) == (1, 2, "m")
    assert (one["tool_calls"], one["failed_tool_calls"]) == (3, 1)
    assert (one["prompt_tokens"], one["completion_tokens"]) == (3, 4)
    assert (one["client"], one["repo"], one["group_id"], one["link"]) == ("ed", "r", "g", "fork")
    assert (one["end_reason"], one["consent"], one["branch"]) == ("completed", "train", None)
    assert (two["events"], two["checkpoints"], two["consent"]) == (1, [], "train")
    assert two["model"] is None


LINKS = {
    "a": None, "b": ("a", "compaction"), "c": ("b", "subagent"), "d": ("c", "compaction"),
    "fork": ("d", "fork"), "below": ("fork", "subagent"), "lost": ("gone", "subagent"),
    "r2": ("r3", "compaction"), "r3": ("r1", "compaction"), "r1": ("r2", "compaction"),
    "into": ("r2", "subagent"), "again": ("a", "subagent"),
    **{f"long{at:02d}": (f"long{at - 1:02d}", "compaction") for at in range(1, 50)},
}  # fmt: skip


def test_a_session_knows_the_chain_that_it_is_of() -> None:
    """The session that the work began with, however far above; of a ring, the least."""
    rows = [
        event(
            "session_start",
            link and {"parent_session": link[0], "link": link[1]},
            session_id=session,
        )
        for session, link in LINKS.items()
    ]
    # The latest start counts, and says nothing of a parent.
    rows.append(event("session_start", {"client": "ed"}, at=5, session_id="again"))
    found = {row["session_id"]: row["chain"] for row in query("from sessions", rows)}
    links = {
        SessionId("acme", session): Link(SessionId("acme", link[0]), link[1])
        for session, link in LINKS.items()
        if link is not None and link[1] != "fork" and session != "again"
    }
    places = {session.session_id: place.chain for session, place in places_of(links).items()}
    assert found == {session: places.get(session, session) for session in LINKS}
    assert [found[name] for name in ("d", "below", "lost", "r3", "into", "again", "long49")] == [
        "a", "fork", "gone", "r1", "r1", "again", "long00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "column", "consent"),
    [
        ("train", "no_train", "no_train"),
        ("no_train", "train", "no_train"),
        ("unknown", "train", "train"),
        ("train", "unknown", "train"),
        (None, "unknown", "unknown"),
    ],
)
def test_the_strongest_consent_counts(said: str | None, column: str, consent: str) -> None:
    rows = [event("session_start", {"consent": said}), event("edit", at=1, consent=column)]
    assert query("select consent from sessions", rows) == [{"consent": consent}]


def test_tenants_stay_apart_and_parts_are_sorted() -> None:
    rows = [event("edit", tenant=t, session_id=s) for t in "ba" for s in ("y", "x", "y")]
    parts = summarise(table(rows)).to_pylist()
    assert [(p["tenant"], p["session_id"], p["events"]) for p in parts] == [
        ("a", "x", 1), ("a", "y", 2), ("b", "x", 1), ("b", "y", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("view", [v for v in VIEWS if v != "sessions"])
def test_a_filter_on_the_session_reaches_every_scan(view: str, tmp_path: Path) -> None:
    filters = scan_filters(view, "session_id = 's-1'", tmp_path)
    assert filters
    assert all("session_id" in found for found in filters)


@pytest.mark.parametrize("view", [v for v in VIEWS if v not in {"sessions", "tool_calls", "turns"}])
def test_a_filter_on_the_time_reaches_the_scan(view: str, tmp_path: Path) -> None:
    (found,) = scan_filters(view, "ts > timestamptz '2026-11-21 10:00:01+00'", tmp_path)
    assert "ts" in found


def scan_filters(view: str, condition: str, directory: Path) -> list[str]:
    """What each Parquet scan filters in the plan of a count over `view`."""
    path = directory / "events.parquet"
    kinds = ["user_message", "model_call", "tool_result", "edit", "file_observed", "feedback"]
    rows = [
        event(kind, at=second, session_id=f"s-{second}") for kind in kinds for second in range(3)
    ]
    pq.write_table(table(rows), path)
    with connect() as connection:
        connection.execute(f"CREATE VIEW event_rows AS FROM read_parquet('{path}')")
        connection.execute(f"CREATE VIEW {view} AS {sql_of(f'query/views/{view}.sql')}")
        plan = connection.sql(
            f"EXPLAIN (FORMAT json) SELECT count(*) FROM {view} WHERE {condition}"
        ).to_arrow_table()
    return list(_filters(json.loads(plan.to_pylist()[0]["explain_value"])))


def _filters(nodes: list[Row]) -> Iterator[str]:
    for node in nodes:
        if node["name"].strip().endswith(("PARQUET_SCAN", "READ_PARQUET", "TABLE_SCAN")):
            yield json.dumps(node["extra_info"].get("Filters", ""))
        yield from _filters(node["children"])
