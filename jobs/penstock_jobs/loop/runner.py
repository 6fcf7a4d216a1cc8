"""A runner of a loop: it asks what comes next, does it, and stores the result.

Any number may run on one database, on any machine: the runner that claimed a stage does it. A
runner that is killed leaves a lease that runs out; the next one goes on from the database.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from penstock.channels import channel as channels
from penstock.database.errors import DatabaseUnreachable
from penstock.errors import InvalidInput, PenstockError
from penstock.execution.errors import ExecutorUnreachable
from penstock.gate.policy import parse
from penstock.lake.lake import Lake
from penstock.lake.settings import LakeSettings
from penstock.storage.errors import StoreUnreachable
from penstock_jobs.loop.cycles import (
    Cycle,
    LoopKey,
    StageClaim,
    claimed,
    cycle_at,
    database_now,
    end_cycle,
    fail,
    failed_in_a_row,
    failures_of,
    finish,
    newest_cycle,
    note_inputs,
    open_cycle,
    postpone,
)
from penstock_jobs.loop.errors import StageLost
from penstock_jobs.loop.loop_file import LoopFile, environment_of, token_of
from penstock_jobs.loop.next_action import (
    FIRST,
    Action,
    ChannelFacts,
    EndCycle,
    OpenCycle,
    RunStage,
    Wait,
    next_action,
    pause_us,
)
from penstock_jobs.loop.settings import LoopSettings
from penstock_jobs.loop.stages import STAGES
from penstock_jobs.loop.stages.stage import (
    CycleOver,
    StageAnswer,
    StageContext,
    StageDone,
    StageWaits,
)

_SECOND_US = 1_000_000
#: Errors with these HTTP statuses are refusals: the same request is refused again.
_REFUSED = (409, 422)
_UNREACHABLE = (DatabaseUnreachable, StoreUnreachable, ExecutorUnreachable)


@dataclass(frozen=True, kw_only=True)
class Runner:
    """`wait` pauses for so many seconds, and says whether to stop. `crash_point` is called with a
    name wherever a test may want to kill the runner."""

    lake: Lake
    loop: LoopFile
    tenant: str
    wait: Callable[[float], bool]
    tell: Callable[[str], None] = lambda _text: None
    crash_point: Callable[[str], None] = lambda _point: None
    owner: str = field(
        default_factory=lambda: f"{socket.gethostname()[:64]}:{os.getpid()}:{uuid4().hex[:8]}"
    )

    @property
    def key(self) -> LoopKey:
        return LoopKey(self.tenant, self.loop.name)

    @property
    def _settings(self) -> LoopSettings:
        return self.lake.settings.room(LoopSettings)

    def run(self) -> None:
        """Cycle after cycle, until `wait` says to stop. Outages of the database are reported, and
        outlived. Raises ChannelUnknown, InvalidInput."""
        self._check()
        reported = ""
        while True:
            try:
                last, action = self._plan()
                if not isinstance(action, Wait):
                    self._act(last, action)
                    continue
                seconds = self._seconds(action)
            except DatabaseUnreachable as error:
                action = Wait(_line(error))
                seconds = self._settings.loop_poll_seconds
            reported = self._report_wait(action.why, reported)
            if self.wait(seconds):
                return

    def run_once(self) -> Cycle:
        """The open cycle, or else a new one, to its end. Where it cannot begin yet it has no
        `ended_at`. Raises ChannelUnknown, InvalidInput, DatabaseUnreachable."""
        self._check()
        number: int | None = None
        reported = ""
        while True:
            last, action = self._plan()
            if number is None:
                number = 1 if last is None else last.number + (last.ended_at is not None)
            if last is not None and last.number >= number and last.ended_at is not None:
                return cycle_at(self.lake.database, self.key, number)
            if last is None or last.number < number:
                action = OpenCycle(number)  # at once, also after a cycle that failed
            if not isinstance(action, Wait):
                answer = self._act(last, action)
                if isinstance(answer, StageWaits) and action == RunStage(FIRST):
                    return cycle_at(self.lake.database, self.key, number)
                continue
            reported = self._report_wait(action.why, reported)
            cannot_begin = last is not None and last.began_at is None and action.until_us is None
            if cannot_begin or self.wait(self._seconds(action)):
                return cycle_at(self.lake.database, self.key, number)

    def _report_wait(self, why: str, reported: str) -> str:
        if why != reported:
            self.tell(f"{self.loop.name} waits: {why}")
        return why

    def _check(self) -> None:
        """Refuse at once a loop that cannot work. Raises ChannelUnknown, InvalidInput."""
        token_of(self.loop.trainer.token_env)
        for bench in self.loop.bench:
            environment_of(bench.pass_env)
        state = channels.channel_state(self.lake.database, self.tenant, self.loop.channel)
        what = f"The channel {self.loop.channel}"
        if state.checkpoint is None:
            why = "nothing is promoted to it: a loop needs a first checkpoint to train from"
            raise InvalidInput(what=what, why=why)
        if state.policy is None and self.loop.policy is None:
            why = "it has no gate policy, and the [gate] of the loop file names none"
            raise InvalidInput(what=what, why=why)
        text = self.loop.policy or channels.policy_of(self.lake.database, state)
        if text and parse(text, f"the policy of {state.name}").live and self.loop.canary is None:
            why = (
                "its policy has [[live]] metrics, which only a canary can show, and the loop file"
                " has no [canary]: each cycle would be refused"
            )
            raise InvalidInput(what=what, why=why)

    def _plan(self) -> tuple[Cycle | None, Action]:
        database = self.lake.database
        last = newest_cycle(database, self.key)
        state = channels.channel_state(database, self.tenant, self.loop.channel)
        channel = ChannelFacts(
            channel=state.name,
            checkpoint=state.checkpoint,
            canary=state.canary,
            pinned=state.pinned,
        )
        ended = last is not None and last.ended_at is not None
        failed = failed_in_a_row(database, self.key) if ended else 0
        return last, next_action(last, self.loop.retry, channel, database_now(database), failed)

    def _seconds(self, action: Wait) -> float:
        most = self._settings.loop_poll_seconds
        if action.until_us is None:
            return most
        left_s = (action.until_us - database_now(self.lake.database)) / _SECOND_US
        return min(most, max(left_s, 0.0))

    def _act(self, last: Cycle | None, action: Action) -> StageAnswer | PenstockError | None:
        """The answer of its stage, if it ran one and did not lose it."""
        if isinstance(action, OpenCycle):
            self._open(action.number)
        elif isinstance(action, EndCycle) and last is not None:
            self.crash_point("ending")
            if end_cycle(self.lake.database, self.key, last.number, action.outcome, action.why):
                why = f", {action.why}" if action.why else ""
                self.tell(f"cycle {last.number}: {action.outcome}{why}")
        elif isinstance(action, RunStage) and last is not None:
            return self._run(last, action.stage)
        return None

    def _open(self, number: int) -> None:
        opened = open_cycle(
            self.lake.database,
            self.key,
            number,
            channel=self.loop.channel,
            file_digest=self.loop.digest,
            budget_s=self.loop.budget_s,
            stages=[stage.name for stage in STAGES if stage.wanted(self.loop)],
        )
        if opened:
            self.tell(f"cycle {number} is open")
        self.crash_point("opened")

    def _run(self, cycle: Cycle, name: str) -> StageAnswer | PenstockError | None:
        with claimed(
            self.lake.database,
            self.key,
            cycle.number,
            cycle.stage(name),
            owner=self.owner,
            lease_s=self.lake.settings.room(LakeSettings).lease_seconds,
        ) as claim:
            if claim is None:
                return None
            self.crash_point(f"{name}:claimed")
            try:
                answer = self._answer(cycle, claim)
                self.crash_point(f"{name}:worked")
                self._store(claim, answer)
            except StageLost as error:
                self.tell(_line(error))
                return None
            self.crash_point(f"{name}:kept")
            return answer

    def _answer(self, cycle: Cycle, claim: StageClaim) -> StageAnswer | PenstockError:
        """An error of ours is an answer too."""
        stage = next(stage for stage in STAGES if stage.name == claim.stage)
        context = StageContext(
            lake=self.lake,
            loop=self.loop,
            tenant=self.tenant,
            cycle=cycle,
            claim=claim,
            results=cycle.results(),
        )
        try:
            inputs = stage.inputs(context)
            note_inputs(self.lake.database, claim, inputs)
            if claim.stage != FIRST:
                self.tell(f"cycle {claim.cycle}: {claim.stage}")
            return stage.run(context, inputs)
        except StageLost:
            raise
        except PenstockError as error:
            return error

    def _store(self, claim: StageClaim, answer: StageAnswer | PenstockError) -> None:
        database = self.lake.database
        if isinstance(answer, StageDone):
            finish(database, claim, answer.result, why=answer.summary, of_cycle=answer.of_cycle)
            self.tell(f"cycle {claim.cycle}: {claim.stage} is done: {answer.summary}")
        elif isinstance(answer, CycleOver):
            result = {**answer.result, "ends": answer.outcome}
            finish(database, claim, result, why=answer.why, state="over")
        elif isinstance(answer, StageWaits):
            pause_s = answer.pause_s
            pause_s = self._settings.loop_poll_seconds if pause_s is None else pause_s
            postpone(database, claim, answer.why, round(pause_s * _SECOND_US))
        else:
            self._fail(claim, answer)

    def _fail(self, claim: StageClaim, error: PenstockError) -> None:
        failures = failures_of(self.lake.database, claim) + 1
        why, retry, may_help = _line(error), self.loop.retry, retry_may_help(error)
        tries = f"try {failures} of {retry.tries}" if may_help else "not to be tried again"
        self.tell(f"cycle {claim.cycle}: {claim.stage} failed ({tries}): {why}")
        again = may_help and failures < retry.tries
        pause = pause_us(retry, failures) if again else None
        fail(self.lake.database, claim, why, pause_us=pause)


def retry_may_help(error: PenstockError) -> bool:
    """Not where the request is wrong, or was refused."""
    if isinstance(error, _UNREACHABLE):
        return True
    return error.exit_status != 2 and error.http_status not in _REFUSED


def _line(error: PenstockError) -> str:
    return " ".join(str(error).split())
