"""The pages of the service in a real Chromium: a rejected line is replayed, a key is made and
revoked, the ledger and the audit are read."""

from collections.abc import Iterator

import pytest

from penstock.backends.http.client import ServiceClient
from tests.support.console_fixtures import (
    HOSTILE_TEXT,
    ConsoleService,
    SignIn,
    assert_accessible,
    assert_not_hacked,
    console_running,
)
from tests.support.waiting import eventually

_PATHS = ("/health", "/ledger", "/ledger?all_hours=true", "/rejected", "/keys", "/audit")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    with console_running(tmp_path_factory.mktemp("service")) as running:
        with ServiceClient(running.url, running.keys["ingest"], 60) as client:
            answer = client.post("/v1/events", f"{HOSTILE_TEXT}\n{{}}\n".encode())
            assert answer.status == 200, answer.body
            eventually(lambda: client.get("/v1/rejected").json()["lines"])
        yield running


def test_all_pages_are_accessible_and_show_text(service: ConsoleService, sign_in: SignIn) -> None:
    for width, scheme in ((1440, "light"), (390, "dark")):
        page = sign_in(service, "admin", width=width, scheme=scheme)
        for path in _PATHS:
            page.goto(path)
            assert page.locator("h1").count() == 1
            assert_accessible(page)
            assert_not_hacked(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_a_rejected_line_is_read_and_replayed(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "admin")
    page.goto("/rejected")
    page.locator("tbody a").first.click()
    page.get_by_role("heading", name="Rejected line").wait_for()
    assert_not_hacked(page)
    page.get_by_role("button", name="Replay the line").click()
    told = page.get_by_role("status").inner_text()
    assert "Accepted now: 0" in told
    assert "Rejected again: 1" in told
    page = sign_in(service, "read")
    page.goto("/rejected")
    assert page.get_by_role("button", name="Replay").count() == 0


def test_a_key_is_made_shown_once_and_revoked(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "admin")
    page.goto("/keys")
    page.get_by_label("Role").select_option("read")
    page.get_by_label("Note").fill("for a colleague")
    page.get_by_role("button", name="Make a key").click()
    secret = page.get_by_role("status").locator("code").inner_text()
    service.keys["made"] = secret
    sign_in(service, "made").get_by_role("heading", name="Overview").wait_for()
    page.goto("/keys")
    assert secret not in page.content()
    row = page.locator("tr", has_text="for a colleague")
    row.get_by_role("button", name="Revoke").click()
    assert "is refused from now on" in page.get_by_role("status").inner_text()
    page.goto("/audit")
    assert "key" in page.locator("tbody").inner_text()
