"""What a shard was when it was built: counts, and digests of its files, recipe and query. It stays
with the shard's row when the files go, and names nobody."""

import json
from typing import Any

from penstock.core.files import DIGEST_PREFIX
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.digests import text_digest
from penstock.shards.errors import ShardDamaged
from penstock.shards.files import check_digest, files_of
from penstock.shards.manifest import Manifest, ShardFile


def shard_record(manifest: Manifest) -> str:
    recipe, snapshot, rewards = manifest.recipe, manifest.snapshot, manifest.rewards
    document = {
        **{name: getattr(manifest.counts, name) for name in ("sessions", "samples", "trainable")},
        "recipe": text_digest(recipe),
        "query": text_digest(manifest.query),
        # What the recipe demanded; null in a shard that no recipe made.
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
    """What is wrong with a shard's files in the store, by their checksums with `read`, else by
    their sizes."""
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
            problems.append(f"{name} is not there")
        except ShardDamaged as error:
            problems.append(str(error))
    return problems
