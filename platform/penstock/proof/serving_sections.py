"""The sections of a proof on what became of a checkpoint: verdicts, promotions, replicas; and what
was erased since from what it learned."""

import hashlib
import json
from collections.abc import Set
from typing import Any

import msgspec
import sqlalchemy as sa

from penstock.audit.chain import heads_of
from penstock.channels.change import Change
from penstock.channels.history import changes_of_checkpoint, unbound_versions, verify_history
from penstock.checkpoints.digests import text_digest
from penstock.fleet.replicas import replicas_of
from penstock.gate.tables import verdict
from penstock.privacy.tables import OPEN, erasure
from penstock.proof.subject import ProofSubject
from penstock.proof.training_sections import moment
from penstock.shards.tables import ERASED, shard
from penstock.signatures import canonical


class _JudgedSuite(msgspec.Struct):
    version: str | None = None


class _Judged(msgspec.Struct):
    """What a proof takes out of a verdict's document."""

    policy: str | None = None
    suites: dict[str, _JudgedSuite] = {}


def show_verdicts(subject: ProofSubject) -> list[dict[str, Any]]:
    """Each with its whole document as text, whose SHA-256 is its name: policy and statistics."""
    columns = verdict.c
    mine = sa.select(verdict).where(columns.tenant == subject.tenant)
    mine = mine.where(columns.checkpoint == subject.checkpoint.name)
    with subject.lake.database.read() as connection:
        rows = connection.execute(mine.order_by(columns.made_at, columns.id)).all()
    if not rows:
        why = "it never met a gate: no promotion asked for a verdict"
        subject.lacks("verdicts", subject.checkpoint.name, why)
    return [_show_verdict(subject, row) for row in rows]


def _show_verdict(subject: ProofSubject, row: sa.Row[Any]) -> dict[str, Any]:
    try:
        judged = msgspec.json.decode(row.document, type=_Judged)
    except msgspec.DecodeError:
        judged = _Judged()
    if text_digest(row.document) != row.id:
        subject.lacks("verdicts", row.id, "its document is not as it was written")
    elif judged.policy is None:
        subject.lacks("verdicts", row.id, "the channel had no policy: nothing was demanded")
    return {
        "verdict": row.id,
        "outcome": row.outcome,
        "channel": row.channel,
        "made_at": moment(row.made_at),
        "policy": judged.policy,
        "suites": [
            {"suite": name, "version": suite.version} for name, suite in judged.suites.items()
        ],
        "document": row.document,
    }


def show_promotions(subject: ProofSubject) -> list[dict[str, Any]]:
    """Every change of a channel that came to the checkpoint or left it."""
    place = subject.lake.database, subject.tenant
    changes = changes_of_checkpoint(*place, subject.checkpoint.name)
    if not changes:
        subject.lacks("promotions", subject.checkpoint.name, "no channel ever pointed at it")
    for channel in dict.fromkeys(change.channel for change in changes):
        if misfit := verify_history(*place, channel):
            why = f"version {misfit.version} is not as it was written: {misfit.why}"
            subject.lacks("promotions", channel, why)
        mine = {change.version for change in changes if change.channel == channel}
        for version in sorted(mine.intersection(unbound_versions(*place, channel))):
            why = f"version {version} is of before evidence was bound: its attempts may be others"
            subject.lacks("promotions", channel, why)
    for change in changes:
        if change.overridden:
            why = f"version {change.version} went past the gate, by {change.actor}"
            subject.lacks("promotions", change.channel, why)
    return [_show_change(change) for change in changes]


def _show_change(change: Change) -> dict[str, Any]:
    share = change.canary_share
    return {
        "channel": change.channel,
        "version": change.version,
        "action": change.action,
        "checkpoint": change.checkpoint,
        "digest": change.digest,
        "previous": change.previous,
        "canary": change.canary,
        "canary_share": None if share is None else f"{share:.12g}",
        "verdict": change.verdict,
        "overridden": change.overridden,
        "actor": change.actor,
        "reason": change.reason,
        "at": moment(change.at),
        "previous_hash": change.previous_hash,
        "hash": change.hash,
    }


def show_replicas(subject: ProofSubject) -> list[dict[str, Any]]:
    """By their own reports of the last hour."""
    lake, known = subject.lake, subject.checkpoint
    heard = replicas_of(lake.database, lake.settings, subject.tenant, known.name)
    if not heard:
        why = "no replica reported within the last hour that it serves it"
        subject.lacks("replicas", known.name, why)
    for _, replica in heard:
        if replica.digest != known.digest:
            subject.lacks("replicas", replica.replica, "it serves files of another digest")
    return [
        {
            "replica": replica.replica,
            "channel": channel,
            "part": replica.part,
            "state": replica.state,
            "version": replica.version,
            "digest": replica.digest,
            "loaded_at": replica.loaded_at,
            "heard_at": replica.heard_at,
            "silent": replica.silent,
        }
        for channel, replica in heard
    ]


def show_erasures(subject: ProofSubject) -> list[dict[str, Any]]:
    """Those that reached a shard of its lineage, by the digests of their signed reports."""
    columns = erasure.c
    query = sa.select(columns.state, columns.report, columns.finished_at)
    query = query.where(columns.tenant == subject.tenant).order_by(columns.started_at, columns.id)
    with subject.lake.database.read() as connection:
        rows = connection.execute(query).all()
    reached = []
    for row in rows:
        if row.report is None:
            if row.state == OPEN:
                why = "an erasure is under way: what it reaches is not known yet"
                subject.lacks("erasures", subject.tenant, why)
            continue
        report = json.loads(row.report)
        seen = set(report["seen_by"].get("shards", ()))
        shards = [id_ for id_ in subject.shards if id_ in seen]
        if shards:
            document = {
                "erasure": report["erasure"],
                "kind": report["kind"],
                "finished_at": moment(report["finished_at_us"]),
                "sessions": report["sessions"],
                "report": "sha256:" + hashlib.sha256(canonical(report)).hexdigest(),
                "shards": shards,
            }
            reached.append(document)
    _lacking_reports(subject, {id_ for document in reached for id_ in document["shards"]})
    return reached


def _lacking_reports(subject: ProofSubject, reported: Set[str]) -> None:
    """Reports may be let go by age."""
    erased = sa.select(shard.c.id).where(shard.c.gone == ERASED, shard.c.id.in_(subject.shards))
    with subject.lake.database.read() as connection:
        ids = connection.scalars(erased.order_by(shard.c.id)).all()
    for id_ in ids:
        if id_ not in reported:
            subject.lacks("erasures", id_, "it was erased, and the report is not kept any more")


def show_audit(subject: ProofSubject) -> dict[str, Any] | None:
    """The head of the tenant's chain: `penstock audit verify --head` compares it."""
    heads = heads_of(subject.lake.database, subject.tenant)
    if not heads:
        return None
    [(_, head)] = heads
    return {"number": head.number, "hash": head.hash}
