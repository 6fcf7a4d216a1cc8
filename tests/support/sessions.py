"""Coding-agent sessions as production would send them, as many as asked for, from a seed."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec

from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.vocabulary import MODULES, NOUNS, ORGANISATIONS, VERBS
from tests.support.recorder import CLIENTS, Payload, Recorder, Who
from tests.support.simulation import Simulation

CHECKPOINTS = ("ckpt-0011", "ckpt-0012", "ckpt-0013")
#: One session starts about this long after the one before.
SPACING_MS = 7_000
PROJECTS = 60
USERS = 400


def generate_sessions(
    count: int,
    seed: int,
    *,
    start: datetime,
    checkpoints: Sequence[str] = CHECKPOINTS,
) -> Iterator[list[dict[str, Any]]]:
    """Sessions in the wire form, each in its own order; the first begins at `start`.

    The same seed gives the same bytes, whatever the version of Python, and session number i does
    not depend on count. The later a checkpoint stands in `checkpoints`, the better its work is
    received, so that there is something for rewards and comparisons to find.
    A session lasts minutes to an hour; files may still be observed after its `session_end`.
    """
    if start.tzinfo is None:
        raise ValueError("start needs a time zone")
    if not checkpoints:
        raise ValueError("at least one checkpoint is needed")
    naive = start.astimezone(UTC).replace(tzinfo=None)
    for index in range(count):
        yield _session(seed, index, naive, checkpoints)


def interleave(
    sessions: Iterable[list[dict[str, Any]]], concurrent: int, seed: int
) -> Iterator[dict[str, Any]]:
    """All events, those of a session in its order, with so many sessions in flight at a time.

    Holds no more than `concurrent` sessions in memory.
    """
    if concurrent < 1:
        raise ValueError("at least one session has to be in flight")
    dice = Dice(f"interleave:{seed}")
    waiting = iter(sessions)
    flying = [iter(session) for session in islice(waiting, concurrent)]
    while flying:
        at = int(dice.random() * len(flying))
        event = next(flying[at], None)
        if event is not None:
            yield event
        elif (session := next(waiting, None)) is not None:
            flying[at] = iter(session)
        else:
            flying[at] = flying[-1]
            flying.pop()


def batches(events: Iterable[dict[str, Any]], size: int) -> Iterator[bytes]:
    """NDJSON bodies of so many events each; the last may hold fewer."""
    if size < 1:
        raise ValueError("a batch holds at least one event")
    encoder = msgspec.json.Encoder()
    remaining = iter(events)
    while batch := list(islice(remaining, size)):
        yield encoder.encode_lines(batch)


def _session(
    seed: int, index: int, start: datetime, checkpoints: Sequence[str]
) -> list[dict[str, Any]]:
    dice = Dice(f"session:{seed}:{index}")
    begin = start + timedelta(milliseconds=index * SPACING_MS)
    if index:
        begin += timedelta(milliseconds=dice.between(0, SPACING_MS))
    version = dice.between(0, len(checkpoints) - 1)
    who = _who(dice, seed, index)
    recorder = Recorder(dice, who, begin, checkpoints[version])
    quality = 0.5 + 0.35 * (version + 1) / len(checkpoints)
    Simulation(dice, recorder, quality).run(_start_payload(dice, seed, index, who))
    return recorder.events


def _who(dice: Dice, seed: int, index: int) -> Who:
    client = dice.pick(CLIENTS)
    # A few users and projects bring most of the sessions.
    user = f"u-{dice.skewed(1, USERS):04}"
    return Who(_session_id(seed, index), user, _project(dice.skewed(0, PROJECTS - 1)), client)


def _session_id(seed: int, index: int) -> str:
    return f"s-{Dice(f'id:{seed}:{index}').hex(16)}"


def _project(number: int) -> str:
    """The same project for the same number, whatever the seed."""
    organisation = ORGANISATIONS[number * 7 % len(ORGANISATIONS)]
    return f"{organisation}/{MODULES[number * 11 % len(MODULES)]}-{NOUNS[number * 5 % len(NOUNS)]}"


def _start_payload(dice: Dice, seed: int, index: int, who: Who) -> Payload:
    payload: Payload = {
        "client": who.client.name,
        "client_version": dice.pick(who.client.versions),
        "repo": f"git@git.example.org:{who.project}.git",
        "branch": dice.pick(("main", f"{dice.pick(VERBS)}-{dice.pick(NOUNS)}")),
        "commit": dice.hex(40),
        "consent": dice.pick(("train",) * 17 + ("no_train", "no_train", "unknown")),
    }
    if dice.chance(0.1):
        payload["task_id"] = f"task-{dice.between(1, 900)}"
        payload["group_id"] = f"g-{dice.between(1, 120)}"
        payload["arm"] = dice.pick(("control", "short_thinking", "new_tools"))
    if index and dice.chance(0.06):
        payload["parent_session"] = _session_id(seed, index - 1)
        payload["link"] = dice.pick(("resume", "subagent", "subagent", "compaction"))
    return payload
