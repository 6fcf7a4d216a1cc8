"""Consent that somebody decides on: the calls, and what a decision does to what was built before.
Shards keep their bytes, and get marks.
"""

from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa
import sqlalchemy as sa
from msgspec import Meta

from penstock.access.privacy.consents import (
    NO_TRAIN,
    ConsentDecision,
    DecisionKind,
    decide_consent,
    decided_consents,
    list_decisions,
)
from penstock.access.privacy.orders import ErasureScope, find_sessions
from penstock.backends.database.engine import clock_us, portions
from penstock.core.endpoint import Caller, Endpoint, ListRequest, Page, Request, page_of
from penstock.core.room import Endpoints
from penstock.events.event import Consent, Id
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.lineage import learners
from penstock.shards.registered_shards import list_shards
from penstock.shards.tables import of_shard, shard_mark
from penstock_jobs.shards.exclusion import spread_denials
from penstock_jobs.shards.registration import count_marks, mark_denied, marked_sessions
from penstock_jobs.shards.selection.session_facts import SessionFacts, SnapshotQueries


@dataclass(frozen=True)
class WithdrawnShard:
    """A shard that holds sessions which may not be trained on any more: how many in all, whoever
    withdrew them, and the checkpoints that learned from it."""

    shard: str
    name: str
    sessions: int
    checkpoints: list[str]


def withdraw(
    lake: Lake, tenant: str, kind: DecisionKind, subject: str
) -> tuple[int, list[WithdrawnShard]]:
    """Mark all shards that hold sessions of this subject: how many sessions name it, and the shards
    that this newly marks. May be done again."""
    with lake.database.read() as connection:
        scope = ErasureScope(tenant, kind, subject, clock_us(connection))
    sessions = {each.session_id for found in find_sessions(lake, scope) for each in found}
    before = count_marks(lake.database, tenant, NO_TRAIN)
    mark_denied(lake, tenant, sessions)
    marked = count_marks(lake.database, tenant, NO_TRAIN)
    withdrawn = []
    for each in list_shards(lake.database, tenant):
        count = marked.get(each.id, 0)
        if count > before.get(each.id, 0):
            trained = [learner.checkpoint for learner in learners(lake.database, tenant, each.id)]
            withdrawn.append(WithdrawnShard(each.id, each.name, count, trained))
    return len(sessions), withdrawn


def take_back(lake: Lake, tenant: str) -> None:
    """Take the marks off sessions that nobody denies any more. Those that are no longer in the lake
    keep theirs: nobody can say whom they named."""
    queries = SnapshotQueries(lake, None, tenant)
    links = queries.links()
    counts = count_marks(lake.database, tenant, NO_TRAIN)
    for each in list_shards(lake.database, tenant):
        if each.id not in counts:
            continue
        marked = marked_sessions(lake.database, tenant, each.id, NO_TRAIN)
        involved = links.with_origins(marked)
        decided = decided_consents(lake, tenant, involved)
        asked = pa.table({"session_id": pa.array(sorted(involved), pa.string())})
        facts = SessionFacts(pa.concat_tables(queries.facts(asked)), links, decided)
        repeats = {name: links.repeats[name] for name in facts.profiles if name in links.repeats}
        denied = spread_denials(facts.denied, facts.chains, repeats)
        free = sorted((marked & facts.profiles.keys()) - denied.keys())
        mine = of_shard(shard_mark, tenant, each.id) & (shard_mark.c.reason == NO_TRAIN)
        with lake.database.write() as connection:
            for some in portions(free):
                freed = sa.delete(shard_mark).where(mine, shard_mark.c.session_id.in_(some))
                connection.execute(freed)


# Calls


@dataclass(frozen=True, kw_only=True)
class DecisionAnswer(ConsentDecision):
    """`holds` is false where a later one of the same subject took its place."""

    holds: bool = True


class DecisionsAnswer(Page):
    """The newest comes last."""

    decisions: list[DecisionAnswer]


@dataclass(frozen=True, kw_only=True)
class WithdrawalAnswer(DecisionAnswer):
    """`sessions` in the lake name the subject; `shards` are those that are marked by it, with the
    checkpoints that learned from them."""

    sessions: int
    shards: list[WithdrawnShard]


class DecisionsRequest(ListRequest):
    """All that were ever made."""


class DecideRequest(Request):
    """Holds from now on; `unknown` takes the decision before back."""

    kind: DecisionKind
    subject: Id
    consent: Consent
    reason: Annotated[str, Meta(max_length=2_000)] = ""


def _list(lake: Lake, caller: Caller, request: DecisionsRequest) -> DecisionsAnswer:
    decisions = list_decisions(lake.database, caller.tenant)
    newest = {(each.kind, each.subject): each.id for each in decisions}
    page, after = page_of(decisions, request, lambda each: str(each.id))
    answers = [
        DecisionAnswer(**vars(each), holds=newest[each.kind, each.subject] == each.id)
        for each in page
    ]
    return DecisionsAnswer(answers, next=after)


def _decide(lake: Lake, caller: Caller, request: DecideRequest) -> WithdrawalAnswer:
    subject = request.kind, request.subject
    decision = decide_consent(
        lake.database,
        caller.tenant,
        *subject,
        request.consent,
        reason=request.reason,
        by=caller.actor,
    )
    sessions, shards = 0, list[WithdrawnShard]()
    if request.consent == NO_TRAIN:
        sessions, shards = withdraw(lake, caller.tenant, *subject)
    else:
        take_back(lake, caller.tenant)
    return WithdrawalAnswer(**vars(decision), sessions=sessions, shards=shards)


LIST_DECISIONS = Endpoint(
    "GET /v1/consents",
    _list,
    ("read",),
    "What was decided on the consent of users, projects and sessions",
)
DECIDE_CONSENT = Endpoint(
    "POST /v1/consents",
    _decide,
    (),
    "Decide whether what a user, a project or a session sends may be trained on",
    reads_rows=True,
)

ENDPOINTS: Endpoints = [LIST_DECISIONS, DECIDE_CONSENT]
