"""The stages that bring the candidate into its channel: bench, gate, promote."""

from collections.abc import Collection, Sequence

from penstock.channels.change import Change
from penstock.channels.errors import AlreadyServing, ChannelPinned, PromotionConflict
from penstock.channels.history import channel_changes
from penstock.channels.judgement import judge
from penstock.channels.promotion import Promotion, promote, set_policy
from penstock.checkpoints.attempt import AttemptScope, RecordedAttempt
from penstock.checkpoints.errors import StateRefused
from penstock.checkpoints.scores import attempts_of
from penstock.errors import InvalidInput
from penstock.gate.errors import GateRefused
from penstock.gate.policy import CanarySteps, EvidenceRules
from penstock_jobs.benchmarks.run import (
    ChooseAttempts,
    PlannedAttempt,
    RunOptions,
    RunReport,
    register_suite,
    run_suite,
)
from penstock_jobs.benchmarks.suite import Suite, read_suite
from penstock_jobs.benchmarks.until_decided import UntilDecided
from penstock_jobs.canary.watch import gate as judge_of
from penstock_jobs.loop.cycles import database_now
from penstock_jobs.loop.loop_file import BenchSection, environment_of
from penstock_jobs.loop.stages.stage import (
    CycleOver,
    Stage,
    StageAnswer,
    StageContext,
    StageDone,
    StageFacts,
    StageWaits,
)

#: The part of the policy's `max_age` after which an attempt is made anew: it would be too old by
#: the time when the gate is asked.
_SHARE_OF_AGE = 0.9
_SECOND_US = 1_000_000
_REFUSALS = (AlreadyServing, ChannelPinned, GateRefused, PromotionConflict, StateRefused)


class BenchStage(Stage):
    """Lets the agent attempt the suites with the parent and with the candidate, for the gate to
    compare. Known attempts are not made again, unless they are too old for the gate."""

    name = "bench"

    def inputs(self, context: StageContext) -> StageFacts:
        suites = [
            {
                "suite": suite.name,
                "version": suite.version,
                "agent": bench.agent,
                "serving": bench.serving,
                "attempts": bench.attempts,
                "until_decided": bench.until_decided,
                "isolated": bench.isolated,
            }
            for bench in context.loop.bench
            for suite in (read_suite(bench.folder),)
        ]
        checkpoint = context.results["register"]["checkpoint"]
        return {"suites": suites, "checkpoint": checkpoint, "parent": context.parent}

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        apply_policy(context)
        made: dict[str, dict[str, int]] = {}
        for bench in context.loop.bench:
            suite = read_suite(bench.folder)
            of_suite = made.setdefault(suite.name, {})
            for checkpoint in (inputs["parent"], inputs["checkpoint"]):
                until = bench.until_decided and checkpoint == inputs["checkpoint"]
                report = _attempt(context, bench, suite, checkpoint, until_decided=until)
                of_suite[checkpoint] = report.made + report.known
        counts = "; ".join(
            f"{suite}: " + ", ".join(f"{count} of {name}" for name, count in of_suite.items())
            for suite, of_suite in made.items()
        )
        return StageDone({"attempts": made}, summary=f"attempts at {counts}")


def _attempt(
    context: StageContext,
    bench: BenchSection,
    suite: Suite,
    checkpoint: str,
    *,
    until_decided: bool,
) -> RunReport:
    lake = context.lake
    register_suite(lake.database, context.tenant, suite)
    place = AttemptScope(context.tenant, suite.name, suite.version, checkpoint)
    choose: ChooseAttempts
    if until_decided:
        choose = UntilDecided(lake.database, place, context.loop.channel)
    else:
        choose = _enough(context, place, suite, bench.attempts or suite.attempts)
    options = RunOptions(
        agent=context.loop.here(bench.agent),
        serving=bench.serving and bench.serving.replace("{checkpoint}", checkpoint),
        attempts=bench.attempts,
        environment=environment_of(bench.pass_env),
        isolated=bench.isolated,
        hidden=bench.hidden,
        visible=bench.visible,
    )
    with context.executor() as executor:
        return run_suite(
            lake, executor, suite, checkpoint, options, tenant=context.tenant, choose=choose
        )


def _enough(
    context: StageContext, place: AttemptScope, suite: Suite, attempts: int
) -> ChooseAttempts:
    """So many attempts at each task that the gate accepts. They are chosen once: attempts that get
    too old while others are made do not keep the run going for ever."""
    policy = context.policy()
    rules = policy.evidence if policy is not None else EvidenceRules()
    database = context.lake.database
    planned = missing_attempts(
        attempts_of(database, place),
        [task.name for task in suite.tasks],
        attempts,
        oldest_accepted_us(rules.max_age_s, database_now(database)),
    )
    return lambda _known: planned


def oldest_accepted_us(max_age_s: int | None, now_us: int) -> int | None:
    """Attempts from before are too old. None: no attempt is."""
    if max_age_s is None:
        return None
    return now_us - round(_SHARE_OF_AGE * max_age_s * _SECOND_US)


def missing_attempts(
    known: Sequence[RecordedAttempt], tasks: Collection[str], attempts: int, oldest_us: int | None
) -> list[PlannedAttempt]:
    """Which attempts to make, the tasks with the fewest first.

    An attempt that is too old stays, and others are made beside it under the next numbers. Age
    alone decides, never a score: nobody gets a second chance for bad luck.
    """
    numbers: dict[str, set[int]] = {task: set() for task in tasks}
    fresh = dict.fromkeys(tasks, 0)
    for kept in known:
        if kept.result.task in numbers:
            numbers[kept.result.task].add(kept.result.attempt)
            fresh[kept.result.task] += oldest_us is None or kept.scored_at >= oldest_us
    planned = []
    for count in range(attempts):
        for task in tasks:
            if fresh[task] <= count:
                number = next(n for n in range(len(numbers[task]) + 1) if n not in numbers[task])
                numbers[task].add(number)
                planned.append(PlannedAttempt(number, task))
    return planned


def apply_policy(context: StageContext) -> None:
    """Give the channel the policy that the loop file names, if any. The same one is no change."""
    if context.loop.policy is not None:
        set_policy(
            context.lake.database,
            tenant=context.tenant,
            channel=context.loop.channel,
            text=context.loop.policy,
            reason=f"the policy of the loop {context.loop.name}",
            actor=context.actor,
        )


class GateStage(Stage):
    """Asks the gate. Only PASS goes on; all else leaves the channel alone, and says why."""

    name = "gate"

    def inputs(self, context: StageContext) -> StageFacts:
        apply_policy(context)
        return {
            "checkpoint": context.results["register"]["checkpoint"],
            "parent": context.parent,
            "policy": context.channel().policy,
            "attempts": context.results["bench"]["attempts"],
            "full": context.loop.canary is None,
        }

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        database, channel = context.lake.database, context.loop.channel
        version = context.channel().version
        checkpoint, full = inputs["checkpoint"], inputs["full"]
        verdict = judge(database, context.tenant, channel, checkpoint, full=full)
        reasons = [str(reason) for reason in verdict.document.get("why", [])]
        result = {
            "outcome": verdict.outcome,
            "verdict": verdict.id,
            "why": reasons,
            "document": verdict.document,
            "channel_version": version,
        }
        if verdict.outcome == "PASS":
            return StageDone(result, summary=f"PASS, {verdict.id}")
        why = f"the gate says {verdict.outcome} of {verdict.checkpoint}: {'; '.join(reasons)}"
        # ERROR says nothing about the checkpoint: a person has to look at the evidence.
        return CycleOver("failed" if verdict.outcome == "ERROR" else "refused", why, result)


class PromoteStage(Stage):
    """Points the channel at the candidate, or tries it on a part of the traffic. The gate judges
    once more, and the channel must still be at the parent."""

    name = "promote"

    def inputs(self, context: StageContext) -> StageFacts:
        verdict = context.results["gate"]
        return {
            "checkpoint": context.results["register"]["checkpoint"],
            "parent": context.parent,
            "verdict": verdict["verdict"],
            "channel_version": verdict["channel_version"],
            "share": _first_share(context),
        }

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        database, channel = context.lake.database, context.loop.channel
        if (change := made_before(context, inputs["channel_version"])) is not None:
            return _promoted(change)
        present = context.channel()
        if present.canary is not None:
            return CycleOver("refused", f"the canary {present.canary} is tried on {channel}")
        share = inputs["share"]
        promotion = Promotion(
            tenant=context.tenant,
            channel=channel,
            checkpoint=inputs["checkpoint"],
            reason=f"cycle {context.cycle.number} of the loop {context.loop.name}",
            actor=context.actor,
            expect=inputs["parent"],
            expect_version=present.version,
            share=share,
        )
        try:
            gate = judge_of(database, context.tenant, share is None)
            return _promoted(promote(database, promotion, gate))
        except _REFUSALS as error:
            # A runner that had this stage before may have been faster by now.
            if (change := made_before(context, inputs["channel_version"])) is not None:
                return _promoted(change)
            why = " ".join(str(error).split())
            state = context.channel()
            same = (state.checkpoint, state.canary) == (inputs["parent"], None)
            if isinstance(error, PromotionConflict) and same:
                return StageWaits(why)  # another version with the same checkpoint: a new policy
            return CycleOver("refused", why)


def made_before(context: StageContext, version: int) -> Change | None:
    """The change that a try before this one made, whatever became of it since."""
    database, channel = context.lake.database, context.loop.channel
    for change in channel_changes(database, context.tenant, channel, after=version):
        promoted = change.action in ("promote", "canary")
        if promoted and context.candidate in (change.checkpoint, change.canary):
            return change
    return None


def _promoted(change: Change) -> StageDone:
    part = "" if change.canary is None else f", as a canary on {change.canary_share:g}"
    summary = f"{change.channel} version {change.version}{part}"
    return StageDone({"version": change.version, "verdict": change.verdict}, summary=summary)


def _first_share(context: StageContext) -> float | None:
    """Of the canary."""
    canary = context.loop.canary
    if canary is None:
        return None
    if canary.share is not None:
        return canary.share
    policy = context.policy()
    if policy is None:
        raise InvalidInput(what="[canary] without a share", why="the channel has no policy")
    return (policy.canary or CanarySteps()).steps[0]
