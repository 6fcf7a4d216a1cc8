"""What a recipe says of channels and suites."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.database.engine import now_us
from penstock.backends.execution.calls import ProcessExecutor
from penstock.core.errors import InvalidInput
from penstock.registry.channels.tables import channel_change
from penstock.registry.checkpoints.suites import SuiteContent, SuiteTask, SuiteVersion, add_suite
from tests.support.engine_lake import SESSIONS, built, fill, rows_of, tokens
from tests.support.lakes import HandLake
from tests.support.reward_events import answered, said
from tests.support.reward_runs import thumbs

CHANNEL = ("[advantage]", '[staleness]\nchannel = "production"\nmax_versions = 1\n[advantage]')
SUITE = ('consent = "not_denied"', 'consent = "not_denied"\nsuites = ["core"]')
TASK = """The importer drops the last row of a file without a newline at its end. Make it keep
that row, also where the file has one column alone, and add a test for both of them."""


def point(lake: HandLake, *served: str, canary: str | None = None, since: int = 0) -> None:
    """The history of `production` since a version, as promotions would have written it."""
    with lake.lake.database.write() as connection:
        for version, checkpoint in enumerate(served, since + 1):
            row = {
                "tenant": "default", "channel": "production", "version": version,
                "action": "promote", "checkpoint": checkpoint, "pinned": False,
                "overridden": False, "actor": "ann", "reason": "why not", "previous_hash": "",
                "canary": canary if version == len(served) else None, "hash": "", "at": now_us(),
            }  # fmt: skip
            connection.execute(sa.insert(channel_change).values(row))


def more(lake: HandLake, session: str, checkpoint: str, text: str = "do what none did") -> None:
    """A session of its own, by a checkpoint, with what the user asked."""
    events = [
        said(10, text, session),
        answered(
            11, session, call_id="a", text=f"I did {session}.",
            tokens=tokens({"prompt_ids": [5], "completion_ids": [6], "logprobs": [-0.1]}),
        ),
        thumbs(session, 12, "up"),
    ]  # fmt: skip
    lake.send([one | {"project": "p", "checkpoint": checkpoint} for one in events])


@pytest.mark.smoke
def test_versions_are_counted_back_from_a_channel(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    point(lake, "ckpt-0", "ckpt-1", "ckpt-2", canary="ckpt-3")
    for number, checkpoint in enumerate(["ckpt-0", "ckpt-2", "ckpt-3", "ckpt-9"]):
        more(lake, f"by-{checkpoint}", checkpoint, f"do the {number}. of four things")
    fill(lake)
    shard = built(lake, recipe(CHANNEL))
    sessions = {row["session_id"] for row in rows_of(lake, shard)}
    # One behind is near enough; the canary is ahead; nobody knows ckpt-9.
    assert sessions >= {"s00", "by-ckpt-2", "by-ckpt-3"}
    assert shard.manifest.counts.excluded == {"stale_version": 1, "stale_unknown_version": 1}
    assert shard.manifest.counted_from == "ckpt-2"


def test_the_latest_promotion_counts_though_nothing_was_stored_since(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    with pytest.raises(InvalidInput, match="nothing had been promoted"):
        built(lake, recipe(CHANNEL))
    point(lake, "ckpt-1")
    first = built(lake, recipe(CHANNEL))
    assert first.manifest.counted_from == "ckpt-1"
    assert built(lake, recipe(CHANNEL)).manifest.id == first.manifest.id
    assert not built(lake, recipe(CHANNEL)).new
    plain = built(lake, recipe()).manifest.snapshot
    point(lake, "ckpt-2", since=1)
    second = built(lake, recipe(CHANNEL)).manifest
    assert second.counted_from == "ckpt-2"
    # What asks for no channel is not built anew because of one.
    assert plain == built(lake, recipe()).manifest.snapshot
    assert first.manifest.snapshot is not None
    as_of = ("seed = 3", f'seed = 3\nas_of = "{first.manifest.snapshot.name}"')
    assert built(lake, recipe(CHANNEL, as_of)).manifest.id == first.manifest.id


def test_sessions_that_hold_a_suite_s_tasks_are_left_out(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    texts = (("t-1", TASK), ("t-2", "fix the failing test"))
    content = SuiteContent(texts=texts, sessions=("s03",))
    suite = SuiteVersion("core", "sha256:1", (SuiteTask("t-1"), SuiteTask("t-2")), content)
    assert add_suite(lake.lake.database, "default", suite)
    more(lake, "asks", "ckpt-1", f"Please: {TASK.upper()}")
    more(lake, "innocent", "ckpt-1", "fix the failing test, and all else that fails, before noon")
    fill(lake)
    shard = built(lake, recipe(SUITE))
    sessions = {row["session_id"] for row in rows_of(lake, shard)}
    assert shard.manifest.counts.excluded == {"contaminated_task": 1, "contaminated_text": 1}
    assert len(sessions) == SESSIONS + 2 - 2
    assert "innocent" in sessions
    assert shard.manifest.suites == {"core": "sha256:1"}
    with ProcessExecutor(workers=2) as executor:
        assert built(lake, recipe(SUITE), executor).manifest.id == shard.manifest.id


def test_what_a_tool_was_to_write_is_read_too(lake: HandLake, recipe: Callable[..., Any]) -> None:
    content = SuiteContent(texts=(("t-1", TASK),))
    add_suite(lake.lake.database, "default", SuiteVersion("core", "1", (), content))
    call = {"id": "c", "name": "write", "arguments": {"files": [{"text": TASK}]}}
    of = tokens({"prompt_ids": [5], "completion_ids": [6], "logprobs": [-0.1]})
    lake.send(
        [
            said(10, "write it down", "writes"),
            answered(11, "writes", call_id="a", tokens=of, text="So:", tool_calls=[call]),
            thumbs("writes", 12, "up"),
        ]
    )
    fill(lake)
    shard = built(lake, recipe(SUITE))
    assert shard.manifest.counts.excluded == {"contaminated_text": 1}


def test_a_suite_that_was_only_imported_says_nothing_of_its_tasks(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    add_suite(lake.lake.database, "default", SuiteVersion("core", "imported", ()))
    with pytest.raises(InvalidInput, match="suites register"):
        built(lake, recipe(SUITE))
    with pytest.raises(InvalidInput, match="did you mean core"):
        built(lake, recipe((SUITE[0], SUITE[1].replace("core", "cores"))))
