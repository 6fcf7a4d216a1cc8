"""Whoever edits, removes or adds a row that a verdict rests on is noticed, and the row is named."""

from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.audit.hash_chain import chain_head
from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.registry.channels.history import verify_history
from penstock.registry.channels.promotion import channel_evidence
from penstock.registry.checkpoints.attempts import Attempt, record_attempts
from penstock.registry.checkpoints.integrity import restore
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteVersion, add_suite
from penstock.registry.checkpoints.tables import benchmark_journal
from tests.support.channels.forged_evidence import (
    TASKS,
    asked,
    by_hand,
    is_head_of,
    prepared,
    scope_of,
    scored,
)
from tests.support.checkpoint_factory import TENANT
from tests.support.servers.interleaving import Running


@pytest.fixture
def ready(database: Database) -> Database:
    return prepared(database)


OF_ONE = "checkpoint = 'one' AND task = 't-07'"
COPY = (
    "INSERT INTO benchmark_attempt (tenant, suite, suite_version, checkpoint, task, attempt, run,"
    " status, score, retries, scored_at) SELECT tenant, suite, suite_version, checkpoint, task, 9,"
    f" run, status, 1, 0, scored_at FROM benchmark_attempt WHERE {OF_ONE}"
)
NEWER = (
    "INSERT INTO suite_version (tenant, suite, version, tasks, content, created_at)"
    " SELECT tenant, suite, 'v0', tasks, content, created_at - 1 FROM suite_version"
)
STRANGE_RUN = (
    "INSERT INTO benchmark_run (id, tenant, suite, suite_version, checkpoint, kind, source,"
    " problems, started_at) SELECT 'forged', tenant, suite, suite_version, checkpoint, kind,"
    " 'another agent', problems, started_at FROM benchmark_run WHERE checkpoint = 'one'"
)
ATTEMPT = "attempt 0 at t-07 of one on core "


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"UPDATE benchmark_attempt SET score = 0 WHERE {OF_ONE}",
         ATTEMPT + "was edited: its score is 0.0; 1.0 was recorded"),
        (f"UPDATE benchmark_attempt SET cost_usd = 0.125 WHERE {OF_ONE}",
         ATTEMPT + "was edited: its cost_usd is 0.125"),
        (f"DELETE FROM benchmark_attempt WHERE {OF_ONE}", ATTEMPT + "was removed"),
        (COPY, "attempt 9 at t-07 of one on core was added without Penstock"),
        ("""UPDATE benchmark_run SET conditions = '{"isolated":false}' WHERE checkpoint = 'one'""",
         "of one on core was edited: its conditions differ from the record"),
        (STRANGE_RUN, "the run forged of one on core was added without Penstock"),
        ("UPDATE suite_version SET tasks = '[]'", "the version v1 of core was edited: its tasks"),
        (NEWER, "the version v0 of core was added without Penstock"),
        ("UPDATE benchmark_journal SET document = replace(document, '1.0', '0.0')"
         " WHERE checkpoint = 'one' AND number = 2",
         "one on core: entry 2 of its journal was altered: its hash"),
        ("DELETE FROM benchmark_journal WHERE checkpoint = 'one' AND number = 2",
         "one on core: entry 2 of its journal was altered: after 1"),
    ],
)  # fmt: skip
def test_what_is_done_by_hand_is_noticed_and_named(
    embedded: Database, statement: str, said: str
) -> None:
    notices(prepared(embedded), statement, said)


@pytest.mark.parametrize(
    "statement",
    ["UPDATE benchmark_attempt SET score = 0 WHERE", "DELETE FROM benchmark_attempt WHERE"],
)
def test_so_it_is_on_each_database(ready: Database, statement: str) -> None:
    notices(ready, f"{statement} {OF_ONE}", ATTEMPT)


def notices(ready: Database, statement: str, said: str) -> None:
    assert asked(ready, "two").outcome == "FAIL"
    assert verify_history(ready, TENANT, "production") is None
    with by_hand(ready) as connection:
        connection.exec_driver_sql(statement)
    verdict = asked(ready, "two")
    assert verdict.outcome == "ERROR"
    assert any(said in why for why in verdict.document["why"])
    flaw = verify_history(ready, TENANT, "production")
    assert flaw is not None
    assert flaw.number == 2
    assert said in flaw.why or "was edited" in flaw.why or "was removed" in flaw.why
    scope = AttemptScope(TENANT, "core", "v1", "one")
    if "journal" in said:
        with pytest.raises(InvalidInput, match="restore a backup"), ready.write() as connection:
            restore(connection, scope)
    elif "version v" not in said:
        with ready.write() as connection:
            assert any(said in text for text in restore(connection, scope))
            assert restore(connection, scope) == []
        assert asked(ready, "two").outcome == "FAIL"
        assert verify_history(ready, TENANT, "production") is None


def test_a_fail_does_not_become_a_pass(ready: Database) -> None:
    with ready.write() as connection:
        connection.exec_driver_sql("UPDATE benchmark_attempt SET score = 1 WHERE score = 0")
    verdict = asked(ready, "two")
    assert verdict.outcome == "ERROR"
    assert verdict.document["why"][0].startswith("attempt 0 at t-00 of two on core was edited")
    assert verdict.document["why"][-1] == "and 37 more rows differ from the record"


def test_a_journal_that_was_cut_off_is_noticed_by_the_verdict(ready: Database) -> None:
    with by_hand(ready) as connection:
        for table in ("benchmark_attempt", "benchmark_run", "benchmark_journal"):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE checkpoint = 'one'")
        connection.execute(sa.delete(chain_head).where(is_head_of(scope_of("one").chain)))
    flaw = verify_history(ready, TENANT, "production")
    assert flaw is not None
    assert flaw.why == "the journal of one on core was changed since its verdict read it"


def test_the_journal_refuses_to_be_changed(ready: Database) -> None:
    for statement in (sa.update(benchmark_journal).values(kind="x"), sa.delete(benchmark_journal)):
        with (
            pytest.raises((sa.exc.DBAPIError, DatabaseUnreachable), match="evidence and stay"),
            ready.write() as connection,
        ):
            connection.execute(statement)


def test_what_penstock_adds_later_is_no_alarm(ready: Database) -> None:
    scope = AttemptScope(TENANT, "core", "v1", "one")
    broken = [Attempt(task=task, attempt=1, error="the engine was away") for task in TASKS[:2]]
    with ready.write() as connection:
        record_attempts(connection, scope, "r2", broken)
    assert verify_history(ready, TENANT, "production") is None
    scored(ready, "one", 0.5, range(1, 3))
    add_suite(ready, TENANT, SuiteVersion("core", "v2", ()))
    assert verify_history(ready, TENANT, "production") is None


def test_a_verdict_names_the_journals_that_it_read(ready: Database) -> None:
    first, again = asked(ready, "two").document, asked(ready, "two").document
    facts = first["suites"]["core"]
    heads = [facts["journal"], facts["candidate"]["journal"], facts["incumbent"]["journal"]]
    assert [head["number"] for head in heads] == [1, 4, 4]
    assert len({head["hash"] for head in heads}) == 3
    assert again["suites"] == first["suites"]


def test_processes_that_record_at_once_make_one_journal(
    ready: Database, open_database: Any
) -> None:
    other = open_database()
    scope = AttemptScope(TENANT, "core", "v1", "two")

    def record(connection: sa.Connection, number: int) -> None:
        results = [Attempt(task="t-01", attempt=number, score=1.0)]
        record_attempts(connection, scope, f"run-{number}", results)

    def record_too() -> None:
        with other.write() as connection:
            record(connection, 2)

    too = Running(record_too)
    with ready.write() as connection:
        record(connection, 1)
        too.start()
    too.finish()
    assert asked(ready, "two").outcome != "ERROR"
    evidence = channel_evidence(ready, TENANT, "production", "two")
    assert evidence.suites["core"].candidate.journal.number == 6
