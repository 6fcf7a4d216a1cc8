"""What the newest look at a canary says, in a real Chromium."""

from collections.abc import Iterator

import pytest

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import open_client
from penstock.registry.channels.endpoints import ChannelRequest
from penstock_jobs.loop.canary.look import SHOW_CANARY, situation_of, take_look
from penstock_jobs.loop.canary.pages import drawn_metric
from tests.support.canary_traffic import CHANNEL, OLD, WORSE, fill_canary
from tests.support.console_fixtures import (
    ConsoleService,
    SignIn,
    assert_accessible,
    console_running,
)
from tests.support.lakes import HandLake


def _fill(lake: HandLake) -> None:
    fill_canary(lake, WORSE)
    situation = situation_of(lake.lake, TENANT_DEFAULT, CHANNEL)
    assert situation.trial is not None
    take_look(lake.lake, situation, situation.trial)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    data = tmp_path_factory.mktemp("canary") / "data"
    data.mkdir()
    (data / "penstock.toml").write_text("canary_settle_seconds = 0\n")
    with console_running(data, fill=_fill) as running:
        yield running


def test_a_breach_is_shown_with_its_interval(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "read")
    page.goto(f"/channels/{CHANNEL}")
    page.get_by_role("link", name="comparison").click()
    page.get_by_role("heading", name="Newest look breach").wait_for()
    panel = page.locator(".panel", has_text="explicit_feedback")
    assert "breach" in panel.inner_text()
    assert panel.locator("svg .interval.bad").count() == 1
    assert_accessible(page)


def test_a_service_says_what_its_lake_does(service: ConsoleService) -> None:
    question = ChannelRequest(name=CHANNEL)
    with open_client(None, service.url, key=service.keys["read"]) as client:
        asked = client.call(SHOW_CANARY, question)
    with open_client(service.data, None) as client:
        assert client.call(SHOW_CANARY, question) == asked
    assert asked.trial is not None
    assert asked.look is not None
    assert (asked.trial.incumbent, asked.look["outcome"]) == (OLD, "breach")


@pytest.mark.parametrize(
    ("direction", "scale", "margin", "note"),
    [("max", "difference", 0.05, "margin -0.05"), ("min", "ratio", 0.1, "margin +10 %")],
)
def test_the_margin_stands_where_worse_begins(
    direction: str, scale: str, margin: float, note: str
) -> None:
    metric = {
        "metric": "m", "outcome": "undecided", "why": "too few", "direction": direction,
        "margin": margin, "scale": scale, "difference": 0.0, "lower": -0.2, "upper": 0.2,
        "means": {"canary": None, "current": 1.0},
    }  # fmt: skip
    drawn = drawn_metric(metric)
    assert note in drawn.charts[0]
    assert drawn.facts == [("means", "– / 1")]
