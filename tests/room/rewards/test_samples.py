"""examples/sessions, as a reader takes them, and what each reward says of them, worked by hand."""

import json
from collections.abc import Iterator
from math import sqrt

import pyarrow as pa
import pytest

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.buckets import SessionId
from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.history.session_chains import gather_chain
from penstock_jobs.rewards.outcomes import outcomes
from penstock_jobs.rewards.rows import Standing
from tests.support.lakes import START_US, HandLake, hand_lake
from tests.support.repository import ROOT
from tests.support.reward_events import DAY_US, compute
from tests.support.reward_runs import store_samples

SESSIONS = ROOT / "examples" / "sessions"
FILES = sorted(SESSIONS.glob("*.jsonl"))
HORIZONS = (0, 5, 30, 120, 300, 600, 900)

#: (reward, edit, or turn, or "session", horizon).
Key = tuple[str, str, int | None]
#: A value, or the reason why there is none.
Expected = dict[Key, float | str]


def at(reward: str, target: str, *values: float | str) -> Expected:
    """At each of HORIZONS; one value is that of all."""
    values = values * len(HORIZONS) if len(values) == 1 else values
    pairs = zip(HORIZONS, values, strict=True)
    return {(reward, target, horizon): value for horizon, value in pairs}


def whole(reward: str, **values: float | str) -> Expected:
    """Without a horizon: t1 is turn 1."""
    return {(reward, name.removeprefix("t"), None): value for name, value in values.items()}


#: Where nobody looked after five seconds.
NO_5 = "unobserved"
#: Where the session had ended and nobody looked again.
GONE = "workspace_gone"

EXPECTED: dict[str, Expected] = {
    # The edit puts in `*item.count`, and all looks find it. From 5 s to the last word at 15 s.
    "sample-kept": {
        **at("edit_persistence", "k-1", 1),
        **at("self_rework", "k-1", 0),
        **whole("latency", t1=10, session=10),
        **whole("dissatisfied_follow_up", t1="silence", session="silence"),
        # 20 + 10 + 5 of thinking; 60 − 20 and 90 − 10 of calls; (63 + 13) characters / 4 of
        # output; 30 − 5 at the end; two calls of tools, three of the model:
        # x = 35 + 120 + 0.1 · 19 + 25 + 50 · 2 + 50 · 3 = 431.9; −(√1.4319 − 1) / (0.001 · 0.5).
        **whole("length_penalty", t1=-2_000 * (sqrt(1.4319) - 1)),
    },
    # `retry(()=>` and `),5` are put in, 13 characters, and gone after two minutes.
    "sample-reverted": {
        **at("edit_persistence", "r-1", 1, 1, 1, 0, 0, 0, 0),
        # ` retry(() => ` has 10 grams, of which ` ret` is in the file anyway; `), 5` has one.
        **at("four_gram_presence", "r-1", 1, 1, 1, *[1 / 11] * 4),
    },
    # All of the function is there, in another file, and after ten minutes in other lines: of its
    # four lines one became three. Where it was written there is nothing.
    "sample-moved": {
        **at("edit_persistence", "m-1", 1, NO_5, 1, 1, 1, 1, 1),
        **at("line_survival", "m-1", 1, NO_5, 1, 1, 1, 3 / 4, 3 / 4),
        **at("four_gram_range", "m-1", 1, NO_5, 1, 0, 0, 0, 0),
    },
    # Of constpageRows=40 and constpageWidth=80, 16 and 17 characters, the second was replaced:
    # 16 / (33 − 17). Both edits weigh √33: (17 / 33 + 0) / 2.
    "sample-own-rework": {
        **at("edit_persistence", "w-1", 1, NO_5, *[1] * 5),
        **at("self_rework", "w-1", 0, NO_5, *[17 / 33] * 5),
        **at("self_rework", "session", 0, NO_5, *[17 / 66] * 5),
    },
    # The line is away for five minutes, and back after ten.
    "sample-deletion": {
        **at("edit_persistence", "d-1", 1, NO_5, 1, 1, 1, 0, 0),
        **at("line_survival", "d-1", "nothing_written", NO_5, *["nothing_written"] * 5),
    },
    # Three of three.
    "sample-broken-calls": whole("invalid_tool_calls", t1=-1, session=-1),
    # b-1 puts in `DictR` and `,delimeter=";"`, 19 characters, b-2 takes one of them for its own:
    # 18 / (19 − 1), 1 / 19, and no line of b-1 is left that the agent did not change itself.
    "sample-traceback": {
        **at("edit_persistence", "b-1", 1, NO_5, 1, "unobserved", "unobserved", 1, GONE),
        **at("self_rework", "b-1", 0, NO_5, 0, "unobserved", "unobserved", 1 / 19, GONE),
        # Thanks and the test that is asked for begin the second request.
        **whole("dissatisfied_follow_up", t2="silence"),
        **at(
            "line_survival", "b-1", 1, NO_5, 1, "unobserved", "unobserved", "self_rework", GONE
        ),
    },
    # `floor` became `ceil`, and that `round`: the agent took all four characters away itself.
    "sample-tests": {
        **at("edit_persistence", "c-1", 1, *["unobserved"] * 4, "self_rework", GONE),
        # One request. 6 of 8, then 8 of 8: the last counts. One thumb against; two for.
        **whole("tests_passing", t1=1, session=1),
        **whole("explicit_feedback", t1=1 / 3, session=1 / 3),
    },
    # Two are completed and one cancelled.
    "sample-open-todos": whole("open_todos", session=-1 / 4),
    "sample-only-terminal": whole("only_terminal", t1=-1, session=-1),
    "sample-asked": whole("asked_instead", t1=1, t2=0, session=1 / 2),
    # The line that was put in is gone; it replaced nothing, so the published form sees no revert.
    "sample-stopped": {
        **at("edit_persistence", "q-1", 1, NO_5, 0, 0, GONE, GONE, GONE),
        **at("edit_no_revert", "q-1", 1, NO_5, 1, 1, GONE, GONE, GONE),
        **whole("dissatisfied_follow_up", t1=-1, session=-1),
    },
    "sample-no-train": at(
        "edit_persistence", "s-1", 1, NO_5, 1, "unobserved", "unobserved", 1, GONE
    ),
    "sample-long": whole("latency", t1=64 - 3, session=61),
    "sample-long-helper": whole("latency", t1=20 - 9),
    # The summary comes before the first message: turn 0 has no latency.
    "sample-long-2": whole("latency", t1=87 - 80, session=7),
    "sample-other-branch": at(
        "edit_persistence", "o-1",
        1, NO_5, 1, "unobserved", "unobserved", "branch_changed", "unobserved",
    ),
    "sample-nobody-looked": at("edit_persistence", "n-1", 1, *["unobserved"] * 6),
}  # fmt: skip

#: What the judge of messages has to see: the least and the most.
FOLLOW_UPS = {
    ("sample-reverted", "1"): (-1.0, -0.7),
    ("sample-traceback", "1"): (-1.0, -0.7),
    ("sample-tests", "1"): (-1.0, -0.5),
    ("sample-long-2", "1"): (-0.5, 0.0),
}
OUTCOMES = {
    "sample-broken-calls": ("negative_by_rule", "invalid_tool_calls"),
    "sample-stopped": ("negative_by_rule", "abandoned"),
    "sample-no-train": ("excluded", "no_train"),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandLake]:
    with hand_lake(tmp_path_factory.mktemp("samples")) as lake:
        store_samples(lake)
        yield lake


@pytest.fixture(scope="module")
def buckets(lake: HandLake) -> dict[str, Bucket]:
    as_of_us = START_US + DAY_US
    ids = {session: SessionId(TENANT_DEFAULT, session) for session in EXPECTED}
    return {session: gather_chain(lake.lake, one, as_of_us) for session, one in ids.items()}


def said_of(rows: pa.Table) -> Expected:
    """Value or reason; files are left out."""
    said: Expected = {}
    for row in rows.to_pylist():
        kind, target = row["target_kind"], row["target_id"]
        if kind != "file":
            key = (row["name"], "session" if kind == "session" else target, row["horizon_s"])
            said[key] = row["reason"] if row["value"] is None else row["value"]
    return said


@pytest.mark.parametrize("session", EXPECTED)
def test_the_rewards_by_hand(buckets: dict[str, Bucket], session: str) -> None:
    found = said_of(compute(buckets[session], None))
    for key, expected in EXPECTED[session].items():
        said = expected if isinstance(expected, str) else pytest.approx(expected, abs=1e-12)
        assert found[key] == said, key
    for (of, turn), (least, most) in FOLLOW_UPS.items():
        if of == session:
            value = found["dissatisfied_follow_up", turn, None]
            assert isinstance(value, float)
            assert least <= value <= most


def test_the_whole_of_the_one_that_stays(buckets: dict[str, Bucket]) -> None:
    # The agent wrote 11 characters; of the 13 that the user put elsewhere a half counts in the
    # share. Nobody said a word: it is a little of what 16 words ask for, and what was left takes.
    found = said_of(compute(buckets["sample-kept"], find_definition()))
    penalty = 2_000 * (sqrt(1.4319) - 1)
    share = 11 / (11 + 6.5)
    expected = share * 11 / (200 * sqrt(1.6)) - 0.7 * (1 - share) - 0.00002 * penalty
    assert found["reward", "session", None] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("session", EXPECTED)
def test_how_they_end(buckets: dict[str, Bucket], session: str) -> None:
    [ended] = outcomes(buckets[session], {session: Standing("scored", 0.5)}, {})
    assert (ended.kind, ended.reason) == OUTCOMES.get(session, ("scored", None))
    assert ended.checkpoint in ("ckpt-0011", "ckpt-0012")


def test_the_chain_of_a_compaction_and_a_subagent(lake: HandLake) -> None:
    rows = lake.rows("select session_id, parent_session, link from sessions where link is not null")
    assert {row["session_id"]: (row["parent_session"], row["link"]) for row in rows} == {
        "sample-long-2": ("sample-long", "compaction"),
        "sample-long-helper": ("sample-long", "subagent"),
    }
    [told] = lake.rows("select payload from events where type = 'compaction'")
    [summary] = lake.rows("select session_id from model_calls where call_id = 'm-9'")
    assert json.loads(told["payload"])["summary_call_id"] == "m-9"
    assert summary["session_id"] == "sample-long-2"


def test_every_sample_is_worked_out_and_described() -> None:
    text = (SESSIONS / "README.md").read_text(encoding="utf-8")
    sessions = set()
    for path in FILES:
        assert f"]({path.name})" in text
        for line in path.read_text(encoding="utf-8").splitlines():
            sessions.add(json.loads(line)["session_id"])
    assert sessions == set(EXPECTED)
    assert all(f"`{session}`" in text for session in sessions)
