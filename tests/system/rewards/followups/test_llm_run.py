"""A run of rewards that asks a language model, over a lake and with worker processes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.execution import open_executor
from penstock.core.errors import InvalidInput
from penstock_jobs.rewards.definition import Definition, parse_definition
from penstock_jobs.rewards.measures.dissatisfied import JudgeUnfit
from penstock_jobs.rewards.runs import RewardRunReport, RunRequest, run
from penstock_jobs.rewards.tables import judge_spending
from tests.support.commands import penstock
from tests.support.lakes import START_US, HandLake, hand_lake
from tests.support.reward_events import answered, said
from tests.support.rewards.followups.completions import Completions, running_completions

SESSIONS = 6


@pytest.fixture
def server() -> Iterator[Completions]:
    with running_completions() as server:
        yield server


@pytest.fixture
def lake(server: Completions, each_database: None, tmp_path: Path) -> Iterator[HandLake]:
    """Each session in a bucket of its own, and two workers."""
    limits: dict[str, Any] = {
        "judge_url": server.url, "judge_model": "m", "judge_requests_max": SESSIONS - 2,
        "executor": "processes", "executor_workers": 2, "bucket_bytes_target": 1,
    }  # fmt: skip
    with hand_lake(tmp_path, **limits) as lake:
        for number in range(SESSIONS):
            name = f"s{number}"
            text = f"corrects {name}, that is wrong"
            lake.store([said(1, session=name), answered(2, name), said(3, text, name)])
        yield lake


def definition(weight: float = 1.0, model: str = "m") -> Definition:
    text = f"""
        name = "mine"
        [[reward]]
        name = "dissatisfied_by_llm"
        weight = {weight}
        parameters = {{ model = "{model}" }}
    """
    return parse_definition(text, "mine.toml")


def ran(lake: HandLake, wanted: Definition, hours: float = 0) -> RewardRunReport:
    """So many hours after the first run."""
    now_us = START_US + 10**12 + round(hours * 3_600_000_000)
    with open_executor(lake.lake.settings) as executor:
        return run(lake.lake, executor, RunRequest(wanted), now_us=now_us)


def states(report: RewardRunReport) -> dict[tuple[str, str | None], int]:
    return {
        (count.state, count.reason): number
        for count, number in report.rows.items()
        if (count.name, count.target_kind) == ("dissatisfied_by_llm", "request")
    }


def test_workers_share_the_budget_and_the_next_run_pays_only_for_the_rest(
    server: Completions, lake: HandLake
) -> None:
    first = ran(lake, definition())
    assert states(first) == {("scored", None): SESSIONS - 2, ("censored", "budget"): 2}
    assert len(server.requests) == SESSIONS - 2
    # Another weight is another definition, and so computes all sessions; the answers are there.
    second = ran(lake, definition(weight=2.0))
    assert states(second) == {("scored", None): SESSIONS}
    assert len(server.requests) == SESSIONS
    with lake.lake.database.read() as connection:
        spent = connection.execute(sa.select(judge_spending.c.requests)).scalars().all()
    assert sorted(spent) == [2, SESSIONS - 2]


def test_what_the_budget_left_out_is_asked_for_later(server: Completions, lake: HandLake) -> None:
    ran(lake, definition())
    assert ran(lake, definition(), hours=0.9).sessions == 0
    again = ran(lake, definition(), hours=1.1)
    assert (again.sessions, states(again)) == (2, {("scored", None): 2})
    assert ran(lake, definition(), hours=9).sessions == 0
    assert len(server.requests) == SESSIONS


@pytest.mark.parametrize("model", ["n", ""])
def test_a_run_with_another_model_is_refused_before_it_begins(
    server: Completions, lake: HandLake, model: str
) -> None:
    with pytest.raises(JudgeUnfit):
        ran(lake, definition(model=model))
    assert server.requests == []
    with lake.lake.database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM reward_definition").scalar() == 0


def test_show_by_a_definition_that_names_it_asks_the_model(
    server: Completions, tmp_path: Path
) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([said(1), answered(2), said(3, "corrects why")])
    file = tmp_path / "mine.toml"
    file.write_text(definition().text)
    command = ["rewards", "show", "s", "--data", str(tmp_path), "--json", "--definition", str(file)]
    refused = penstock(*command)
    assert refused.returncode == 2
    assert "no judge is set" in refused.stderr
    settings = f'judge_url = "{server.url}"\njudge_model = "m"\n'
    (tmp_path / "penstock.toml").write_text(settings)
    for _ in range(2):
        shown = penstock(*command)
        assert shown.returncode == 0, shown.stderr
        values = {
            (row["name"], row["target_kind"]): row["value"]
            for row in json.loads(shown.stdout)["rewards"]
        }
        assert values["dissatisfied_by_llm", "request"] == -0.2
    assert len(server.requests) == 1


def test_an_address_that_is_none_is_refused_before_it_begins(tmp_path: Path) -> None:
    with hand_lake(tmp_path, judge_url="nowhere", judge_model="m") as lake:
        lake.store([said(1)])
        with pytest.raises(InvalidInput, match="The address of the judge"):
            ran(lake, definition())
