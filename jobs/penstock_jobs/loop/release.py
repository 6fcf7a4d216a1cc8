"""Stages that release a candidate: bench, gate, promote, canary and watch.

Only one runner at a time looks at live metrics."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

from penstock.backends.database.leases import leased
from penstock.backends.execution import open_executor
from penstock.core.clock import SECOND_US
from penstock.core.errors import InvalidInput, one_line
from penstock.lake import LakeSettings
from penstock.registry.channels.change import (
    AlreadyServing,
    Change,
    ChannelPinned,
    PromotionConflict,
)
from penstock.registry.channels.history import channel_changes
from penstock.registry.channels.promotion import (
    Promotion,
    Rollback,
    gate_judge,
    judge,
    promote,
    roll_back,
    set_policy,
)
from penstock.registry.checkpoints.attempts import RecordedAttempt, attempts_of
from penstock.registry.checkpoints.checkpoint import StateRefused
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.gate.policy import CanarySteps, EvidenceRules
from penstock.registry.gate.verdict import GateRefused
from penstock_jobs.benchmarks.run import (
    ChooseAttempts,
    PlannedAttempt,
    RunOptions,
    UntilDecided,
    passed_variables,
    run_suite,
)
from penstock_jobs.benchmarks.suite import Suite, read_suite
from penstock_jobs.loop import CanarySettings
from penstock_jobs.loop.canary.live_metrics import COLUMNS
from penstock_jobs.loop.canary.watch import WatchRound, lease_of, step_once, watch_once
from penstock_jobs.loop.checkpoint_server import CheckpointServer
from penstock_jobs.loop.cycles import database_now
from penstock_jobs.loop.loop_file import BenchSection
from penstock_jobs.loop.stages import (
    CycleOver,
    Stage,
    StageAnswer,
    StageContext,
    StageDone,
    StageFacts,
    StageWaits,
)
from penstock_jobs.rewards import runs
from penstock_jobs.rewards.definition import (
    DEFAULT,
    Definition,
    find_definition,
    parse_definition,
    shipped,
)
from penstock_jobs.rewards.due_sessions import definition_known_as

#: An attempt older than this part of the policy's `max_age` is repeated: it would be too old when
#: the gate decides.
_SHARE_OF_AGE = 0.9
_NOT_NOW = (ChannelPinned, GateRefused, PromotionConflict, StateRefused)
_REFUSALS = (AlreadyServing, *_NOT_NOW)
#: What the attempts of a bench depend on, apart from its suite.
_BENCH_INPUTS = ("agent", "serving", "attempts", "until_decided")
_REASON_CHARS_MAX = 1_000
_OWNER_CHARS_MAX = 64


class BenchStage(Stage):
    """Has the agent attempt the suites with the parent and with the candidate.

    Known attempts are not repeated, unless they are too old for the gate. With [serving], each
    checkpoint is served while its attempts need it."""

    name = "bench"

    def inputs(self, context: StageContext) -> StageFacts:
        suites = []
        for bench in context.loop.bench:
            suite = read_suite(bench.suite)
            facts = {"suite": suite.name, "version": suite.version, "isolated": bench.isolation}
            suites.append({name: getattr(bench, name) for name in _BENCH_INPUTS} | facts)
        serving = context.loop.serving and context.loop.serving.command
        who = {"checkpoint": context.candidate, "parent": context.parent}
        return {"suites": suites, "serving": serving, **who}

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        _apply_policy(context)
        benches = [(bench, read_suite(bench.suite)) for bench in context.loop.bench]
        counts: dict[str, dict[str, int]] = {suite.name: {} for _, suite in benches}
        for name in (inputs["parent"], inputs["checkpoint"]):
            with closing(CheckpointServer(context, name)) as server:
                for bench, suite in benches:
                    counts[suite.name][name] = _attempt(server, bench, suite)
        summary = "; ".join(
            f"{suite_name}: " + ", ".join(f"{count} of {name}" for name, count in of_suite.items())
            for suite_name, of_suite in counts.items()
        )
        return StageDone({"attempts": counts}, summary=f"attempts at {summary}")


def _attempt(server: CheckpointServer, bench: BenchSection, suite: Suite) -> int:
    """Make the missing attempts. Returns how many there are afterwards."""
    context, checkpoint = server.context, server.checkpoint
    database = context.database
    scope = AttemptScope(context.tenant, suite.name, suite.version, checkpoint)
    recorded = attempts_of(database, scope)
    if bench.until_decided and checkpoint == context.candidate:
        choose: ChooseAttempts = UntilDecided(database, scope, context.loop.channel)
    else:
        # Chosen once: attempts that grow too old during the run do not prolong it.
        policy = context.policy()
        rules = policy.evidence if policy is not None else EvidenceRules()
        oldest_us = oldest_accepted_us(rules.max_age_s, database_now(database))
        tasks = [task.name for task in suite.tasks]
        planned = missing_attempts(recorded, tasks, bench.attempts or suite.attempts, oldest_us)
        choose = lambda _known: planned  # noqa: E731
    serving = bench.serving and bench.serving.replace("{checkpoint}", checkpoint)
    if context.loop.serving is not None:
        known = [record.result for record in recorded]
        serving = server.address() if set(choose(known)) - {each.place for each in known} else None
    options = RunOptions(
        agent=context.loop.here(bench.agent),
        serving=serving,
        attempts=bench.attempts,
        environment=passed_variables(bench.pass_env),
        isolated=bench.isolation,
        hidden=tuple(map(str, bench.hidden)),
        visible=tuple(map(str, bench.visible)),
    )
    with open_executor(context.lake.settings) as executor:
        what = context.lake, executor, suite, checkpoint, options
        report = run_suite(*what, tenant=context.tenant, choose=choose, check=server.check)
    return report.made + report.known


def oldest_accepted_us(max_age_s: int | None, now_us: int) -> int | None:
    """Return the time before which attempts are too old; None if age does not count."""
    return None if max_age_s is None else now_us - round(_SHARE_OF_AGE * max_age_s * SECOND_US)


def missing_attempts(
    known: Sequence[RecordedAttempt], tasks: Collection[str], attempts: int, oldest_us: int | None
) -> list[PlannedAttempt]:
    """Plan attempts, tasks with the fewest first. Only age decides, never a score."""
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
                planned.append(PlannedAttempt(task, number))
    return planned


def _apply_policy(context: StageContext) -> None:
    """Give the channel the policy of the loop file, if any. An equal policy is no change."""
    if (text := context.loop.policy) is not None:
        reason = f"the policy of the loop {context.loop.name}"
        set_policy(context.database, **context.requester, text=text, reason=reason)


class GateStage(Stage):
    """Asks the gate. Only PASS continues the cycle."""

    name = "gate"

    def inputs(self, context: StageContext) -> StageFacts:
        _apply_policy(context)
        return {
            "checkpoint": context.candidate,
            "parent": context.parent,
            "policy": context.channel().policy,
            "attempts": context.cycle.results["bench"]["attempts"],
            "full": context.loop.canary is None,
        }

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        version, place = context.channel().version, (context.tenant, context.loop.channel)
        verdict = judge(context.database, *place, inputs["checkpoint"], full=inputs["full"])
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
        why = f"the verdict on {verdict.checkpoint} is {verdict.outcome}: {'; '.join(reasons)}"
        # ERROR says nothing about the checkpoint: a person must look at the evidence.
        return CycleOver("failed" if verdict.outcome == "ERROR" else "refused", why, result)


class PromoteStage(Stage):
    """Promotes the candidate, or makes it a canary.

    The gate must still pass it, and the channel must still be at the parent."""

    name = "promote"

    def inputs(self, context: StageContext) -> StageFacts:
        verdict, share = context.cycle.results["gate"], None
        if (canary := context.loop.canary) is not None:
            policy = context.policy()
            steps = (policy and policy.canary) or CanarySteps()
            share = steps.steps[0] if canary.share is None else canary.share
        facts = {"checkpoint": context.candidate, "parent": context.parent, "share": share}
        return facts | {name: verdict[name] for name in ("verdict", "channel_version")}

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        share = inputs["share"]
        if (change := _earlier_promotion(context, inputs["channel_version"])) is not None:
            return _promoted(change)
        state = context.channel()
        if state.canary is not None:
            return CycleOver("refused", f"the canary {state.canary} runs on {state.channel}")
        promotion = Promotion(
            **context.requester,
            checkpoint=inputs["checkpoint"],
            reason=context.occasion,
            expect=inputs["parent"],
            expect_version=state.version,
            share=share,
        )
        try:
            judge_it = gate_judge(context.database, context.tenant, share)
            return _promoted(promote(context.database, promotion, judge_it))
        except _REFUSALS as error:
            # A runner that held this stage before may have promoted it.
            if (change := _earlier_promotion(context, inputs["channel_version"])) is not None:
                return _promoted(change)
            state = context.channel()
            same = (state.checkpoint, state.canary) == (inputs["parent"], None)
            if isinstance(error, PromotionConflict) and same:
                # A new version with the same checkpoint is a new policy.
                return StageWaits(one_line(error))
            return CycleOver("refused", one_line(error))


def _earlier_promotion(context: StageContext, version: int) -> Change | None:
    for change in _changes(context, version):
        promoted = change.action in ("promote", "canary")
        if promoted and context.candidate in (change.checkpoint, change.canary):
            return change
    return None


def _changes(context: StageContext, version: int) -> list[Change]:
    return channel_changes(context.database, context.tenant, context.loop.channel, after=version)


def _promoted(change: Change) -> StageDone:
    part = "" if change.canary is None else f", as a canary on {change.canary_share:g}"
    summary = f"{change.channel} version {change.version}{part}"
    return StageDone({"version": change.version, "verdict": change.verdict}, summary=summary)


class CanaryStage(Stage):
    """Gives the canary more traffic step by step, until it has all or is rolled back."""

    name = "canary"

    def inputs(self, context: StageContext) -> StageFacts:
        version = context.cycle.results["promote"]["version"]
        return {"checkpoint": context.candidate, "parent": context.parent, "version": version}

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        if (end := _canary_end(context, inputs)) is not None:
            return end
        step = _look(context)
        if step.action == "looked":
            place = context.lake, context.tenant, context.loop.channel
            try:
                step = step_once(*place, actor=context.actor)
            except _NOT_NOW as error:
                step = WatchRound("refused", one_line(error))
        if (end := _canary_end(context, inputs)) is not None:
            return end
        limit_s = context.loop.canary.limit_s if context.loop.canary else None
        if limit_s is None or context.seconds_in_stage() < limit_s:
            return StageWaits(step.why, _look_seconds(context))
        why = f"no decision on the canary {context.candidate} in time: {step.why}"
        version, reason = context.channel().version, why[:_REASON_CHARS_MAX]
        try:
            request = Rollback(**context.requester, reason=reason, expect_version=version)
            roll_back(context.database, request)
        except PromotionConflict as error:
            return StageWaits(one_line(error))
        return _canary_end(context, inputs) or StageWaits(step.why)


def _canary_end(context: StageContext, inputs: StageFacts) -> StageAnswer | None:
    state = context.channel()
    if state.checkpoint == context.candidate:
        summary = f"{context.candidate} has all traffic"
        return StageDone({"version": state.version}, summary=summary)
    if state.canary == context.candidate:
        return None
    return CycleOver("rolled_back", _why_gone(context, inputs["version"]))


class WatchStage(Stage):
    """Watches the promoted checkpoint for a while. A breach of live metrics rolls it back."""

    name = "watch"

    def inputs(self, context: StageContext) -> StageFacts:
        before = context.cycle.results.get("canary", context.cycle.results["promote"])
        for_s = context.loop.watch and context.loop.watch.for_s
        return {"checkpoint": context.candidate, "version": before["version"], "for_s": for_s}

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        served = context.channel().checkpoint == context.candidate
        why = _look(context).why if served else ""
        state = context.channel()
        if state.checkpoint != context.candidate:
            return CycleOver("rolled_back", _why_gone(context, inputs["version"]))
        left_s = inputs["for_s"] - context.seconds_in_stage()
        if left_s <= 0:
            return StageDone({"version": state.version, "last": why}, summary=why)
        waits = f"{context.candidate} is watched for another {left_s:.0f} s: {why}"
        return StageWaits(waits, min(left_s, _look_seconds(context)))


def _look_seconds(context: StageContext) -> float:
    return context.lake.settings.room(CanarySettings).canary_look_seconds


def _look(context: StageContext) -> WatchRound:
    """Compute rewards that metrics need, then run a round of the watcher.

    Does nothing while another watcher looks. Raises PromotionConflict, DatabaseUnreachable."""
    lake, channel = context.lake, context.loop.channel
    name = lease_of(context.tenant, channel)
    owner = f"{context.actor}-{context.claim.epoch}"[:_OWNER_CHARS_MAX]
    lease_s = lake.settings.room(LakeSettings).lease_seconds
    with leased(lake.database, name, owner, lease_s) as is_mine:
        if not is_mine:
            return WatchRound("nothing", "another watcher is looking at this moment")
        with open_executor(lake.settings) as executor:
            for definition in _definitions(context):
                runs.run(lake, executor, runs.RunRequest(definition))
        return watch_once(lake, context.tenant, channel)


def _definitions(context: StageContext) -> Iterator[Definition]:
    """Find definitions that live metrics need. The look reports unknown ones."""
    policy, of_loop = context.policy(), context.loop.load_definition()
    metrics = policy.live if policy is not None else ()
    names = [m.definition or DEFAULT for m in metrics if m.definition or m.metric not in COLUMNS]
    for name in dict.fromkeys(names):
        if name in (of_loop.name, of_loop.version):
            yield of_loop
            continue
        try:
            known = definition_known_as(context.database, name)
        except InvalidInput:
            if name in shipped():
                yield find_definition(name)
        else:
            yield parse_definition(known.text, known.name)


def _why_gone(context: StageContext, version: int) -> str:
    """Explain why the candidate left the channel, by the first change that removed it."""
    for change in _changes(context, version):
        if context.candidate not in (change.checkpoint, change.canary):
            return f"{change.action} by {change.actor}: {change.reason}"
    return "nobody said why"
