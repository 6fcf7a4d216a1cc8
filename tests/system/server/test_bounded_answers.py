"""Whatever is asked, by whatever route or page, costs the service no more than its bounds:
statements whose answers are small as Arrow and huge as text, and events that are small on disk and
huge as values. Routes and pages are those of the application: a new one is walked by itself."""

import http.client
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints
from urllib.parse import quote, urlencode

import msgspec
import pytest

from penstock.access.keys import create_key
from penstock.core.settings import MIB
from penstock.doors.console.page import ConsolePage, all_pages
from penstock.lake.client import ARROW_STREAM
from penstock_jobs.simulator.demo.server import running_server
from tests.support.console_visits import Visits
from tests.support.lakes import hand_lake, make_event

ANSWER_BYTES_MAX = 16 * MIB
KEY = "read"
#: Of the tests' own tenant; what else a route asks for need not be there.
SESSIONS = ("deep", "many", "edits", "calls")


def hostile_events(name: str) -> Iterator[dict[str, Any]]:
    """Small where they are stored, and large as values, entries or lines."""
    many = [True] * 200_000
    for number in range(3_000 if name == "many" else 12):
        facts: dict[str, Any] = {"type": "x_many", "payload": {}}
        if name == "deep":
            facts = {"type": "x_deep", "payload": {"values": many}}
        elif name == "edits":
            texts = {"before": "x\n" * 100_000, "after": "y\n" * 100_000}
            facts = {"type": "edit", "payload": {"edit_id": f"e{number}", "path": "a.py"} | texts}
        elif name == "calls":
            call = {"id": "c", "name": "n", "arguments": {"values": many}}
            ids = {"prompt_ids": [1] * 50_000, "completion_ids": [1] * 50_000}
            tokens = ids | {"logprobs": [0.0] * 50_000, "tokenizer": "t" * 64}
            facts = {"type": "model_call", "payload": {"call_id": f"c{number}", "model": "m"}}
            facts["payload"] |= {"text": "t", "tool_calls": [call], "tokens": tokens}
        yield make_event(name, number, user="u" * 500, **facts)


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visits]:
    data = tmp_path_factory.mktemp("bounded")
    with hand_lake(data) as lake:
        for name in SESSIONS:
            for event in hostile_events(name):
                lake.send([event])
            lake.writer().drain()
        key = create_key(lake.lake.database, "admin", "default")[1]
    settings = {"query_memory_bytes_max": 256 * MIB, "query_answer_bytes_max": ANSWER_BYTES_MAX}
    settings["query_seconds_max"] = 30
    lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
    (data / "penstock.toml").write_text(lines)
    with running_server(data, "--role", "console") as server:
        visits = Visits(server, data, {KEY: key})
        walk(visits, ("nothing",))  # what is loaded at first use
        yield visits


def peak_bytes(visits: Visits) -> int:
    """The most memory that the service ever had."""
    status = Path(f"/proc/{visits.server.process.pid}/status").read_text()
    [line] = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return 1024 * int(line)


def openapi(visits: Visits) -> dict[str, Any]:
    paths: dict[str, Any] = visits.server.client().get("/openapi.json").json()
    return paths


def addresses(visits: Visits, session: str) -> Iterator[str]:
    """Every route and page that is got, with what it has to be asked."""
    for path, methods in openapi(visits)["paths"].items():
        if (operation := methods.get("get")) is not None:
            needed = [each for each in operation.get("parameters", ()) if each.get("required")]
            query = {
                each["name"]: 1 if each["schema"].get("type") == "integer" else session
                for each in needed
                if each["in"] == "query"
            }
            yield filled(path, session) + (f"?{urlencode(query)}" if query else "")
    for page in all_pages():
        if page.method == "GET" and "sql" not in page.request.__struct_fields__:
            needed = [each for each in msgspec.structs.fields(page.request) if each.required]
            query = {each.name: session for each in needed if f"{{{each.name}" not in page.path}
            yield filled(page.path, session) + (f"?{urlencode(query)}" if query else "")


def filled(path: str, session: str) -> str:
    return re.sub(r"{[^}]*}", quote(session), path)


def walk(visits: Visits, sessions: tuple[str, ...]) -> list[tuple[int, str]]:
    cookie, key = visits.session(KEY), f"Bearer {visits.keys[KEY]}"
    asked = {address for session in sessions for address in addresses(visits, session)}
    return [
        (visits.ask("GET", address, cookie, Authorization=key).status, address)
        for address in sorted(asked)
    ]


def test_no_route_and_no_page_holds_more_of_a_session_than_its_bounds(visits: Visits) -> None:
    before = peak_bytes(visits)
    walked = walk(visits, SESSIONS)
    assert [each for each in walked if each[0] >= 500] == []
    shown = {address for status, address in walked if status == 200}
    for name in SESSIONS:
        ways = {f"/v1/sessions/{name}", f"/sessions/{name}", f"/session-file/{name}"}
        assert ways <= shown, walked
    assert peak_bytes(visits) - before < 4 * ANSWER_BYTES_MAX


#: Small as Arrow, and huge as text or as values of Python.
BOMBS = [
    "select repeat([{'a': true}], 3000000) as a, map {'a': repeat([null], 3000000)} as b",
    "select union_value(a := repeat([true], 5000000)) as a, repeat('x', 50000000) as b",
    "select true as a, null as b from range(5000000)",
]


def asks_sql(page: ConsolePage[Any]) -> Iterator[str]:
    """The addresses of a page that takes a statement, one for each value of its other choices."""
    if "sql" not in page.request.__struct_fields__:
        return
    hints = get_type_hints(page.request)
    needed = [each.name for each in msgspec.structs.fields(page.request) if each.required]
    choices = [name for name in needed if name != "sql"]
    for name in choices:
        yield from (f"{page.path}?{name}={value}&" for value in get_args(hints[name]))
    if not choices:
        yield f"{page.path}?"


@pytest.mark.parametrize("sql", BOMBS)
def test_no_answer_of_a_statement_costs_the_service_more_than_its_limit(
    visits: Visits, sql: str
) -> None:
    cookie, key = visits.session(KEY), f"Bearer {visits.keys[KEY]}"
    pages = [address for page in all_pages() for address in asks_sql(page)]
    document = openapi(visits)
    posted = [
        path
        for path, methods in document["paths"].items()
        if '"sql"' in msgspec.json.encode(methods.get("post", {})).decode()
        or "QueryRequest" in str(methods.get("post", {}))
    ]
    assert (len(pages), posted) == (4, ["/v1/query"])
    before = peak_bytes(visits)
    for address in pages:
        status = visits.ask("GET", address + urlencode({"sql": sql}), cookie).status
        assert status in (200, 400, 408, 422), address
    for path in posted:
        for accept in ("application/json", ARROW_STREAM):
            body = msgspec.json.encode({"sql": sql})
            host = visits.server.url.removeprefix("http://")
            connection = http.client.HTTPConnection(host, timeout=60)
            headers = {"Authorization": key, "Accept": accept, "Content-Type": "application/json"}
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (200, 408, 422), (accept, answer.status)
    assert peak_bytes(visits) - before < 3 * ANSWER_BYTES_MAX
