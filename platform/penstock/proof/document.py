"""The documents: the proof of a checkpoint, and what is said of one session."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TextIO

from penstock.audit.chain import record
from penstock.audit.entry import Deed
from penstock.checkpoints.checkpoint import Checkpoint
from penstock.checkpoints.errors import LineageBroken
from penstock.checkpoints.registration import ancestors, find
from penstock.database.engine import clock_us
from penstock.errors import PenstockError
from penstock.lake.desk import Caller
from penstock.lake.lake import Lake
from penstock.proof.serving_sections import (
    show_audit,
    show_erasures,
    show_promotions,
    show_replicas,
    show_verdicts,
)
from penstock.proof.session_leaves import SessionDigests, SessionTree, session_tree
from penstock.proof.shard_records import find_record, find_stored
from penstock.proof.subject import ProofSubject, Section, sections_of_rooms
from penstock.proof.training_sections import moment, show_checkpoint, show_parents, show_shards
from penstock.sealed_texts import SecretSeal
from penstock.signatures import SigningKey, canonical

PROOF_FORMAT = "penstock proof 1"
SESSION_FORMAT = "penstock session proof 1"
#: In the order in which gaps are named; rooms above add theirs.
_SECTIONS: Mapping[str, Section] = {
    "checkpoint": show_checkpoint,
    "parents": show_parents,
    "shards": show_shards,
    "verdicts": show_verdicts,
    "promotions": show_promotions,
    "replicas": show_replicas,
    "erasures": show_erasures,
    "audit": show_audit,
}


def prove_checkpoint(
    lake: Lake, caller: Caller, text: str, *, read_files: bool = False
) -> dict[str, Any]:
    """The signed proof of a checkpoint, by its name or digest. `read_files` compares the checksum
    of every file of its shards. Raises CheckpointUnknown, SigningKeyUnfit, SecretKeyUnfit."""
    subject = _subject(lake, caller.tenant, text, read_files=read_files)
    sections = {**_SECTIONS, **sections_of_rooms()}
    document = {name: section(subject) for name, section in sections.items()}
    gaps = {"gaps": [asdict(gap) for gap in subject.gaps]}
    return _signed(lake, caller, subject, PROOF_FORMAT, document | gaps)


def prove_session(lake: Lake, caller: Caller, text: str, session: str) -> dict[str, Any]:
    """A signed document on whether the shards of a checkpoint's lineage hold a session. Raises as
    `prove_checkpoint`."""
    subject = _subject(lake, caller.tenant, text)
    shards = [_session_in_shard(subject, shard, session) for shard in subject.shards]
    known = {"name": subject.checkpoint.name, "digest": subject.checkpoint.digest}
    document: dict[str, Any] = {"checkpoint": known, "session": session, "shards": shards}
    gaps = {"gaps": [asdict(gap) for gap in subject.gaps]}
    return _signed(lake, caller, subject, SESSION_FORMAT, document | gaps)


def _subject(lake: Lake, tenant: str, text: str, *, read_files: bool = False) -> ProofSubject:
    known = find(lake.database, tenant, text)
    parents: list[Checkpoint] = []
    broken: PenstockError | None = None
    with lake.database.read() as connection:
        try:
            parents = ancestors(connection, known)
        except LineageBroken as error:
            broken = error
    subject = ProofSubject(lake, tenant, known, tuple(parents), read_files)
    if broken is not None:
        subject.lacks("parents", known.name, str(broken))
    return subject


def _signed(
    lake: Lake, caller: Caller, subject: ProofSubject, form: str, sections: Mapping[str, Any]
) -> dict[str, Any]:
    """The audit says what was handed out, by its digest."""
    with lake.database.read() as connection:
        now = clock_us(connection)
    head = {"format": form, "tenant": subject.tenant, "made_at": moment(now)}
    signed = SigningKey.of(lake.settings).sign({**head, "made_by": caller.actor, **sections})
    facts = {"document": hashlib.sha256(canonical(signed)).hexdigest()}
    whose = {"tenant": subject.tenant, "actor": caller.actor, "subject": subject.checkpoint.name}
    record(lake.database, Deed(**whose, action="prove", facts=facts))
    return signed


def _session_in_shard(subject: ProofSubject, shard: str, session: str) -> dict[str, Any]:
    lake = subject.lake
    try:
        kept = find_record(lake, shard, subject.tenant)
        digests = SessionDigests.of(SecretSeal.of(lake.settings), subject.tenant, shard)
        with session_tree(lake, find_stored(lake, shard, subject.tenant), digests) as tree:
            found = _place_in(tree, digests, session)
    except PenstockError as error:
        subject.lacks("shards", shard, f"its sessions cannot be read: {error}")
        return {"shard": shard, "present": None}
    if (found["root"], digests.key_name) != (
        kept["sessions"]["root"],
        kept["sessions"]["digest_key"],
    ):
        why = "its sessions have another root than when they were recorded"
        subject.lacks("shards", shard, why)
    return {"shard": shard, **found}


def _place_in(tree: SessionTree, digests: SessionDigests, session: str) -> dict[str, Any]:
    """The leaf of the session with its path; where there is none, its two neighbours."""
    digest = digests.digest(session)
    place = tree.place_of(digest)
    leaf = tree.leaf_at(place)
    present = leaf is not None and leaf.digest == digest
    places = [place] if present else [each for each in (place - 1, place) if 0 <= each < tree.size]
    return {
        "present": present,
        "root": tree.root.hex(),
        "count": tree.size,
        "salt": digests.salt(session).hex(),
        "digest": digest.hex(),
        "leaves": [_leaf_facts(tree, each) for each in places],
    }


def _leaf_facts(tree: SessionTree, index: int) -> dict[str, Any]:
    leaf = tree.leaf_at(index)
    assert leaf is not None
    path = [sibling.hex() for sibling in tree.path(index)]
    return {"index": index, "digest": leaf.digest.hex(), "consent": leaf.consent, "path": path}


def write_leaves(lake: Lake, tenant: str, text: str, file: TextIO) -> int:
    """A line for each session of each shard of a checkpoint's lineage, in the order of the tree:
    shard, digest and consent; how many. Raises CheckpointUnknown, ShardMissing, ShardDamaged,
    SecretKeyUnfit."""
    count = 0
    for shard in _subject(lake, tenant, text).shards:
        digests = SessionDigests.of(SecretSeal.of(lake.settings), tenant, shard)
        with session_tree(lake, find_stored(lake, shard, tenant), digests) as tree:
            for leaf in tree.leaves():
                file.write(f"{shard} {leaf.digest.hex()} {leaf.consent}\n")
                count += 1
    return count
