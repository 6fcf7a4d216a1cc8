"""The console over HTTP, as no browser asks: headers, roles, forged forms, sessions that end."""

import json
import re
from collections.abc import Iterator

import pytest

from penstock.access import ROLES
from penstock.access.keys import create_key, list_keys, revoke_key
from penstock.core.settings import load_settings
from penstock.doors.console.page import all_pages, assets
from penstock.doors.console.sign_in import form_proof
from penstock.lake.lake import open_or_make
from penstock_jobs.simulator.demo.server import running_server
from tests.support.console_visits import Visits
from tests.support.waiting import eventually

_SCRIPT_AND_STYLE_BYTES_MAX = 300_000


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visits]:
    data = tmp_path_factory.mktemp("console")
    with open_or_make(load_settings(data, environment={})) as lake:
        keys: dict[str, str] = {
            role: create_key(lake.database, role, "default")[1] for role in ROLES
        }
        keys["short-lived"] = create_key(lake.database, "read", "default", "short-lived")[1]
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
