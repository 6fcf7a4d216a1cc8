"""Proposals: what was mined for a suite and what people decided, with the files in the storage."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, String, Table, Text

from penstock.access.privacy.orders import CONTENT, WHOLE, ErasedPart, ErasureOrder, ErasureStep
from penstock.backends.database.engine import Database, clock_us, insert_new
from penstock.backends.database.tables import metadata, name_columns
from penstock.core.endpoint import Caller, Endpoint, ListRequest, Page, Request, page_of
from penstock.core.errors import InvalidInput
from penstock.core.files import tenant_folder
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.journal import json_text
from penstock_jobs.benchmarks.mine.rules import (
    CheckPlan,
    MinedChange,
    gives_answer,
    says_too_little,
)
from penstock_jobs.benchmarks.sandbox.sandbox_files import File

mined_task = Table(
    "mined_task",
    metadata,
    *name_columns("tenant", "suite", "task", primary_key=True),
    #: proposed, taken, refused by a person, or left_out by a rule; and why.
    Column("state", String(16), nullable=False),
    Column("why", Text, nullable=False),
    #: Its source, if that is a session.
    Column("session_id", Text),
    Column("prompt", Text, nullable=False),
    #: JSON: its source, commits, environment, and what was measured.
    Column("facts", Text, nullable=False),
    #: Who judged or mended it.
    Column("by", Text),
    Column("changed_at", BigInteger, nullable=False),
)


class Proposal(msgspec.Struct):
    task: str
    state: str
    why: str
    session_id: str | None
    prompt: str
    facts: dict[str, Any]
    by: str | None = None
    changed_at: int = 0


class ProposalFiles(NamedTuple):
    """The files of a proposal, and what its check said of both trees."""

    change: MinedChange
    plan: CheckPlan
    before: str
    after: str
    #: What setup of its environment reads.
    setup: Sequence[File]


def add_proposal(
    lake: Lake, tenant: str, suite: str, proposal: Proposal, files: ProposalFiles | None
) -> bool:
    """Add a proposal unless it is there. Its files come first, so that a kill loses nothing."""
    if files is not None:
        with lake.store.create(_archive(tenant, suite, proposal.task)) as out:
            out.write(zlib.compress(msgspec.msgpack.encode(files)))
    row = msgspec.structs.asdict(proposal) | {"tenant": tenant, "suite": suite}
    row["facts"] = json_text(proposal.facts)
    with lake.database.write() as connection:
        row["changed_at"] = clock_us(connection)
        return insert_new(connection, mined_task, row)


def proposals_of(database: Database, tenant: str, suite: str) -> list[Proposal]:
    columns = [mined_task.c[name] for name in Proposal.__struct_fields__]
    query = sa.select(*columns).where(*_of(tenant, suite)).order_by(mined_task.c.task)
    known = [Proposal(*row) for row in database.rows(query)]
    for each in known:
        each.facts = msgspec.json.decode(str(each.facts))
    return known


def find_proposal(database: Database, tenant: str, suite: str, task: str) -> Proposal:
    """Raises InvalidInput."""
    known = {each.task: each for each in proposals_of(database, tenant, suite)}
    if task not in known:
        why = f"the suite {suite} has no such proposal"
        raise InvalidInput(what=f"The task {task!r}", why=why)
    return known[task]


def files_of(lake: Lake, tenant: str, suite: str, task: str) -> ProposalFiles:
    with lake.store.open(_archive(tenant, suite, task)) as stored:
        return msgspec.msgpack.decode(zlib.decompress(stored.read()), type=ProposalFiles)


class JudgementRequest(Request):
    """A person's decision: to take it, or why it is refused; and a mended prompt."""

    suite: str
    task: str
    take: bool = False
    refuse: str | None = None
    prompt: str | None = None


def judge(lake: Lake, caller: Caller, given: JudgementRequest) -> None:
    """Take, refuse or mend a proposal. Raises InvalidInput."""
    place = caller.tenant, given.suite, given.task
    known = find_proposal(lake.database, *place)
    if known.state == "left_out":
        raise InvalidInput(what=f"The candidate {given.task}", why=f"it was left out: {known.why}")
    changed: dict[str, Any] = {"by": caller.actor}
    if given.take or given.refuse is not None:
        changed |= {"state": "taken" if given.take else "refused", "why": given.refuse or ""}
    if given.prompt not in (None, known.prompt):
        change = files_of(lake, *place).change
        for rule in (says_too_little, gives_answer):
            if why := rule(change, given.prompt):
                raise InvalidInput(what="The new prompt", why=why)
        changed["prompt"] = given.prompt
    with lake.database.write() as connection:
        changed["changed_at"] = clock_us(connection)
        one = *_of(*place[:2]), mined_task.c.task == given.task
        connection.execute(sa.update(mined_task).where(*one).values(**changed))


def _of(tenant: str, suite: str) -> tuple[sa.ColumnElement[bool], ...]:
    return mined_task.c.tenant == tenant, mined_task.c.suite == suite


def _archive(tenant: str, suite: str, task: str) -> str:
    return f"mined/{tenant_folder(tenant)}/{suite}/{task}"


def _erase(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Erase tasks that were made from erased sessions. Exported suites are out of reach."""
    place = sa.select(mined_task.c.tenant, mined_task.c.suite, mined_task.c.task)
    for page in order.sessions(WHOLE):
        chosen = sa.tuple_(mined_task.c.tenant, mined_task.c.session_id).in_(page)
        for archive in order.lake.database.rows(place.where(chosen)):
            order.lake.store.delete(_archive(*archive))
    yield ErasedPart({"mined tasks": order.delete_rows(mined_task)})


PART = ErasureStep(CONTENT, _erase)


# Endpoints, for the command and the console


class ProposalsRequest(ListRequest, kw_only=True):
    suite: str


class ProposalsAnswer(Page):
    proposals: list[Proposal]


class ProposalRequest(Request):
    suite: str
    task: str


class ProposalAnswer(msgspec.Struct):
    """A proposal, its solution as a diff, and what its check said of both trees. What a rule left
    out has none of these."""

    proposal: Proposal
    solution: str = ""
    untouched: str = ""
    settled: str = ""


def _list(lake: Lake, caller: Caller, request: ProposalsRequest) -> ProposalsAnswer:
    known = proposals_of(lake.database, caller.tenant, request.suite)
    page, after = page_of(known, request, lambda proposal: proposal.task)
    return ProposalsAnswer([*page], next=after)


def _show(lake: Lake, caller: Caller, request: ProposalRequest) -> ProposalAnswer:
    place = caller.tenant, request.suite, request.task
    known = find_proposal(lake.database, *place)
    if known.state == "left_out":
        return ProposalAnswer(known)
    kept = files_of(lake, *place)
    solution = "".join(diff.text for diff in kept.change.source)
    return ProposalAnswer(known, solution, kept.before, kept.after)


def _judge(lake: Lake, caller: Caller, request: JudgementRequest) -> ProposalAnswer:
    judge(lake, caller, request)
    return _show(lake, caller, ProposalRequest(suite=request.suite, task=request.task))


LIST_PROPOSALS = Endpoint(
    "GET /v1/suites/{suite}/proposals",
    _list,
    ("read", "promote"),
    "Tasks that were mined for a suite",
    reads_rows=True,
)
SHOW_PROPOSAL = Endpoint(
    "GET /v1/suites/{suite}/proposals/{task}",
    _show,
    ("read", "promote"),
    "A mined task: its prompt, its solution, and what its check says",
    reads_rows=True,
)
JUDGE_PROPOSAL = Endpoint(
    "POST /v1/suites/{suite}/proposals/{task}",
    _judge,
    ("promote",),
    "Take, refuse or mend a mined task",
    audited_as="result",
)
ENDPOINTS: Endpoints = [LIST_PROPOSALS, SHOW_PROPOSAL, JUDGE_PROPOSAL]
