"""Promoting and rolling back in a real Chromium: the verdict first, a reason, the version that the
page was made for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import open_client
from penstock.registry.channels.endpoints import AUDIT_CHANNEL, AuditAnswer, AuditRequest
from penstock.registry.checkpoints.attempts import Attempt
from penstock_jobs.benchmarks.result_import import ImportRequest, take_results
from tests.support.checkpoint_factory import add, promote, set_policy
from tests.support.console_fixtures import (
    HOSTILE_TEXT,
    ConsoleService,
    SignIn,
    assert_accessible,
    assert_not_hacked,
    console_running,
)
from tests.support.lakes import HandLake

TASKS = 60
POLICY = '[[require]]\nsuite = "core"\nmetric = "score"\nmargin = 0.1\nmin_tasks = 50\n'
#: Reasons hold what can be shown alone, and may be hostile all the same.
_REASON = "".join(each for each in HOSTILE_TEXT[:200] if each.isprintable())
#: By checkpoint, at how many of the tasks it fails.
FAILURES = {"steady": 20, "better": 8, "worse": 45}


def _fill(hand: HandLake) -> None:
    database = hand.lake.database
    add(database, *FAILURES)
    set_policy(database, POLICY)
    promote(database, "steady", reason=_REASON)
    for checkpoint, failures in FAILURES.items():
        attempts = [
            Attempt(task=f"t-{number:03}", attempt=0, score=float(number >= failures))
            for number in range(TASKS)
        ]
        places = [f"line {number}" for number in range(1, TASKS + 1)]
        results = ImportRequest(
            format="penstock", source="attempts.jsonl", attempts=attempts, places=places,
            suite="core", checkpoint=checkpoint,
        )  # fmt: skip
        take_results(database, TENANT_DEFAULT, results)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    """For tests that change nothing."""
    with console_running(tmp_path_factory.mktemp("release"), fill=_fill) as running:
        yield running


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ConsoleService]:
    with console_running(tmp_path / "data", fill=_fill) as running:
        yield running


def _audit(service: ConsoleService) -> AuditAnswer:
    with open_client(None, service.url, key=service.keys["read"]) as client:
        return client.call(AUDIT_CHANNEL, AuditRequest(name="production"))


def _open_verdict(page: Page, checkpoint: str) -> None:
    page.goto("/channels/production")
    page.get_by_label("Checkpoint").select_option(checkpoint)
    page.get_by_role("button", name="Show the verdict").click()
    page.get_by_role("heading", name=f"{checkpoint} for production").wait_for()


def _promote(page: Page, reason: str) -> None:
    page.get_by_label("Reason", exact=True).fill(reason)
    page.get_by_role("button", name="to production").click()


def test_a_pass_is_promoted_and_rolled_back(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "promote")
    _open_verdict(page, "better")
    assert page.locator(".verdict").inner_text().startswith("PASS")
    assert_accessible(page)
    _promote(page, "better on core")
    assert "better was promoted" in page.get_by_role("status").inner_text()
    assert_not_hacked(page)  # a reason of the history is hostile
    assert_accessible(page)

    page.get_by_label("Reason").fill("it undoes edits")
    page.get_by_role("button", name="Roll back production").click()
    assert "serves steady again" in page.get_by_role("status").inner_text()
    chosen = page.get_by_label("Checkpoint")
    assert chosen.input_value() == "worse"
    assert chosen.locator("option").last.inner_text() == "better (was rolled back)"
    page.get_by_label("Reason to release it").fill("the cause is known")
    page.get_by_role("button", name="Release", exact=True).click()
    assert "can be promoted again" in page.get_by_role("status").inner_text()

    audit = _audit(service)
    assert audit.flaw is None
    steps = [(change.action, change.checkpoint, change.reason) for change in audit.changes[-3:]]
    assert steps == [
        ("promote", "better", "better on core"),
        ("rollback", "steady", "it undoes edits"),
        ("release", "steady", "the cause is known"),
    ]


def test_what_does_not_pass_cannot_be_promoted(shared: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(shared, "promote")
    _open_verdict(page, "worse")
    assert page.locator(".verdict").inner_text().startswith("FAIL")
    assert page.get_by_role("button", name="to production").count() == 0
    page.get_by_role("link", name="task by task").click()
    page.get_by_role("heading", name="worse against steady").wait_for()
    assert_accessible(page)


def test_a_page_that_is_older_than_the_channel_changes_nothing(
    service: ConsoleService, sign_in: SignIn
) -> None:
    first, second = sign_in(service, "promote"), sign_in(service, "admin")
    for page in (first, second):
        _open_verdict(page, "better")
    _promote(second, "the second was quicker")
    _promote(first, "the first was slower")
    alert = first.get_by_role("alert").inner_text()
    assert "Nothing was changed" in alert
    assert "production" in alert
    assert [change.reason for change in _audit(service).changes].count("the first was slower") == 0


def test_a_read_key_sees_and_changes_nothing(shared: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(shared, "read")
    for path in ("/channels", "/channels/production", "/checkpoints", "/checkpoints/steady",
                 "/suites", "/suites/core"):  # fmt: skip
        page.goto(path)
        assert_accessible(page)
        assert_not_hacked(page)
        assert page.locator("main form[method=post]").count() == 0
    page = sign_in(shared, "other")
    answer = page.goto("/channels/production")
    assert answer is not None
    assert answer.status == 404


def test_the_pages_fit_a_phone(shared: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(shared, "promote", width=390, scheme="dark")
    for path in ("/channels/production", "/channels/production/verdict?checkpoint=better",
                 "/checkpoints/steady", "/suites/core"):  # fmt: skip
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert_accessible(page)


def test_on_a_phone_the_history_shows_gate_who_and_why(
    shared: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(shared, "read", width=390)
    page.goto("/channels/production")
    for name in ("Gate", "Who", "Reason"):
        cell = page.locator(f"td[data-label={name}]").first
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390, name
        assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == f'"{name}: "'


def test_a_person_approves_where_the_policy_asks(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "admin")
    page.goto("/channels/production")
    page.get_by_text("Change the policy").click()
    page.get_by_label("Policy, in TOML").fill(POLICY + "\n[approval]\npeople = 1\n")
    page.locator("details").get_by_label("Reason").fill("somebody has to look")
    page.get_by_role("button", name="Set the policy").click()
    page = sign_in(service, "promote")
    _open_verdict(page, "better")
    assert page.locator(".verdict").inner_text().startswith("INCONCLUSIVE")
    assert_accessible(page)
    page.get_by_label("Reason to approve").fill("read twenty of its sessions")
    page.get_by_role("button", name="Approve better").click()
    assert "approved better" in page.get_by_role("status").inner_text()
    assert page.locator(".verdict").inner_text().startswith("PASS")
    _promote(page, "better, and looked at")
    assert "better was promoted" in page.get_by_role("status").inner_text()
