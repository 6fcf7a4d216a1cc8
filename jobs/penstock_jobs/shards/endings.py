"""How a sequence ended, and why."""

from typing import NamedTuple

from penstock.shards.schema import Status
from penstock_jobs.shards.messages import Conversation


class Ended(NamedTuple):
    status: Status
    stop_reason: str | None


_INTERRUPTED = Ended("aborted", "interrupted")
_UNUSUAL_FINISHES = {
    "length": Ended("truncated", "max_tokens"),
    "max_tokens": Ended("truncated", "max_tokens"),
    "max_output_tokens": Ended("truncated", "max_tokens"),
    "model_length": Ended("truncated", "context_overflow"),
    "model_context_window_exceeded": Ended("truncated", "context_overflow"),
    "abort": Ended("aborted", "aborted"),
    "aborted": Ended("aborted", "aborted"),
    "cancelled": Ended("aborted", "aborted"),
    "content_filter": Ended("failed", "content_filter"),
    "error": Ended("failed", "error"),
}
_ENDS = {
    "completed": Ended("completed", "completed"),
    "user_stop": Ended("aborted", "user_stop"),
    "timeout": Ended("truncated", "rollout_timeout"),
    "crash": Ended("failed", "crash"),
}


def how_it_ended(conversation: Conversation, last_call: int) -> Ended:
    """Of a sequence that ends with this call. What the engine says of its end comes first, then
    what happened to it; how the session ended is how its last call did."""
    call = conversation.calls[last_call]
    finish = (call.finish_reason or "").lower()
    if finish in _UNUSUAL_FINISHES:
        return _UNUSUAL_FINISHES[finish]
    if "interrupted" in call.flags:
        return _INTERRUPTED
    if last_call != len(conversation.calls) - 1:
        return Ended("completed", "continued")
    if conversation.ending is not None:
        return _INTERRUPTED if conversation.ending == "interrupt" else Ended("failed", "error")
    return _ENDS.get(conversation.end_reason or "", Ended("completed", None))
