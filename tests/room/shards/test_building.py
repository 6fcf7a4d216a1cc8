"""Building a shard: the same bytes twice, nothing half-built, and proof from the files."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.backends.execution.executor import TaskResult
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake import QueryRefused, SnapshotUnknown
from penstock.lake.catalog import create_snapshot, list_snapshots
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from penstock.shards.registered_shards import find_shard, marks_of
from penstock.shards.shard import ShardUnknown
from penstock.shards.validation import verify_shard
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.shards.build import ShardBuild, build_shard
from penstock_jobs.shards.registration import mark_consent
from penstock_jobs.shards.selection.plan import NothingToBuild
from penstock_jobs.shards.shard_difference import diff_shards
from tests.support.cut_off import CutOff
from tests.support.engine_lake import (
    DAY_US,
    NO_ORDER,
    QUERY,
    SESSIONS,
    built,
    files_of,
    rows_of,
    talk,
)
from tests.support.lakes import START_US, HandLake, make_event
from tests.support.reward_events import answered, said

Task = TypeVar("Task")
Result = TypeVar("Result")


def test_tokens_masks_rewards_and_advantages_come_together(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    shard = built(lake, recipe())
    rows = {row["session_id"]: row for row in rows_of(lake, shard)}
    assert sorted(rows) == [f"s{number:02d}" for number in range(SESSIONS)]
    row = rows["s01"]
    assert row["input_ids"] == [1, 2, 1, 7, 8, 3, 4, 9]
    assert row["loss_mask"] == [0, 0, 0, 1, 1, 0, 0, 1]
    assert row["rollout_logprobs"] == [0, 0, 0, -0.5, -0.25, 0, 0, -0.125]
    assert (row["token_source"], row["checkpoint_id"]) == ("engine", "ckpt-1")
    [known] = lake.rows(
        """select value from rewards where session_id = 's01' and name = 'reward'
        and target_kind = 'session'"""
    )
    assert row["reward"] == pytest.approx(known["value"])
    assert {one["name"] for one in row["reward_components"]} >= {"dissatisfied_follow_up"}
    # A thumb up counts nothing; what the user says of both turns does, by half in each.
    for own in rows.values():
        assert sum(part["value"] for part in own["token_rewards"]) == pytest.approx(own["reward"])
    assert [part["pos"] for part in row["token_rewards"]] == [4, 7]
    assert row["tokenizer_id"] == "t" * 64  # no digest: a name
    # All of a stratum have the same reward: what is left is the pull towards the overall mean.
    assert rows["s01"]["advantage"] > 0 > rows["s00"]["advantage"]
    counts = shard.manifest.counts
    assert (counts.sessions, counts.samples, counts.tokens) == (SESSIONS, SESSIONS, 8 * SESSIONS)
    assert counts.excluded == {}
    assert shard.manifest.policy is not None
    assert (shard.manifest.policy.min, shard.manifest.policy.max) == (4, 4)
    assert len(shard.manifest.files) > 1


def test_an_advantage_may_be_divided_by_turns_or_tokens(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    """Each session has two turns, in which three tokens were sampled."""

    def per(what: str) -> list[float]:
        kind = 'kind = "stratum"'
        shard = built(lake, recipe((kind, f'{kind}\nper = "{what}"')))
        return [row["advantage"] for row in rows_of(lake, shard)]

    whole = per("session")
    assert per("turn") == pytest.approx([value / 2 for value in whole])
    assert per("token") == pytest.approx([value / 3 for value in whole])


def test_a_shard_is_of_its_snapshot_for_ever(lake: HandLake, recipe: Callable[..., Any]) -> None:
    create_snapshot(lake.lake.database, "then")
    before = built(lake, recipe(("seed = 3", 'seed = 3\nas_of = "then"')))
    lake.store(talk("late", 99))
    run(lake.lake, InlineExecutor(), RunRequest(find_definition()), now_us=START_US + 2 * DAY_US)
    again = built(lake, recipe(("seed = 3", 'seed = 3\nas_of = "then"')))
    assert again.manifest.id == before.manifest.id
    newest = built(lake, recipe())
    assert newest.manifest.counts.sessions == SESSIONS + 1
    assert {one.name for one in list_snapshots(lake.lake.database)} == {
        "then",
        newest.manifest.snapshot and newest.manifest.snapshot.name,
    }
    difference = diff_shards(before.stored, newest.stored)
    assert difference.samples.sessions_only_after == ["late"]
    assert difference.samples.only_before == 0
    assert {"snapshot", "counts.sessions"} <= {one.what for one in difference.changes}


class Hears(InlineExecutor):
    """Says how many slices were made, after each."""

    def __init__(self, hear: Callable[[int], None]) -> None:
        self.hear = hear

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[TaskResult[Task, Result]]:
        for number, done in enumerate(super().run(function, tasks), start=1):
            yield done
            self.hear(number)


def cut_off(_slices: int) -> None:
    raise CutOff


def test_a_build_that_was_cut_off_leaves_nothing_to_see(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    with pytest.raises(CutOff):
        built(lake, recipe(), Hears(cut_off))
    assert lake.rows("select * from shards") == []
    assert lake.rows("select * from samples") == []
    assert files_of(lake), "slices were written"
    collect(lake.lake, grace_s=0)
    assert files_of(lake) == set()
    shard = built(lake, recipe())
    assert verify_shard(shard.stored).problems == []
    collect(lake.lake, grace_s=0)
    assert verify_shard(shard.stored).problems == []
    assert not any("staging" in name for name in files_of(lake))
    assert verify(lake.lake).findings == []


def test_it_is_seen_in_views_and_found_by_its_name_or_the_beginning_of_its_id(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    create_snapshot(lake.lake.database, "before")
    shard = built(lake, recipe())
    [row] = lake.rows("select shard, name, samples, tokens, marked_sessions from shards")
    assert list(row.values()) == [shard.manifest.id, "engine", SESSIONS, 8 * SESSIONS, 0]
    found = lake.rows("select shard, session_id, n_tokens, n_trainable from samples order by all")
    assert [tuple(one.values()) for one in found] == [
        (shard.manifest.id, f"s{number:02d}", 8, 3) for number in range(SESSIONS)
    ]
    for view in ("shards", "samples"):
        assert lake.rows(f"select * from {view}", tenant="other") == []
        assert lake.rows(f"select * from {view}", "before") == []
    database = lake.lake.database
    for text in (shard.manifest.id, "engine", shard.manifest.id[7:15], shard.manifest.id[:15]):
        assert find_shard(database, "default", text).id == shard.manifest.id
    for tenant, text in (("other", "engine"), ("default", "nothing"), ("default", "")):
        with pytest.raises(ShardUnknown):
            find_shard(database, tenant, text)


def test_consent_that_is_taken_back_marks_the_shard(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    shard = built(lake, recipe())
    lake.store([make_event("s03", 500, "session_start", payload={"consent": "no_train"})])
    lake.store([make_event("nobody", 500, "session_start", payload={"consent": "no_train"})])
    assert mark_consent(lake.lake) == 1
    assert mark_consent(lake.lake) == 0
    assert marks_of(lake.lake.database, TENANT_DEFAULT, shard.manifest.id) == [("s03", "no_train")]
    [row] = lake.rows("select marked_sessions from shards")
    assert row["marked_sessions"] == 1
    again = built(lake, recipe())
    assert again.manifest.counts.sessions == SESSIONS - 1
    assert again.manifest.counts.excluded == {"consent_denied": 1, "no_reward": 1}


def test_every_session_of_the_query_is_accounted_for(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    lake.store([said(1, "hello", "silent"), answered(2, "silent", text="Hi.")])
    lake.store(talk("theirs", 1), tenant="other")
    more = "union all select 'nobody', null union all select 'theirs', null order by"
    shard = built(lake, recipe(query=QUERY.replace("order by", more)))
    counts = shard.manifest.counts
    assert counts.excluded == {"no_reward": 1, "not_in_lake": 2}
    assert shard.asked == counts.sessions + sum(counts.excluded.values()) == SESSIONS + 3
    with pytest.raises(NothingToBuild):
        build_shard(lake.lake, InlineExecutor(), recipe(), tenant="other")


#: What is put in the place of what, the query, and why it is refused.
REFUSED: list[tuple[list[tuple[str, str]], str, type[Exception], str]] = [
    ([], "select project from sessions", InvalidInput, "session_id"),
    ([], "select 1 as session_id, '' as stratum", InvalidInput, "session_id"),
    ([], f"select * from ({NO_ORDER}) where false", NothingToBuild, "none was named"),
    ([], "delete from sessions", QueryRefused, "exactly one SELECT"),
    ([], "select session_id from elsewhere", QueryRefused, "no view elsewhere"),
    ([("seed = 3", 'seed = 3\nas_of = "gone"')], QUERY, SnapshotUnknown, "gone"),
    ([('consent = "not_denied"', 'suites = ["core"]')], QUERY, InvalidInput, "suite 'core'"),
    ([('[advantage]', '[staleness]\nchannel = "production"\nmax_versions = 1\n[advantage]')],
     QUERY, InvalidInput, "channel"),
    ([('source = "engine"', 'source = "render"\ntokenizer = "none.json"')],
     QUERY, InvalidInput, "none.json"),
    ([('"not_denied"', '"train"')], QUERY, NothingToBuild, "consent_unknown"),
    ([('pending = "drop"', 'pending = "drop"\nhorizon_s = 7')], QUERY, InvalidInput, "7"),
]  # fmt: skip


def test_bad_input_is_refused_and_leaves_nothing(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    for replaced, query, error, why in REFUSED:
        with pytest.raises(error, match=why):
            built(lake, recipe(*replaced, query=query))
    assert lake.rows("select * from shards") == []
    assert list_snapshots(lake.lake.database) == []
    collect(lake.lake, grace_s=0)
    assert files_of(lake) == set()


def test_near_duplicates_are_left_out(lake: HandLake, recipe: Callable[..., Any]) -> None:
    text = " ".join(f"word{number}" for number in range(60))
    for number in (50, 51):
        events = talk(f"like{number}", number)
        events[1]["payload"]["text"] = text
        lake.send(events)
    lake.writer().drain()
    run(lake.lake, InlineExecutor(), RunRequest(find_definition()), now_us=START_US + 2 * DAY_US)
    wanted = recipe(('consent = "not_denied"', 'consent = "not_denied"\nnear_duplicates = true'))
    shard = built(lake, wanted)
    assert shard.manifest.counts.excluded == {"near_duplicate": 1}
    assert "like50" in {row["session_id"] for row in rows_of(lake, shard)}


def test_a_recipe_that_packs_counts_the_rows(lake: HandLake, recipe: Callable[..., Any]) -> None:
    packed = built(lake, recipe(('source = "engine"', 'source = "engine"\npack = true')))
    assert packed.manifest.counts.packed_rows == 1, "twelve samples of 8 tokens"
    short = '"engine"\nmax_length = 16\npack = true\n[reward]'
    assert built(lake, recipe(('"engine"\n[reward]', short))).manifest.counts.packed_rows == 6


def test_the_snapshot_of_a_manifest_makes_the_same_shard_and_mends_it(
    lake: HandLake, recipe: Callable[..., Any], tmp_path: Path
) -> None:
    first = built(lake, recipe())
    assert first.manifest.snapshot is not None
    lake.store(talk("late", 99))
    folder = tmp_path / "data" / "lake" / first.stored.folder
    (folder / first.manifest.files[0].name).unlink()
    (folder / "manifest.json").unlink()
    named = ("seed = 3", f'seed = 3\nas_of = "{first.manifest.snapshot.name}"')
    again = built(lake, recipe(named))
    assert (again.manifest.id, again.new) == (first.manifest.id, False)
    assert verify_shard(first.stored).problems == []


def test_two_builds_at_once_make_one_shard(lake: HandLake, recipe: Callable[..., Any]) -> None:
    """The second begins and ends while the first is at its slices."""
    inner: list[ShardBuild] = []

    def build_another(slices: int) -> None:
        if slices == 1:
            inner.append(built(lake, recipe()))

    outer = built(lake, recipe(), Hears(build_another))
    assert (inner[0].new, outer.new) == (True, False)
    assert inner[0].manifest.id == outer.manifest.id
    collect(lake.lake, grace_s=0)
    assert verify_shard(outer.stored).problems == []
    assert not any("staging" in name for name in files_of(lake))
