"""Near misses: unknown keys that resemble known ones. Their producer hears which would be read."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.events.event import FIELDS, PAYLOADS, Tokens, Usage

#: Names that others use for our keys, by type of event; `` is the event itself.
_ALIASES: Mapping[str, Mapping[str, str]] = {
    "": {
        "session": "session_id", "conversation_id": "session_id", "timestamp": "ts", "time": "ts",
        "id": "event_id", "uuid": "event_id", "user_id": "user", "project_id": "project",
        "sequence": "seq", "index": "seq", "model_version": "checkpoint",
    },
    "session_start": {
        "repository": "repo", "commit_sha": "commit", "parent": "parent_session",
        "parent_session_id": "parent_session", "parent_id": "parent_session",
        "system_prompt": "system", "version": "client_version",
    },
    "model_call": {
        "id": "call_id", "content": "text", "output": "text", "reasoning": "thinking",
        "reasoning_content": "thinking", "stop_reason": "finish_reason",
        "duration_ms": "latency_ms",
        "model_name": "model", "prompt_tokens": "usage.prompt", "input_tokens": "usage.prompt",
        "completion_tokens": "usage.completion", "output_tokens": "usage.completion",
        "logprobs": "tokens.logprobs", "token_ids": "tokens.completion_ids",
        "system_prompt": "system", "temperature": "sampling.temperature",
    },
    "model_call.usage": {
        "prompt_tokens": "usage.prompt", "input_tokens": "usage.prompt", "input": "usage.prompt",
        "completion_tokens": "usage.completion", "output_tokens": "usage.completion",
        "output": "usage.completion", "reasoning_tokens": "usage.thinking",
        "thinking_tokens": "usage.thinking", "cached_tokens": "usage.cached",
        "cache_read_input_tokens": "usage.cached", "cached_input_tokens": "usage.cached",
    },
    "tool_result": {
        "tool_call_id": "call_id", "tool_use_id": "call_id", "id": "call_id", "name": "tool",
        "tool_name": "tool", "result": "output", "content": "output", "success": "ok",
        "is_error": "ok", "elapsed_ms": "duration_ms",
    },
    "edit": {"id": "edit_id", "tool_call_id": "call_id", "lang": "language"},
    "file_observed": {"content": "text", "is_deleted": "deleted"},
    "feedback": {"rating": "value", "score": "value", "text": "comment", "target_id": "target"},
    "compaction": {"pre_tokens": "tokens_before", "post_tokens": "tokens_after"},
    "vcs_commit": {"sha": "commit", "hash": "commit"},
    "test_result": {"success": "ok", "failures": "failed"},
    "error": {"text": "message", "type": "error_class"},
}  # fmt: skip

_KEYS = {name: frozenset(payload.__struct_fields__) for name, payload in PAYLOADS.items()}
_KEYS |= {
    "": FIELDS,
    "model_call.usage": frozenset(Usage.__struct_fields__),
    "model_call.tokens": frozenset(Tokens.__struct_fields__),
}
_squeeze = re.compile(r"[^a-z0-9]")
#: Bounds of what is remembered: producers invent keys.
_REMEMBERED_MAX, _KEY_CHARS_MAX = 4096, 64
#: Lines looked at in a minute, for each source and type; and how many of those.
LINES_MAX, _SOURCES_MAX = 32, 4096
_MINUTE_US = 60_000_000


class UnknownKeys(NamedTuple):
    """A valid event with keys that its type may not know."""

    line: int
    event: Mapping[str, Any]


class NearMiss(NamedTuple):
    key: str
    known: str


class NearMisses:
    """Counts of near misses, and the first line that has each."""

    def __init__(self) -> None:
        self.counts: dict[NearMiss, int] = {}
        self.lines: dict[NearMiss, int] = {}

    def add(self, miss: NearMiss, line: int, count: int = 1) -> None:
        self.counts[miss] = self.counts.get(miss, 0) + count
        self.lines.setdefault(miss, line)

    def update(self, other: "NearMisses") -> None:
        for miss, count in other.counts.items():
            self.add(miss, other.lines[miss], count)

    def look_at(self, event: Mapping[str, Any], line: int) -> None:
        name, payload = event["type"], event["payload"]
        places: list[tuple[str, str, Mapping[str, Any]]] = [("", "", event)]
        if name in _KEYS:
            places.append((name, "payload.", payload))
        if name == "model_call":
            inner = ((part, payload.get(part)) for part in ("usage", "tokens"))
            places += [(f"{name}.{part}", f"payload.{part}.", own) for part, own in inner if own]
        for place, prefix, own in places:
            for key in own.keys() - _KEYS[place]:
                known = _known_key(place, key) if len(key) <= _KEY_CHARS_MAX else None
                if known and known.rpartition(".")[2] not in own:
                    self.add(NearMiss(prefix + key, known), line)


class NearMissSample:
    """Looks at some lines of each source and type in each minute."""

    def __init__(self) -> None:
        self._minute = 0
        self._looked: dict[tuple[str, str, str], int] = {}

    def look_at(self, lines: Iterable[UnknownKeys], tenant: str, received_us: int) -> NearMisses:
        if (minute := received_us // _MINUTE_US) != self._minute:
            self._minute, self._looked = minute, {}
        misses = NearMisses()
        for line, event in lines:
            of = (tenant, str(event.get("source"))[:_KEY_CHARS_MAX], event["type"][:_KEY_CHARS_MAX])
            looked = self._looked.get(of, 0)
            if looked < LINES_MAX and (looked or len(self._looked) < _SOURCES_MAX):
                self._looked[of] = looked + 1
                misses.look_at(event, line)
        return misses


@lru_cache(_REMEMBERED_MAX)
def _known_key(place: str, key: str) -> str | None:
    squeezed = _squeeze.sub("", key.lower())
    inner = place.partition(".")[2]
    prefix = "payload." * bool(place)
    for known in _KEYS[place]:
        if _squeeze.sub("", known) == squeezed:
            return prefix + (f"{inner}." if inner else "") + known
    for alias, known in _ALIASES.get(place, {}).items():
        if _squeeze.sub("", alias) == squeezed:
            return prefix + known
    return None
