"""The watcher of a channel: it looks, rolls back by itself what is worse, and raises shares where
the policy says so.

All that it does is a compare-and-swap on the version of the channel that it looked at: where
anybody acted meanwhile, it starts over with what is there now. A look is a row and an action a
transaction: whatever happens to a watcher, the next one goes on, and acts first on a breach that
was seen and not acted on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal
from uuid import uuid4

import structlog

from penstock.channels.change import Change
from penstock.channels.errors import (
    AlreadyServing,
    ChannelPinned,
    NothingToRollBackTo,
    PromotionConflict,
)
from penstock.channels.rollback import Rollback, roll_back
from penstock.checkpoints.errors import StateRefused
from penstock.checkpoints.names import TEXT_CHARS_MAX
from penstock.database.errors import DatabaseUnreachable
from penstock.database.leases import leased
from penstock.errors import PenstockError
from penstock.gate.errors import GateRefused
from penstock.lake.lake import Lake
from penstock.lake.settings import LakeSettings
from penstock_jobs.canary.look import Look, Situation, newest_look, situation_of, take_look
from penstock_jobs.canary.settings import CanarySettings
from penstock_jobs.canary.step import JudgeOf, gate, next_step, take_step
from penstock_jobs.canary.trial import Trial

ACTOR = "watcher"
Did = Literal["nothing", "looked", "rolled_back", "raised", "promoted", "refused"]
#: How often a round starts over because somebody else acted.
_TRIES = 5
_REFUSALS = (GateRefused, ChannelPinned, AlreadyServing, NothingToRollBackTo, StateRefused)

log_line = structlog.get_logger()


@dataclass(frozen=True)
class WatchRound:
    """What a watcher found and did."""

    did: Did
    why: str
    trial: Trial | None = None
    look: Look | None = None
    change: Change | None = None


def watch_once(
    lake: Lake,
    tenant: str,
    channel: str,
    *,
    judge_of: JudgeOf = gate,
    at_us: int | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> WatchRound:
    """One round. `at_us` takes the place of the database's clock; `meanwhile` is called between a
    look and what is done about it. Raises ChannelUnknown, PromotionConflict where others never stop
    acting, DatabaseUnreachable."""
    for tries_left in reversed(range(_TRIES)):
        try:
            return _round(lake, situation_of(lake, tenant, channel, at_us), judge_of, meanwhile)
        except PromotionConflict as error:
            if not tries_left:
                raise
            log_line.info("the channel changed meanwhile: starting over", why=str(error))
    raise AssertionError("not reached")


def _round(
    lake: Lake, situation: Situation, judge_of: JudgeOf, meanwhile: Callable[[], None]
) -> WatchRound:
    trial = situation.trial
    if trial is None:
        return WatchRound("nothing", "no canary runs, and no new checkpoint is watched")
    if trial.kind == "watch" and not (situation.policy and situation.policy.live):
        return WatchRound("nothing", "the policy names no live metric to watch: [[live]]", trial)
    known = newest_look(lake.database, trial)
    if known is not None and known.outcome == "breach":
        meanwhile()
        return _roll_back(lake, trial, None, known.why)
    look = take_look(lake, situation, trial)
    meanwhile()
    if look.outcome == "breach":
        return _roll_back(lake, trial, look, look.why)
    if trial.kind == "watch" or not situation.steps.auto_step:
        return WatchRound("looked", look.why, trial, look)
    try:
        return _step(lake, situation, look, judge_of, ACTOR)
    except _REFUSALS as error:
        return WatchRound("refused", _line(error), trial, look)


def step_once(
    lake: Lake,
    tenant: str,
    channel: str,
    *,
    actor: str,
    judge_of: JudgeOf = gate,
    at_us: int | None = None,
) -> WatchRound:
    """Look, and take the next step if that and the policy allow it. It rolls nothing back. Raises
    ChannelUnknown, and what promotions raise: GateRefused, PromotionConflict."""
    situation = situation_of(lake, tenant, channel, at_us)
    trial = situation.trial
    if trial is None or trial.kind != "canary":
        return WatchRound("nothing", f"no canary runs on {channel}", trial)
    known = newest_look(lake.database, trial)
    if known is not None and known.outcome == "breach":
        return WatchRound("nothing", f"it is to be rolled back: {known.why}", trial)
    look = take_look(lake, situation, trial)
    return _step(lake, situation, look, judge_of, actor)


def _step(
    lake: Lake, situation: Situation, look: Look, judge_of: JudgeOf, actor: str
) -> WatchRound:
    trial = situation.trial
    assert trial is not None
    step = next_step(
        trial,
        look,
        situation.steps,
        pinned=situation.state.pinned,
        sessions_min=lake.settings.room(CanarySettings).canary_sessions_min,
    )
    if step.action == "wait":
        return WatchRound("looked", step.why, trial, look)
    change = take_step(lake.database, trial, step, judge_of, actor)
    return WatchRound(
        "raised" if step.action == "raise" else "promoted", step.why, trial, look, change
    )


def _roll_back(lake: Lake, trial: Trial, look: Look | None, why: str) -> WatchRound:
    """A canary is ended; of a new current one the channel goes back to the last good one. Both pin
    the channel, so that nothing promotes it again before a person releases it."""
    what = "live metrics of the canary" if trial.kind == "canary" else "live metrics"
    reason = f"{what} {trial.candidate} against {trial.incumbent}: {why}"
    wanted = Rollback(
        tenant=trial.tenant,
        channel=trial.channel,
        reason=reason if len(reason) <= TEXT_CHARS_MAX else reason[: TEXT_CHARS_MAX - 1] + "…",
        actor=ACTOR,
        expect_version=trial.version,
    )
    try:
        change = roll_back(lake.database, wanted)
    except _REFUSALS as error:
        return WatchRound("refused", f"{_line(error)} It was to be rolled back: {why}", trial, look)
    return WatchRound("rolled_back", why, trial, look, change)


def watch(
    lake: Lake,
    tenant: str,
    channel: str,
    *,
    tell: Callable[[WatchRound], None],
    wait: Callable[[float], bool],
    judge_of: JudgeOf = gate,
) -> None:
    """Rounds until `wait`, which pauses for so many seconds, says that it is enough. One of
    several watchers looks at a time. Outages of the database are told, and outlived. Raises
    ChannelUnknown."""
    owner = f"watcher-{uuid4()}"[:64]
    name, lease_s = lease_of(tenant, channel), lake.settings.room(LakeSettings).lease_seconds
    while True:
        try:
            with leased(lake.database, name, owner, lease_s) as mine:
                if mine:
                    tell(watch_once(lake, tenant, channel, judge_of=judge_of))
        except (DatabaseUnreachable, PromotionConflict) as error:
            tell(WatchRound("nothing", _line(error)))
        if wait(lake.settings.room(CanarySettings).canary_look_seconds):
            return


def lease_of(tenant: str, channel: str) -> str:
    """Names of leases are short."""
    return f"canary-{sha256(b'%b/%b' % (tenant.encode(), channel.encode())).hexdigest()[:32]}"


def _line(error: PenstockError) -> str:
    return " ".join(str(error).split())
