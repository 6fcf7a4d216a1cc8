"""When a canary gets more traffic: a pure decision, carried out by a promotion through the gate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.channels.change import Change
from penstock.channels.promotion import Judge, Promotion, promote
from penstock.database.engine import Database
from penstock.gate.policy import CanarySteps
from penstock.gate.sequential import Arm
from penstock_jobs.canary.live_metrics import ARMS
from penstock_jobs.canary.look import Look
from penstock_jobs.canary.trial import Trial

#: Gives the gate for a tenant, and for whether the checkpoint is to get all traffic.
JudgeOf = Callable[[Database, str, bool], Judge]
_SECOND_US = 1_000_000


@dataclass(frozen=True)
class Step:
    """What to do with a canary. `share` is None where it is to get all traffic."""

    action: Literal["raise", "promote", "wait"]
    why: str
    share: float | None = None


def next_step(
    trial: Trial, look: Look, steps: CanarySteps, *, pinned: bool, sessions_min: int
) -> Step:
    """The next step by the look that was just taken. A breach, an error or a look at too few
    sessions keeps the share. All traffic needs a pass, if the policy has live metrics."""
    age_s = (look.until_us - trial.step_us) / _SECOND_US
    if pinned:
        return Step("wait", "the channel is pinned until a person releases it")
    if age_s < steps.min_age_s:
        return Step("wait", f"the share is {_age(age_s)} old, of {_age(steps.min_age_s)}")
    if look.outcome in ("breach", "error"):
        return Step("wait", f"the newest look says {look.outcome}: {look.why}")
    if missing := _missing_sessions(look, sessions_min):
        return Step("wait", missing)
    share = next((share for share in steps.steps if share > (trial.share or 0.0)), None)
    if share is not None:
        return Step("raise", f"{_age(age_s)} at {trial.share:g}, and no breach", share)
    if look.metrics and look.outcome != "pass":
        return Step("wait", f"all traffic needs a pass: {look.why}")
    return Step("promote", f"{_age(age_s)} at {trial.share:g}, and live metrics say {look.outcome}")


def _missing_sessions(look: Look, least: int) -> str | None:
    for metric in look.metrics:
        if metric.sessions is not None and min(metric.sessions.values()) < least:
            counts = _counts(metric.sessions)
            return f"{metric.metric} is known of {counts}; either needs {least} sessions"
    if min(look.sessions.values()) < least:
        return f"there are {_counts(look.sessions)}; either needs {least} sessions"
    return None


def _counts(sessions: Mapping[Arm, int]) -> str:
    return " and ".join(f"{sessions[arm]} of the {arm}" for arm in ARMS)


def take_step(
    database: Database, trial: Trial, step: Step, judge_of: JudgeOf, actor: str
) -> Change:
    """Promote through the gate, if nothing changed the channel since the trial was read. Raises
    what promotions raise: PromotionConflict, GateRefused, ChannelPinned."""
    promotion = Promotion(
        tenant=trial.tenant,
        channel=trial.channel,
        checkpoint=trial.candidate,
        reason=f"canary step: {step.why}",
        actor=actor,
        expect=trial.incumbent,
        expect_version=trial.version,
        share=step.share,
    )
    return promote(database, promotion, judge_of(database, trial.tenant, step.share is None))


def gate(database: Database, tenant: str, full: bool) -> Judge:
    """The gate with the channel's policy."""
    from penstock.channels.judgement import judge

    return lambda channel, checkpoint: judge(database, tenant, channel, checkpoint, full=full)


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
