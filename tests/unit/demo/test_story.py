"""What is told is true, however the cycles end."""

from dataclasses import replace
from itertools import pairwise

from penstock_jobs.demo.story import ACTS
from tests.support.demo.chapters import chapter


def test_an_act_is_told_as_the_one_before_ended() -> None:
    for before, act in pairwise(ACTS):
        ended = chapter(1, act=before, outcome=before.meant)
        assert act.behind(ended) == act
        otherwise = "refused" if before.meant == "promoted" else "promoted"
        surprised = act.behind(replace(ended, outcome=otherwise))
        assert surprised == replace(act, told=surprised.told)
        assert surprised.told in (act.otherwise, act.told)


def test_nothing_is_claimed_that_did_not_happen() -> None:
    """The hack served after all; nothing was rolled back."""
    for number, claim in ((2, "never saw the hack"), (5, "released")):
        assert claim in ACTS[number].told
        ended = chapter(number, act=ACTS[number - 1], outcome="promoted")
        assert claim not in ACTS[number].behind(ended).told


def test_the_first_act_has_none_before_it() -> None:
    assert ACTS[0].behind(None) is ACTS[0]
