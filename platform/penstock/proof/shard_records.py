"""What a shard was when it was built: counts, and digests of its files, recipe and sessions. It
is taken from the files once, and kept when they go: it names nobody."""

import json
from typing import Any

import sqlalchemy as sa

from penstock.checkpoints.digests import text_digest
from penstock.database.engine import insert_new, now_us
from penstock.lake.lake import Lake
from penstock.proof.session_leaves import SessionDigests, session_tree
from penstock.proof.tables import shard_record
from penstock.safe_names import DIGEST_PREFIX
from penstock.sealed_texts import SecretSeal
from penstock.shards.errors import ShardDamaged, ShardMissing
from penstock.shards.files import check_digest, files_of
from penstock.shards.manifest import ShardFile, StoredShard, read_manifest, stored_shard
from penstock.shards.registered_shards import known_folder


def record_shard(lake: Lake, shard: StoredShard, tenant: str) -> dict[str, Any]:
    """Keep what proofs say of a shard; what was kept before stays. Raises ShardDamaged,
    SecretKeyUnfit."""
    known = kept_record(lake, shard.id, tenant)
    if known is not None:
        return known
    document = _record_of(lake, shard, tenant)
    row = {"shard": shard.id, "tenant": tenant, "document": json.dumps(document)}
    with lake.database.write() as connection:
        insert_new(connection, shard_record, row | {"recorded_at": now_us()})
    return kept_record(lake, shard.id, tenant) or document


def kept_record(lake: Lake, shard: str, tenant: str) -> dict[str, Any] | None:
    mine = (shard_record.c.shard == shard, shard_record.c.tenant == tenant)
    query = sa.select(shard_record.c.document).where(*mine)
    with lake.database.read() as connection:
        text = connection.scalar(query)
    return None if text is None else dict(json.loads(text))


def find_record(lake: Lake, shard: str, tenant: str) -> dict[str, Any]:
    """The one that was kept, else made from the files. Raises ShardMissing, ShardDamaged."""
    known = kept_record(lake, shard, tenant)
    return record_shard(lake, find_stored(lake, shard, tenant), tenant) if known is None else known


def find_stored(lake: Lake, shard: str, tenant: str) -> StoredShard:
    """Raises ShardMissing, ShardGone, ShardDamaged."""
    return stored_shard(lake.store, known_folder(lake.database, tenant, shard), shard)


def _record_of(lake: Lake, shard: StoredShard, tenant: str) -> dict[str, Any]:
    manifest = shard.manifest
    digests = SessionDigests.of(SecretSeal.of(lake.settings), tenant, shard.id)
    with session_tree(lake, shard, digests) as tree:
        sessions = {
            "count": tree.size,
            "root": tree.root.hex(),
            "consents": [{"consent": name, "sessions": n} for name, n in tree.consents.items()],
            "digest_key": digests.key_name,
        }
    counts, snapshot = manifest.counts, manifest.snapshot
    return {
        "recipe": text_digest(manifest.recipe),
        "query": text_digest(manifest.query),
        "consent_rule": _consent_rule(manifest.recipe),
        "seed": manifest.seed,
        "snapshot": {"name": snapshot.name, "snap": snapshot.snap} if snapshot else None,
        "rewards": [
            {"definition": reward.definition, "version": reward.version}
            for reward in manifest.rewards
        ],
        "suites_left_out": [
            {"suite": suite, "version": version} for suite, version in manifest.suites.items()
        ],
        "samples": counts.samples,
        "tokens": counts.tokens,
        "trainable": counts.trainable,
        "left_out": [{"reason": why, "sessions": n} for why, n in counts.excluded.items()],
        "built_by": manifest.code_version,
        "files": [
            {"name": file.name, "bytes": file.bytes, "digest": DIGEST_PREFIX + file.sha256}
            for file in files_of(manifest)
        ],
        "sessions": sessions,
    }


def _consent_rule(recipe: str) -> str | None:
    """What the recipe demanded; None where it says nothing."""
    try:
        rule = json.loads(recipe)["exclude"]["consent"]
    except (ValueError, KeyError, TypeError):
        return None
    return str(rule)


def file_problems(
    lake: Lake, tenant: str, shard: str, files: list[dict[str, Any]], *, read: bool
) -> list[str]:
    """What is wrong with a shard's files as the store has them: `read` compares their checksums,
    and without it their sizes are looked at."""
    folder = known_folder(lake.database, tenant, shard)
    problems = []
    by_name: dict[str, ShardFile] = {}
    try:
        manifest = read_manifest(lake.store, folder, shard)
        by_name = {file.name: file for file in files_of(manifest)}
    except (ShardDamaged, ShardMissing) as error:
        problems.append(str(error))
    for file in files:
        name, path = file["name"], f"{folder}/{file['name']}"
        try:
            with lake.store.open(path) as source:
                size = source.size()
        except FileNotFoundError:
            problems.append(f"{name} is not there")
            continue
        if size != file["bytes"]:
            problems.append(f"{name} has {size} bytes, not {file['bytes']}")
        elif read and name in by_name:
            try:
                check_digest(lake.store, path, by_name[name])
            except ShardDamaged as error:
                problems.append(str(error))
    return problems
