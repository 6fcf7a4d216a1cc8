"""The same seed gives the same bytes, and each event is one that the gateway takes."""

import ast
import hashlib
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from penstock.events.validation import validate_lines
from penstock_jobs.simulator.delivery import EventLine, batches, deliver
from penstock_jobs.simulator.files import LANGUAGES, write_file
from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.policy import POLICIES
from penstock_jobs.simulator.production import Checkpoint, Production
from penstock_jobs.simulator.truth import SessionTruth

PRODUCTION = Production(7)


def digest(lines: list[EventLine]) -> str:
    return hashlib.sha256(b"\n".join(line for _, line in lines)).hexdigest()


def test_a_seed_gives_the_same_bytes_for_ever() -> None:
    # A change of anything in the simulator changes this: say so in CHANGELOG.md.
    truths: list[SessionTruth] = []
    lines = list(deliver(PRODUCTION, 60, learn=truths.append))
    assert digest(lines) == "5512f589c46381bc7f1eda5b50da1985aa1f3ebc938fdaf4ffab3bfb567eeefc"
    told = b"\n".join(map(msgspec.json.encode, truths))
    found = hashlib.sha256(told).hexdigest()
    assert found == "fd73d4860f28b79eb66f7deca8c31f696f4d4160d3b79c52b156182aa3481b66"


def test_another_seed_start_or_policy_gives_other_sessions() -> None:
    others = [
        PRODUCTION,
        Production(8),
        replace(PRODUCTION, start_us=PRODUCTION.start_us + 1),
        replace(PRODUCTION, checkpoints=[Checkpoint("ckpt-0011", POLICIES["weak"])]),
    ]
    ids = {some[0].truth.session_id for one in others for some in one.sessions(5)}
    assert len(ids) == 20


def test_a_session_is_the_same_whatever_comes_before_or_after_it() -> None:
    many = [one.lines for some in PRODUCTION.sessions(30) for one in some]
    some = [one.lines for some in PRODUCTION.sessions(10, first=20) for one in some]
    assert many[-len(some) :] == some


def test_events_arrive_in_the_order_in_which_they_happen() -> None:
    times = [msgspec.json.decode(line)["ts"] for _, line in deliver(PRODUCTION, 50)]
    assert all(one <= other for one, other in pairwise(times))


def test_late_and_repeated_events_are_the_same_events() -> None:
    plain = Counter(deliver(PRODUCTION, 50))
    lines = list(deliver(PRODUCTION, 50, late=0.3, repeated=0.2))
    assert set(Counter(lines)) == set(plain)
    assert len(lines) == pytest.approx(1.2 * plain.total(), rel=0.1)
    times = [msgspec.json.decode(line)["ts"] for _, line in lines]
    assert sum(one > other for one, other in pairwise(times)) > 100


def test_the_rate_changes_the_time_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list(deliver(PRODUCTION, 10))
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    paced = list(batches(lines, 50.0))
    assert [line for batch in paced for line in batch] == lines
    assert {len(batch) for batch in paced[:-1]} == {5}
    # Nobody slept, so that each wait is for all batches before it.
    assert slept[-1] == pytest.approx((len(paced) - 1) * 5 / 50, abs=1)


def test_every_event_is_one_that_the_gateway_takes() -> None:
    lines = [line for _, line in deliver(PRODUCTION, 80)]
    judged = validate_lines(lines, 1, 64 * 1024)
    assert judged.rejections == []
    assert len(judged.lines) == len(lines)


def test_there_is_something_of_everything() -> None:
    lived = [one for some in PRODUCTION.sessions(600) for one in some]
    kinds = Counter(kind for one in lived for _, kind, _ in one.lines)
    assert kinds.keys() >= {
        "session_start", "session_end", "user_message", "model_call", "tool_result", "edit",
        "file_observed", "feedback", "compaction", "interrupt",
    }  # fmt: skip
    truths = [one.truth for one in lived]
    assert {one.outcome for one in truths} == {
        "scored", "negative_by_rule", "excluded", "censored",
    }  # fmt: skip
    assert {one.consent for one in truths} == {"train", "no_train", "unknown"}
    assert {edit.reaction for one in truths for edit in one.edits} == {
        "kept", "fixed", "partly_reverted", "reverted", "commented_out",
    }  # fmt: skip
    assert any(one.parent_session for one in truths)
    requests = [request for one in truths for request in one.requests]
    assert {one.dissatisfied for one in requests} == {True, False, None}
    assert {one.kind for one in requests} == {
        "code", "tests", "docs", "deletion", "question", "terminal",
    }  # fmt: skip
    said = {act for one in requests for act in one.said}
    assert said >= {"accept", "refine", "incomplete", "correct", "failure", "revert", "complain"}


def test_a_session_is_in_order_and_its_identities_never_repeat() -> None:
    for some in PRODUCTION.sessions(100):
        for one in some:
            events = [msgspec.json.decode(line) for _, _, line in one.lines]
            assert events[0]["type"] == "session_start"
            assert [event["seq"] for event in events] == list(range(len(events)))
            assert all(a["ts"] < b["ts"] for a, b in pairwise(events))
            assert {event["session_id"] for event in events} == {one.truth.session_id}
            assert len({event["event_id"] for event in events}) == len(events)


@pytest.mark.parametrize("seed", range(40))
def test_python_files_parse(seed: int) -> None:
    dice = Dice(seed)
    python = next(language for language in LANGUAGES if language.name == "python")
    file = write_file(dice, python, blocks=5)
    ast.parse(file.text)
    # What an edit adds parses inside of a function.
    steps = python.grammar.expand_many("step", dice, file.names, 5)
    ast.parse("\n".join(["def function():", *steps]))
