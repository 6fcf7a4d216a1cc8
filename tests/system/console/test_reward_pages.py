"""The pages of rewards, in a real Chromium over simulated sessions."""

from collections.abc import Iterator

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from tests.support.checkpoint_factory import add, add_scores
from tests.support.console_fixtures import (
    ConsoleService,
    SignIn,
    assert_accessible,
    assert_not_hacked,
    console_running,
)
from tests.support.lakes import HandLake

PAIR = ("ckpt-0012", "ckpt-0013")
PATHS = ("/rewards", "/rewards/monitors", "/rewards/comparison?before=default&after=comparing")


def _fill(hand: HandLake) -> None:
    add(hand.lake.database, *PAIR)
    add_scores(hand.lake.database, dict(zip(PAIR, (0.4, 0.6), strict=True)))
    run(hand.lake, InlineExecutor(), RunRequest(find_definition("comparing")))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    data = tmp_path_factory.mktemp("rewards") / "data"
    with console_running(data, fill=_fill) as running:
        yield running


def test_rewards_are_drawn_and_narrowed(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "read")
    for path in PATHS:
        page.goto(path)
        assert_accessible(page)
        assert_not_hacked(page)
    page.goto("/rewards")
    assert page.locator("svg.chart").count() > 3
    table = page.get_by_role("region", name="Outcomes by checkpoint")
    link = table.locator("tbody a").first
    name = link.inner_text()
    link.click()
    page.wait_for_url("**/rewards?*checkpoint=*")
    assert table.locator("tbody th").all_inner_texts() == [name]
    page.get_by_role("textbox", name="Project").fill("<b>none</b>")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("No session fits.").wait_for()
    assert_accessible(page)


def test_monitors_link_their_sessions(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "read")
    page.goto("/rewards/monitors")
    link = page.locator("li a[href^='/sessions/']").first
    name = link.inner_text()
    link.click()
    page.locator(".session-head").get_by_text(name).first.wait_for()


def test_two_definitions_are_compared_on_the_same_sessions(
    service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(service, "read")
    page.goto("/rewards/comparison")
    page.get_by_text("Choose two definitions").wait_for()
    assert_accessible(page)
    page.goto(PATHS[2])
    assert page.locator("svg.chart").count() == 1
    rows = page.get_by_role("region", name="Rewards by both definitions").locator("tbody tr")
    assert rows.count() > 0


def test_two_checkpoints_are_compared_side_by_side(
    service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(service, "read")
    page.goto("/compared?before={}&after={}".format(*PAIR))
    page.get_by_text("0.400 → 0.600").wait_for()
    assert page.locator("svg.chart").count() >= 1
    table = page.get_by_role("region", name="Worth and costs")
    assert table.locator("thead th").all_inner_texts()[1:] == [*PAIR]
    assert "Completion tokens" in table.inner_text()
    assert page.locator("li a[href^='/sessions/']").count() > 0
    assert_accessible(page)
    assert_not_hacked(page)
    page.get_by_role("link", name="Swap sides").click()
    page.get_by_text("0.600 → 0.400").wait_for()


def test_rewards_are_for_readers(service: ConsoleService, sign_in: SignIn) -> None:
    for key, status in (("train", 403), ("other", 200)):
        page = sign_in(service, key)
        answer = page.goto("/rewards")
        assert answer is not None
        assert answer.status == status, key
    assert "No session fits" in page.locator("main").inner_text()


def test_rewards_fit_a_phone(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "read", width=390, scheme="dark")
    for path in PATHS:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path
        assert_accessible(page)
