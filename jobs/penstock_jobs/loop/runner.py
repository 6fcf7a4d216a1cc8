"""A runner of a loop: it decides what comes next, does it, and stores the result.

Decisions depend only on the newest cycle, the channel and the clock, so any number of runners can
share a database. A runner claims a stage before it works; the lease of a killed runner runs out."""

import os
import socket
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import msgspec

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.execution.executor import ExecutionSettings, ExecutorUnreachable
from penstock.backends.storage.object_store import StoreUnreachable
from penstock.core.clock import SECOND_US
from penstock.core.errors import InvalidInput, PenstockError, one_line
from penstock.lake import LakeSettings
from penstock.lake.lake import Lake
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.channel import channel_state, policy_of
from penstock.registry.gate.policy import parse
from penstock_jobs.benchmarks.run import passed_variables, register_suite
from penstock_jobs.benchmarks.sandbox.sandbox import check_isolation
from penstock_jobs.benchmarks.suite import read_suite
from penstock_jobs.loop import LoopSettings
from penstock_jobs.loop.cycles import (
    Cycle,
    CycleOutcome,
    LoopCycles,
    StageClaim,
    StageLost,
    database_now,
)
from penstock_jobs.loop.loop_file import LoopFile, RetryPolicy, token_of
from penstock_jobs.loop.release import BenchStage, CanaryStage, GateStage, PromoteStage, WatchStage
from penstock_jobs.loop.stages import (
    CycleOver,
    RegisterStage,
    RewardsStage,
    ShardStage,
    StageAnswer,
    StageContext,
    StageDone,
    StageWaits,
    TrainStage,
)
from penstock_jobs.loop.trainers import remove_outputs
from penstock_jobs.shards.exclusion.texts import find_suites
from penstock_jobs.shards.rows.slices import renderer_of

#: The stages of a cycle in order. A new stage is a class and an entry in this list.
STAGES = (
    RewardsStage(),
    ShardStage(),
    TrainStage(),
    RegisterStage(),
    BenchStage(),
    GateStage(),
    PromoteStage(),
    CanaryStage(),
    WatchStage(),
)
#: The stage that decides when a cycle begins, and the one that moves the channel.
_FIRST, _MOVES = "rewards", "promote"
#: HTTP statuses of errors that the same request meets again.
_REFUSED = (409, 422)
_UNREACHABLE = (DatabaseUnreachable, StoreUnreachable, ExecutorUnreachable)


class OpenCycle(msgspec.Struct, frozen=True):
    number: int


class RunStage(msgspec.Struct, frozen=True):
    stage: str


class EndCycle(msgspec.Struct, frozen=True):
    outcome: CycleOutcome
    why: str


class Wait(msgspec.Struct, frozen=True):
    """Wait until `until_us` at most; None if nobody knows how long."""

    why: str
    until_us: int | None = None


Action = OpenCycle | RunStage | EndCycle | Wait


def next_action(
    last: Cycle | None,
    retry: RetryPolicy,
    channel: ChannelState,
    now_us: int,
    failed: int = 0,
    *,
    budgeted: bool = False,
) -> Action:
    """Decide what comes next.

    `failed` is how many of the newest cycles failed in a row. With `budgeted`, a cycle that is over
    its budget ends."""
    if last is None:
        return OpenCycle(1)
    if last.ended_at is not None:
        until_us = last.ended_at + pause_us(retry, failed)
        if until_us > now_us:
            return Wait(f"cycle {last.number} failed, {failed} failed in a row", until_us)
        return OpenCycle(last.number + 1)
    stage = next((stage for stage in last.stages if stage.state != "done"), None)
    if stage is None:
        return EndCycle("promoted", "")
    if stage.state == "over":
        return EndCycle((stage.result or {}).get("ends") or "refused", stage.why)
    if stage.state == "running" and stage.lease_until >= now_us:
        return Wait(f"{stage.owner} runs {stage.stage}", stage.lease_until + 1)
    ends_us = budget_end_us(last, stage.stage) if budgeted else None
    if ends_us is not None and (stage.ended_at or now_us) >= ends_us:
        used = f"its budget of {last.budget_s:,} s was used up in {stage.stage}"
        return EndCycle("over_budget", f"{used}: {stage.why}" if stage.why else used)
    if stage.state == "failed":
        return EndCycle("failed", f"{stage.stage}: {stage.why}")
    if stage.stage == _FIRST:
        if why := _not_ready(channel):
            return Wait(why)
    elif channel.checkpoint != last.parent and _is_before_promotion(last, stage.stage):
        # Its sessions are of a checkpoint that no longer serves.
        moved = f"{channel.channel} moved to {channel.checkpoint}"
        return EndCycle("refused", f"{moved}; this cycle began at {last.parent}")
    if stage.not_before > now_us:
        return Wait(stage.why, stage.not_before)
    return RunStage(stage.stage)


def _is_before_promotion(cycle: Cycle, stage: str) -> bool:
    names = [each.stage for each in cycle.stages]
    return names.index(stage) < names.index(_MOVES)


def budget_end_us(cycle: Cycle, stage: str) -> int | None:
    """Return when the budget ends this stage; None from promotion on."""
    if cycle.began_at is None or not _is_before_promotion(cycle, stage):
        return None
    return cycle.began_at + cycle.budget_s * SECOND_US


def pause_us(retry: RetryPolicy, failures: int) -> int:
    # The exponent is bounded, the number of failures is not.
    pause_s = min(retry.pause_s * 2.0 ** min(failures - 1, 40), retry.longest_s)
    return round(pause_s * SECOND_US) if failures else 0


def _not_ready(channel: ChannelState) -> str | None:
    if channel.checkpoint is None:
        return f"nothing is promoted to {channel.channel} yet: promote a first checkpoint by hand"
    if channel.pinned:
        return f"{channel.channel} is pinned; a person must run `penstock channels release`"
    if channel.canary is not None:
        return f"the canary {channel.canary} runs on {channel.channel}"
    return None


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """Runs cycles of one loop.

    `wait` pauses for a number of seconds and returns whether to stop. `crash_point` is called where
    a test may kill the runner."""

    lake: Lake
    loop: LoopFile
    tenant: str
    wait: Callable[[float], bool]
    tell: Callable[[str], None] = lambda _text: None
    crash_point: Callable[[str], None] = lambda _point: None
    owner: str = msgspec.field(
        default_factory=lambda: f"{socket.gethostname()[:64]}:{os.getpid()}:{uuid4().hex[:8]}"
    )

    @property
    def _cycles(self) -> LoopCycles:
        return LoopCycles(self.lake.database, self.tenant, self.loop.name)

    @property
    def _poll_s(self) -> float:
        return self.lake.settings.room(LoopSettings).loop_poll_seconds

    def run(self) -> None:
        """Run cycle after cycle until `wait` says to stop. Survives outages of the database.

        Raises ChannelUnknown, InvalidInput."""
        self._prepare()
        self._remove_outputs()
        reported = ""
        while True:
            try:
                last, action = self._plan()
                if not isinstance(action, Wait):
                    self._act(last, action)
                    continue
                seconds = self._seconds(action)
            except DatabaseUnreachable as error:
                action, seconds = Wait(one_line(error)), self._poll_s
            reported = self._report_wait(action.why, reported)
            if self.wait(seconds):
                return

    def run_once(self) -> Cycle:
        """Run the open cycle, or a new one, to its end. A cycle that cannot begin stays open.

        Raises ChannelUnknown, InvalidInput, DatabaseUnreachable."""
        self._prepare()
        newest, reported = self._cycles.newest(), ""
        number = 1 if newest is None else newest.number + (newest.ended_at is not None)
        while True:
            last, action = self._plan()
            if last is not None and last.number >= number and last.ended_at is not None:
                return self._cycles.at(number)
            if last is None or last.number < number:
                action = OpenCycle(number)  # without the pause after a failed cycle
            if not isinstance(action, Wait):
                answer = self._act(last, action)
                if isinstance(answer, StageWaits) and action == RunStage(_FIRST):
                    return self._cycles.at(number)
                continue
            reported = self._report_wait(action.why, reported)
            cannot_begin = last is not None and last.began_at is None and action.until_us is None
            if cannot_begin or self.wait(self._seconds(action)):
                return self._cycles.at(number)

    def _report_wait(self, why: str, reported: str) -> str:
        if why != reported:
            self.tell(f"{self.loop.name} waits: {why}")
        return why

    def _prepare(self) -> None:
        """Check what the loop file names. Register its suites, for recipes that leave them out."""
        database, loop, tenant = self.lake.database, self.loop, self.tenant
        token_of(loop.trainer.token_env)
        suites = {}
        for bench in loop.bench:
            passed_variables(bench.pass_env)
            suite = read_suite(bench.suite)
            register_suite(database, tenant, suite)
            suites[suite.name] = bench
        recipe = loop.load_recipe()
        find_suites(database, tenant, recipe.exclude.suites)
        renderer_of(recipe.tokens, recipe.directory)
        if self.lake.settings.room(ExecutionSettings).executor.startswith("ray:"):
            if loop.serving is not None:
                why = "attempts on other machines cannot reach it; use another PENSTOCK_EXECUTOR"
                raise InvalidInput(what="[serving] with Ray", why=why)
        elif any(bench.isolation for bench in loop.bench):
            check_isolation()
        state = channel_state(database, tenant, loop.channel)
        text = loop.policy or policy_of(database, state)
        policy = parse(text, f"the policy of {state.channel}") if text else None
        required = {each.suite for each in policy.require} if policy else set()
        if state.checkpoint is None:
            why = "nothing is promoted to it; a loop needs a first checkpoint to train from"
        elif policy is None:
            why = "it has no gate policy, and the [gate] of the loop file names none"
        elif policy.live and loop.canary is None:
            why = "its policy has [[live]] metrics, which need a [canary] in the loop file"
        elif policy.combine == "all" and (absent := required - suites.keys()):
            why = f"its policy requires {', '.join(sorted(absent))}, which no [[bench]] attempts"
        elif loose := {name for name, bench in suites.items() if bench.until_decided} - required:
            why = f"its policy requires nothing on {', '.join(sorted(loose))}, for until_decided"
        else:
            return
        raise InvalidInput(what=f"The channel {self.loop.channel}", why=why)

    def _remove_outputs(self) -> None:
        try:
            settings = self.lake.settings
            count = remove_outputs(self.lake.database, settings, self.loop, self.tenant)
        except OSError as error:  # the loop goes on
            self.tell(f"old outputs of the trainer cannot be removed: {one_line(error)}")
            return
        if count:
            self.tell(f"{count} old outputs of the trainer were removed")

    def _plan(self) -> tuple[Cycle | None, Action]:
        database = self.lake.database
        last = self._cycles.newest()
        state = channel_state(database, self.tenant, self.loop.channel)
        failed = self._cycles.failed_in_a_row() if last and last.ended_at is not None else 0
        facts = self.loop.retry, state, database_now(database), failed
        return last, next_action(last, *facts, budgeted=self.loop.over_budget == "end")

    def _seconds(self, action: Wait) -> float:
        if action.until_us is None:
            return self._poll_s
        left_s = (action.until_us - database_now(self.lake.database)) / SECOND_US
        return min(self._poll_s, max(left_s, 0.0))

    def _act(self, last: Cycle | None, action: Action) -> StageAnswer | PenstockError | None:
        """Return the answer of the stage, unless no stage ran or it was lost."""
        if isinstance(action, OpenCycle):
            loop = self.loop
            # A stage whose section is missing in the loop file is left out.
            stages = [each.name for each in STAGES if getattr(loop, each.name, each) is not None]
            how: dict[str, Any] = {"file_digest": loop.digest, "budget_s": loop.budget_s}
            if self._cycles.open(action.number, channel=loop.channel, stages=stages, **how):
                self.tell(f"cycle {action.number} is open")
            self.crash_point("opened")
        elif isinstance(action, EndCycle) and last is not None:
            self.crash_point("ending")
            if self._cycles.end(last.number, action.outcome, action.why):
                why = f", {action.why}" if action.why else ""
                self.tell(f"cycle {last.number}: {action.outcome}{why}")
            self._remove_outputs()
        elif isinstance(action, RunStage) and last is not None:
            return self._run(last, action.stage)
        return None

    def _run(self, cycle: Cycle, name: str) -> StageAnswer | PenstockError | None:
        stage = next(stage for stage in STAGES if stage.name == name)
        lease_s = self.lake.settings.room(LakeSettings).lease_seconds
        until_us = budget_end_us(cycle, name) if self.loop.over_budget == "end" else None
        how: dict[str, Any] = {"owner": self.owner, "lease_s": lease_s, "until_us": until_us}
        with self._cycles.claimed(cycle.number, cycle.stage(name), **how) as claim:
            if claim is None:
                return None
            self.crash_point(f"{name}:claimed")
            context = StageContext(self.lake, self.loop, self.tenant, cycle, claim)
            answer: StageAnswer | PenstockError
            try:
                try:
                    inputs = stage.inputs(context)
                    claim.note_inputs(inputs)
                    if name != _FIRST:
                        self.tell(f"cycle {claim.number}: {name}")
                    answer = stage.run(context, inputs)
                except StageLost:
                    raise
                except PenstockError as error:
                    answer = error
                self.crash_point(f"{name}:worked")
                self._store(claim, answer)
            except StageLost as error:
                over = (left_s := claim.left_s()) is not None and left_s <= 0
                budget = f"cycle {claim.number}: {name} ends, the budget is used up"
                self.tell(budget if over else one_line(error))
                return None
            self.crash_point(f"{name}:kept")
            return answer

    def _store(self, claim: StageClaim, answer: StageAnswer | PenstockError) -> None:
        stage = f"cycle {claim.number}: {claim.stage}"
        if isinstance(answer, StageDone):
            claim.finish("done", answer.result, answer.summary, **answer.columns)
            self.tell(f"{stage} is done: {answer.summary}")
        elif isinstance(answer, CycleOver):
            claim.finish("over", {**answer.result, "ends": answer.outcome}, answer.why)
        elif isinstance(answer, StageWaits):
            pause_s = self._poll_s if answer.pause_s is None else answer.pause_s
            claim.postpone(answer.why, pause_s)
        else:
            why, retry, failures = one_line(answer), self.loop.retry, claim.failures() + 1
            # Another try does not help if the request is wrong or was refused.
            refused = answer.exit_status == 2 or answer.http_status in _REFUSED
            may_help = isinstance(answer, _UNREACHABLE) or not refused
            tries = f"try {failures} of {retry.tries}" if may_help else "not tried again"
            self.tell(f"{stage} failed ({tries}): {why}")
            again = may_help and failures < retry.tries
            claim.fail(why, pause_us=pause_us(retry, failures) if again else None)
