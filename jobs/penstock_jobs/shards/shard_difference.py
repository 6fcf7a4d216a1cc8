"""Differences of two shards: in their manifests and in their samples."""

from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

import msgspec

from penstock.shards.manifest import Manifest, StoredShard, read_rows

#: Compared fields of the manifest; others follow from them.
_FIELDS = ("name", "seed", "snapshot", "rewards", "policy", "tokenizer", "template_sha256",
           "code_version", "format")  # fmt: skip
_SESSIONS_SHOWN = 20
_COLUMNS = ["sample_id", "session_id", "reward", "advantage", "loss_weight", "split"]


class ManifestChange(msgspec.Struct, frozen=True):
    what: str
    before: Any
    after: Any


class SampleChanges(msgspec.Struct, frozen=True):
    """Counts of samples. `otherwise`: with another reward, advantage, weight or split."""

    only_before: int
    only_after: int
    same: int
    otherwise: int
    sessions_only_before: list[str]
    sessions_only_after: list[str]


class ShardDifference(msgspec.Struct, frozen=True):
    changes: list[ManifestChange]
    query: list[str]
    samples: SampleChanges


def diff_shards(before: StoredShard, after: StoredShard) -> ShardDifference:
    """Compare two shards. Holds all samples in memory, without tokens. Raises ShardDamaged."""
    manifests = (before.manifest, after.manifest)
    queries = [each.query.splitlines() for each in manifests]
    lines = unified_diff(queries[0], queries[1], lineterm="", n=1)
    old, new = _samples(before), _samples(after)
    both = old.keys() & new.keys()
    otherwise = sum(old[sample] != new[sample] for sample in both)
    old_sessions, new_sessions = ({facts[0] for facts in side.values()} for side in (old, new))
    samples = SampleChanges(
        only_before=len(old.keys() - both),
        only_after=len(new.keys() - both),
        same=len(both) - otherwise,
        otherwise=otherwise,
        sessions_only_before=sorted(old_sessions - new_sessions)[:_SESSIONS_SHOWN],
        sessions_only_after=sorted(new_sessions - old_sessions)[:_SESSIONS_SHOWN],
    )
    return ShardDifference([*_changes(*manifests)], [*lines][2:], samples)


def _changes(before: Manifest, after: Manifest) -> Iterator[ManifestChange]:
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    for name in _FIELDS:
        if old[name] != new[name]:
            yield ManifestChange(name, old[name], new[name])
    recipes = [msgspec.json.decode(manifest.recipe or "{}") for manifest in (before, after)]
    yield from _in_tables("recipe", *recipes)
    yield from _in_tables("counts", old["counts"], new["counts"])


def _in_tables(path: str, before: Any, after: Any) -> Iterator[ManifestChange]:
    """Yield changes of values in nested tables."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from _in_tables(f"{path}.{key}", before.get(key), after.get(key))
    elif before != after:
        yield ManifestChange(path, before, after)


def _samples(shard: StoredShard) -> dict[str, tuple[Any, ...]]:
    return {
        sample: tuple(facts)
        for rows in read_rows(shard, _COLUMNS)
        for sample, *facts in zip(*(rows[name].to_pylist() for name in _COLUMNS), strict=True)
    }
