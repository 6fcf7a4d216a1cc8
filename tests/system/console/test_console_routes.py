"""The console over HTTP, as no browser asks: headers, roles, forged forms, sessions that end."""

import http.client
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest

from penstock.access import ROLES
from penstock.access.keys import create_key, list_keys, revoke_key
from penstock.core.settings import MIB, load_settings
from penstock.doors.console.page import all_pages
from penstock.doors.console.sign_in import form_proof
from penstock.doors.console.templates import assets
from penstock.lake.lake import open_or_make
from penstock_jobs.simulator.demo.server import Server, running_server
from tests.support.waiting import eventually

_SCRIPT_AND_STYLE_BYTES_MAX = 300_000


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: str

    def cookies(self) -> dict[str, str]:
        lines = self.headers.get_all("set-cookie", [])
        return dict(line.split(";")[0].split("=", 1) for line in lines)


ANSWER_BYTES_MAX = 16 * MIB


@dataclass
class Visits:
    """A service, and the keys of its tenant by role."""

    server: Server
    data: Path
    keys: dict[str, str]

    def ask(
        self, method: str, path: str, cookie: str = "", form: object = None, **headers: str
    ) -> Reply:
        host = self.server.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=60)
        sent = {"Cookie": cookie} if cookie else {}
        body = None
        if form is not None:
            body = urlencode(form)  # type: ignore[arg-type]
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, body, sent | headers)
        answer = connection.getresponse()
        reply = Reply(answer.status, answer.headers, answer.read().decode(errors="replace"))
        connection.close()
        return reply

    def sign_in(self, key: str) -> Reply:
        form_page = self.ask("GET", "/sign-in")
        [(name, cookie)] = form_page.cookies().items()
        fields = {"key": key, "form_proof": form_proof(cookie)}
        return self.ask("POST", "/sign-in", f"{name}={cookie}", fields)

    def session(self, role: str) -> str:
        """The cookie of a browser that signed in."""
        cookies = self.sign_in(self.keys[role]).cookies()
        [name] = [name for name in cookies if "session" in name]
        return f"{name}={cookies[name]}"


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visits]:
    data = tmp_path_factory.mktemp("console")
    with open_or_make(load_settings(data, environment={})) as lake:
        keys: dict[str, str] = {
            role: create_key(lake.database, role, "default")[1] for role in ROLES
        }
        keys["short-lived"] = create_key(lake.database, "read", "default", "short-lived")[1]
    settings = {"query_memory_bytes_max": 256 * MIB, "query_answer_bytes_max": ANSWER_BYTES_MAX}
    lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
    (data / "penstock.toml").write_text(lines)
    with running_server(data, "--role", "console") as server:
        yield Visits(server, data, keys)


def test_whoever_is_not_signed_in_is_asked_to(visits: Visits) -> None:
    for page in all_pages():
        if page.method == "GET" and "{" not in page.path:
            reply = visits.ask("GET", page.path)
            assert reply.status == 303, page.path
            assert reply.headers["location"].startswith("/sign-in")
    assert visits.ask("GET", "/", "penstock-session=forged").status == 303
    assert visits.ask("GET", "/", **{"Penstock-Fragment": "1"}).status == 401


@pytest.mark.smoke
def test_each_page_is_for_its_roles_alone(visits: Visits) -> None:
    for role in ROLES:
        cookie = visits.session(role)
        for page in all_pages():
            path = re.sub(r"{[^}]*}", "1", page.path)
            reply = visits.ask(page.method, path, cookie, {} if page.method == "POST" else None)
            allowed = role in (*page.roles, "admin")
            if page.path == "/" and not allowed:  # begins at a page of its own
                assert reply.status == 303
                continue
            refused = "this needs the role" in reply.body
            assert refused != allowed, (role, page.path, reply.status)


@pytest.mark.smoke
def test_pages_and_assets_have_their_headers(visits: Visits) -> None:
    page = visits.ask("GET", "/", visits.session("read"))
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    assert not re.search(r" style=|<style|<script(?![^>]*src=)| on\w+=", page.body)
    assert not re.search(r"(?:src|href)=\"(?!/|#|\?)", page.body)
    for address in re.findall(r'(?:src|href)="(/assets/[^"]*)"', page.body):
        asset = visits.ask("GET", address)
        assert asset.status == 200
        assert "immutable" in asset.headers["cache-control"]
    assert visits.ask("GET", "/assets/0000/console.css").status == 404


def test_an_address_of_nothing_is_a_page_for_browsers_alone(visits: Visits) -> None:
    page = visits.ask("GET", "/nowhere", Accept="text/html,*/*")
    assert (page.status, "There is nothing at this address." in page.body) == (404, True)
    for problem in (
        visits.ask("GET", "/nowhere"),
        visits.ask("GET", "/v1/nowhere", Accept="text/html,*/*"),
    ):
        assert (problem.status, json.loads(problem.body)["status"]) == (404, 404)


def test_a_suite_that_nobody_tried_and_a_time_that_is_none_say_what_to_do(visits: Visits) -> None:
    cookie = visits.session("read")
    suite = visits.ask("GET", "/suites/nothing", cookie)
    assert (suite.status, "No checkpoint has results at a suite" in suite.body) == (404, True)
    sessions = visits.ask("GET", "/sessions?since=soon", cookie)
    assert sessions.status == 400
    assert "since soon" in sessions.body
    assert "--since" not in sessions.body


def test_script_and_style_are_small() -> None:
    assert sum(map(len, assets().contents.values())) < _SCRIPT_AND_STYLE_BYTES_MAX


def test_the_cookie_of_a_session_is_the_browsers_alone_and_needs_a_known_key(
    visits: Visits,
) -> None:
    lines = visits.sign_in(visits.keys["read"]).headers.get_all("set-cookie", [])
    [line] = [line for line in lines if "session" in line]
    assert "HttpOnly" in line
    assert "samesite=strict" in line.lower()
    reply = visits.sign_in("pk_read_" + "x" * 32)
    assert reply.status == 401
    assert "no known key" in reply.body
    assert not any("session" in name for name in reply.cookies())


def test_a_form_without_its_proof_does_nothing(visits: Visits) -> None:
    assert visits.ask("POST", "/sign-in", form={"key": visits.keys["read"]}).status == 403
    cookie = visits.session("read")
    assert visits.ask("POST", "/sign-out", cookie, {"form_proof": "x"}).status == 403
    assert visits.ask("GET", "/", cookie).status == 200
    proof = {"form_proof": form_proof(cookie.split("=")[1])}
    evil = {"Sec-Fetch-Site": "cross-site"}
    assert visits.ask("POST", "/sign-out", cookie, proof, **evil).status == 403
    assert visits.ask("POST", "/sign-out", cookie, proof).status == 303
    assert visits.ask("GET", "/", cookie).status == 303


def test_revoking_a_key_ends_its_sessions(visits: Visits) -> None:
    cookie = visits.session("short-lived")
    assert visits.ask("GET", "/", cookie).status == 200
    with open_or_make(load_settings(visits.data, environment={})) as lake:
        [key] = [key for key in list_keys(lake.database) if key.note == "short-lived"]
        revoke_key(lake.database, key.id)
    # The service reads the keys again every few seconds.
    eventually(lambda: visits.ask("GET", "/", cookie).status == 303)


# What a person's statement makes is made in the statement's own process


def peak_bytes(pid: int) -> int:
    """The most memory that the process ever had."""
    [line] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return 1024 * int(line)


#: Small as Arrow, and huge as text or as values of Python.
BOMBS = [
    "select repeat([{'a': true}], 3000000) as a, map {'a': repeat([null], 3000000)} as b",
    "select union_value(a := repeat([true], 5000000)) as a, repeat('x', 50000000) as b",
    "select true as a, null as b from range(5000000)",
]
WAYS = ["/query?", "/query/rows?format=csv&", "/query/rows?format=parquet&"]
WAYS += ["/query/rows?format=arrow&"]


@pytest.mark.parametrize("sql", BOMBS)
def test_no_answer_of_a_statement_costs_the_service_more_than_its_limit(
    visits: Visits, sql: str
) -> None:
    cookie = visits.session("read")
    visits.ask("GET", "/query?" + urlencode({"sql": "select 1"}), cookie)
    before = peak_bytes(visits.server.process.pid)
    for way in WAYS:
        status = visits.ask("GET", way + urlencode({"sql": sql}), cookie).status
        assert status in (200, 400, 422), way
    assert peak_bytes(visits.server.process.pid) - before < 2 * ANSWER_BYTES_MAX
