"""The events of one session while an importer puts them together."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from xxhash import xxh3_128_hexdigest

from penstock.events.event import ID_CHARS_MAX, TS_MAX_US, TS_MIN_US, microseconds
from penstock_jobs.importers.importer import ImportedEvent

_sorted_encoder = msgspec.json.Encoder(order="deterministic")
Payload = dict[str, Any]

_WITH_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")
#: Numbers are seconds, milliseconds, microseconds or nanoseconds, whichever is a usual year.
_SCALES = (1_000_000, 1_000, 1)


@dataclass
class SessionDraft:
    """Events in the order in which they are added. An event's key is its `event_id`: it must be
    the same whenever the same source is read, also when the source has grown."""

    session_id: str
    source: str
    #: When the next event happened, unless it says so itself.
    clock_us: int
    project: str | None = None
    user: str | None = None
    checkpoint: str | None = None
    #: The payload of `session_start`, which comes first whenever its facts are known.
    start: Payload = field(default_factory=dict)
    events: list[ImportedEvent] = field(default_factory=list)
    _keys: dict[str, int] = field(default_factory=dict)

    def add(
        self, kind: str, payload: Mapping[str, Any], key: str, ts_us: int | None = None
    ) -> ImportedEvent:
        """What is None in the payload is left out. A key that stands twice gets a number."""
        if ts_us is not None:
            self.clock_us = ts_us
        times = self._keys[key] = self._keys.get(key, 0) + 1
        name = key if times == 1 else f"{key}#{times}"
        event = self._event(kind, payload, name, len(self.events) + 1, self.clock_us)
        self.events.append(event)
        return event

    def has(self, key: str) -> bool:
        return key in self._keys

    def finished(self) -> list[ImportedEvent]:
        """The events, the start first. None for a session in which nothing happened."""
        if not self.events:
            return []
        first_us = min(int(event.ts) for event in self.events)
        return [self._event("session_start", self.start, "start", 0, first_us), *self.events]

    def _event(
        self, kind: str, payload: Mapping[str, Any], key: str, seq: int, ts_us: int
    ) -> ImportedEvent:
        return ImportedEvent(
            session_id=self.session_id[:ID_CHARS_MAX],
            seq=seq,
            ts=ts_us,
            type=kind,
            event_id=key if len(key) <= ID_CHARS_MAX else digest_of(key),
            source=self.source,
            checkpoint=self.checkpoint,
            user=self.user,
            project=self.project,
            payload=present(payload),
        )


def digest_of(*parts: object) -> str:
    """A short name for values that have none, the same wherever they stand."""
    return xxh3_128_hexdigest(_sorted_encoder.encode(parts))


def present(values: Mapping[str, Any]) -> Payload:
    return {name: value for name, value in values.items() if value is not None}


def moment_us(value: object) -> int | None:
    """A time as sources write it: RFC 3339, without a zone UTC; or a number since 1970. None for
    what is no time, or none that an event can have."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        moments: list[float] = [value * scale for scale in _SCALES] + [value / 1_000]
        return next((int(us) for us in moments if TS_MIN_US <= us <= TS_MAX_US), None)
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    if not _WITH_ZONE.search(value.strip()):
        moment = moment.replace(tzinfo=UTC)
    us = microseconds(moment)
    return us if TS_MIN_US <= us <= TS_MAX_US else None


def count_of(value: object) -> int | None:
    """A count as sources write it, among them 12.0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value >= 0 and value == int(value) else None


def usage_of(values: object) -> Payload | None:
    """Numbers of tokens by any of the names that providers have for them. Anthropic counts what
    was cached beside the input, the others within it: `prompt` is all that the model read."""
    if not isinstance(values, Mapping):
        return None

    def first(*names: str) -> int | None:
        for name in names:
            found: object = values
            for part in name.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
            if (count := count_of(found)) is not None:
                return count
        return None

    prompt = first("prompt_tokens", "input_tokens", "inputTokens", "input", "prompt")
    cached = first(
        "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
        "cached_tokens", "input_cached_tokens", "cache_read_input_tokens", "cacheReadTokens",
        "cached",
    )  # fmt: skip
    apart = first("cache_read_input_tokens"), first("cache_creation_input_tokens")
    if prompt is not None and "input_tokens" in values and any(apart):
        prompt += sum(count or 0 for count in apart)
    usage = {
        "prompt": prompt,
        "completion": first(
            "completion_tokens", "output_tokens", "outputTokens", "output", "completion"
        ),
        "thinking": first(
            "completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens",
            "reasoning_tokens", "thoughts", "thinking", "reasoningTokens",
        ),
        "cached": cached,
    }  # fmt: skip
    return present(usage) or None
