"""Counts of what events say: sessions, messages, calls, edits, tokens."""

from dataclasses import dataclass, field
from typing import Any

_NAMES = {
    "user_message": "user messages",
    "model_call": "model calls",
    "tool_result": "tool results",
    "edit": "edits",
    "file_observed": "observations of files",
    "vcs_commit": "commits",
}
_TOKENS = ("prompt", "completion", "cached")
#: Tokens of a run as a whole, that no model call of it has.
_RUN_USAGE = "x_run_usage"


@dataclass
class SessionTally:
    """Sessions are kept as digests: a home of 100,000 sessions fits."""

    counts: dict[str, int] = field(default_factory=dict)
    sessions: set[int] = field(default_factory=set)

    def add(self, session_id: str, kind: str, payload: dict[str, Any]) -> None:
        self.sessions.add(hash(session_id))
        self._count(kind, 1)
        if kind == "model_call":
            self._count("tool_calls", len(payload.get("tool_calls") or ()))
            self._count_tokens(payload.get("usage") or {})
        elif kind == _RUN_USAGE:
            self._count_tokens(payload)

    def _count_tokens(self, usage: dict[str, Any]) -> None:
        for name in _TOKENS:
            self._count(f"{name}_tokens", usage.get(name) or 0)

    def _count(self, name: str, count: int) -> None:
        if count:
            self.counts[name] = self.counts.get(name, 0) + count

    def sentence(self) -> str:
        counts = self.counts
        parts = [f"{len(self.sessions)} sessions"]
        parts += [f"{counts[kind]} {name}" for kind, name in _NAMES.items() if kind in counts]
        if "tool_calls" in counts:
            parts.append(f"{counts['tool_calls']} tool calls")
        tokens = [
            f"{counts[f'{name}_tokens']:,} {name}" for name in _TOKENS if f"{name}_tokens" in counts
        ]
        if tokens:
            parts.append(f"tokens: {', '.join(tokens)}")
        return ", ".join(parts)
