"""What sessions repeat of others that they resume or fork."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.backends.execution.calls import InlineExecutor
from penstock.events.event import TENANT_DEFAULT
from penstock.shards.registered_shards import marks_of
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.shards.registration import mark_consent
from tests.support.engine_lake import DAY_US, SESSIONS, built, otherwise, rows_of, talk, tokens
from tests.support.lakes import START_US, Event, HandLake, hand_lake, make_event
from tests.support.reward_events import answered, said
from tests.support.reward_runs import thumbs


def reward(lake: HandLake) -> None:
    lake.writer().drain()
    run(lake.lake, InlineExecutor(), RunRequest(find_definition()), now_us=START_US + 2 * DAY_US)


def begin(lake: HandLake, name: str, parent: str, link: str, number: int) -> None:
    """A session that goes on from another, and says something else."""
    start = {"parent_session": parent, "link": link}
    begun = make_event(name, 0, "session_start", payload=start)
    lake.send([begun, *otherwise(name, number)])


def test_what_a_fork_repeats_is_not_trained_twice(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    """`fork` tells the first turn of s01 again, and goes on otherwise; `again` only repeats it."""
    start = {"parent_session": "s01", "link": "fork"}
    repeated = talk("s01", 1)[:2]
    ids = {"prompt_ids": [1, 2, 1, 7, 8, 5], "completion_ids": [6], "logprobs": [-0.75]}
    own = [
        said(10, "rather this", "fork"),
        answered(11, "fork", call_id="c", text="So.", tokens=tokens(ids)),
        thumbs("fork", 12),
    ]
    for name, more in (("fork", own), ("again", [])):
        told = [one | {"session_id": name, "event_id": f"{name}-{one['seq']}"} for one in repeated]
        begun = make_event(name, 0, "session_start", payload=start)
        lake.send([begun, *told, *more, thumbs(name, 13)])
    reward(lake)
    shard = built(lake, recipe())
    assert shard.manifest.counts.excluded == {"copy": 1}
    rows = {row["session_id"]: row for row in rows_of(lake, shard)}
    assert "again" not in rows
    assert rows["fork"]["input_ids"] == [1, 2, 1, 7, 8, 5, 6]
    assert rows["fork"]["loss_mask"] == [0, 0, 0, 0, 0, 0, 1]
    assert rows["s01"]["loss_mask"] == [0, 0, 0, 1, 1, 0, 0, 1]


def test_age_counts_from_when_the_trained_tokens_were_sampled(
    tmp_path: Path, recipe: Callable[..., Any]
) -> None:
    """What somebody did in a session today makes what was sampled two days ago no younger, and
    what a fork repeats from then makes its own tokens no older."""
    now_us = time.time_ns() // 1_000
    old_us = now_us - 2 * DAY_US

    def at(moment_us: int, events: list[Event]) -> list[Event]:
        return [event | {"ts": moment_us + event["seq"]} for event in events]

    def own(session: str, token: int) -> list[Event]:
        ids = {"prompt_ids": [1, 2, 1, 7, 8, 5], "completion_ids": [token], "logprobs": [-0.75]}
        asked = said(10, f"{session}, go on", session)
        return [asked, answered(11, session, call_id="c", text=session, tokens=tokens(ids))]

    looked = make_event("looked-at", 50, "file_observed", payload={"path": "a.py", "text": ""})
    begun = make_event("fork", 0, "session_start", payload={"parent_session": "s1", "link": "fork"})
    told = [
        event | {"session_id": "fork", "event_id": f"f{event['seq']}"} for event in talk("s1", 1)
    ]
    started = said(1, "something else", "fresh")
    with hand_lake(tmp_path / "aged") as lake:
        lake.send(at(old_us, [*otherwise("looked-at", 2), *talk("s1", 1), begun, *told, started]))
        lake.send(at(now_us, [looked, *own("fork", 6), *own("fresh", 9)]))
        # Text that no engine reported is not trained, so it is not old.
        lake.send(at(old_us, [answered(2, "fresh", call_id="t", text="Only text.")]))
        lake.writer().drain()
        age = ("[reward]", '[staleness]\nmax_age = "6h"\n[reward]')
        plain = ('[reward]\ndefinition = "default"\npending = "drop"\n', "")
        none = ('kind = "stratum"', 'kind = "none"')
        shard = built(lake, recipe(age, plain, none))
        assert {row["session_id"] for row in rows_of(lake, shard)} == {"fork", "fresh"}
        assert shard.manifest.counts.excluded == {"stale_age": 2}
        [detail] = {gone.detail for gone in shard.left_out if gone.session_id == "looked-at"}
        assert detail is not None
        assert detail.startswith("its first tokens were sampled 172")


def test_no_train_reaches_what_repeats_it(lake: HandLake, recipe: Callable[..., Any]) -> None:
    """`fork` holds what was said in s01; `fork-of-fork` too; `next` goes on with the fork."""
    begin(lake, "fork", "s01", "fork", 100)
    begin(lake, "fork-of-fork", "fork", "resume", 101)
    begin(lake, "next", "fork", "compaction", 102)
    reward(lake)
    shard = built(lake, recipe())
    held = {row["session_id"] for row in rows_of(lake, shard)}
    assert {"fork", "fork-of-fork", "next"} <= held
    lake.store([make_event("s01", 500, "session_start", payload={"consent": "no_train"})])
    assert mark_consent(lake.lake) == 4
    assert {
        session for session, _ in marks_of(lake.lake.database, TENANT_DEFAULT, shard.manifest.id)
    } == {*("s01", "fork", "fork-of-fork", "next")}
    again = built(lake, recipe())
    assert again.manifest.counts.excluded == {"consent_denied": 4}


def test_forks_are_on_the_side_of_what_they_fork(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    for number in range(SESSIONS):
        begin(lake, f"f{number:02d}", f"s{number:02d}", "fork", 50 + number)
    reward(lake)
    split = '[split]\neval = 0.5\nby = "group"\n[exclude]'
    rows = rows_of(lake, built(lake, recipe(("[exclude]", split))))
    sides = {row["session_id"]: row["split"] for row in rows}
    assert {sides[f"s{n:02d}"] == sides[f"f{n:02d}"] for n in range(SESSIONS)} == {True}
    assert set(sides.values()) == {"train", "eval"}
