"""What is otherwise in a lake now than when a proof was written: pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]

#: Of the checkpoint and its parents: what never changes in an honest lake, and what may.
_FIXED = ("digest", "uri", "form", "parent", "shards", "registered_by", "registered_at")
_STATE = "state"
#: Of a shard: what its id stands for.
_SHARD_FIXED = ("recipe", "query", "snapshot", "files", "sessions")


def differences(document: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """In sentences. `present` is a proof of the same checkpoint, made now."""
    return [
        *_checkpoints(document, present),
        *_shards(document, present),
        *_history(document, present),
        *_replicas(document, present),
        *_since(document, present),
    ]


def _entries(document: Mapping[str, Any], section: str) -> list[Entry]:
    entries = document.get(section) or []
    return [entries] if isinstance(entries, Mapping) else list(entries)


def _checkpoints(document: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    for section in ("checkpoint", "parents"):
        now = {entry["name"]: entry for entry in _entries(present, section)}
        for entry in _entries(document, section):
            name = entry["name"]
            if name not in now:
                yield f"checkpoint {name} is not in its lineage any more"
                continue
            for field in _FIXED:
                if entry[field] != now[name][field]:
                    yield f"{field} of checkpoint {name} was {entry[field]}, now {now[name][field]}"
            if entry[_STATE] != now[name][_STATE]:
                yield f"checkpoint {name} was {entry[_STATE]}, now it is {now[name][_STATE]}"


def _shards(document: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    now = {entry["shard"]: entry for entry in _entries(present, "shards")}
    for entry in _entries(document, "shards"):
        shard = entry["shard"]
        if shard not in now:
            yield f"shard {shard} is not in its lineage any more"
            continue
        for field in _SHARD_FIXED:
            if field in entry and entry[field] != now[shard].get(field):
                yield f"{field} of shard {shard} are not what the document says"
        if entry[_STATE] != now[shard][_STATE]:
            yield f"shard {shard} was {entry[_STATE]}, now it is {now[shard][_STATE]}"
        for problem in now[shard]["problems"]:
            if problem not in entry["problems"]:
                yield f"shard {shard}: {problem}"


def _history(document: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    """What was appended since, and what is there no more, which no honest lake does."""

    def verdict(entry: Entry) -> str:
        return f"verdict {entry['verdict']}: {entry['outcome']} for {entry['channel']}"

    def change(entry: Entry) -> str:
        target = entry["canary"] or entry["checkpoint"]
        return f"{entry['channel']} version {entry['version']}: {entry['action']}, at {target}"

    yield from _appended(document, present, "verdicts", "verdict", verdict)
    yield from _appended(document, present, "promotions", "hash", change)


def _appended(
    document: Mapping[str, Any],
    present: Mapping[str, Any],
    section: str,
    key: str,
    describe: Callable[[Entry], str],
) -> Iterator[str]:
    before = {entry[key]: entry for entry in _entries(document, section)}
    now = {entry[key]: entry for entry in _entries(present, section)}
    for name, entry in before.items():
        if now.get(name) != entry:
            yield f"{describe(entry)} is not there any more as the document has it"
    for name, entry in now.items():
        if name not in before:
            yield f"since then, {describe(entry)}"


def _replicas(document: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    def by_place(entries: Sequence[Entry]) -> dict[tuple[str, str], Entry]:
        return {(entry["channel"], entry["replica"]): entry for entry in entries}

    before, now = (by_place(_entries(each, "replicas")) for each in (document, present))
    for channel, replica in before.keys() - now.keys():
        yield f"replica {replica} of {channel} does not report that it serves it any more"
    for channel, replica in now.keys() - before.keys():
        yield f"replica {replica} of {channel} serves it since {now[channel, replica]['loaded_at']}"


def _since(document: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    known = {entry["erasure"] for entry in _entries(document, "erasures")}
    for entry in _entries(present, "erasures"):
        if entry["erasure"] not in known:
            shards = ", ".join(entry["shards"])
            yield f"erasure {entry['erasure']} of {entry['finished_at']} reached {shards}"
    marked = {
        (entry["shard"], entry["reason"]): entry["sessions"]
        for entry in _entries(document, "consent_withdrawn")
    }
    for entry in _entries(present, "consent_withdrawn"):
        more = entry["sessions"] - marked.get((entry["shard"], entry["reason"]), 0)
        if more > 0:
            yield f"{more} more sessions of shard {entry['shard']} are marked {entry['reason']}"
