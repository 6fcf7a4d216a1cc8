"""The gate over a database: what it reads, and that its verdict is kept with the promotion."""

import pytest
import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.events.event import session_key
from penstock.lake.segments import make_filter
from penstock.registry.channels.channel import channel_state
from penstock.registry.channels.history import verify_history
from penstock.registry.channels.promotion import judge
from penstock.registry.checkpoints.attempts import (
    Attempt,
    BenchmarkRun,
    record_attempts,
    record_run,
)
from penstock.registry.checkpoints.checkpoint import CheckpointUnknown
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteContent, SuiteTask, SuiteVersion, add_suite
from penstock.registry.checkpoints.tables import benchmark_attempt, checkpoint_shard
from penstock.registry.gate.tables import live_look
from penstock.registry.gate.verdict import Verdict
from penstock.shards.tables import shard, shard_mark
from penstock_jobs.benchmarks.mine.proposals import mined_task
from penstock_jobs.benchmarks.summary import results_of
from tests.support.checkpoint_factory import TENANT, add, promote, set_policy

POLICY = """
[[require]]
suite = "core"
margin = 0.1
minimum = 0.5
[evidence]
max_age = "24h"
"""
LIVE = POLICY + '[[live]]\nmetric = "edit_persistence"\nmargin = 0.02\n'
TASKS = [f"t-{at}" for at in range(40)]


def score(database: Database, name: str, value: float = 1.0, version: str = "v1") -> None:
    with database.write() as connection:
        place = AttemptScope(TENANT, "core", version, name)
        record_attempts(
            connection, place, "r", [Attempt(task=task, attempt=0, score=value) for task in TASKS]
        )


def suite(database: Database, version: str = "v1") -> None:
    add_suite(
        database, TENANT, SuiteVersion("core", version, tuple(SuiteTask(one) for one in TASKS))
    )


def asked(database: Database, name: str, *, full: bool = True) -> Verdict:
    return judge(database, TENANT, "production", name, full=full)


def ready(database: Database, policy: str = POLICY) -> None:
    """Two checkpoints that were scored, the first of them in production."""
    add(database, "one", "two")
    suite(database)
    set_policy(database, policy)
    score(database, "one")
    promote(database, "one", lambda _, name: asked(database, name))
    score(database, "two")


def test_the_first_and_the_next_pass_with_their_evidence(database: Database) -> None:
    ready(database)
    verdict = asked(database, "two")
    assert verdict.outcome == "PASS"
    document = verdict.document
    assert document["policy"] == channel_state(database, TENANT, "production").policy
    assert document["channel_version"] == 2
    assert document["incumbent"]["name"] == "one"
    assert document["suites"]["core"]["version"] == "v1"
    assert document["suites"]["core"]["incumbent"]["evidence"].startswith("sha256:")
    promote(database, "two", lambda _, name: asked(database, name))
    assert verify_history(database, TENANT, "production") is None
    assert asked(database, "two").outcome == "ERROR"


def test_an_incumbent_at_an_older_version_is_compared_at_the_same_tasks(database: Database) -> None:
    def renew(version: str, changed: int) -> None:
        tasks = [
            SuiteTask(one, (), f"{one}{at < changed and version}") for at, one in enumerate(TASKS)
        ]
        add_suite(database, TENANT, SuiteVersion("core", version, tuple(tasks)))

    add(database, "one", "two")
    renew("v1", 0)
    set_policy(database, POLICY)
    score(database, "one")
    promote(database, "one", lambda _, name: asked(database, name))
    renew("v2", 3)
    score(database, "two", version="v2")
    verdict = asked(database, "two")
    assert verdict.outcome == "PASS"
    facts = verdict.document["suites"]["core"]
    assert (facts["version"], facts["incumbent"]["version"], facts["tasks"]) == ("v2", "v1", 37)
    note = "core: not compared are t-0, t-1, t-2: one was scored at v1, which has no such task."
    assert note in verdict.document["notes"]
    promote(database, "two", lambda _, name: asked(database, name))
    assert verify_history(database, TENANT, "production") is None
    # Not where somebody removed its scores at the newer version by hand.
    add(database, "three")
    renew("v3", 3)
    score(database, "two", version="v3")
    score(database, "three", version="v3")
    assert asked(database, "three").outcome == "PASS"
    removed = sa.delete(benchmark_attempt).filter_by(checkpoint="two", suite_version="v3")
    with database.write() as connection:
        connection.execute(removed)
    assert asked(database, "three").outcome == "ERROR"


def test_a_verdict_names_what_was_learned_of_a_suite(database: Database) -> None:
    add(database, "one", "two")
    content = SuiteContent(sessions=("s-1", "s-2"))
    tasks = tuple(SuiteTask(one) for one in TASKS)
    add_suite(database, TENANT, SuiteVersion("core", "v1", tasks, content))
    held = make_filter([session_key(TENANT, "s-2")])
    row = dict.fromkeys(("snap", "samples", "tokens", "trainable", "bytes", "created_at"), 1)
    named = {"id": "sha256:1", "tenant": TENANT, "name": "s", "snapshot": "s", "record": "{}"}
    learned = {"tenant": TENANT, "checkpoint": "two", "shard": "sha256:1"}
    with database.write() as connection:
        facts = row | named | {"session_filter": held, "added_snap": 1}
        connection.execute(sa.insert(shard).values(facts))
        connection.execute(sa.insert(checkpoint_shard).values(learned))
    set_policy(database, POLICY)
    score(database, "two")
    notes = asked(database, "two").document["notes"]
    assert "core: two learned from sessions that tasks were made from: s-2." in notes
    place = AttemptScope(TENANT, "core", "v1", "two")
    assert results_of(database, place).seen == {"s-2": None}
    texts = {"task": "core-1", "state": "taken", "why": "", "session_id": "s-2", "prompt": "p"}
    about = {"tenant": TENANT, "suite": "core", "facts": "{}"}
    with database.write() as connection:
        connection.execute(sa.insert(mined_task).values(changed_at=1, **texts, **about))
    assert results_of(database, place).seen == {"s-2": "core-1"}


def test_a_candidate_has_to_be_scored_at_the_version_that_counts(database: Database) -> None:
    ready(database)
    suite(database, "v2")
    assert asked(database, "two").outcome == "ERROR"


def test_the_same_moment_gives_the_same_document(embedded: Database) -> None:
    ready(embedded)
    now = asked(embedded, "two").document["at"]
    first, again = (judge(embedded, TENANT, "production", "two", at_us=now) for _ in range(2))
    assert first.id == again.id
    assert (
        judge(embedded, TENANT, "production", "two", at_us=now + 86_400_000_001).outcome == "ERROR"
    )
    assert judge(embedded, TENANT, "production", "two", at_us=1).outcome == "ERROR"


def test_without_a_policy_or_results_there_is_no_verdict_but_error(embedded: Database) -> None:
    add(embedded, "one")
    assert "has no policy" in asked(embedded, "one").document["why"][0]
    set_policy(embedded, POLICY)
    assert asked(embedded, "one").document["why"] == ["the suite core does not exist"]
    suite(embedded)
    assert asked(embedded, "one").document["why"] == ["one has no results on core"]
    with pytest.raises(CheckpointUnknown):
        asked(embedded, "nobody")


def test_a_suite_that_changed_has_to_be_run_anew_or_named(embedded: Database) -> None:
    ready(embedded)
    suite(embedded, "v2")
    assert "another version" in asked(embedded, "two").document["why"][0]
    score(embedded, "two", version="v2")
    why = asked(embedded, "two").document["why"]
    assert why == [
        "one was scored on another version of core (v1), but v2 counts: score it there, or name"
        " another version under [suites] of the policy"
    ]
    notes = asked(embedded, "two").document["notes"]
    assert "core: scores of two at v1 do not count; only v2 counts." in notes
    set_policy(embedded, POLICY + '[suites]\ncore = "v1"\n')
    assert asked(embedded, "two").outcome == "PASS"
    set_policy(embedded, POLICY + '[suites]\ncore = "v9"\n')
    assert "the version v9 of core" in asked(embedded, "two").document["why"][0]


def test_a_version_of_which_nobody_knows_the_tasks_takes_no_ones_place(embedded: Database) -> None:
    ready(embedded)
    add_suite(embedded, TENANT, SuiteVersion("core", "of the night", ()))
    for name in ("one", "two"):
        score(embedded, name, version="of the night")
    verdict = asked(embedded, "two")
    assert verdict.outcome == "ERROR"
    assert "at its newest version of the night are unknown" in verdict.document["why"][0]
    set_policy(embedded, POLICY + '[suites]\ncore = "v1"\n')
    assert asked(embedded, "two").outcome == "PASS"


def _now(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(sa.func.max(benchmark_attempt.c.scored_at))) or 0)


def test_the_newest_look_at_this_canary_counts(database: Database) -> None:
    ready(database, LIVE)
    assert asked(database, "two").outcome == "INCONCLUSIVE"
    assert judge(database, TENANT, "production", "two", full=False, share=0.9).outcome != "PASS"
    assert judge(database, TENANT, "production", "two", full=False, share=0.5).outcome == "PASS"
    started = promote(database, "two", lambda _, name: asked(database, name, full=False), share=0.1)
    assert "the canary has no look yet" in asked(database, "two").document["why"][0]
    _look(database, started.version - 1, "pass")  # of an earlier canary
    assert "the canary has no look yet" in asked(database, "two").document["why"][0]
    _look(database, started.version, "pass")
    assert asked(database, "two").outcome == "PASS"
    _look(database, started.version, "breach")
    assert asked(database, "two").outcome == "FAIL"


def _look(database: Database, since: int, outcome: str) -> None:
    with database.write() as connection:
        connection.execute(
            sa.insert(live_look).values(
                tenant=TENANT, channel="production", since_version=since, candidate="two",
                incumbent="one", document=f'{{"outcome": "{outcome}"}}', at=_now(connection),
            )
        )  # fmt: skip


def test_how_attempts_were_made_is_told(database: Database) -> None:
    ready(database)
    made = BenchmarkRun("r", "run", "agent", {"isolated": False}, [], 0, None)
    with database.write() as connection:
        record_run(connection, AttemptScope(TENANT, "core", "v1", "two"), made)
    document = asked(database, "two").document
    assert document["makers"]["core"]["candidate"][0]["isolated"] is False
    assert "core: attempts of two were made without isolation." in document["notes"]


def test_what_the_candidate_or_its_parent_learned_is_looked_up(database: Database) -> None:
    ready(database)
    rows = [
        {"session_id": "s-1", "reason": "no_train"},
        {"session_id": "s-2", "reason": "erased"},
        {"session_id": "s-3", "reason": "erased"},
    ]
    place = {"shard": "sha256:1", "tenant": TENANT, "marked_at": 1}
    with database.write() as connection:
        connection.execute(sa.insert(shard_mark), [place | row for row in rows])
    add(database, "base")
    add(database, "child", parent="base")
    trained = {"tenant": TENANT, "checkpoint": "base", "shard": "sha256:1"}
    with database.write() as connection:
        connection.execute(sa.insert(checkpoint_shard).values(trained))
    score(database, "child")
    data = asked(database, "child").document["data"]
    assert (data["erased"], data["withdrawn"], data["shards"]) == (2, 1, ["sha256:1"])
    assert asked(database, "two").document["data"] is None
