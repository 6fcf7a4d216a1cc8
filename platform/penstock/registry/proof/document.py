"""The proof of a checkpoint: one signed document, and its differences from the present lake.

A section is plain JSON without fractions, and without names of users or sessions. Other rooms add
sections of their own."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import msgspec
import sqlalchemy as sa

from penstock.access.tables import OPEN, erasure
from penstock.backends.audit.chain import check_audit, record
from penstock.backends.audit.entry import UNSIGNED, Deed
from penstock.backends.database.engine import clock_us
from penstock.backends.terminal.output import time_text
from penstock.core.endpoint import Caller
from penstock.core.files import DIGEST_PREFIX
from penstock.core.lake_keys import SigningKey, canonical
from penstock.core.room import rooms
from penstock.core.settings import without_secrets
from penstock.lake.lake import Lake
from penstock.registry.channels.history import changes_of_checkpoint, verify_history
from penstock.registry.checkpoints.checkpoint import Checkpoint, LineageBroken
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.checkpoints.registration import ancestors, find
from penstock.registry.fleet.replicas import replicas_of
from penstock.registry.gate.tables import verdict
from penstock.shards.manifest import Manifest, ShardFile, check_digest, files_of
from penstock.shards.shard import ShardDamaged, shard_folder
from penstock.shards.tables import ERASED, shard

PROOF_FORMAT = "penstock proof 1"


class ProofSubject(msgspec.Struct, frozen=True):
    """The checkpoint to prove. `parents` start with the nearest."""

    lake: Lake
    tenant: str
    checkpoint: Checkpoint
    parents: list[Checkpoint]
    #: Compare the checksums of shard files, not only their sizes.
    read_files: bool = False
    #: What cannot be shown, of what, and why.
    gaps: list[dict[str, str]] = msgspec.field(default_factory=list)

    @property
    def ancestry(self) -> list[Checkpoint]:
        return [self.checkpoint, *self.parents]

    @property
    def shards(self) -> dict[str, list[str]]:
        """The checkpoints trained on each shard, by its id."""
        trained: dict[str, list[str]] = {}
        for learner in self.ancestry:
            for id_ in learner.shards:
                trained.setdefault(id_, []).append(learner.name)
        return trained

    def lacks(self, part: str, of: str, why: str) -> None:
        self.gaps.append({"part": part, "of": of, "why": why})


Section = Callable[[ProofSubject], Any]


def prove_checkpoint(
    lake: Lake, caller: Caller, text: str, *, read_files: bool = False
) -> dict[str, Any]:
    """The signed proof of a checkpoint by name or digest. Raises CheckpointUnknown,
    SigningKeyUnfit."""
    known = find(lake.database, caller.tenant, text)
    subject = ProofSubject(lake, caller.tenant, known, [], read_files)
    with lake.database.read() as connection:
        now = clock_us(connection)
        try:
            subject.parents.extend(ancestors(connection, known))
        except LineageBroken as error:
            subject.lacks("parents", known.name, str(error))
    head = {"format": PROOF_FORMAT, "tenant": caller.tenant, "made_at": time_text(now)}
    brought = {name: show for room in rooms() for name, show in room.proof().items()}
    sections = _SECTIONS | dict(sorted(brought.items()))
    document = {name: section(subject) for name, section in sections.items()}
    document |= {"gaps": subject.gaps, "made_by": caller.actor}
    signed = SigningKey.of(lake.settings).sign(head | document)
    facts = {"document": hashlib.sha256(canonical(signed)).hexdigest()}
    deed = Deed(caller.tenant, caller.actor, "prove", f"checkpoint {known.name}", facts)
    record(lake.database, deed)
    return signed


def _checkpoint_facts(known: Checkpoint) -> dict[str, Any]:
    names = ("name", "digest", "form", "parent", "state", "checked", "bytes", "registered_by")
    facts = {name: getattr(known, name) for name in names}
    facts |= {"uri": without_secrets(known.uri), "registered_at": known.registered_at}
    return facts | {"shards": list(known.shards)}


def _shards(subject: ProofSubject) -> list[dict[str, Any]]:
    for learner in subject.ancestry:
        if not learner.shards:
            why = "it was registered without shards, so its training data are unknown"
            subject.lacks("shards", learner.name, why)
    return [_shard(subject, id_, names) for id_, names in subject.shards.items()]


def _shard(subject: ProofSubject, id_: str, names: list[str]) -> dict[str, Any]:
    lake, columns = subject.lake, shard.c
    query = sa.select(columns.name, columns.created_at, columns.gone, columns.gone_at)
    query = query.add_columns(columns.record)
    mine = (columns.tenant == subject.tenant, columns.id == id_)
    with lake.database.read() as connection:
        row = connection.execute(query.where(*mine)).first()
    if row is None:
        subject.lacks("shards", id_, "it is no longer registered")
        return {"shard": id_, "trained": names, "state": "unknown", "problems": []}
    kept: dict[str, Any] = json.loads(row.record)
    problems = []
    if row.gone is None:
        problems = file_problems(
            lake, shard_folder(subject.tenant, id_), kept["files"], read=subject.read_files
        )
    for problem in problems:
        subject.lacks("shards", id_, problem)
    return kept | {
        "shard": id_,
        "trained": names,
        "name": row.name,
        "built_at": time_text(row.created_at),
        "state": row.gone or ("damaged" if problems else "there"),
        "gone_since": time_text(row.gone_at) if row.gone_at else None,
        "problems": problems,
    }


def _verdicts(subject: ProofSubject) -> list[dict[str, Any]]:
    """Verdicts that changes of channels name, with their whole documents as text, policy and
    statistics included. The SHA-256 of the text is the id."""
    lake, tenant, name = subject.lake, subject.tenant, subject.checkpoint.name
    named = {change.verdict for change in changes_of_checkpoint(lake.database, tenant, name)}
    query = sa.select(verdict).filter_by(tenant=tenant, checkpoint=name)
    query = query.where(verdict.c.id.in_(named)).order_by(verdict.c.made_at, verdict.c.id)
    rows = lake.database.rows(query)
    if not rows:
        why = "no promotion asked the gate for a verdict"
        subject.lacks("verdicts", subject.checkpoint.name, why)
    shown = []
    for row in rows:
        told: dict[str, Any] = {}
        if text_digest(row.document) != row.id:
            subject.lacks("verdicts", row.id, "its document was changed")
        elif (told := json.loads(row.document)).get("policy") is None:
            subject.lacks("verdicts", row.id, "the channel had no policy")
        place = {"verdict": row.id, "channel": row.channel, "made_at": time_text(row.made_at)}
        shown.append(place | {"outcome": told.get("outcome"), "document": row.document})
    return shown


def _promotions(subject: ProofSubject) -> list[dict[str, Any]]:
    """All changes of channels to or from the checkpoint."""
    place, known = (subject.lake.database, subject.tenant), subject.checkpoint
    changes = changes_of_checkpoint(*place, known.name)
    if not changes:
        subject.lacks("promotions", known.name, "no channel ever pointed at it")
    for channel in dict.fromkeys(change.channel for change in changes):
        if flaw := verify_history(*place, channel):
            why = f"version {flaw.number} was altered: {flaw.why}"
            subject.lacks("promotions", channel, why)
    shown = []
    for change in changes:
        if change.overridden:
            why = f"{change.actor} overrode the gate at version {change.version}"
            subject.lacks("promotions", change.channel, why)
        if change.checkpoint == known.name and change.digest != known.digest:
            why = f"version {change.version} points at {change.digest}"
            subject.lacks("promotions", change.channel, why)
        share = change.canary_share
        texts = {"canary_share": None if share is None else f"{share:.12g}"}
        shown.append(asdict(change) | texts | {"at": time_text(change.at)})
    return shown


def _replicas(subject: ProofSubject) -> list[dict[str, Any]]:
    lake, known = subject.lake, subject.checkpoint
    heard = replicas_of(lake.database, lake.settings, subject.tenant, known.name)
    if not heard:
        why = "no replica reported within the last hour that it serves the checkpoint"
        subject.lacks("replicas", known.name, why)
    for _, replica in heard:
        if replica.digest != known.digest:
            subject.lacks("replicas", replica.replica, "it serves files with another digest")
    names = ("replica", "part", "state", "version", "digest", "loaded_at", "heard_at", "silent")
    return [
        {"channel": channel} | {name: getattr(replica, name) for name in names}
        for channel, replica in heard
    ]


def _erasures(subject: ProofSubject) -> list[dict[str, Any]]:
    """Erasures that reached a shard of the lineage, with the digests of their signed reports."""
    columns = erasure.c
    query = sa.select(columns.state, columns.report).where(columns.tenant == subject.tenant)
    erased = sa.select(shard.c.id).where(shard.c.gone == ERASED, shard.c.id.in_(subject.shards))
    with subject.lake.database.read() as connection:
        rows = connection.execute(query.order_by(columns.started_at, columns.id)).all()
        gone = connection.scalars(erased.order_by(shard.c.id)).all()
    if any(row.report is None and row.state == OPEN for row in rows):
        why = "an erasure is in progress, and its reach is not known yet"
        subject.lacks("erasures", subject.tenant, why)
    reached = []
    for report in [json.loads(row.report) for row in rows if row.report is not None]:
        seen = report["seen_by"].get("shards", ())
        if shards := [id_ for id_ in subject.shards if id_ in seen]:
            facts = {name: report[name] for name in ("erasure", "kind", "sessions")}
            facts["finished_at"] = time_text(report["finished_at_us"])
            facts["report"] = "sha256:" + hashlib.sha256(canonical(report)).hexdigest()
            reached.append(facts | {"shards": shards})
    for id_ in set(gone) - {id_ for facts in reached for id_ in facts["shards"]}:
        subject.lacks("erasures", id_, "it was erased, and the report is no longer kept")
    return reached


def _audit(subject: ProofSubject) -> dict[str, Any] | None:
    """The head of the audit: `penstock audit verify --head` compares it."""
    [(_, head, flaw)] = check_audit(subject.lake.database, subject.tenant)
    if flaw is not None:
        subject.lacks("audit", subject.tenant, f"entry {flaw.number} was altered: {flaw.why}")
    if not subject.lake.database.signs:
        subject.lacks("signatures", subject.tenant, f"the lake's evidence is {UNSIGNED}")
    return asdict(head) if head.number else None


_SECTIONS: dict[str, Section] = {
    "checkpoint": lambda subject: _checkpoint_facts(subject.checkpoint),
    "parents": lambda subject: [_checkpoint_facts(parent) for parent in subject.parents],
    "shards": _shards,
    "verdicts": _verdicts,
    "promotions": _promotions,
    "replicas": _replicas,
    "erasures": _erasures,
    "audit": _audit,
}

#: The fields that identify an entry of each section, to compare two proofs.
_KEYS = {
    "checkpoint": ("name",),
    "parents": ("name",),
    "shards": ("shard",),
    "verdicts": ("verdict",),
    "promotions": ("channel", "version"),
    "replicas": ("channel", "replica"),
    "erasures": ("erasure",),
    "consent_withdrawn": ("shard", "reason"),
}


def differences(document: dict[str, Any], present: dict[str, Any]) -> Iterator[str]:
    """Yield sentences on what has changed since. `present` is a new proof of the same
    checkpoint."""
    for section, names in _KEYS.items():
        before, now = (_entries(each.get(section) or [], names) for each in (document, present))
        for key, entry in before.items():
            if key not in now:
                yield f"{section}: {key} no longer exists"
                continue
            for name in sorted(entry.keys() - {"heard_at", "silent"}):
                if entry[name] != (found := now[key].get(name)):
                    yield f"{section}: {name} of {key} was {entry[name]}, and is now {found}"
        for key in now.keys() - before.keys():
            yield f"{section}: {key} is new"


def _entries(entries: Any, names: tuple[str, ...]) -> dict[str, Mapping[str, Any]]:
    listed = [entries] if isinstance(entries, Mapping) else entries
    return {" ".join(str(entry[name]) for name in names): entry for entry in listed}


def shard_record(manifest: Manifest) -> str:
    recipe, snapshot, rewards = manifest.recipe, manifest.snapshot, manifest.rewards
    document = {
        **{name: getattr(manifest.counts, name) for name in ("sessions", "samples", "trainable")},
        "recipe": text_digest(recipe),
        "query": text_digest(manifest.query),
        # The recipe's consent rule; null without a recipe.
        "consent_rule": json.loads(recipe)["exclude"]["consent"] if recipe else None,
        "seed": manifest.seed,
        "snapshot": {"name": snapshot.name, "snap": snapshot.snap} if snapshot else None,
        "rewards": [{"definition": each.definition, "version": each.version} for each in rewards],
        "suites_left_out": manifest.suites,
        "left_out": manifest.counts.excluded,
        "built_by": manifest.code_version,
        "files": [
            {"name": file.name, "bytes": file.bytes, "digest": DIGEST_PREFIX + file.sha256}
            for file in files_of(manifest)
        ],
    }
    return json.dumps(document)


def file_problems(lake: Lake, folder: str, files: list[dict[str, Any]], *, read: bool) -> list[str]:
    """Problems of a shard's files in the store, by size, or with `read` by checksum."""
    problems = []
    for file in files:
        name, path = file["name"], f"{folder}/{file['name']}"
        try:
            with lake.store.open(path) as source:
                size = source.size()
            if size != file["bytes"]:
                problems.append(f"{name} has {size} bytes, not {file['bytes']}")
            elif read:
                sha256 = file["digest"].removeprefix(DIGEST_PREFIX)
                part = ShardFile(name=name, sha256=sha256, bytes=size, row_groups=[])
                check_digest(lake.store, path, part)
        except FileNotFoundError:
            problems.append(f"{name} is missing")
        except ShardDamaged as error:
            problems.append(str(error))
    return problems
