"""What the routes of fleets take and give."""

from typing import Any

import msgspec

from penstock.channels.notices import time_text
from penstock.fleet.fleet_status import Standing
from penstock.fleet.replicas import Fleet, Replica


class StandingAnswer(msgspec.Struct):
    """How a part of a fleet stands; silent replicas count in `silent` and `unsure` alone."""

    part: str
    wanted: str | None
    whole: bool
    mixed: bool
    since: str | None
    loaded: dict[str, int]
    replicas: int
    behind: int
    failed: int
    silent: int
    unsure: int


class ReportAnswer(msgspec.Struct):
    """How the fleet stands with this report."""

    channel: str
    parts: list[StandingAnswer]


class ReplicaAnswer(msgspec.Struct):
    replica: str
    part: str
    state: str
    wanted: str | None
    version: int
    loaded: str | None
    digest: str | None
    problem: str | None
    loaded_at: str | None
    since: str
    heard_at: str
    silent: bool


class FleetAnswer(msgspec.Struct):
    """Who serves a channel, and whether that is one checkpoint for each part."""

    channel: str
    version: int
    checkpoint: str | None
    canary: str | None
    whole: bool
    mixed: bool
    parts: list[StandingAnswer]
    replicas: list[ReplicaAnswer]


def standing_answer(one: Standing) -> StandingAnswer:
    facts = _facts(one) | {"since": _time(one.since)}
    return msgspec.convert(facts, StandingAnswer)


def fleet_answer(found: Fleet) -> FleetAnswer:
    return FleetAnswer(
        channel=found.channel.name,
        version=found.channel.version,
        checkpoint=found.channel.checkpoint,
        canary=found.channel.canary,
        whole=found.whole,
        mixed=found.mixed,
        parts=[standing_answer(one) for one in found.parts],
        replicas=[_replica(one) for one in found.replicas],
    )


def _replica(one: Replica) -> ReplicaAnswer:
    times = {name: _time(getattr(one, name)) for name in ("loaded_at", "since", "heard_at")}
    return msgspec.convert(_facts(one) | times, ReplicaAnswer)


def _time(us: int | None) -> str | None:
    return time_text(us) if us is not None else None


def _facts(value: object) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found
