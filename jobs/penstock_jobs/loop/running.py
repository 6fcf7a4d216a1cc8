"""A runner of a loop: it asks what comes next, does it, and writes down what came of it.

Any number may run on one database, on any machine: who holds a stage does it. A runner that is
killed leaves a lease that runs out; the next one takes the stage up from what is in the database.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from penstock.channels.channel import channel_state, policy_of
from penstock.database.errors import DatabaseUnreachable
from penstock.errors import InvalidInput, PenstockError
from penstock.execution.errors import ExecutorUnreachable
from penstock.gate.policy import parse
from penstock.lake.lake import Lake
from penstock.storage.errors import StoreUnreachable
from penstock_jobs.loop import environment
from penstock_jobs.loop.errors import StageLost
from penstock_jobs.loop.keeping import (
    Cycle,
    Held,
    Place,
    as_planned,
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
    put_off,
)
from penstock_jobs.loop.loopfile import LoopFile
from penstock_jobs.loop.planning import (
    FIRST,
    Action,
    End,
    Facts,
    Open,
    Run,
    Wait,
    next_action,
    pause_us,
)
from penstock_jobs.loop.settings import LoopSettings
from penstock_jobs.loop.stage import Answer, Done, NotYet, Over, Work
from penstock_jobs.loop.stages import STAGES, find_stage

_SECOND_US = 1_000_000
#: What is asked wrongly stays wrong: HTTP would say so by these.
_REFUSED = (409, 422)
_UNREACHABLE = (DatabaseUnreachable, StoreUnreachable, ExecutorUnreachable)


@dataclass(frozen=True, kw_only=True)
class Runner:
    """`wait` pauses for so many seconds, and says whether it is enough. `crash_point` is called
    with a name wherever being killed is of interest."""

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
    def place(self) -> Place:
        return Place(self.tenant, self.loop.name)

    def run(self) -> None:
        """Cycle after cycle, until `wait` says that it is enough. Outages of the database are told,
        and outlived. Raises ChannelUnknown, InvalidInput."""
        self._check()
        said = ""
        while True:
            try:
                last, action = self._plan()
                if not isinstance(action, Wait):
                    self._act(last, action)
                    continue
                seconds = self._seconds(action)
            except DatabaseUnreachable as error:
                action = Wait(_line(error))
                seconds = self.lake.settings.room(LoopSettings).loop_poll_seconds
            said = self._say(action.why, said)
            if self.wait(seconds):
                return

    def run_once(self) -> Cycle:
        """The cycle that is open, or else a new one, to its end, or to where it cannot begin yet:
        then it has not `ended_at`. Raises ChannelUnknown, InvalidInput, DatabaseUnreachable."""
        self._check()
        number: int | None = None
        said = ""
        while True:
            last, action = self._plan()
            if number is None:
                number = 1 if last is None else last.number + (last.ended_at is not None)
            if last is not None and last.number >= number and last.ended_at is not None:
                return cycle_at(self.lake.database, self.place, number)
            if last is None or last.number < number:
                action = Open(number)  # who asks for a cycle does not wait because one has failed
            if not isinstance(action, Wait):
                answer = self._act(last, action)
                if isinstance(answer, NotYet) and isinstance(action, Run) and action.stage == FIRST:
                    return cycle_at(self.lake.database, self.place, number)
                continue
            said = self._say(action.why, said)
            cannot_begin = last is not None and last.began_at is None and action.until_us is None
            if cannot_begin or self.wait(self._seconds(action)):
                return cycle_at(self.lake.database, self.place, number)

    def _say(self, why: str, said: str) -> str:
        if why != said:
            self.tell(f"{self.loop.name} waits: {why}")
        return why

    def _check(self) -> None:
        """What nobody can begin with is said at once. Raises ChannelUnknown, InvalidInput."""
        environment.check(self.loop)
        state = channel_state(self.lake.database, self.tenant, self.loop.channel)
        what = f"The channel {self.loop.channel}"
        if state.checkpoint is None:
            why = "nothing is promoted to it: a loop needs a first checkpoint to train from"
            raise InvalidInput(what=what, why=why)
        if state.policy is None and self.loop.policy is None:
            why = "it has no gate policy, and the [gate] of the loop file names none"
            raise InvalidInput(what=what, why=why)
        text = self.loop.policy or policy_of(self.lake.database, state)
        if text and parse(text, f"the policy of {state.name}").live and self.loop.canary is None:
            why = (
                "its policy has [[live]] metrics, which a canary alone can show, and the loop file"
                " has no [canary]: each cycle would be refused"
            )
            raise InvalidInput(what=what, why=why)

    def _plan(self) -> tuple[Cycle | None, Action]:
        database = self.lake.database
        last = newest_cycle(database, self.place)
        state = channel_state(database, self.tenant, self.loop.channel)
        facts = Facts(
            channel=state.name,
            checkpoint=state.checkpoint,
            canary=state.canary,
            pinned=state.pinned,
        )
        row = None
        if last is not None:
            ended = last.ended_at is not None
            row = as_planned(last, failed_in_a_row(database, self.place) if ended else 0)
        return last, next_action(row, self.loop.retry, facts, database_now(database))

    def _seconds(self, action: Wait) -> float:
        most = self.lake.settings.room(LoopSettings).loop_poll_seconds
        if action.until_us is None:
            return most
        left_s = (action.until_us - database_now(self.lake.database)) / _SECOND_US
        return min(most, max(left_s, 0.0))

    def _act(self, last: Cycle | None, action: Action) -> Answer | PenstockError | None:
        """What its stage answered, if it ran one and has it still."""
        if isinstance(action, Open):
            self._open(action.number)
        elif isinstance(action, End) and last is not None:
            self.crash_point("ending")
            if end_cycle(self.lake.database, self.place, last.number, action.outcome, action.why):
                self.tell(
                    f"cycle {last.number}: {action.outcome}{action.why and f', {action.why}'}"
                )
        elif isinstance(action, Run) and last is not None:
            return self._run(last, action.stage)
        return None

    def _open(self, number: int) -> None:
        opened = open_cycle(
            self.lake.database,
            self.place,
            number,
            channel=self.loop.channel,
            file_digest=self.loop.digest,
            budget_s=self.loop.budget_s,
            stages=[one.NAME for one in STAGES if one.wanted(self.loop)],
        )
        if opened:
            self.tell(f"cycle {number} is open")
        self.crash_point("opened")

    def _run(self, cycle: Cycle, name: str) -> Answer | PenstockError | None:
        settings = self.lake.settings
        with claimed(
            self.lake.database,
            self.place,
            cycle.number,
            cycle.stage(name),
            owner=self.owner,
            lease_s=settings.room(LoopSettings).loop_lease_seconds,
        ) as held:
            if held is None:
                return None
            self.crash_point(f"{name}:claimed")
            try:
                answer = self._answer(cycle, held)
                self.crash_point(f"{name}:worked")
                self._keep(held, answer)
            except StageLost as error:
                self.tell(_line(error))
                return None
            self.crash_point(f"{name}:kept")
            return answer

    def _answer(self, cycle: Cycle, held: Held) -> Answer | PenstockError:
        """An error of ours is an answer too."""
        stage = find_stage(held.stage)
        work = Work(
            lake=self.lake,
            loop=self.loop,
            tenant=self.tenant,
            cycle=cycle,
            held=held,
            results=cycle.results(),
        )
        try:
            inputs = stage.inputs(work)
            note_inputs(self.lake.database, held, inputs)
            if held.stage != FIRST:
                self.tell(f"cycle {held.cycle}: {held.stage}")
            return stage.run(work, inputs)
        except StageLost:
            raise
        except PenstockError as error:
            return error

    def _keep(self, held: Held, answer: Answer | PenstockError) -> None:
        database = self.lake.database
        if isinstance(answer, Done):
            finish(database, held, answer.result, why=answer.told, of_cycle=answer.of_cycle)
            self.tell(f"cycle {held.cycle}: {held.stage} is done: {answer.told}")
        elif isinstance(answer, Over):
            result = {**answer.result, "ends": answer.outcome}
            finish(database, held, result, why=answer.why, state="over")
        elif isinstance(answer, NotYet):
            pause_s = answer.pause_s
            pause_s = (
                self.lake.settings.room(LoopSettings).loop_poll_seconds
                if pause_s is None
                else pause_s
            )
            put_off(database, held, answer.why, round(pause_s * _SECOND_US))
        else:
            self._fail(held, answer)

    def _fail(self, held: Held, error: PenstockError) -> None:
        failures = failures_of(self.lake.database, held) + 1
        why = _line(error)
        retry = self.loop.retry
        again = may_help(error) and failures < retry.tries
        tries = f"try {failures} of {retry.tries}" if may_help(error) else "not to be tried again"
        self.tell(f"cycle {held.cycle}: {held.stage} failed ({tries}): {why}")
        fail(
            self.lake.database,
            held,
            why,
            pause_us=pause_us(retry, failures) if again else None,
        )


def may_help(error: PenstockError) -> bool:
    """Whether trying again may help: not where what was asked is wrong, or refused."""
    if isinstance(error, _UNREACHABLE):
        return True
    return error.exit_status != 2 and error.http_status not in _REFUSED


def _line(error: PenstockError) -> str:
    return " ".join(str(error).split())
