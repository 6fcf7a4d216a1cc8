"""What the processes of a run, and the runs after it, share of the judge: its answers and its
budget, in either database."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.database.engine import Database
from penstock.errors import SettingInvalid
from penstock.settings import load_settings
from penstock_jobs.rewards.followups.judge import Judgement, Message
from penstock_jobs.rewards.followups.llm_judge import (
    AnswerCache,
    RunBudget,
    open_judge,
)
from penstock_jobs.rewards.tables import judge_answer
from tests.support.lakes import hand_lake
from tests.support.rewards.followups.completions import (
    Completions,
    completion,
    running_completions,
    spent,
)
from tests.support.servers.child import end_child, start_child

RUN = "run-1"
ANSWER = Judgement("asks", 0.1, 1e-17)


@pytest.fixture
def server() -> Iterator[Completions]:
    with running_completions() as server:
        yield server


@pytest.fixture
def database(each_database: None, tmp_path: Path) -> Iterator[Database]:
    with hand_lake(tmp_path) as lake:
        yield lake.lake.database


JUDGE = """
import json, sys
from penstock.database.engine import Database
from penstock.settings import load_settings
from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.llm_judge import open_judge
settings = load_settings(sys.argv[1])
judge = open_judge(settings, Database.of(settings), sys.argv[2])
found = judge.judge([Message(text=text) for text in json.loads(sys.argv[3])])
print(json.dumps([one if isinstance(one, str) else one.label for one in found]))
"""


def starting(
    server: Completions, data: Path, texts: list[str], log: Path, **limits: object
) -> subprocess.Popen[bytes]:
    """A process of the run, with the judge that its settings name."""
    wanted = {"url": server.url, "model": "m", **limits}
    set_so = {f"PENSTOCK_JUDGE_{name.upper()}": str(value) for name, value in wanted.items()}
    environment = ["env", *(f"{name}={value}" for name, value in set_so.items())]
    program = [sys.executable, "-c", JUDGE, str(data), RUN, json.dumps(texts)]
    return start_child([*environment, *program], log=log)


def said(child: subprocess.Popen[bytes], log: Path) -> list[str]:
    assert child.wait(300) == 0, log.read_text()
    found: list[str] = json.loads(log.read_text().splitlines()[-1])
    return found


def asked(server: Completions) -> list[str]:
    contents = [json.loads(one["messages"][1]["content"]) for one in server.requests]
    return [one["user_message"] for one in contents]


def test_two_processes_share_one_budget(
    server: Completions, database: Database, tmp_path: Path
) -> None:
    logs = [tmp_path / "one.log", tmp_path / "other.log"]
    children = [
        starting(server, tmp_path, [f"asks {log.name} {n}" for n in range(12)], log, requests_max=9)
        for log in logs
    ]
    found = [*said(children[0], logs[0]), *said(children[1], logs[1])]
    assert len(server.requests) == 9
    assert (found.count("asks"), found.count("budget")) == (9, 15)
    assert spent(database, RUN) == (9, 9 * 50)


def test_what_a_killed_run_has_paid_for_is_not_paid_again(
    server: Completions, database: Database, tmp_path: Path
) -> None:
    texts = [f"asks {number}" for number in range(6)]
    server.faults.extend([*[(200, {}, completion(ASKS))] * 3, "hang"])
    log = tmp_path / "killed.log"
    killed = starting(server, tmp_path, texts, log, inflight_max=1)
    assert server.arrived(4), log.read_text()
    end_child(killed, signal.SIGKILL, 10)
    # Three answers were paid for, and what was under way stays set aside.
    assert spent(database, RUN).requests == 4
    assert spent(database, RUN).tokens > 3 * 50 + 200
    again = tmp_path / "again.log"
    assert said(starting(server, tmp_path, texts, again), again) == ["asks"] * 6
    assert sorted(asked(server)) == sorted([*texts, texts[3]])


ASKS = '{"label": "asks", "confidence": 1, "dissatisfied": 0}'


def test_another_run_has_its_own_budget_and_the_same_answers(
    server: Completions, database: Database, tmp_path: Path
) -> None:
    flags: dict[str, object] = {
        "judge_url": server.url, "judge_model": "m", "judge_requests_max": 1,
    }  # fmt: skip
    settings = load_settings(tmp_path, {}, flags)
    messages = [Message(text="asks a"), Message(text="asks b")]
    found = []
    for run in ("run-1", "run-2", "run-3"):
        judge = open_judge(settings, database, run)
        assert judge is not None
        found.append([one if isinstance(one, str) else one.label for one in judge.judge(messages)])
    assert sorted(found[0]) == ["asks", "budget"]
    assert found[1:] == [["asks", "asks"]] * 2
    assert spent(database, "run-3") == (0, 0)


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
    caches = [AnswerCache(database) for _ in range(4)]
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
    cache = AnswerCache(database)
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
