"""The kind of a request: from the user's words alone, and code where they do not tell."""

import pytest

from penstock_jobs.rewards.followups.request_kinds import KINDS, request_kind
from tests.support.labelled_messages import HELD_OUT_REQUESTS, requests


def test_kinds_of_requests_that_the_model_did_not_see() -> None:
    held_out = requests(HELD_OUT_REQUESTS)
    assert {each.text for each in held_out}.isdisjoint(each.text for each in requests())
    assert {each.kind for each in held_out} == set(KINDS)
    told = request_kind([each.text for each in held_out])
    right = [kind == each.kind for kind, each in zip(told, held_out, strict=True)]
    assert sum(right) / len(right) > 0.8


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("write unit tests for the parser, then run them", "tests"),
        ("run the tests", "terminal"),
        ("document how to run the tests", "docs"),
        ("remove the tests of the deleted module", "deletion"),
        ("why do the tests fail?", "question"),
        ("make the failing tests pass", "code"),
        ("schreib bitte eine Anleitung für neue Leute", "docs"),
        ("borra los archivos que ya no se usan", "deletion"),
    ],
)
def test_what_shares_words_is_told_apart(text: str, kind: str) -> None:
    assert request_kind([text]) == [kind]


def test_who_says_nothing_of_a_kind_wants_code() -> None:
    assert request_kind(["", " ", "\ud800", "hm", "x" * 100_000]) == ["code"] * 5
    assert request_kind([]) == []
