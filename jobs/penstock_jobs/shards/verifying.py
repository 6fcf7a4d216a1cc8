"""Proving a shard from its files: they are those of the manifest, and keep every rule."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.shards.errors import ShardDamaged, ShardInvalid
from penstock.shards.files import check_digest, files_of, read_rows
from penstock.shards.manifest import Manifest, folder_of
from penstock.shards.validation import validate_shard
from penstock.storage import ObjectStore


@dataclass(frozen=True)
class Proof:
    """`problems` is empty where the shard is what its manifest says."""

    files: int
    samples: int
    tokens: int
    problems: list[str]


def verify_shard(store: ObjectStore, manifest: Manifest) -> Proof:
    """Reads every byte twice: for the checksums, and for the rules."""
    problems = list(_damage(store, manifest))
    if not problems:
        try:
            validate_shard(store, manifest)
        except (ShardInvalid, ShardDamaged) as error:
            problems.append(str(error))
    if not problems:
        problems += _miscounted(store, manifest)
    counts = manifest.counts
    return Proof(len(list(files_of(manifest))), counts.samples, counts.tokens, problems)


def _damage(store: ObjectStore, manifest: Manifest) -> Iterator[str]:
    for part in files_of(manifest):
        try:
            check_digest(store, f"{folder_of(manifest.id)}/{part.name}", part)
        except ShardDamaged as error:
            yield str(error)


def _miscounted(store: ObjectStore, manifest: Manifest) -> Iterator[str]:
    """What the manifest says of all files together."""
    statuses: Counter[str] = Counter()
    sessions: set[str] = set()
    tokens = 0
    for rows in read_rows(store, manifest, ["session_id", "status", "n_tokens"]):
        statuses.update(rows["status"].to_pylist())
        sessions.update(rows["session_id"].unique().to_pylist())
        tokens += sum(rows["n_tokens"].to_pylist())
    counts = manifest.counts
    found = {
        "samples": (statuses.total(), counts.samples),
        "sessions": (len(sessions), counts.sessions),
        "tokens": (tokens, counts.tokens),
        "statuses": (dict(statuses), dict(counts.status)),
    }
    for name, (there, said) in found.items():
        if there != said:
            yield f"{name}: the files have {there}, the manifest says {said}"
