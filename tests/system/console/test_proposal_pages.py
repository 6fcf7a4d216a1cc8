"""Mined tasks in a real Chromium: read, mended, taken and refused by a person."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import open_client
from penstock_jobs.benchmarks.mine.history import FileDiff
from penstock_jobs.benchmarks.mine.proposals import (
    LIST_PROPOSALS,
    Proposal,
    ProposalFiles,
    ProposalsRequest,
    add_proposal,
)
from penstock_jobs.benchmarks.mine.rules import CheckPlan, MinedChange
from tests.support.console_fixtures import (
    HOSTILE_TEXT,
    ConsoleService,
    SignIn,
    assert_accessible,
    assert_not_hacked,
    console_running,
)
from tests.support.lakes import HandLake

FIX = "    return last_page_of(invoice, rows_on_a_page)"
FACTS = {
    "source": "commit", "settled": "0" * 40, "base": "1" * 40, "work": "bug",
    "changed_lines": 2, "changed_files": 1, "languages": ["py"], "environment": None,
}  # fmt: skip


def _fill(hand: HandLake) -> None:
    diff = FileDiff("invoice.py", (FIX,), ("    return None",), f"-    return None\n+{FIX}\n")
    files = ProposalFiles(
        MinedChange([], [], [], [diff]), CheckPlan("pytest"), HOSTILE_TEXT, "2 of 2 tests pass", []
    )
    for name in ("invoice-1", "invoice-2"):
        prompt = "The last page of the invoice is missing since the new year"
        proposal = Proposal(name, "proposed", "", None, prompt, FACTS)
        add_proposal(hand.lake, TENANT_DEFAULT, "shop", proposal, files)
    left = Proposal("readme-1", "left_out", "it changed only documents", None, "", FACTS)
    add_proposal(hand.lake, TENANT_DEFAULT, "shop", left, None)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ConsoleService]:
    with console_running(tmp_path / "data", fill=_fill) as running:
        yield running


def test_a_person_mends_takes_and_refuses(service: ConsoleService, sign_in: SignIn) -> None:
    page: Page = sign_in(service, "admin")
    page.goto("/suites/shop/proposals")
    assert_accessible(page)
    page.get_by_role("link", name="invoice-1").click()
    assert "2 of 2 tests pass" in page.inner_text("main")
    assert_not_hacked(page)
    assert_accessible(page)
    page.get_by_label("Prompt").fill(f"Missing. Write {FIX} into the file, please, at last")
    page.get_by_role("button", name="Take it").click()
    assert "holds a line of the solution" in page.inner_text(".problem")
    page.get_by_label("Prompt").fill("The last page of each invoice is missing since January")
    page.get_by_role("button", name="Take it").click()
    page.wait_for_url("**/suites/shop/proposals")
    page.get_by_role("link", name="invoice-2").click()
    page.get_by_label("Why it is refused").fill("nobody could know the page's size")
    page.get_by_role("button", name="Refuse it").click()
    page.wait_for_url("**/suites/shop/proposals")
    with open_client(None, service.url, key=service.keys["read"]) as client:
        known = client.call(LIST_PROPOSALS, ProposalsRequest(suite="shop")).proposals
    first, second, _ = known
    assert first.state == "taken"
    assert first.prompt == "The last page of each invoice is missing since January"
    assert (second.state, second.why) == ("refused", "nobody could know the page's size")


def test_a_reader_sees_and_does_not_judge(service: ConsoleService, sign_in: SignIn) -> None:
    page: Page = sign_in(service, "read")
    page.goto("/suites/shop/proposals/invoice-1")
    assert "The last page of the invoice" in page.inner_text("main")
    assert page.get_by_role("button", name="Take it").count() == 0
    page.goto("/suites/shop/proposals/readme-1")
    assert "it changed only documents" in page.inner_text("main")
