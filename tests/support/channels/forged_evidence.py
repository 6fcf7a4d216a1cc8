"""A channel with evidence, and what somebody does to it who writes to the database by hand."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.audit.chain import audit_entry
from penstock.backends.audit.entry import NO_HASH, hash_of
from penstock.backends.audit.hash_chain import Chain, chain_head
from penstock.backends.database.engine import Database
from penstock.registry.channels.history import chain_of
from penstock.registry.channels.promotion import judge
from penstock.registry.checkpoints.attempts import (
    Attempt,
    begin_run,
    finish_run,
    note_problem,
    record_attempts,
)
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteTask, SuiteVersion, add_suite
from penstock.registry.checkpoints.tables import benchmark_attempt
from penstock.registry.gate.verdict import Verdict
from tests.support.checkpoint_factory import TENANT, add, promote, set_policy

POLICY = '[[require]]\nsuite = "core"\nmargin = 0.1\nminimum = 0.5\n'
TASKS = [f"t-{at:02}" for at in range(40)]

CHANNEL = chain_of(TENANT, "production")
AUDIT = Chain(audit_entry, {"tenant": TENANT})


def scope_of(name: str) -> AttemptScope:
    return AttemptScope(TENANT, "core", "v1", name)


def scored(database: Database, name: str, value: float = 1.0, numbers: range = range(1)) -> None:
    """By a run that notes a problem."""
    scope = scope_of(name)
    run = begin_run(database, scope, source=f"agent of {name}", conditions={"isolated": True})
    results = [
        Attempt(task=task, attempt=number, score=value, cost_usd=0.25, edited=True)
        for task in TASKS
        for number in numbers
    ]
    with database.write() as connection:
        record_attempts(connection, scope, run, results)
        note_problem(connection, scope, run, {"task": "t-00", "problem": "slow"})
    finish_run(database, scope, run)


def asked(database: Database, name: str) -> Verdict:
    return judge(database, TENANT, "production", name)


def prepared(database: Database) -> Database:
    """`one` is in production by a verdict of version 2, and `two` was scored, worse."""
    add(database, "one", "two")
    tasks = tuple(SuiteTask(task) for task in TASKS)
    add_suite(database, TENANT, SuiteVersion("core", "v1", tasks))
    set_policy(database, POLICY)
    scored(database, "one")
    promote(database, "one", lambda _, name: asked(database, name))
    scored(database, "two", 0.0)
    return database


@contextmanager
def by_hand(database: Database) -> Iterator[Connection]:
    """Somebody with the database and a shell: triggers do not stop them."""
    with database.write() as connection:
        names = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'keep_%'"
        stop = "DROP TRIGGER {}"
        if not database.is_sqlite:
            names = "SELECT DISTINCT event_object_table FROM information_schema.triggers"
            stop = "ALTER TABLE {} DISABLE TRIGGER USER"
        for name in list(connection.execute(sa.text(names)).scalars()):
            connection.execute(sa.text(stop.format(name)))
        yield connection


Entry = dict[str, Any]


def forge(connection: Connection, chain: Chain, change: Callable[[Entry], Entry]) -> None:
    """Change all entries, with the hashes that belong to them, and the head of the chain."""
    last = NO_HASH
    for row in connection.execute(chain.select_entries()).all():
        entry = change(row._asdict()) | {"previous_hash": last}
        entry["hash"] = last = hash_of(entry)
        own = chain.is_mine() & (chain.entries.c[chain.numbered] == entry[chain.numbered])
        connection.execute(sa.update(chain.entries).where(own).values(**entry))
    connection.execute(sa.update(chain_head).where(is_head_of(chain)).values(hash=last))


def is_head_of(chain: Chain) -> sa.ColumnElement[bool]:
    place = "\n".join(value for name, value in chain.whose.items() if name != "tenant")
    of_tenant = (chain_head.c.tenant == TENANT) & (chain_head.c.place == place)
    return of_tenant & (chain_head.c.entries == chain.entries.name)


def forge_scores(connection: Connection) -> None:
    """All scores of `two` are 1, in the rows and in the journal."""
    connection.execute(sa.update(benchmark_attempt).values(score=1.0))

    def better(entry: Entry) -> Entry:
        document = json.loads(entry["document"])
        for values in document.get("rows", ()):
            values[document["fields"].index("score")] = 1.0
        return entry | {"document": json.dumps(document, separators=(",", ":"))}

    forge(connection, scope_of("two").chain, better)


def forge_actor(connection: Connection, chain: Chain) -> None:
    """Somebody else did it all."""
    forge(connection, chain, lambda entry: entry | {"actor": "nobody"})


Kept = list[tuple[sa.Table, list[Entry]]]


def keep(database: Database, *chains: Chain) -> Kept:
    """Copy entries and heads, as somebody who reads the database can."""
    with database.read() as connection:
        kept = [(each.entries, each.select_entries()) for each in chains]
        kept += [(chain_head, sa.select(chain_head).where(is_head_of(each))) for each in chains]
        return [
            (table, [row._asdict() for row in connection.execute(query)]) for table, query in kept
        ]


def put_back(connection: Connection, kept: Kept, *chains: Chain) -> None:
    """Put back what was kept, with its signatures."""
    for chain in chains:
        connection.execute(sa.delete(chain.entries).where(chain.is_mine()))
        connection.execute(sa.delete(chain_head).where(is_head_of(chain)))
    for table, rows in kept:
        connection.execute(sa.insert(table), rows)
