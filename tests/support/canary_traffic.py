"""A channel with a canary, and sessions of users whom it splits."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.backends.execution.calls import InlineExecutor
from penstock.core.clock import SystemClock
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.channel import channel_state, choose_arm
from penstock_jobs.rewards.definition import parse_definition
from penstock_jobs.rewards.runs import RunRequest, run
from tests.support.checkpoint_factory import TENANT, add, promote, set_policy
from tests.support.lakes import Event, HandLake, make_event
from tests.support.waiting import eventually

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
CHANNEL = "production"
OLD, NEW = "ckpt-1", "ckpt-2"
DEFINITION = parse_definition(
    """
    name = "live"
    [[reward]]
    name = "explicit_feedback"
    weight = 1.0
    """,
    "live",
)
REQUIRE = """
[[require]]
suite = "core"
margin = 0.02
"""
PLEASED = """
[[live]]
metric = "explicit_feedback"
definition = "live"
margin = 0.4
"""
QUICK = """
[[live]]
metric = "latency_ms"
margin = 0.2
"""
STEPS = """
[canary]
steps = [0.2, 0.5]
min_age = "30m"
watch = "6h"
"""
POLICY = REQUIRE + PLEASED + QUICK + STEPS


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How sessions with a checkpoint go."""

    pleased: float = 0.7
    latency_ms: float = 1_000.0


#: What users of the canary do where it is worse.
WORSE = {NEW: Behaviour(pleased=0.1)}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who works, and when: so many users with one session each, split as the channel splits."""

    users: int = 360
    from_us: int
    span_us: int = HOUR
    share: float = 0.5
    #: Of the canary's users, how many leave a session.
    kept: float = 1.0
    behaviours: Mapping[str, Behaviour] = field(default_factory=dict)
    seed: int = 7
    prefix: str = "u"


def sessions(plan: Plan) -> Iterator[Event]:
    random = np.random.default_rng(plan.seed)
    for number in range(plan.users):
        user = f"{plan.prefix}{number}"
        served = choose_arm(CHANNEL, user, current=OLD, canary=NEW, share=plan.share).checkpoint
        if served == NEW and random.random() > plan.kept:
            continue
        how = plan.behaviours.get(served, Behaviour())
        at_us = plan.from_us + number * plan.span_us // plan.users
        yield from session(
            f"s-{user}",
            at_us,
            checkpoint=served,
            user=user,
            pleased=bool(random.random() < how.pleased),
            latency_ms=how.latency_ms * float(random.lognormal(0.0, 0.3)),
        )


def session(
    name: str,
    at_us: int,
    *,
    checkpoint: str | None = OLD,
    user: str | None = "ann",
    pleased: bool | None = True,
    latency_ms: float | None = 1_000.0,
    ended: bool = True,
    start: Mapping[str, Any] | None = None,
    step_us: int = 100,
) -> list[Event]:
    """A message, an answer, and what the user thinks of it."""
    call = {"text": "Done."} | ({} if latency_ms is None else {"latency_ms": latency_ms})
    found = [
        ("session_start", dict(start or {})),
        ("user_message", {"text": "add b"}),
        ("model_call", call),
    ]
    if pleased is not None:
        found.append(("feedback", {"kind": "thumbs", "value": "up" if pleased else "down"}))
    if ended:
        found.append(("session_end", {"reason": "completed"}))
    return [
        make_event(
            name,
            number,
            kind,
            ts=at_us + number * step_us,
            payload=payload,
            checkpoint=checkpoint,
            user=user,
        )
        for number, (kind, payload) in enumerate(found)
    ]


def begin_canary(lake: HandLake, policy: str = POLICY, share: float = 0.5) -> int:
    """The old one serves, and the new one has a share; since when, in microseconds."""
    add(lake.lake.database, OLD, NEW)
    set_policy(lake.lake.database, policy)
    promote(lake.lake.database, OLD)
    return promote(lake.lake.database, NEW, share=share).at


def begin_watch(lake: HandLake, policy: str = POLICY) -> int:
    """The new one has taken the place of the old one; since when."""
    add(lake.lake.database, OLD, NEW)
    set_policy(lake.lake.database, policy)
    promote(lake.lake.database, OLD)
    return promote(lake.lake.database, NEW).at


def reward(lake: HandLake, at_us: int) -> None:
    """As if it were that time."""
    run(lake.lake, InlineExecutor(), RunRequest(DEFINITION), now_us=at_us)


def store(lake: HandLake, events: Iterable[Event]) -> None:
    lake.store(list(events))


def fill_canary(lake: HandLake, behaviours: Mapping[str, Behaviour]) -> None:
    """Four hundred sessions within a fifth of a second from the canary's begin on."""
    began = begin_canary(lake, POLICY)
    store(lake, sessions(Plan(from_us=began, span_us=200_000, users=400, behaviours=behaviours)))
    eventually(lambda: SystemClock().now_us() > began + 300_000)
    reward(lake, began + 300_000)


def state(lake: HandLake) -> ChannelState:
    return channel_state(lake.lake.database, TENANT, CHANNEL)
