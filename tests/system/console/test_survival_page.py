"""The page of survival, in a real Chromium over simulated sessions."""

from collections.abc import Iterator

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from tests.support.console_fixtures import (
    ConsoleService,
    SignIn,
    assert_accessible,
    assert_not_hacked,
    console_running,
)
from tests.support.lakes import HandLake


def _fill(hand: HandLake) -> None:
    run(hand.lake, InlineExecutor(), RunRequest(find_definition("survival")))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    data = tmp_path_factory.mktemp("survival") / "data"
    with console_running(data, fill=_fill) as running:
        yield running


def test_survival_is_told_by_tool(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "read")
    page.goto("/survival?since=2026-01-01")
    assert_accessible(page)
    assert_not_hacked(page)
    page.get_by_text("Agents wrote").or_(page.get_by_text("that agents wrote")).first.wait_for()
    by_tool = page.get_by_role("region", name="Lines by tool")
    assert "harbor-editor" in by_tool.inner_text()
