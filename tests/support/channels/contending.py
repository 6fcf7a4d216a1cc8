"""Processes that change the same channels at once, and write down what they saw."""

import multiprocessing
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Any, Literal

from penstock.backends.database import DatabaseLimits
from penstock.backends.database.engine import Database
from penstock.core.errors import PenstockError
from penstock.registry.channels.change import (
    AlreadyServing,
    Change,
    ChannelPinned,
    ChannelUnknown,
    NothingToRollBackTo,
    NotPinned,
    PromotionConflict,
)
from penstock.registry.channels.channel import channel_state
from penstock.registry.channels.history import (
    NOTICES_AT_ONCE,
    channel_changes,
    notices_after,
    verify_history,
)
from penstock.registry.gate.verdict import Verdict
from tests.support.checkpoint_factory import (
    PASS,
    POLICY,
    TENANT,
    promote,
    release,
    rollback,
    set_policy,
)

_PATIENCE_SECONDS = 60
_REFUSED = (AlreadyServing, NothingToRollBackTo, NotPinned, ChannelUnknown)

#: How often all want to make the same version, and what each does afterwards.
SWAPS = 4
ROUNDS = 25

_barrier: Barrier | None = None


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a process asked of a channel, and what came of it."""

    kind: Literal["promote", "rollback", "release", "policy"]
    outcome: Literal["done", "conflict", "pinned", "refused"]
    #: Of a promotion: where to, and what the channel was expected at.
    checkpoint: str | None = None
    expected: str | None = None
    #: The version that it made, or, in a conflict, the one that it found.
    version: int = 0
    found: str | None = None


Work = Callable[[str, int], list[tuple[str, Call]]]


def at_once(work: Work, url: str, processes: int) -> list[tuple[str, Call]]:
    """What each process did: (channel, call)."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes, timeout=_PATIENCE_SECONDS)
    with ProcessPoolExecutor(processes, context, _take_barrier, (barrier,)) as pool:
        running = [pool.submit(work, url, number) for number in range(processes)]
        return [call for one in running for call in one.result()]


def _take_barrier(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 a process has one
    _barrier = barrier


def meet() -> None:
    assert _barrier is not None
    _barrier.wait()


def contend(url: str, number: int) -> list[tuple[str, Call]]:
    database = Database(url, DatabaseLimits(lock_seconds_max=_PATIENCE_SECONDS))
    calls = [*_same_swaps(database, number), *_everything(database, number)]
    database.close()
    return calls


def _same_swaps(database: Database, number: int) -> Iterator[tuple[str, Call]]:
    """All have seen the same version when the first of them writes."""
    for turn in range(SWAPS):
        meet()
        at = _at(database, "swaps")
        meet()
        yield "swaps", _promote(database, "swaps", f"s{number}-{turn}", at, wait=True)


def _everything(database: Database, number: int) -> Iterator[tuple[str, Call]]:
    """Promotions, rollbacks, releases and policies in any order, on two channels."""
    dice = random.Random(f"contending-{number}")
    meet()
    for _ in range(ROUNDS):
        yield _one(database, dice)


def check(database: Database, calls: Sequence[tuple[str, Call]]) -> list[str]:
    """What is wrong with any of the channels."""
    found = []
    for name in sorted({name for name, _ in calls}):
        mine = [call for one, call in calls if one == name]
        changes = channel_changes(database, TENANT, name)
        if (flaw := verify_history(database, TENANT, name)) is not None:
            found.append(f"{name}: version {flaw.number}: {flaw.why}")
        with database.read() as connection:
            told = notices_after(connection, TENANT, name, 0)
        if [one.hash for one in told] != [one.hash for one in changes[:NOTICES_AT_ONCE]]:
            found.append(f"{name}: the notices are not the changes, one for one and in order")
        found += [f"{name}: {one}" for one in _problems(mine, changes)]
    return found


def _problems(calls: Sequence[Call], changes: Sequence[Change]) -> Iterator[str]:
    """Each change was made by one call, and follows from the one before it as the call wanted."""
    made = sorted(call.version for call in calls if call.outcome == "done")
    if made != list(range(len(changes) - len(made) + 1, len(changes) + 1)):
        yield "a version was made twice, or is lost"
    for call in calls:
        after = changes[call.version - 1] if call.version else None
        if after is None:
            continue
        before = changes[call.version - 2] if call.version > 1 else None
        if call.outcome == "conflict" and after.checkpoint != call.found:
            yield f"a call found {call.found} at version {call.version}"
        if call.outcome == "done" and after.action != call.kind:
            yield f"version {call.version} is a {after.action}, and was made by a {call.kind}"
        if call.outcome == "done" and call.kind == "promote":
            was = before.checkpoint if before is not None else None
            if (was, after.checkpoint) != (call.expected, call.checkpoint):
                yield f"version {call.version} went from {was}, not from {call.expected}"
            if before is not None and before.pinned:
                yield f"version {call.version} promoted a channel that was pinned"
        if call.outcome == "done" and call.kind == "rollback" and not after.pinned:
            yield f"version {call.version} rolled back and did not pin"


def _one(database: Database, dice: random.Random) -> tuple[str, Call]:
    name = dice.choice(["production", "production", "staging"])
    draw = dice.random()
    if draw < 0.6:
        target = f"c{dice.randrange(8)}"
        return name, _promote(database, name, target, _at(database, name))
    if draw < 0.75:
        return name, _call("rollback", lambda: rollback(database, channel=name))
    if draw < 0.95:
        return name, _call("release", lambda: release(database, name))
    text = POLICY.replace("0.02", str(dice.random()))
    return name, _call("policy", lambda: set_policy(database, text, name))


def _promote(
    database: Database, name: str, target: str, expected: str | None, *, wait: bool = False
) -> Call:
    def judge(channel: str, checkpoint: str) -> Verdict:
        if wait:
            meet()
        return PASS(channel, checkpoint)

    return _call(
        "promote",
        lambda: promote(database, target, judge, channel=name, expect=expected),
        checkpoint=target,
        expected=expected,
    )


def _call(
    kind: Literal["promote", "rollback", "release", "policy"],
    work: Callable[[], Change],
    **facts: Any,
) -> Call:
    try:
        came = {"outcome": "done", "version": work().version}
    except PenstockError as error:
        came = _refusal(error)
    return Call(kind=kind, **facts | came)


def _refusal(error: PenstockError) -> dict[str, Any]:
    match error:
        case PromotionConflict():
            found, version = error.facts["found"], error.facts["version"]
            return {"outcome": "conflict", "version": version, "found": found}
        case ChannelPinned():
            return {"outcome": "pinned"}
        case _ if isinstance(error, _REFUSED):
            return {"outcome": "refused"}
    raise error


def _at(database: Database, name: str) -> str | None:
    try:
        return channel_state(database, TENANT, name).checkpoint
    except ChannelUnknown:
        return None
