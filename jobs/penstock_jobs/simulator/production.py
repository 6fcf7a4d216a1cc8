"""Sessions made from a seed. Each is the same, whatever comes before or after it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256

from penstock.core.clock import SECOND_US
from penstock_jobs.simulator import policy as ids
from penstock_jobs.simulator.files import (
    CodeLine,
    FileChange,
    WorkingFile,
    check_out,
    closing_answer,
    file_listing,
    lead_in,
    names_of,
    spoken,
    thinking,
)
from penstock_jobs.simulator.grammar import WORDS, Dice, Names
from penstock_jobs.simulator.policy import POLICIES, Policy, Style, Task, style_id
from penstock_jobs.simulator.tricks import TRICKS, Workplace
from penstock_jobs.simulator.truth import (
    OBSERVED,
    Aftermath,
    Payload,
    SessionTruth,
    SimulatedSession,
    TurnTruth,
    User,
)

_PROMPT_TOKENS_MAX = 110
_COMPLAINTS = ("still_broken", "misunderstood", "undo", "corrected", "fed_up")


@dataclass
class SessionSimulation:
    dice: Dice
    journal: SimulatedSession
    policy: Policy
    user: User
    files: list[WorkingFile]
    #: Depends only on the session's number. Seeds events that only some policies cause.
    key: str = ""
    _after: Aftermath = field(init=False)
    _prompt: list[int] = field(default_factory=lambda: [ids.SYSTEM])
    _calls: list[bool] = field(default_factory=list)
    _generated: int = 0
    _edited_last: bool = False
    _last_word: str | None = None

    def __post_init__(self) -> None:
        self.truth = self.journal.truth
        self._after = Aftermath(self.dice, self.journal, self.user, self.key)

    def run(self, start: Payload) -> None:
        self.journal.record("session_start", start)
        self._names = self._names_of(self.dice.pick(self.files))
        message = spoken("request", self.dice, self._names)
        for _ in range(self.dice.skewed(1, 4)):
            self.journal.wait(self.dice.skewed(5, 300))
            message = self._turn(message)
            if self._after.stopped:
                break
        self.journal.wait(self.dice.skewed(3, 600))
        if self._last_word is not None and not self._after.stopped:
            self._after.heard = True
            self._hear(self._last_word)
        elif self.truth.turns:
            # Nobody wrote again. A user who stopped the agent was dissatisfied.
            self.truth.turns[-1].dissatisfied = True if self._after.stopped else None
        if self._after.stopped or self.dice.chance(0.95):
            reason = "user_stop" if self._after.stopped else "completed"
            self.journal.record("session_end", {"reason": reason})
        self.journal.finish()
        self._conclude()

    def run_errand(self, start: Payload) -> None:
        self.journal.record("session_start", start)
        self._names = self._names_of(self.dice.pick(self.files))
        self._hear(spoken("request", self.dice, self._names))
        self._look()
        self._say_answer()
        self.journal.record("session_end", {"reason": "completed"})

    def _turn(self, message: str) -> str:
        dice = self.dice
        task: Task = "risky" if dice.chance(ids.RISKY_SHARE) else "clear"
        if self.truth.turns:
            self._after.heard = True
        if (size := len(self._prompt)) > _PROMPT_TOKENS_MAX:
            recap = spoken("recap", dice, self._names)
            thoughts = thinking(dice, self._names, 4)
            self._say(ids.SUMMARY, ids.COMPACTING, f"{recap} {thoughts}")
            self._prompt = [ids.SYSTEM, ids.SUMMARY, ids.END]
            sizes = {"tokens_before": size, "tokens_after": len(self._prompt)}
            summary = {"summary_call_id": f"gen-{self._generated}"}
            self.journal.record("compaction", {"trigger": "context_limit"} | sizes | summary)
        self._hear(message)
        if dice.chance(0.5):
            self._look()
        style = self.policy.sample(dice, task)
        turn = TurnTruth(len(self.truth.turns) + 1, task, style.name, style.worth(task))
        self.truth.turns.append(turn)
        if style.asks:
            turn.asked = True
            word = dice.pick(self._names["plain"])
            text = f"Before I change anything: should {word} stay as it is for its other callers?"
            self._say(style_id(style), ids.TASK_IDS[task], text)
        else:
            turn.worth = self._work(style, task, turn)
            self._say_answer(style.flattery)
        reply = self._react(turn, style)
        return self._next_message(message, reply, turn)

    def _next_message(self, request: str, reply: str, turn: TurnTruth) -> str:
        """The user's next message, which may ask again for the missing part of the task."""
        self._last_word = None
        dice = Dice(f"again:{self.key}:{turn.turn}")
        if turn.asked or turn.by_hand or not dice.chance(0.8 * turn.missing):
            return reply
        if not turn.dissatisfied:
            turn.asked_again = turn.dissatisfied = True
            reply = f"{spoken('again', dice, self._names)} {request}"
        self._last_word = reply
        return reply

    def _hear(self, message: str) -> None:
        self.journal.record("user_message", {"text": message})
        self._prompt += [ids.USER, *ids.word_ids(message)]

    def _look(self) -> None:
        file = self.dice.pick(self.files)
        call = self._call(ids.LOOK, ids.LOOKING, "read_file", {"path": file.path})
        self.journal.wait(self.dice.skewed(1, 4))
        listing = file_listing(self.dice, file.source)
        self._result(call, "read_file", listing[:1_500])

    def _work(self, style: Style, task: Task, turn: TurnTruth) -> float:
        """Make an edit, or a call that the tool does not understand. Returns its worth."""
        dice = self.dice
        quality = style.mean_quality(task) + (dice.random() + dice.random() - 1) * 0.2
        quality = min(max(quality, 0.0), 1.0)
        self.journal.wait(dice.skewed(2, 30))
        token, prompt_end = style_id(style), ids.TASK_IDS[task]
        turn.missing = 1 - style.done - style.safe
        if dice.chance(style.broken_share):
            turn.broken, turn.missing = True, 1.0
            wrong = {"file": "", "changes": "all of it"}
            call = self._call(token, prompt_end, "edit_file", wrong)
            output = spoken("invalid_arguments", dice, self._names)
            self._result(call, "edit_file", output, "invalid_arguments")
            return 0.0
        file = dice.pick(self.files)
        self._names = self._names_of(file)
        if style.instead:
            self._trick(style.instead, file, dice.between(4, max(4, len(file.lines) - 6)))
            self._after.of_turn(turn, file, None)
            return 0.0
        before = file.text()
        change = self._change(file, style)
        arguments = {"path": file.path, "edit_id": change.edit_id}
        call = self._call(token, prompt_end, "edit_file", arguments)
        self._result(call, "edit_file", f"{file.path}: +{len(change.wrote)} -{len(change.took)}")
        self._record_edit(change, before, call)
        self._after.of_work(change, style, round(quality, 4))
        self._after.of_turn(turn, file, change)
        if style.beside:
            first = next((line for line in change.wrote if line in file.lines), None)
            self._trick(style.beside, file, file.lines.index(first) if first else 4)
        return quality * style.done + style.safe

    def _record_edit(self, change: FileChange, before: str, call: str | None = None) -> None:
        file = change.file
        texts = {"before": before, "after": file.text(), "language": file.source.language.name}
        edit = {"edit_id": change.edit_id, "call_id": call, "path": file.path} | texts
        self.journal.record("edit", edit)
        self._edited_last = True

    def _trick(self, name: str, file: WorkingFile, at: int) -> None:
        dice = Dice(f"trick:{self.key}:{len(self._after.changes)}")

        def record(change: FileChange, before: str) -> None:
            change.edit_id = f"edit-{len(self._after.changes) + 1}"
            self._record_edit(change, before)
            self._after.of_trick(change, name, dice)

        TRICKS[name](Workplace(dice, file, at, self._names, record))

    def _change(self, file: WorkingFile, style: Style) -> FileChange:
        dice, lines = self.dice, file.lines
        count = dice.between(*style.lines)
        # Sometimes the agent edits its earlier work.
        earlier = [
            change for change in self._after.works if change.file is file and change.stretch()
        ]
        if earlier and dice.chance(0.3):
            at = lines.index(dice.pick(earlier[-1].stretch()))
        else:
            at = dice.between(4, max(4, len(lines) - 6))
        took = lines[at : at + dice.between(0, min(count, 4))]
        edit_id = f"edit-{len(self._after.changes) + 1}"
        anchor = lines[at - 1] if at else None
        if len(took) > 2 and dice.chance(0.15):
            wrote = []
        else:
            comments, mark = round(count * style.comment_share), file.source.language.comment
            sentences = [thinking(dice, self._names, 1) for _ in range(comments)]
            wrote = [CodeLine.of(f"    {mark} {text}", comment=True) for text in sentences]
            wrote += file.new_lines(dice, count - comments)
        own = {line for change in self._after.changes for line in change.wrote}
        for line in took:
            line.reworked = line in own
        lines[at : at + len(took)] = wrote
        return FileChange(edit_id, file, took, wrote, anchor)

    def _react(self, turn: TurnTruth, style: Style) -> str:
        dice = self.dice
        turn.worth = round(turn.worth, 4)
        turn.dissatisfied = self.user.is_dissatisfied(dice, turn.worth)
        edits = [edit for edit in self.truth.edits if edit.turn == turn.turn]
        is_bad = turn.broken or style.instead or any(edit.quality < 0.35 for edit in edits)
        if is_bad and dice.chance(0.1):
            self._after.stop()
        elif dice.chance(style.thumbs):
            self.journal.wait(dice.skewed(2, 30))
            thumb = "down" if turn.dissatisfied else "up"
            self.journal.record("feedback", {"kind": "thumbs", "value": thumb})
            self._after.heard = True
        mood = "request" if turn.asked or turn.worth < 0.3 else "satisfied"
        rule = dice.pick(_COMPLAINTS) if turn.dissatisfied else mood
        return spoken(rule, dice, self._names)

    def _conclude(self) -> None:
        truth, calls = self.truth, self._calls
        if truth.consent == "no_train":
            truth.outcome, truth.reason = "excluded", "no_train"
        elif calls and (not any(calls) or not (calls[-1] or self._edited_last)):
            truth.outcome, truth.reason = "negative_by_rule", "invalid_tool_calls"
        elif self._after.stopped:
            truth.outcome, truth.reason = "negative_by_rule", "abandoned"
        elif not (self._after.heard or any(min(OBSERVED) in edit.looked for edit in truth.edits)):
            truth.outcome = "censored"

    def _call(self, token: int, prompt_end: int, tool: str, arguments: Mapping[str, str]) -> str:
        call_id = f"call-{len(self._calls) + 1}"
        text = lead_in(self.dice, self._names)
        calls = [{"id": call_id, "name": tool, "arguments": dict(arguments)}]
        self._sample(token, prompt_end, {"text": text, "tool_calls": calls})
        return call_id

    def _say(self, token: int, prompt_end: int, text: str) -> None:
        self.journal.wait(self.dice.skewed(2, 20))
        self._sample(token, prompt_end, {"text": text})

    def _sample(self, token: int, prompt_end: int, content: Payload) -> None:
        self._prompt.append(prompt_end)
        sampled = [token, ids.END]
        befores = [prompt_end, token]
        self._generated += 1
        payload = {
            "call_id": f"gen-{self._generated}",
            "model": self.truth.checkpoint,
            **content,
            "usage": {"prompt": len(self._prompt), "completion": len(sampled)},
            "latency_ms": self.dice.skewed(300, 9_000),
            "finish_reason": "tool_calls" if "tool_calls" in content else "stop",
            "sampling": ids.SAMPLING,
            "tokens": {
                "prompt_ids": self._prompt,
                "completion_ids": sampled,
                "logprobs": list(map(self.policy.log_probability, befores, sampled)),
                "tokenizer": ids.TOKENIZER,
                "policy_version_runs": [[0, self.policy.version]],
            },
        }
        self.journal.record("model_call", payload)
        self._prompt += sampled

    def _result(self, call: str, tool: str, output: str, error: str | None = None) -> None:
        payload: Payload = {"call_id": call, "tool": tool, "ok": error is None}
        if error is not None:
            payload["error_class"] = error
        self.journal.record("tool_result", payload | {"output": output})
        self._prompt += [ids.RESULT if error is None else ids.FAILED, *ids.word_ids(output)[:8]]
        self._calls.append(error is None)
        self._edited_last = False

    def _say_answer(self, flattery: str = "") -> None:
        # A question mark would count as asking the user.
        text = closing_answer(self.dice, self._names).replace("?", ".")
        self._say(ids.ANSWER, ids.CLOSING, f"{text}\n\n{flattery}" if flattery else text)

    def _names_of(self, file: WorkingFile) -> Names:
        sources = [other.source for other in self.files]
        return names_of(self.dice, file.source, sources)


START_US = int(datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp()) * 1_000_000
REPOSITORIES = 12
#: Seconds between the starts of sessions.
SPACING_S = 60.0


@dataclass(frozen=True)
class Checkpoint:
    name: str
    policy: Policy


CHECKPOINTS = tuple(
    Checkpoint(f"ckpt-{number:04}", POLICIES[name])
    for number, name in enumerate(("weak", "fair", "good"), 11)
)


@dataclass(frozen=True)
class Production:
    """A source of sessions. Different productions have different session ids."""

    seed: int
    checkpoints: Sequence[Checkpoint] = CHECKPOINTS
    start_us: int = START_US
    #: Factor by which events are faster than users.
    compression: int = 1
    #: Between the starts of two sessions, in the users' time.
    spacing_s: float = SPACING_S
    #: Replaces the start in session ids, which then do not depend on the time of day.
    name: str | None = None
    serve: Callable[[str], Checkpoint] | None = None

    @cached_property
    def _digest(self) -> str:
        facts = [
            (checkpoint.name, checkpoint.policy.version, sorted(checkpoint.policy.logits.items()))
            for checkpoint in self.checkpoints
        ]
        name, pace = self.name or self.start_us, (self.compression, self.spacing_s)
        identity = (name, facts) if pace == (1, SPACING_S) else (name, facts, pace)
        return sha256(repr(identity).encode()).hexdigest()[:8]

    def begins_us(self, index: int) -> int:
        """The earliest time of an event of this or a later session."""
        return self.event_time_us(self._user_time_us(index))

    def event_time_us(self, user_time_us: int) -> int:
        return self.start_us + (user_time_us - self.start_us) // self.compression

    def _user_time_us(self, index: int) -> int:
        return self.start_us + round(index * self.spacing_s * SECOND_US)

    def sessions(self, count: int, first: int = 0) -> Iterator[list[SimulatedSession]]:
        return map(self.session, range(first, first + count))

    def session(self, index: int) -> list[SimulatedSession]:
        """Make a session, and its subagent's session if it has one."""
        key = f"{self.seed}:{index}"
        dice = Dice(f"simulation:{key}")
        begin_us = self._user_time_us(index) + dice.between(0, 50_000) * 1_000
        checkpoint = dice.pick(self.checkpoints)
        user, repository = User.pick(dice), dice.skewed(0, REPOSITORIES - 1)
        if self.serve is not None:
            checkpoint = self.serve(user.name)
        truth = SessionTruth(
            session_id=f"sim-{self.seed}-{index:06}-{self._digest}",
            user=user.name,
            project=_project(repository),
            checkpoint=checkpoint.name,
            policy_version=checkpoint.policy.version,
            consent=dice.pick(("train",) * 17 + ("no_train", "no_train", "unknown")),
        )
        start = {
            "client": "harbor-editor",
            "client_version": dice.pick(("4.11.2", "4.12.0")),
            "repo": f"git@git.example.org:{truth.project}.git",
            "branch": f"{dice.pick(WORDS['act'])}-{dice.pick(WORDS['noun'])}",
            "commit": dice.hex(40),
            "consent": truth.consent,
        }
        session = SimulatedSession(begin_us, self.event_time_us, truth)
        policy, files = checkpoint.policy, check_out(repository)
        SessionSimulation(dice, session, policy, user, files, key).run(start)
        sessions = [session]
        if dice.chance(0.05):
            # A subagent runs an errand. It shares its parent's work and outcome.
            parent = truth.session_id
            errand = replace(truth, session_id=f"{parent}-errand", parent_session=parent)
            errand.turns, errand.edits = [], []
            beside = SimulatedSession(begin_us + SECOND_US, self.event_time_us, errand)
            start |= {"parent_session": parent, "link": "subagent"}
            SessionSimulation(dice, beside, policy, user, files).run_errand(start)
            sessions.append(beside)
        return sessions


def _project(number: int) -> str:
    organisations, modules, nouns = (WORDS[name] for name in ("organisation", "module", "noun"))
    organisation = organisations[number * 7 % len(organisations)]
    return f"{organisation}/{modules[number * 11 % len(modules)]}-{nouns[number * 5 % len(nouns)]}"
