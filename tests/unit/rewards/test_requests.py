"""Requests: where they begin and end, and what is said of them."""

import pytest

from penstock_jobs.rewards.followups.follow_ups import follow_ups, silences
from penstock_jobs.rewards.followups.judge import DISSATISFIED
from penstock_jobs.rewards.followups.local_judge import local_judge
from penstock_jobs.rewards.requests import (
    Remark,
    Request,
    asks,
    count_words,
    remark_of,
    requests_in,
)
from tests.support.rewards.conversations import Conversation, conversations

ALL = list(conversations())
SURE, UNSURE = 0.95, 0.05


def divided(told: Conversation, *, judged: bool) -> list[Request]:
    """By what the labels of the conversation say, or by the local judge."""
    found = list(follow_ups([told.session]))
    remarks = {}
    judgements = local_judge().judge([each.message for each in found])
    for number, (each, judgement) in enumerate(zip(found, judgements, strict=True)):
        label, chance = judgement.label, judgement.dissatisfied
        if not judged and (own := told.labels[each.turn - 1]) is not None:
            label, chance = own, SURE if own in DISSATISFIED else UNSURE
        remarks[each.session_id, each.turn] = number, remark_of(each.message, label, chance)
    requests = requests_in(told.session, remarks)
    for last, evidence in silences([told.session]):
        if evidence:
            next(own for own in requests if last in [t.key for t in own.turns]).stopped = True
    return requests


def numbers(requests: list[Request]) -> list[int]:
    turns = sorted((turn.ts, own.number) for own in requests for turn in own.turns)
    return [number for _, number in turns]


def verdict(request: Request) -> str:
    if request.dissatisfied is None:
        return "none"
    return "bad" if request.dissatisfied >= 0.5 else "good"


@pytest.mark.parametrize("told", ALL, ids=lambda told: told.name)
def test_a_conversation_is_divided_as_a_person_reads_it(told: Conversation) -> None:
    requests = divided(told, judged=False)
    assert numbers(requests) == told.requests
    assert [verdict(request) for request in requests] == told.verdicts
    starts = [request.started_us for request in requests]
    assert [request.ended_us for request in requests] == [*starts[1:], None]


def test_the_local_judge_divides_most_of_them_alike() -> None:
    """It has not seen them. What it takes for something else is a miss, not a mistake of ours."""
    found = [divided(told, judged=True) for told in ALL]
    alike = [numbers(own) == told.requests for own, told in zip(found, ALL, strict=True)]
    verdicts = [
        list(map(verdict, own)) == told.verdicts for own, told in zip(found, ALL, strict=True)
    ]
    assert len(ALL) > 40
    assert sum(alike) / len(ALL) > 0.8
    assert sum(verdicts) / len(ALL) > 0.7


def test_a_size_comes_from_the_words_of_the_user() -> None:
    def size(text: str) -> float:
        return Request("s", 1, text, 0).size

    assert size("fix it") == size("x " * 10) == 1
    assert size("word " * 40) == 2
    assert size("word " * 1_000) == 4
    pasted = (
        "Why does it fail?\n" + 'Traceback (most recent call last):\n  File "a.py", line 3\n' * 50
    )
    assert size(pasted) == 1
    assert count_words("请让计算价格的函数") == 4.5


@pytest.mark.parametrize(
    ("remark", "says"),
    [
        (Remark("moves_on", 0.1, answers=False), "begins"),
        (Remark("moves_on", 0.6, answers=False), "judges"),
        (Remark("accepts", 0.05, answers=False), "praises"),
        (Remark("accepts", 0.14, answers=False), "judges"),
        (Remark("accepts", 0.1, answers=True), "nothing"),
        (Remark("asks", 0.1, answers=False), "nothing"),
        (Remark("asks", 0.7, answers=False), "judges"),
        (Remark("refines", 0.4, answers=True), "nothing"),
        (Remark("incomplete", 0.9, answers=False), "judges"),
        (Remark("abandons", 0.2, answers=False), "nothing"),
    ],
)
def test_a_remark(remark: Remark, says: str) -> None:
    assert (remark.begins, remark.praises, remark.is_neutral) == (
        says == "begins",
        says == "praises",
        says == "nothing",
    )


def test_a_greeting_is_no_request() -> None:
    told = Conversation("greeting")
    for text, answer in (("Hello", "How can I help you?"), ("Fix the parser of dates.", "Done.")):
        turn = next(iter(ALL[0].turns))
        at = len(told.turns) + 1
        told.turns.append(type(turn)("s", at, at, text, acted=True, agent_text=answer))
        told.labels.append("moves_on" if at > 1 else None)
    (request,) = divided(told, judged=False)
    assert request.text == "Fix the parser of dates."
    assert request.dissatisfied is None


def test_a_question_is_the_last_that_the_agent_says() -> None:
    assert asks("I changed it. Is that right?")
    assert not asks("Is it right? I think so.\n```\nx ? y\n```")
