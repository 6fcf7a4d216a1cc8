"""The watcher of a channel: it takes looks, rolls back what is worse, and raises shares.

It raises shares only if the policy says auto_step. Each action is a compare-and-swap on the version
of the channel that was looked at. If somebody else changed the channel, the round starts over.

A look is a stored row and an action is a transaction, so another watcher can continue at any point.
It acts on a stored breach first."""

from collections.abc import Callable
from hashlib import sha256
from typing import Literal, NamedTuple
from uuid import uuid4

import msgspec
import structlog

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.leases import leased
from penstock.core.clock import SECOND_US, duration_text
from penstock.core.errors import one_line
from penstock.lake import LakeSettings
from penstock.lake.lake import Lake
from penstock.registry.channels.change import (
    AlreadyServing,
    Change,
    ChannelPinned,
    NothingToRollBackTo,
    PromotionConflict,
)
from penstock.registry.channels.promotion import Promotion, Rollback, gate_judge, promote, roll_back
from penstock.registry.checkpoints.checkpoint import TEXT_CHARS_MAX, StateRefused
from penstock.registry.gate.policy import CanarySteps
from penstock.registry.gate.verdict import GateRefused
from penstock_jobs.loop import CanarySettings
from penstock_jobs.loop.canary.live_metrics import ARMS
from penstock_jobs.loop.canary.look import Look, Situation, newest_look, situation_of, take_look
from penstock_jobs.loop.canary.trial import Trial

ACTOR = "watcher"
Action = Literal["nothing", "looked", "rolled_back", "raised", "promoted", "refused"]
#: Sessions of each checkpoint before a canary gets more traffic.
SESSIONS_MIN = 30
_TRIES = 5
_REFUSALS = (GateRefused, ChannelPinned, AlreadyServing, NothingToRollBackTo, StateRefused)

log_line = structlog.get_logger()


class WatchRound(msgspec.Struct, frozen=True):
    action: Action
    why: str
    trial: Trial | None = None
    look: Look | None = None
    change: Change | None = None


class Step(NamedTuple):
    action: Action
    why: str
    share: float | None = None


def watch_once(lake: Lake, tenant: str, channel: str, at_us: int | None = None) -> WatchRound:
    """Run one round: look, then act. `at_us` replaces the database's clock.

    Raises PromotionConflict if the channel changes at each try."""
    for tries_left in reversed(range(_TRIES)):
        try:
            return _round(lake, situation_of(lake, tenant, channel, at_us))
        except PromotionConflict as error:
            if not tries_left:
                raise
            log_line.info("the channel changed during the look: starting over", why=str(error))
    raise AssertionError("not reached")


def _round(lake: Lake, situation: Situation) -> WatchRound:
    trial = situation.trial
    if trial is None:
        return WatchRound("nothing", "no canary runs, and no new checkpoint is watched")
    if trial.kind == "watch" and not (situation.policy and situation.policy.live):
        return WatchRound("nothing", "the policy names no live metric to watch: [[live]]", trial)
    stored = newest_look(lake.database, trial)
    if stored is not None and stored.outcome == "breach":
        return _roll_back(lake, trial, None, stored.why)
    look = take_look(lake, situation, trial)
    if look.outcome == "breach":
        return _roll_back(lake, trial, look, look.why)
    if trial.kind == "watch" or not situation.steps.auto_step:
        return WatchRound("looked", look.why, trial, look)
    try:
        return _step(lake, situation, look, ACTOR)
    except _REFUSALS as error:
        return WatchRound("refused", one_line(error), trial, look)


def step_once(
    lake: Lake, tenant: str, channel: str, *, actor: str, at_us: int | None = None
) -> WatchRound:
    """Take a look, then the next step if look and policy allow it. Never rolls back."""
    situation = situation_of(lake, tenant, channel, at_us)
    trial = situation.trial
    if trial is None or trial.kind != "canary":
        return WatchRound("nothing", f"no canary runs on {channel}", trial)
    stored = newest_look(lake.database, trial)
    if stored is not None and stored.outcome == "breach":
        return WatchRound("nothing", f"the newest look is a breach, roll back: {stored.why}", trial)
    look = take_look(lake, situation, trial)
    return _step(lake, situation, look, actor)


def _step(lake: Lake, situation: Situation, look: Look, actor: str) -> WatchRound:
    trial = situation.trial
    assert trial is not None
    step = next_step(trial, look, situation.steps, pinned=situation.state.pinned)
    if step.action == "looked":
        return WatchRound("looked", step.why, trial, look)
    promotion = Promotion(
        tenant=trial.tenant,
        channel=trial.channel,
        checkpoint=trial.candidate,
        actor=actor,
        reason=f"canary step: {step.why}",
        share=step.share,
        expect=trial.incumbent,
        expect_version=trial.version,
    )
    judge = gate_judge(lake.database, trial.tenant, step.share)
    change = promote(lake.database, promotion, judge)
    return WatchRound(step.action, step.why, trial, look, change)


def _roll_back(lake: Lake, trial: Trial, look: Look | None, why: str) -> WatchRound:
    """End a canary, or return to the last good checkpoint. A person must release the channel."""
    subject = "live metrics of the canary" if trial.kind == "canary" else "live metrics"
    reason = f"{subject} {trial.candidate} against {trial.incumbent}: {why}"
    order = Rollback(
        tenant=trial.tenant,
        channel=trial.channel,
        actor=ACTOR,
        expect_version=trial.version,
        reason=reason if len(reason) <= TEXT_CHARS_MAX else reason[: TEXT_CHARS_MAX - 1] + "…",
    )
    try:
        return WatchRound("rolled_back", why, trial, look, roll_back(lake.database, order))
    except _REFUSALS as error:
        why = f"{one_line(error)} The rollback was due to: {why}"
        return WatchRound("refused", why, trial, look)


def watch(
    lake: Lake,
    tenant: str,
    channel: str,
    *,
    tell: Callable[[WatchRound], None],
    wait: Callable[[float], bool],
) -> None:
    """Run rounds until `wait` returns true. Only one of several watchers looks at a time."""
    owner, name = f"watcher-{uuid4()}", lease_of(tenant, channel)
    lease_s = lake.settings.room(LakeSettings).lease_seconds
    while True:
        try:
            with leased(lake.database, name, owner, lease_s) as held:
                if held:
                    tell(watch_once(lake, tenant, channel))
        except (DatabaseUnreachable, PromotionConflict) as error:
            tell(WatchRound("nothing", one_line(error)))
        if wait(lake.settings.room(CanarySettings).canary_look_seconds):
            return


def lease_of(tenant: str, channel: str) -> str:
    return f"canary-{sha256(b'%b/%b' % (tenant.encode(), channel.encode())).hexdigest()[:32]}"


def next_step(trial: Trial, look: Look, steps: CanarySteps, *, pinned: bool) -> Step:
    """Decide the next share. With live metrics in the policy, all traffic needs a pass."""
    age_s = (look.until_us - trial.step_us) / SECOND_US
    age = duration_text(age_s)
    if pinned:
        return Step("looked", "the channel is pinned until a person releases it")
    if age_s < steps.min_age_s:
        least = duration_text(steps.min_age_s)
        return Step("looked", f"the share is {age} old; the policy demands {least}")
    if look.outcome in ("breach", "error"):
        return Step("looked", f"the newest look says {look.outcome}: {look.why}")
    counts = [(f"{m.metric} has values for", m.sessions) for m in look.metrics]
    for subject, sessions in [*counts, ("there are", look.sessions)]:
        if sessions is not None and min(sessions.values()) < SESSIONS_MIN:
            of_arms = " and ".join(f"{sessions[arm]} sessions of {arm}" for arm in ARMS)
            return Step("looked", f"{subject} {of_arms}; each needs {SESSIONS_MIN} sessions")
    share = next((share for share in steps.steps if share > (trial.share or 0.0)), None)
    if share is not None:
        return Step("raised", f"{age} at {trial.share:g}, and no breach", share)
    if look.metrics and look.outcome != "pass":
        return Step("looked", f"all traffic needs a pass: {look.why}")
    return Step("promoted", f"{age} at {trial.share:g}, and live metrics say {look.outcome}")
