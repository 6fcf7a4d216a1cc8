"""What a read key can do to a running service and to the other tenants with SQL: nothing."""

import json
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key
from penstock.backends.http.client import HttpAnswer
from penstock.lake.lake import open_existing
from tests.support.service import ENGINE_BYTES, Service

MIB = 1024 * 1024
ARROW_STREAM = "application/vnd.apache.arrow.stream"
ENDLESS = "select sum(a.range * b.range) from range(10000000) a, range(10000000) b"
#: What the kernel alone can end: it answers no interrupt.
UNINTERRUPTIBLE = "select levenshtein(repeat('ab', 500000), repeat('ba', 500000))"
Starter = Callable[..., Any]


@pytest.fixture(scope="module")
def service(start: Starter) -> Iterator[Service]:
    """With little memory and much time for a query."""
    limits = {
        "query_seconds_max": 60,
        "query_memory_bytes_max": 256 * MIB,
        "query_answer_bytes_max": 16 * MIB,
    }
    with start(**limits) as running:
        yield running


def ask(service: Service, sql: str, key: str = "read", **headers: str) -> HttpAnswer:
    return service.post("/v1/query", json.dumps({"sql": sql}).encode(), key, **headers)


def detail(reply: HttpAnswer, *statuses: int) -> str:
    """Of a problem that says nothing of what is inside."""
    assert reply.status in statuses, reply.body
    assert reply.headers["content-type"] == "application/problem+json"
    text: str = reply.json()["detail"]
    for sign in ("Traceback", "Stack", "site-packages", ".so", "duckdb::", str(Path.home())):
        assert sign not in text
    assert not re.search(r"0x[0-9a-f]{6,}", text)
    return text


@contextmanager
def asking(service: Service, sql: str, key: str = "read") -> Iterator[socket.socket]:
    """A bare connection on which a query was sent."""
    host, port = service.server.url.removeprefix("http://").split(":")
    body = json.dumps({"sql": sql})
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        head = f"POST /v1/query HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.keys[key]}"
        text = f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        connection.sendall(text.encode())
        yield connection


def children(pid: int) -> list[int]:
    """Of all threads of a process; one that has just ended has none."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def sockets_of(pid: int) -> set[str]:
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.add(str(file.readlink()))
    return {target for target in found if target.startswith("socket:")}


def fork_servers(service: Service) -> list[int]:
    """One, from the first statement on."""
    return [
        child
        for child in children(service.gateway)
        if b"statement_server" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def statements(service: Service) -> list[int]:
    return [process for server in fork_servers(service) for process in children(server)]


def stood_back(service: Service) -> list[int]:
    """Statements, by their priority. Their server also has other processes for a moment."""
    with suppress(ProcessLookupError):
        found = statements(service)
        return [child for child in found if os.getpriority(os.PRIO_PROCESS, child) == 15]
    return []


def running(service: Service) -> int:
    return int(service.metric("queries_running"))


# What an answer may cost the service


@pytest.mark.smoke
def test_a_large_value_costs_the_service_no_more_than_an_answer(service: Service) -> None:
    """A list of nulls has no bytes as Arrow, and eight for each null as a list of Python's."""
    large = "select repeat('x', 100000000) as a"
    ask(service, "select 1 as a")
    before = service.peak_bytes()
    detail(ask(service, "select list_transform(range(20000000), lambda x: null) as a"), 422)
    detail(ask(service, large), 400, 422)
    detail(ask(service, large, Accept=ARROW_STREAM), 400, 422)
    assert service.peak_bytes() - before < 64 * MIB + ENGINE_BYTES


def test_answers_that_nobody_fetches_are_bounded_for_each_tenant(service: Service) -> None:
    """Two of 16 MiB are half of what the four slots together may hold."""
    sql = "select repeat('x', 16000000) as a"
    with ExitStack() as opened:
        replies = []
        for _ in range(2):
            connection = opened.enter_context(asking(service, sql))
            replies.append(connection.recv(12, socket.MSG_WAITALL))
        assert replies == [b"HTTP/1.1 200"] * 2
        assert "were not fetched yet" in detail(ask(service, sql), 429)
        assert ask(service, "select 1 as a").status == 200, "small answers are not held"
        assert ask(service, sql, "bolt").status == 200, "another tenant's are not counted"
    service.wait_for(lambda: ask(service, sql).status == 200)


def test_two_tenants_with_long_statements_keep_no_other_waiting(service: Service) -> None:
    with open_existing(service.data) as lake:
        third = create_key(lake.database, "read", "third")[1]
    with ExitStack() as opened:
        for key in ("read", "read", "bolt", "bolt"):
            opened.enter_context(asking(service, ENDLESS, key))
        service.wait_for(lambda: running(service) >= 4)
        for number in range(3):
            reply = ask(service, f"select {number} as n", third)
            assert (reply.status, reply.json()["rows"]) == (200, [{"n": number}])


# What an answer says


@pytest.mark.parametrize(
    "value",
    [
        "map {[1]: 2}", "map {null: 1}", "map {{'a': 1}: 2}", "map {1.5: 2, 'x': 3}",
        "170141183460469231731687303715884105727::hugeint", "(2 ** 64)::uhugeint",
        "'infinity'::timestamp", "'-infinity'::date", "date '290000-01-01'", "'nan'::double",
        "timestamp_ns '2026-01-01 00:00:00.123456789'", "timetz '10:00:00+02'", "time '24:00:00'",
        "interval '1000000' year", "'\\xff\\x00'::blob", "'101'::bit", "uuid()", "'{}'::json",
        "union_value(a := 1)", "[null, [1]]", "[1, 2]::integer[2]", "{'a': {'b': [null]}}",
        "12345678901234567890123456789012345678::decimal(38)", "'a'::enum('a', 'b')",
        "1::variant", "row(1, 'a')", "[]", "{'': 1}",
        "'\\u0000'", "chr(0)", "chr(1114111)", "'1 1'::geometry", "null",
    ],
)  # fmt: skip
@pytest.mark.parametrize("accept", ["application/json", ARROW_STREAM])
def test_every_type_is_shown_or_named(service: Service, value: str, accept: str) -> None:
    reply = ask(service, f"select {value} as a", Accept=accept)
    if reply.status != 200:
        detail(reply, 400)


def test_a_damaged_file_of_the_lake_is_not_named(start: Starter) -> None:
    event = {
        "session_id": "s",
        "ts": "2026-11-21T10:00:00Z",
        "type": "user_message",
        "payload": {"text": "x"},
    }
    with start(flush_seconds_max=0.1) as service:
        assert service.post("/v1/events", json.dumps(event).encode()).json()["accepted"] == 1
        service.wait_for(lambda: service.metric("events_stored_total") == 1)
        stored = list((service.data / "lake").rglob("*.parquet"))
        assert stored
        for path in stored:
            path.write_bytes(b"PAR1 nothing")
        text = detail(ask(service, "select * from events"), 400, 500)
        assert str(service.data) not in text
        assert all(path.name not in text for path in stored)


@pytest.fixture(scope="module")
def hasty_service(start: Starter) -> Iterator[Service]:
    with start(query_seconds_max=1) as running:
        yield running


@pytest.mark.parametrize("accept", ["application/json", ARROW_STREAM])
@pytest.mark.parametrize(
    "sql",
    [
        "select a.range from range(10000000) a, range(10000) b "
        "where hash(a.range, b.range) % 1000000 = 0",
        f"select 1 as a union all ({ENDLESS})",
        "select * from (values (1), (2), (3)) a, (select levenshtein(repeat('ab', a.range::int * "
        "500000), repeat('ba', 500000)) from range(2) a)",
    ],
)
def test_the_time_limit_in_the_middle_of_the_rows_is_named(
    hasty_service: Service, sql: str, accept: str
) -> None:
    """The answer begins when it is whole: what ends it earlier is a status of its own."""
    text = detail(ask(hasty_service, sql, Accept=accept), 422)
    assert "reached its limit of 1 s" in text
    assert "PENSTOCK_QUERY_SECONDS_MAX" in text


@pytest.mark.parametrize("accept", ["application/json", ARROW_STREAM])
def test_an_error_in_the_middle_of_the_rows_is_named(service: Service, accept: str) -> None:
    sql = "select case when range < 50000 then '1' else 'x' end::integer as a from range(60000)"
    assert "Conversion Error" in detail(ask(service, sql, Accept=accept), 400)


# What a query may hold up


def test_a_query_ends_when_its_client_is_gone(service: Service) -> None:
    with asking(service, ENDLESS), asking(service, UNINTERRUPTIBLE):
        service.wait_for(lambda: len(statements(service)) == 2)
    service.wait_for(lambda: not statements(service))
    service.wait_for(lambda: not running(service))


def test_four_slow_queries_of_a_tenant_leave_the_others_their_slots(service: Service) -> None:
    with ExitStack() as opened:
        for sql in (ENDLESS, UNINTERRUPTIBLE, ENDLESS, UNINTERRUPTIBLE):
            opened.enter_context(asking(service, sql))
        service.wait_for(lambda: running(service) == 4)
        assert ask(service, "select count(*) as n from events", "bolt").status == 200
        assert running(service) == 4, "they run or wait still"
        service.wait_for(lambda: len(statements(service)) == 2)
        assert service.get("/readyz").status == 200
    service.wait_for(lambda: not running(service))


def test_what_waits_is_bounded(service: Service) -> None:
    """Two run, and half of the places to wait are one tenant's."""
    with ExitStack() as opened:
        for _ in range(2 + 32):
            opened.enter_context(asking(service, ENDLESS))
        service.wait_for(lambda: running(service) == 34)
        assert "32 of its queries wait already" in detail(ask(service, "select 1"), 429)
        assert ask(service, "select 1 as a", "bolt").status == 200
    service.wait_for(lambda: not running(service))


WORST = [
    "select \"=\"({'a': 1}, 1.5)",
    "select from_json('{}', '" + "[" * 60_000 + "')",
    "select json_structure(repeat('[', 3000000) || repeat(']', 3000000))",
    "select json_normalize(repeat('[', 3000000) || repeat(']', 3000000))",
    UNINTERRUPTIBLE,
    "select list(range || repeat('x', 1000)) from range(100000000)",
    "select length(repeat('x', 4000000000)), length(repeat('y', 4000000000))",
    "select list_sort(list_transform(range(30000000), lambda x: hash(x)))",
    "select regexp_matches(repeat('a', 50000000), '(x+x+)+y')",
    "with recursive r(s) as (select 'a' union all select s || s from r) select max(s) from r",
    "select unnest(range(1000000000))",
    "select repeat('x', 200000000), repeat('y', 200000000)",
    "select " + "(" * 50_000 + "1" + ")" * 50_000,
    "select * from '/etc/passwd'",
]


def test_the_worst_of_a_tenant_never_keeps_another_from_its_answer(start: Starter) -> None:
    """After each, and while it runs."""
    with start(query_seconds_max=1, query_memory_bytes_max=128 * MIB) as service:
        replies: dict[str, HttpAnswer] = {}

        def attack(statements: list[str]) -> None:
            for sql in statements:
                replies[sql] = ask(service, sql)

        attackers = [threading.Thread(target=attack, args=(WORST[one::4],)) for one in range(4)]
        for attacker in attackers:
            attacker.start()
        answered = 0
        while any(attacker.is_alive() for attacker in attackers) or not answered:
            assert ask(service, "select 1 as a", "bolt").json()["rows"] == [{"a": 1}]
            answered += 1
        for attacker in attackers:
            attacker.join()
        assert answered >= len(WORST)
        for reply in replies.values():
            if reply.status != 200:
                detail(reply, 400, 422)
        assert len(replies) == len(WORST)
        assert service.peak_bytes() < 1024 * MIB


# The processes


def test_a_query_whose_fork_server_is_killed_is_named_and_the_next_is_answered(
    service: Service,
) -> None:
    replies: list[HttpAnswer] = []
    # One of a statement before, which is about to end, would pass for the endless one's.
    service.wait_for(lambda: not statements(service))
    asker = threading.Thread(target=lambda: replies.append(ask(service, ENDLESS)))
    asker.start()
    service.wait_for(lambda: len(statements(service)) == 1)
    [child] = statements(service)
    [server] = fork_servers(service)
    os.kill(server, signal.SIGKILL)
    asker.join()
    assert "its process ended" in detail(replies[0], 400)
    assert ask(service, "select 1 as a").status == 200
    service.wait_for(lambda: not Path(f"/proc/{child}").exists())


def test_statements_stand_back_for_the_service(service: Service) -> None:
    """Linux may weigh sessions against each other: in one of their own they would have half."""
    with asking(service, ENDLESS):
        service.wait_for(lambda: len(stood_back(service)) == 1)
        [child] = stood_back(service)
        assert os.getsid(child) == os.getsid(service.server.process.pid)
        assert os.getpgid(child) != os.getpgid(service.server.process.pid), "Ctrl-C reaches it"
    service.wait_for(lambda: not running(service))


def test_a_process_has_no_files_but_its_own(service: Service) -> None:
    """Above all no socket of another tenant's statement."""

    def sockets() -> list[set[str]]:
        return [sockets_of(child) for child in statements(service)]

    with asking(service, ENDLESS), asking(service, ENDLESS, "bolt"):
        service.wait_for(lambda: [len(own) for own in sockets()] == [1, 1])
        first, second = sockets()
        assert first != second
    service.wait_for(lambda: not running(service))
