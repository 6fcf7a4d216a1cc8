"""Runs of benchmark harnesses that are one document without an id of their own.

Such a run is known by its content. While it still grows its content says nothing yet, so that it
is taken once it has ended, or has not changed for an hour."""

import time
from collections.abc import Mapping
from typing import Any

from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.session_draft import SessionDraft, count_of, digest_of, present
from penstock_jobs.importers.sources import Source

#: Longer than an agent takes for one step.
_STEP_SECONDS_MAX = 3600
_LIMITS = ("timeout", "time_out", "cost", "context", "limit", "max_")


def run_name(task: object, document: object) -> str:
    return f"{task or 'run'}-{digest_of(document)[:16]}"


def is_unfinished(
    source: Source, notes: Notes, *, ended: bool, changed_us: int | None = None
) -> bool:
    """Whether the run may still go on. Then it is left for a later import. `changed_us` says when
    something happened in it last, where the run itself tells."""
    last_us = source.changed_us() if changed_us is None else changed_us
    if ended or time.time() - last_us / 1_000_000 > _STEP_SECONDS_MAX:
        return False
    notes.hold("the run has not ended yet")
    return True


def end_run(draft: SessionDraft, exit_status: object) -> None:
    """The end of a session, by the words that harnesses have for it."""
    if not isinstance(exit_status, str) or not exit_status:
        return
    status = exit_status.lower()
    if status.startswith(("submitted", "completed", "finished", "resolved")):
        reason = "completed"
    else:
        reason = "timeout" if any(limit in status for limit in _LIMITS) else "crash"
    draft.add("session_end", {"reason": reason, "exit_status": exit_status}, "end")


def add_run_usage(draft: SessionDraft, usage: Mapping[str, Any] | None, **facts: Any) -> None:
    """Tokens that are told for a run as a whole, and of no model call of it."""
    counts = {name: count_of(value) for name, value in (usage or {}).items()}
    if any(counts.values()) or any(facts.values()):
        draft.add("x_run_usage", present(counts) | present(facts), "run-usage")
