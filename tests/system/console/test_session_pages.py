"""The pages of sessions in a real Chromium, over simulated, sample and hostile sessions."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from penstock.core.clock import SECOND_US, SystemClock
from tests.support.console_fixtures import (
    HOSTILE_SESSION,
    ConsoleService,
    SignIn,
    assert_accessible,
    assert_not_hacked,
)
from tests.support.lakes import Event, make_event

HOSTILE_PATHS = [
    f"/sessions/{quote(HOSTILE_SESSION, safe='')}",
    f"/session-tokens/{quote(HOSTILE_SESSION, safe='')}",
    f"/session-pairs?left={quote(HOSTILE_SESSION, safe='')}&right=sample-kept",
    "/sessions?words=%3Cscript%3E",
    "/sessions?project=%3Ci%3Eproject%3C%2Fi%3E",
]


def test_search_opens_a_session_and_its_neighbour(
    console_service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(console_service, "read")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/sessions")
    assert_accessible(page)
    page.keyboard.press("/")
    page.keyboard.type("CART")
    page.keyboard.press("Enter")
    page.wait_for_url("**words=CART**")
    assert page.locator("mark").first.inner_text().lower() == "cart"
    page.goto("/sessions?project=shop/web")
    rows = page.locator("tbody tr a.opening")
    first = rows.nth(0).get_attribute("href")
    second = rows.nth(1).get_attribute("href")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{console_service.url}{first}")
    page.keyboard.press("n")
    page.wait_for_url(f"{console_service.url}{second}")
    page.keyboard.press("p")
    page.wait_for_url(f"{console_service.url}{first}")
    page.keyboard.press("u")
    page.wait_for_url("**/sessions?project=shop%2Fweb")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_session_shows_what_became_of_its_edits(
    console_service: ConsoleService, sign_in: SignIn, scheme: str
) -> None:
    page = sign_in(console_service, "read", scheme=scheme)
    page.goto("/sessions/sample-kept")
    assert_accessible(page)
    assert page.locator("h1").inner_text() != "sample-kept"
    assert page.get_by_text("sample-kept", exact=True).is_visible()
    assert page.locator(".arguments dt").get_by_text("path").first.is_visible()
    assert not page.locator(".folded pre").first.is_visible()
    assert page.locator("tr.add.surviving").count() > 0
    assert "after 900 s" in page.locator(".entry.edit").first.inner_text()
    page.get_by_label("edits after").select_option("300")
    page.wait_for_url("**horizon_s=300**")
    assert "after 300 s" in page.locator(".entry.edit").first.inner_text()
    assert page.locator(".terms").get_by_text("work left").first.is_visible()
    page.goto("/sessions/sample-reverted")
    assert page.locator("tr.add.gone").count() > 0


def test_kinds_of_entries_can_be_hidden(console_service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(console_service, "read")
    page.goto("/sessions/sample-kept")
    edit = page.locator(".entry.edit").first
    assert edit.is_visible()
    page.get_by_label("edits", exact=True).uncheck()
    assert not edit.is_visible()


def test_a_phone_reads_a_session(console_service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(console_service, "read", width=390)
    for path in ("/sessions", "/sessions/sample-kept", *HOSTILE_PATHS):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_hostile_content_is_text(
    console_service: ConsoleService, sign_in: SignIn, path: str
) -> None:
    page = sign_in(console_service)
    page.goto(path)
    assert_not_hacked(page)
    assert_accessible(page)
    text = page.locator("main").inner_text()
    assert "\u202e" not in text
    assert "49" not in text.split("{{")[0] or "{{ 7 * 7 }}" in text


def test_two_attempts_stand_beside_each_other(
    console_service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(console_service, "read")
    page.goto("/session-pairs?left=sample-kept&right=sample-reverted")
    assert page.locator(".pair section").count() == 2
    assert_accessible(page)


def test_attempts_of_two_checkpoints_at_a_task(
    console_service: ConsoleService, sign_in: SignIn
) -> None:
    start_us = SystemClock().now_us() - 3600 * SECOND_US
    events = [
        make_event(
            f"try-{checkpoint}", 0, "session_start", ts=start_us, checkpoint=checkpoint,
            payload={"task_id": "task-7"},
        )
        for checkpoint in ("try-a", "try-b")
    ]  # fmt: skip
    with console_service.server.client(console_service.keys["ingest"]) as client:
        assert client.post("/v1/events", b"".join(map(_line, events))).status == 200
    page = sign_in(console_service, "read")
    page.goto("/session-tasks?task=task-7&before=try-a&after=try-b")
    page.wait_for_url("**/session-pairs?left=try-try-a&right=try-try-b")
    assert page.locator(".pair section").count() == 2
    page.goto("/session-tasks?task=task-7&before=try-a&after=try-c")
    assert page.get_by_text("No session of try-c").is_visible()
    assert_accessible(page)


def test_a_session_is_handed_on_as_one_file(
    console_service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(console_service, "read")
    page.goto("/sessions/sample-kept")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download").click()
    text = started.value.path().read_text()
    assert "sample-kept" in text
    assert "src=" not in text
    assert "<script" not in text


def test_others_sessions_are_not_there(console_service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(console_service, "other")
    for prefix in ("/sessions/", "/session-tokens/", "/session-file/", "/session-pairs?left="):
        assert page.request.get(f"{prefix}sample-kept").status == 404, prefix


def test_what_goes_on_comes_by_itself(console_service: ConsoleService, sign_in: SignIn) -> None:
    def said(number: int) -> None:
        now_us = SystemClock().now_us()
        event = {"session_id": "live", "ts": now_us, "type": "user_message", "seq": number}
        with console_service.server.client(console_service.keys["ingest"]) as client:
            lines = [event | {"source": "t", "payload": {"text": f"message {number}"}}]
            assert client.post("/v1/events", b"".join(map(_line, lines))).status == 200

    said(1)
    page = sign_in(console_service, "read")
    page.goto("/sessions/live")
    assert page.locator("span.state.live").is_visible()
    assert page.locator("pre").get_by_text("message 1").is_visible()
    said(2)
    page.get_by_text("message 2").wait_for()
    said(3)
    page.get_by_text("message 3").wait_for()
    assert page.locator(".entry.user").count() == 3


def test_lines_of_a_long_session_have_their_fates(
    console_service: ConsoleService, sign_in: SignIn
) -> None:
    start_us = SystemClock().now_us() - 48 * 3600 * SECOND_US
    lines = [_line(event) for event in _long_session(start_us)]
    assert len(lines) > 2_000
    with console_service.server.client(console_service.keys["ingest"]) as client:
        for at in range(0, len(lines), 500):
            assert client.post("/v1/events", b"".join(lines[at : at + 500])).status == 200
    page = sign_in(console_service, "read")
    page.goto("/sessions/long")
    first = page.locator(".entry.edit").first
    assert first.locator("tr.add.surviving").count() == 1
    assert first.locator("tr.add.gone").count() == 1
    assert "after 900 s" in first.inner_text()
    more = page.locator("a[data-more]").first.get_attribute("href")
    page.goto(more or "")
    assert page.locator("tr.add.gone").count() == page.locator(".entry.edit").count() > 0


def _long_session(start_us: int) -> Iterator[Event]:
    """Of each edit one line stays and one goes, as a look after 16 minutes tells."""
    seq = 0
    for turn in range(110):
        at_us, path = start_us + turn * 1200 * SECOND_US, f"src/part{turn}.py"
        kept, lost = f"kept_line_of_turn_{turn} = 1\n", f"the_other_line_{turn * 7919} = 'x'\n"
        answers = [("tool_result", {"tool": "run", "output": f"{n}"}) for n in range(20)]
        events: list[tuple[str, dict[str, Any]]] = [
            ("user_message", {"text": f"turn {turn}"}),
            ("edit", {"path": path, "before": "", "after": kept + lost}),
            *answers,
            ("file_observed", {"path": path, "text": kept}),
        ]
        for kind, payload in events:
            seq += 1
            ts = at_us + (960 * SECOND_US if kind == "file_observed" else seq)
            yield make_event("long", seq, kind, ts=ts, payload=payload)


def _line(event: object) -> bytes:
    return json.dumps(event).encode() + b"\n"
