"""The page where people label messages, in a real Chromium: keys answer, and undo."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from penstock.lake.client import open_client
from penstock_jobs.rewards.followups.label_endpoints import LABEL_RATES, EffectRequest
from tests.support.console_fixtures import (
    HOSTILE_TEXT,
    ConsoleService,
    SignIn,
    assert_accessible,
    assert_not_hacked,
    console_running,
)
from tests.support.lakes import HandLake
from tests.support.reward_events import answered, said

SESSIONS = 36


def _fill(hand: HandLake) -> None:
    hand.store(
        [
            event | {"checkpoint": f"ckpt-{number % 2}"}
            for number in range(SESSIONS)
            for event in (
                said(1, "add b", f"s{number:02}"),
                answered(2, f"s{number:02}", text=f"Done. {HOSTILE_TEXT}"),
                said(3, f"well, about {number}, hm {HOSTILE_TEXT}", f"s{number:02}"),
            )
        ]
    )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    with console_running(tmp_path_factory.mktemp("labels") / "data", fill=_fill) as running:
        yield running


def _labels(service: ConsoleService) -> dict[str, int]:
    with open_client(None, service.url, key=service.keys["read"]) as client:
        return client.call(LABEL_RATES, EffectRequest()).labels


def _press(page: Page, key: str) -> str:
    with page.expect_navigation():
        page.keyboard.press(key)
    told = page.get_by_role("status")
    assert told.count() == 1, page.locator("main").inner_text()
    return told.inner_text()


def test_keys_label_and_undo(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service)
    page.goto("/labels?checkpoint=ckpt-1")
    assert_accessible(page)
    assert_not_hacked(page)
    before = page.locator("pre.said").inner_text()
    assert _press(page, "c").startswith("Stored: corrects")
    assert page.locator("pre.said").inner_text() != before
    assert _labels(service) == {"corrects": 1}
    assert _press(page, "m").startswith("Stored: moves on")
    assert "undone" in _press(page, "u")
    assert _labels(service) == {"corrects": 1}
    assert "undone" in _press(page, "u")
    assert page.locator("pre.said").inner_text() == before
    assert _labels(service) == {}


def test_what_labels_did_is_drawn(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service)
    page.goto("/labels")
    _press(page, "x")
    page.get_by_role("link", name="Effect of labels").click()
    page.get_by_role("heading", name="By checkpoint").wait_for()
    assert_accessible(page)
    assert page.locator("svg.chart").count() == 1
    page.goto("/labels")
    _press(page, "u")


def test_a_label_for_a_message_that_has_one_changes_nothing(
    service: ConsoleService, sign_in: SignIn
) -> None:
    first, second = sign_in(service), sign_in(service)
    first.goto("/labels")
    second.goto("/labels")
    _press(first, "r")
    second.keyboard.press("v")
    second.get_by_text("has already labelled this message").wait_for()
    assert _labels(service) == {"refines": 1}
    first.goto("/labels")
    _press(first, "u")


def test_a_read_key_sees_the_queue_and_labels_nothing(
    service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(service, "read", width=390, scheme="dark")
    for path in ("/labels", "/labels/rates"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert_accessible(page)
        assert page.locator("main form[method=post]").count() == 0
    other = sign_in(service, "other")
    other.goto("/labels")
    assert "No message waits" in other.locator("main").inner_text()
    train = sign_in(service, "train")
    answer = train.goto("/labels")
    assert answer is not None
    assert answer.status == 403
