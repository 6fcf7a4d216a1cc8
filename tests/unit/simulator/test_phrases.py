"""What users say: by many people, in many languages, and a third of it is seen by nobody."""

from collections import Counter

import pytest

from penstock_jobs.simulator.files import check_out, names_of
from penstock_jobs.simulator.grammar import TONGUES, Dice, phrases

ACTS = (
    "request_code", "request_tests", "request_docs", "request_deletion", "request_question",
    "request_terminal", "accept", "refine", "incomplete", "correct", "failure", "revert",
    "complain", "ask", "small_talk", "answer",
)  # fmt: skip


def test_each_act_has_many_phrases_in_many_languages() -> None:
    counts = Counter(
        {act: sum(len(phrases(tongue).shapes(act)) for tongue in TONGUES) for act in ACTS}
    )
    held_out = Counter(
        {
            act: sum(len(phrases(tongue, held_out=True).shapes(act)) for tongue in TONGUES)
            for act in ACTS
        }
    )
    assert TONGUES[0] == "en"
    assert len(TONGUES) >= 12
    assert min((counts + held_out).values()) >= 40
    for act in ACTS:
        assert 0.2 < held_out[act] / (counts + held_out)[act] < 0.4


@pytest.mark.parametrize("tongue", TONGUES)
def test_what_is_held_out_is_never_said_otherwise(tongue: str) -> None:
    for act in ACTS:
        known, held_out = phrases(tongue), phrases(tongue, held_out=True)
        assert not set(known.shapes(act)) & set(held_out.shapes(act))


@pytest.mark.parametrize("tongue", TONGUES)
def test_every_phrase_can_be_said(tongue: str) -> None:
    files = [file.source for file in check_out(1)]
    names, dice = names_of(Dice(1), files[0], files), Dice(2)
    for part in (phrases(tongue), phrases(tongue, held_out=True)):
        for act in (*ACTS, "detail", "give_up"):
            assert all("<" not in text for text in part.expand_many(act, dice, names, 20))
