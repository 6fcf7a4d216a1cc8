"""What changed from one shard to another: in their manifests, and in their samples."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

import msgspec

from penstock.shards.files import read_rows
from penstock.shards.manifest import Manifest
from penstock.storage import ObjectStore

#: Of the manifest; what follows from the rest is left out.
_SAID = ("name", "seed", "snapshot", "rewards", "policy", "tokenizer", "template_sha256",
         "code_version")  # fmt: skip


@dataclass(frozen=True)
class ManifestChange:
    """Of something that the manifests say."""

    what: str
    before: Any
    after: Any


@dataclass(frozen=True)
class SampleChanges:
    """By sample: what only one of the two has, what both have, and what both have with another
    reward, advantage, weight or split."""

    only_before: int
    only_after: int
    same: int
    otherwise: int
    #: Sessions that only one has; the first few.
    sessions_only_before: list[str]
    sessions_only_after: list[str]


@dataclass(frozen=True)
class ShardDifference:
    changes: list[ManifestChange]
    #: Of the query, as a diff.
    query: list[str]
    samples: SampleChanges


_SESSIONS_SHOWN = 20
_COLUMNS = ["sample_id", "session_id", "reward", "advantage", "loss_weight", "split"]


def diff_shards(store: ObjectStore, before: Manifest, after: Manifest) -> ShardDifference:
    """All samples of both are in memory, without their tokens. Raises ShardDamaged."""
    lines = unified_diff(before.query.splitlines(), after.query.splitlines(), lineterm="", n=1)
    return ShardDifference(
        changes=list(diff_manifests(before, after)),
        query=list(lines)[2:],
        samples=_compare(_samples(store, before), _samples(store, after)),
    )


def diff_manifests(before: Manifest, after: Manifest) -> Iterator[ManifestChange]:
    one, other = msgspec.to_builtins(before), msgspec.to_builtins(after)
    for name in _SAID:
        if one[name] != other[name]:
            yield ManifestChange(name, one[name], other[name])
    yield from _flat("recipe", _recipe(before), _recipe(after))
    yield from _flat("counts", one["counts"], other["counts"])


def _recipe(manifest: Manifest) -> Mapping[str, Any]:
    found = msgspec.json.decode(manifest.recipe) if manifest.recipe else {}
    return found if isinstance(found, dict) else {}


def _flat(path: str, before: Any, after: Any) -> Iterator[ManifestChange]:
    """Down to what is not a table any more."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from _flat(f"{path}.{key}", before.get(key), after.get(key))
    elif before != after:
        yield ManifestChange(path, before, after)


def _samples(store: ObjectStore, manifest: Manifest) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for rows in read_rows(store, manifest, _COLUMNS):
        columns = (rows[name].to_pylist() for name in _COLUMNS)
        for sample, *facts in zip(*columns, strict=True):
            found[sample] = tuple(facts)
    return found


def _compare(
    before: Mapping[str, tuple[Any, ...]], after: Mapping[str, tuple[Any, ...]]
) -> SampleChanges:
    both = before.keys() & after.keys()
    otherwise = sum(before[one] != after[one] for one in both)
    sessions = [{facts[0] for facts in side.values()} for side in (before, after)]
    return SampleChanges(
        only_before=len(before.keys() - both),
        only_after=len(after.keys() - both),
        same=len(both) - otherwise,
        otherwise=otherwise,
        sessions_only_before=sorted(sessions[0] - sessions[1])[:_SESSIONS_SHOWN],
        sessions_only_after=sorted(sessions[1] - sessions[0])[:_SESSIONS_SHOWN],
    )
