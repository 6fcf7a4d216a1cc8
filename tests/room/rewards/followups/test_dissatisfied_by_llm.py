"""The reward by a language model: from a lake to rows, and when it is refused."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings, load_settings
from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.definition import Definition, find_definition, parse_definition
from penstock_jobs.rewards.followups.llm_judge import check_judge, open_judge, prompt_version
from penstock_jobs.rewards.measures.dissatisfied import (
    JudgeUnfit,
    LlmJudgeParameters,
    dissatisfied_by_llm,
    dissatisfied_follow_up,
)
from penstock_jobs.rewards.measures.dissatisfied import LocalJudgeParameters as OfLocal
from tests.support.lakes import Event, hand_lake, make_event
from tests.support.repository import ROOT
from tests.support.reward_events import answered, bucket_of, compute, edited, said
from tests.support.rewards.followups.completions import Completions, completion, spent

EXAMPLE = ROOT / "examples" / "rewards" / "with_llm.toml"
RUN = "run-1"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with hand_lake(tmp_path / "judged") as lake:
        yield lake.lake.database


def settings_for(server: Completions, **more: object) -> Settings:
    named = {"url": server.url, "model": "m", "inflight_max": 1, **more}
    return load_settings(None, {}, {f"judge_{name}": value for name, value in named.items()})


def judged(bucket: Bucket, server: Completions, database: Database, **more: object) -> Bucket:
    judge = open_judge(settings_for(server, **more), database, RUN)
    return replace(bucket, llm_judge=judge)


def of_requests(bucket: Bucket, **parameters: Any) -> dict[str, dict[str, Any]]:
    rows = dissatisfied_by_llm(
        bucket, LlmJudgeParameters(**{"model": "m"} | parameters)
    ).to_pylist()
    return {
        f"{row['session_id']} {row['target_id']}": row
        for row in rows
        if row["target_kind"] == "request"
    }


def told(session: str = "s", *words: str) -> list[Event]:
    """A session whose messages are these, each answered but the last."""
    events: list[Event] = []
    for number, text in enumerate(words):
        events.append(said(2 * number + 1, text, session))
        events.append(answered(2 * number + 2, session, text="Done."))
    return events[:-1]


def test_a_request_is_worth_the_worst_that_the_model_says_of_its_messages(
    server: Completions, database: Database, tmp_path: Path
) -> None:
    bucket = bucket_of(tmp_path, told("s", "fix it", "asks why", "complains", "reverts it"))
    server.faults.append((200, {}, completion(answer("asks", 0.1))))
    server.faults.append((200, {}, completion(answer("corrects", 0.6))))
    server.faults.append((200, {}, completion(answer("reverts", 0.75))))
    found = of_requests(judged(bucket, server, database))
    assert {name: row["value"] for name, row in found.items()} == {"s 1": -0.75}
    again = of_requests(judged(bucket, server, database))
    assert again == found
    assert len(server.requests) == 3
    assert spent(database, RUN) == (3, 150)


def answer(label: str, dissatisfied: float) -> str:
    return f'{{"label": "{label}", "confidence": 0.9, "dissatisfied": {dissatisfied}}}'


def test_its_rows_are_about_the_same_requests_as_those_of_the_local_judge(
    server: Completions, database: Database, tmp_path: Path
) -> None:
    events = [
        *told("a", "add a parser", "asks why", "reverts the change in src/app.py"),
        edited(2, "src/app.py", "a\n", "b\n", "a"),
        *told("b", "moves_on"), answered(2, "b", text="Done."),
        said(1, session="c"), answered(2, "c"),
        make_event("c", 3, "session_end", payload={"reason": "user_stop"}),
    ]  # fmt: skip
    bucket = judged(bucket_of(tmp_path, events), server, database)
    rows = dissatisfied_by_llm(bucket, LlmJudgeParameters(model="m")).to_pylist()
    local = dissatisfied_follow_up(bucket, OfLocal()).to_pylist()
    apart = ("value", "name")
    assert [{k: v for k, v in one.items() if k not in apart} for one in rows] == [
        {k: v for k, v in one.items() if k not in apart} for one in local
    ]
    assert of_requests(bucket)["c 1"]["value"] == -1


def test_no_train_is_never_sent(server: Completions, database: Database, tmp_path: Path) -> None:
    """Whenever it was said: before, in between, or after the rows were stored."""

    def consent(session: str, number: int, say: str) -> Event:
        return make_event(
            session, number, "session_start", event_id=f"c{number}", payload={"consent": say}
        )

    def messages(session: str) -> list[Event]:
        return told(
            session,
            *(f"complains {session} {number}, that is wrong, revert it" for number in range(3)),
        )

    events = [
        consent("before", 0, "no_train"), *messages("before"),
        consent("withdrawn", 0, "train"), *messages("withdrawn"),
        consent("withdrawn", 9, "no_train"),
        consent("given", 0, "train"), *messages("given"),
        *messages("unasked"), *messages("later"),
    ]  # fmt: skip
    with hand_lake(tmp_path) as lake:
        lake.store(events)
    bucket = bucket_of(tmp_path, [consent("later", 20, "no_train")])
    found = of_requests(judged(bucket, server, database))
    assert sorted(one["user_message"].split()[1] for one in shown(server)) == [
        "given", "given", "unasked", "unasked",
    ]  # fmt: skip
    for session in ("before", "withdrawn", "later"):
        row = found[f"{session} 1"]
        assert (row["state"], row["value"], row["reason"]) == ("censored", None, "no_train")
    assert found["given 1"]["state"] == "scored"
    for one in server.requests:
        for session in ("before", "withdrawn", "later"):
            assert session not in one["messages"][1]["content"]


def shown(server: Completions) -> list[dict[str, Any]]:
    return [json.loads(one["messages"][1]["content"]) for one in server.requests]


@pytest.mark.parametrize(
    ("fault", "more", "reason"),
    [
        ((200, {}, completion("no idea")), {}, "unreadable_answer"),
        ((400, {}, b"{}"), {}, "unreachable"),
        ((200, {}, b""), {"requests_max": 0}, "budget"),
        ((200, {}, b""), {"tokens_max": 100}, "budget"),
    ],
)
def test_what_was_not_judged_is_censored_and_says_why(
    server: Completions, tmp_path: Path, fault: Any, more: Any, reason: str
) -> None:
    server.faults.append(fault)
    with hand_lake(tmp_path) as lake:
        bucket = bucket_of(tmp_path, told("s", "fix it", "asks why"))
        row = of_requests(judged(bucket, server, lake.lake.database, **more))["s 1"]
    assert (row["state"], row["value"], row["reason"]) == ("censored", None, reason)


DEFINITION = """
name = "mine"
[[reward]]
name = "dissatisfied_by_llm"
weight = 1.0
parameters = { model = "m" }
"""


def definition(text: str = DEFINITION) -> Definition:
    return parse_definition(text, "mine.toml")


def test_model_prompt_and_characters_are_part_of_the_version() -> None:
    versions = {
        definition(DEFINITION.replace('model = "m"', said_so)).version
        for said_so in (
            'model = "m"',
            f'model = "m", prompt = "{prompt_version()}", message_chars_max = 8000',
            'model = "n"',
            'model = "m", message_chars_max = 100',
        )
    }
    assert len(versions) == 3
    with pytest.raises(InvalidInput, match=f"the prompt has version {prompt_version()}, not 0"):
        definition(DEFINITION.replace('model = "m"', 'model = "m", prompt = "0"'))


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        (DEFINITION, {"url": "", "model": ""}, "no judge is set.*PENSTOCK_JUDGE_MODEL=m "),
        (DEFINITION, {"model": "n"}, "the judge is the model n.*PENSTOCK_JUDGE_MODEL=m "),
        (DEFINITION, {"message_chars_max": 100}, "100 characters.*CHARS_MAX=8000"),
        (DEFINITION.replace('model = "m"', ""), {}, "names no model"),
    ],
)
def test_a_judge_that_is_not_the_definition_s_is_refused_before_any_work(
    server: Completions, text: str, more: dict[str, object], why: str
) -> None:
    with pytest.raises(JudgeUnfit, match=f"(?s){why}"):
        check_judge(definition(text), settings_for(server, **more))


def test_what_fits_and_what_needs_no_judge_pass(server: Completions, database: Database) -> None:
    check_judge(definition(), settings_for(server))
    check_judge(find_definition(), load_settings(None, {}))
    assert open_judge(load_settings(None, {}), database, RUN) is None
    with pytest.raises(InvalidInput, match="it is not http://HOST:PORT"):
        check_judge(definition(), settings_for(server, url="nowhere"))


def test_computing_without_the_judge_asks_nobody(
    server: Completions, database: Database, tmp_path: Path
) -> None:
    bucket = bucket_of(tmp_path, told("s", "fix it", "asks why"))
    with pytest.raises(JudgeUnfit, match="no judge is set"):
        dissatisfied_by_llm(bucket, LlmJudgeParameters(model="m"))
    with pytest.raises(JudgeUnfit, match="another model is set"):
        dissatisfied_by_llm(
            judged(bucket, server, database, model="n"), LlmJudgeParameters(model="m")
        )
    assert server.requests == []


def test_only_a_definition_that_names_it_computes_it(
    server: Completions, database: Database, tmp_path: Path
) -> None:
    events = told("s", "fix it", "asks why")
    bucket = judged(bucket_of(tmp_path, events), server, database, model="small")
    assert "dissatisfied_by_llm" not in compute(bucket, None)["name"].to_pylist()
    assert server.requests == []
    named = definition(EXAMPLE.read_text().replace("the-model-that-you-run", "small"))
    names = set(compute(bucket, named)["name"].to_pylist())
    assert {"dissatisfied_by_llm", "dissatisfied_follow_up", "reward"} <= names
    assert len(server.requests) == 1
