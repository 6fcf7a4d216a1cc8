"""Consent decisions and erasure, and what they do to existing shards.

After a decision a shard keeps its bytes and gets marks. After an erasure its files are deleted: no
row can leave a shard, since its name is the digest of its content. Its row stays, with counts and
lineage, and a mark for each erased session by digest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
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
from penstock.access.privacy.orders import (
    CONTENT,
    LINEAGE,
    ErasedPart,
    ErasureOrder,
    ErasureScope,
    ErasureStep,
)
from penstock.access.privacy.reach import find_sessions
from penstock.access.privacy.tombstones import SESSION
from penstock.backends.audit.entry import person_digest
from penstock.backends.database.engine import clock_us, insert_new, now_us, portions
from penstock.backends.terminal.output import time_of
from penstock.core.endpoint import Caller, Endpoint, ListRequest, Page, Request, page_of
from penstock.core.files import tenant_folder
from penstock.core.room import Endpoints
from penstock.events.event import Consent, Id
from penstock.lake.lake import Lake
from penstock.lake.tables import segment_intent
from penstock.registry.checkpoints.lineage import learners
from penstock.shards.local_copies import CACHE_FOLDER, LocalCopies
from penstock.shards.manifest import GoneNote, replace_files_by_note
from penstock.shards.registered_shards import list_shards
from penstock.shards.shard import FOLDER, shard_folder
from penstock.shards.tables import ERASED, of_shard, shard, shard_file, shard_left_out, shard_mark
from penstock_jobs.shards.exclusion import spread_denials
from penstock_jobs.shards.registration import (
    count_denied,
    held_sessions,
    mark_denied,
    marked_sessions,
    shards_suspected,
)
from penstock_jobs.shards.selection.session_facts import SessionFacts, SnapshotQueries


class WithdrawnShard(msgspec.Struct, frozen=True):
    """A shard with sessions that may no longer be trained on, and checkpoints that learned from it.

    `sessions` counts all of them, whoever withdrew them."""

    shard: str
    name: str
    sessions: int
    checkpoints: list[str]


def withdraw(
    lake: Lake, tenant: str, kind: DecisionKind, subject: str
) -> tuple[int, list[WithdrawnShard]]:
    """Mark all shards with sessions of a subject. May be repeated.

    Returns the number of its sessions, and newly marked shards."""
    with lake.database.read() as connection:
        scope = ErasureScope(tenant, kind, subject, clock_us(connection))
    sessions = {each.session_id for found in find_sessions(lake, scope) for each in found}
    before = count_denied(lake.database, tenant)
    mark_denied(lake, tenant, sessions)
    marked = count_denied(lake.database, tenant)
    withdrawn = []
    for each in list_shards(lake.database, tenant):
        count = marked.get(each.id, 0)
        if count > before.get(each.id, 0):
            trained = [learner.checkpoint for learner in learners(lake.database, tenant, each.id)]
            withdrawn.append(WithdrawnShard(each.id, each.name, count, trained))
    return len(sessions), withdrawn


def take_back(lake: Lake, tenant: str) -> None:
    """Remove marks of sessions that nobody denies any more.

    Sessions that left the lake keep their marks, since their users are unknown."""
    queries = SnapshotQueries(lake, None, tenant)
    links = queries.links()
    counts = count_denied(lake.database, tenant)
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


# Endpoints


@dataclass(frozen=True, kw_only=True)
class DecisionAnswer(ConsentDecision):
    """A decision. `holds` is false after a later one on the same subject."""

    holds: bool = True


class DecisionsAnswer(Page):
    """Decisions, the newest last."""

    decisions: list[DecisionAnswer]


@dataclass(frozen=True, kw_only=True)
class WithdrawalAnswer(DecisionAnswer):
    """A decision, the number of the subject's sessions in the lake, and marked shards."""

    sessions: int
    shards: list[WithdrawnShard]


class DecisionsRequest(ListRequest):
    """No conditions: lists all decisions."""


class DecideRequest(Request):
    """A decision from now on; `unknown` revokes the previous one."""

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
    "GET /v1/consents", _list, ("read",), "Consent decisions on users, projects and sessions"
)
DECIDE_CONSENT = Endpoint(
    "POST /v1/consents",
    _decide,
    (),
    "Decide whether data of a user, project or session may be trained on",
    reads_rows=True,
)

ENDPOINTS: Endpoints = [LIST_DECISIONS, DECIDE_CONSENT]


def _erase_shards(order: ErasureOrder) -> Iterator[ErasedPart]:
    database, tenant = order.lake.database, order.scope.tenant
    order.delete_rows(shard_left_out)
    for page in order.sessions():
        ids = [session.session_id for session in page]
        named_us = {each.session_id: named or 0 for each, named in order.chosen(page).items()}
        for id_, suspected in shards_suspected(database, tenant, ids):
            made_at = _made_at(order, id_)  # one that is older than the name holds none of it
            after = {session for session in suspected if named_us.get(session, 0) <= made_at}
            if held := sorted(held_sessions(order.lake, tenant, id_, after)):
                _mark(order, id_, held)
                deleted = _delete_files(order, id_)
                trained = learners(database, tenant, id_)
                seen_by = {"shards": [id_], "checkpoints": [each.checkpoint for each in trained]}
                yield ErasedPart({"files of shards": deleted}, seen_by)
    marked = sa.select(shard_mark.c.shard).where(
        shard_mark.c.tenant == tenant, shard_mark.c.reason == ERASED
    )
    there = (shard.c.tenant == tenant, shard.c.gone.is_distinct_from(ERASED))
    with database.read() as connection:  # erasures that were killed before their files went
        left = list(connection.scalars(sa.select(shard.c.id).where(*there, shard.c.id.in_(marked))))
    for id_ in left:
        yield ErasedPart({"files of shards": _delete_files(order, id_)})


def _made_at(order: ErasureOrder, id_: str) -> int:
    mine = of_shard(shard, order.scope.tenant, id_)
    return int(order.lake.database.scalar(sa.select(shard.c.created_at).where(mine)) or 0)


def _mark(order: ErasureOrder, id_: str, held: Sequence[str]) -> None:
    tenant = order.scope.tenant
    with order.lake.database.write() as connection:
        for session in held:
            mark = {"shard": id_, "tenant": tenant, "reason": ERASED, "marked_at": now_us()}
            mark["session_id"] = person_digest(tenant, SESSION, session)
            insert_new(connection, shard_mark, mark)
        older = sa.delete(shard_mark).where(of_shard(shard_mark, tenant, id_))
        connection.execute(older.where(shard_mark.c.session_id.in_(held)))


def _delete_files(order: ErasureOrder, id_: str) -> int:
    lake, tenant = order.lake, order.scope.tenant
    with lake.database.read() as connection:
        note = GoneNote(how=ERASED, at=time_of(clock_us(connection)).isoformat(), why="")
    deleted = replace_files_by_note(lake.store, shard_folder(tenant, id_), note)
    with lake.database.write() as connection:
        connection.execute(sa.delete(shard_file).where(of_shard(shard_file, tenant, id_)))
        # An empty filter: the shard holds no sessions.
        empty = {"session_filter": b"", "bytes": 0}
        gone = {"gone": ERASED, "gone_at": now_us(), "gone_why": ""}
        mine = of_shard(shard, tenant, id_)
        connection.execute(sa.update(shard).where(mine).values(**empty, **gone))
    return deleted


def _erase_builds(order: ErasureOrder) -> Iterator[ErasedPart]:
    """Erase files of running and killed builds, and local copies. Running builds fail."""
    lake = order.lake
    if next(order.sessions(), None) is None:
        return
    own = f"{FOLDER}/{tenant_folder(order.scope.tenant)}/"
    unfinished = segment_intent.c.name.startswith(own, autoescape=True)
    open_ = unfinished & segment_intent.c.claimed_at.is_(None)
    deleted = 0
    while True:
        with lake.database.write() as connection:
            names = list(connection.scalars(sa.select(segment_intent.c.name).where(open_)))
            for batch in portions(names):  # from here on these builds cannot register
                claimed = sa.update(segment_intent).where(segment_intent.c.name.in_(batch))
                connection.execute(claimed.values(claimed_at=now_us()))
        if not names:
            break
        for name in names:
            lake.store.delete(name)
        deleted += len(names)
    yield ErasedPart({"files of unfinished shards": deleted})
    copies = LocalCopies(lake.settings.data / CACHE_FOLDER, 0)
    yield ErasedPart({"local copies of shards": copies.forget()})
    yield from _erase_shards(order)  # for shards registered just before


PART = ErasureStep(CONTENT, _erase_shards)
BUILDS = ErasureStep(LINEAGE, _erase_builds)
