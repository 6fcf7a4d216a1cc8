"""Whether what many processes saw of a channel is what one history, one change after another, would
have shown them: pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.channels.change import Change, first_misfit


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a process asked of a channel, between which moments, and what came of it."""

    kind: Literal["promote", "rollback", "release", "policy"]
    began: int
    ended: int
    outcome: Literal["done", "conflict", "pinned", "refused"]
    #: Of a promotion: where to, and what the channel was expected at.
    checkpoint: str | None = None
    expected: str | None = None
    #: The version that it made, or, in a conflict, the one that it found.
    version: int = 0
    found: str | None = None


@dataclass(frozen=True)
class Told:
    """A notice in the outbox, in the order of their numbers."""

    version: int
    hash: str


def problems(
    calls: Sequence[Call], changes: Sequence[Change], notices: Sequence[Told], head: tuple[int, str]
) -> list[str]:
    """Of one channel. `changes` are all of its history, the setting up included; calls that are
    not among `calls` were made before all of them."""
    misfit = first_misfit(changes, head)
    if misfit is not None:
        return [f"version {misfit.version}: {misfit.why}"]
    if [(one.version, one.hash) for one in changes] != [(one.version, one.hash) for one in notices]:
        return ["the notices are not the changes, one for one and in order"]
    return [
        *_winners(calls, changes),
        *_swaps(calls, changes),
        *_order(calls),
        *_losers(calls, changes),
    ]


def _winners(calls: Sequence[Call], changes: Sequence[Change]) -> Iterator[str]:
    made = [one.version for one in calls if one.outcome == "done"]
    if len(made) != len(set(made)):
        yield "two calls made the same version"
    first = min(made, default=len(changes) + 1)
    if sorted(made) != list(range(first, len(changes) + 1)):
        yield "there are changes that nobody made, or that are lost"


def _swaps(calls: Sequence[Call], changes: Sequence[Change]) -> Iterator[str]:
    """Each change follows from the one before it, as the call wanted it."""
    for call in calls:
        if call.outcome != "done" or not 0 < call.version <= len(changes):
            continue
        after = changes[call.version - 1]
        before = changes[call.version - 2] if call.version > 1 else None
        if after.action != call.kind:
            yield f"version {call.version} is a {after.action}, and was made by a {call.kind}"
        if call.kind == "promote":
            was = before.checkpoint if before is not None else None
            if was != call.expected or after.checkpoint != call.checkpoint:
                yield f"version {call.version} went from {was}, not from {call.expected}"
            if before is not None and before.pinned:
                yield f"version {call.version} promoted a channel that was pinned"
        if call.kind == "rollback" and not after.pinned:
            yield f"version {call.version} rolled back and did not pin"


def _order(calls: Sequence[Call]) -> Iterator[str]:
    """Who ended before another began comes before it."""
    earliest_end: int | None = None
    done = [one for one in calls if one.outcome == "done"]
    for call in sorted(done, key=lambda one: one.version, reverse=True):
        if earliest_end is not None and earliest_end < call.began:
            yield f"version {call.version} was begun when a later one had ended"
        earliest_end = call.ended if earliest_end is None else min(earliest_end, call.ended)


def _losers(calls: Sequence[Call], changes: Sequence[Change]) -> Iterator[str]:
    """Who was refused was refused because of what was there at some moment of the call."""
    made = {one.version: one for one in calls if one.outcome == "done"}
    for call in calls:
        if call.outcome == "conflict":
            yield from _conflict(call, changes, made)
        if call.outcome == "pinned" and not any(
            change.pinned and _was_newest(change.version, call, made) for change in changes
        ):
            yield "a call was refused for a pin that was not there"


def _conflict(call: Call, changes: Sequence[Change], made: dict[int, Call]) -> Iterator[str]:
    if not 0 < call.version <= len(changes):
        yield f"a call found version {call.version}, which never was"
    elif changes[call.version - 1].checkpoint != call.found:
        yield f"a call found {call.found} at version {call.version}, which was at another"
    elif not _was_newest(call.version, call, made):
        yield f"a call found version {call.version}, which was not the newest at any of its moments"
    elif call.found == call.expected and not _changed_during(call, made):
        yield "a call conflicted with nothing"


def _was_newest(version: int, call: Call, made: dict[int, Call]) -> bool:
    """Whether a version may have been the newest at some moment of a call."""
    here, next_ = made.get(version), made.get(version + 1)
    began = here is None or here.began < call.ended
    return began and (next_ is None or next_.ended > call.began)


def _changed_during(call: Call, made: dict[int, Call]) -> bool:
    """Whether the version that it found may have been made after it began."""
    here = made.get(call.version)
    return here is not None and here.ended > call.began
