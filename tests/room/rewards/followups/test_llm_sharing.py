"""What the processes of a run, and the runs after it, share of the judge: its answers and its
budget, in either database."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.core.errors import SettingInvalid
from penstock.core.settings import load_settings
from penstock_jobs.rewards.followups.judge import Judgement, Message
from penstock_jobs.rewards.followups.llm_judge import AnswerCache, RunBudget, answer_in, open_judge
from penstock_jobs.rewards.tables import judge_answer
from tests.support.lakes import hand_lake
from tests.support.rewards.followups.completions import Completions, running_completions, spent

RUN = "run-1"
ANSWER = Judgement("asks", 0.1, 1e-17)


@pytest.fixture
def database(each_database: None, tmp_path: Path) -> Iterator[Database]:
    with hand_lake(tmp_path) as lake:
        yield lake.lake.database


def test_an_answer_is_kept_before_the_next_is_asked_for(
    server: Completions, database: Database, tmp_path: Path
) -> None:
    """What a killed run has paid for is not paid again."""
    kept: list[int] = []

    def reply(_request: dict[str, Any]) -> str:
        with database.read() as connection:
            kept.append(len(connection.execute(sa.select(judge_answer)).all()))
        return ASKS

    server.reply = reply
    flags: dict[str, object] = {
        "judge_url": server.url, "judge_model": "m", "judge_inflight_max": 1,
    }  # fmt: skip
    judge = open_judge(load_settings(tmp_path, {}, flags), database, RUN)
    assert judge is not None
    judge.judge([Message(text=f"asks {number}") for number in range(4)])
    assert kept == [0, 1, 2, 3]


ASKS = '{"label": "asks", "confidence": 1, "dissatisfied": 0}'


def test_the_budget_holds_however_many_ask_at_the_same_time(database: Database) -> None:
    one, other = (RunBudget(database, RUN, 30, 10_000) for _ in range(2))
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda n: (one, other)[n % 2].take(7), range(60)))
        assert taken.count(True) == 30
        list(pool.map(lambda _: one.settle(7, 3), range(30)))
    assert spent(database, RUN) == (30, 90)
    tokens = RunBudget(database, "by tokens", 100, 20)
    assert [tokens.take(7), tokens.take(7), tokens.take(7), tokens.take(6)] == [
        True, True, False, True,
    ]  # fmt: skip


def test_the_cache_is_written_by_many_at_the_same_time(database: Database) -> None:
    keys = [f"{number:064x}" for number in range(1_200)]
    caches = [AnswerCache(database, answer_in) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda n: caches[n % 4].put(dict.fromkeys(keys[:: n % 3 + 1], ANSWER)), range(12)
            )
        )
    assert caches[0].get(keys) == dict.fromkeys(keys, ANSWER)
    assert caches[0].get([]) == {}
    caches[0].put({})


def test_the_first_answer_counts_for_all(server: Completions, database: Database) -> None:
    """Also for the process that was told something else a moment later."""
    with running_completions() as quicker:
        flags: dict[str, object] = {"judge_model": "m"}

        def judge_at(url: str) -> Any:
            settings = load_settings(None, {}, flags | {"judge_url": url})
            return open_judge(settings, database, RUN)

        message = Message(text="asks a")

        def outrun(_request: dict[str, Any]) -> str:
            judge_at(quicker.url).judge([message])
            return ASKS.replace("asks", "reverts")

        server.reply = outrun
        [found] = judge_at(server.url).judge([message])
        assert found.label == "asks"


def test_an_answer_that_nobody_can_read_is_asked_for_again(database: Database) -> None:
    cache = AnswerCache(database, answer_in)
    cache.put({"k": ANSWER})
    with database.write() as connection:
        connection.execute(sa.update(judge_answer).values(answer='{"label": "older"}'))
    assert cache.get(["k"]) == {}


def test_no_text_is_kept(server: Completions, database: Database, tmp_path: Path) -> None:
    flags: dict[str, object] = {"judge_url": server.url, "judge_model": "m"}
    judge = open_judge(load_settings(tmp_path, {}, flags), database, RUN)
    assert judge is not None
    judge.judge([Message(text="asks about SECRETWORD", agent="SECRETWORD")])
    with database.read() as connection:
        [row] = connection.execute(sa.select(judge_answer))
    assert "SECRETWORD" not in str(row)
    assert row.created_at > 1_700_000_000_000_000


def test_a_judge_needs_a_model_and_its_key_stays_secret(tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid, match="judge_url is set, and judge_model is not"):
        load_settings(tmp_path, {"PENSTOCK_JUDGE_URL": "http://127.0.0.1/v1"})
    assert "geheim" not in repr(load_settings(tmp_path, {"PENSTOCK_JUDGE_KEY": "geheim"}))
    (tmp_path / "penstock.toml").write_text("judge_key = 4711")
    with pytest.raises(SettingInvalid, match="the value is not a text") as refused:
        load_settings(tmp_path, {})
    assert "4711" not in str(refused.value)
