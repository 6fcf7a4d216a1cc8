"""The stages that bring the candidate into its channel: bench, gate, promote."""

from collections.abc import Collection, Sequence

from penstock.channels.change import Change
from penstock.channels.errors import AlreadyServing, ChannelPinned, PromotionConflict
from penstock.channels.history import channel_changes
from penstock.channels.judgement import judge
from penstock.channels.promotion import Promotion, promote, set_policy
from penstock.checkpoints.attempts import AttemptScope, RecordedAttempt, attempts_of
from penstock.checkpoints.errors import StateRefused
from penstock.clock import SECOND_US
from penstock.errors import InvalidInput, one_line
from penstock.gate.errors import GateRefused
from penstock.gate.policy import CanarySteps, EvidenceRules
from penstock_jobs.benchmarks.run import (
    ChooseAttempts,
    PlannedAttempt,
    RunOptions,
    UntilDecided,
    register_suite,
    run_suite,
)
from penstock_jobs.benchmarks.suite import read_suite
from penstock_jobs.canary.watch import gate
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
        _apply_policy(context)
        counts: dict[str, dict[str, int]] = {}
        for bench in context.loop.bench:
            suite = read_suite(bench.folder).name
            for checkpoint in (inputs["parent"], inputs["checkpoint"]):
                until_decided = bench.until_decided and checkpoint == inputs["checkpoint"]
                attempts = _attempt(context, bench, checkpoint, until_decided=until_decided)
                counts.setdefault(suite, {})[checkpoint] = attempts
        summary = "; ".join(
            f"{suite}: " + ", ".join(f"{count} of {name}" for name, count in of_suite.items())
            for suite, of_suite in counts.items()
        )
        return StageDone({"attempts": counts}, summary=f"attempts at {summary}")


def _attempt(
    context: StageContext, bench: BenchSection, checkpoint: str, *, until_decided: bool
) -> int:
    """How many attempts of the checkpoint are there afterwards."""
    database, suite = context.lake.database, read_suite(bench.folder)
    register_suite(database, context.tenant, suite)
    scope = AttemptScope(context.tenant, suite.name, suite.version, checkpoint)
    if until_decided:
        choose: ChooseAttempts = UntilDecided(database, scope, context.loop.channel)
    else:
        # They are chosen once: attempts that get too old while others are made do not keep the
        # run going for ever.
        policy = context.policy()
        rules = policy.evidence if policy is not None else EvidenceRules()
        planned = missing_attempts(
            attempts_of(database, scope),
            [task.name for task in suite.tasks],
            bench.attempts or suite.attempts,
            oldest_accepted_us(rules.max_age_s, database_now(database)),
        )
        choose = lambda _known: planned  # noqa: E731
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
        report = run_suite(
            context.lake, executor, suite, checkpoint, options, tenant=context.tenant, choose=choose
        )
    return report.made + report.known


def oldest_accepted_us(max_age_s: int | None, now_us: int) -> int | None:
    """Attempts from before are too old. None: no attempt is."""
    if max_age_s is None:
        return None
    return now_us - round(_SHARE_OF_AGE * max_age_s * SECOND_US)


def missing_attempts(
    known: Sequence[RecordedAttempt], tasks: Collection[str], attempts: int, oldest_us: int | None
) -> list[PlannedAttempt]:
    """Which attempts to make, the tasks with the fewest first.

    An attempt that is too old stays, and others are made beside it under the next numbers. Age
    alone decides, never a score: nobody gets a second chance for bad luck.
    """
    numbers: dict[str, set[int]] = {task: set() for task in tasks}
    fresh = dict.fromkeys(tasks, 0)
    for record in known:
        if record.result.task in numbers:
            numbers[record.result.task].add(record.result.attempt)
            fresh[record.result.task] += oldest_us is None or record.scored_at >= oldest_us
    planned = []
    for count in range(attempts):
        for task in tasks:
            if fresh[task] <= count:
                number = next(n for n in range(len(numbers[task]) + 1) if n not in numbers[task])
                numbers[task].add(number)
                planned.append(PlannedAttempt(number, task))
    return planned


def _apply_policy(context: StageContext) -> None:
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
        _apply_policy(context)
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
        share = None
        if (canary := context.loop.canary) is not None:
            share = canary.share
            if share is None:
                policy = context.policy()
                if policy is None:
                    why = "the channel has no policy"
                    raise InvalidInput(what="[canary] without a share", why=why)
                share = (policy.canary or CanarySteps()).steps[0]
        return {
            "checkpoint": context.results["register"]["checkpoint"],
            "parent": context.parent,
            "verdict": verdict["verdict"],
            "channel_version": verdict["channel_version"],
            "share": share,
        }

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        database, share = context.lake.database, inputs["share"]
        if (change := _earlier_promotion(context, inputs["channel_version"])) is not None:
            return _promoted(change)
        state = context.channel()
        if state.canary is not None:
            return CycleOver("refused", f"the canary {state.canary} is tried on {state.name}")
        promotion = Promotion(
            tenant=context.tenant,
            channel=context.loop.channel,
            checkpoint=inputs["checkpoint"],
            reason=context.occasion,
            actor=context.actor,
            expect=inputs["parent"],
            expect_version=state.version,
            share=share,
        )
        try:
            verdict_of = gate(database, context.tenant, share is None)
            return _promoted(promote(database, promotion, verdict_of))
        except _REFUSALS as error:
            # A runner that had this stage before may have been faster by now.
            if (change := _earlier_promotion(context, inputs["channel_version"])) is not None:
                return _promoted(change)
            state = context.channel()
            same = (state.checkpoint, state.canary) == (inputs["parent"], None)
            if isinstance(error, PromotionConflict) and same:
                # Another version with the same checkpoint: a new policy.
                return StageWaits(one_line(error))
            return CycleOver("refused", one_line(error))


def _earlier_promotion(context: StageContext, version: int) -> Change | None:
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
