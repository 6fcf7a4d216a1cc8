"""One session, lived through: a user asks, the agent samples what it does, the user reacts."""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from penstock_jobs.simulator import conversation
from penstock_jobs.simulator import policy as ids
from penstock_jobs.simulator.files import CodeLine, FileChange, WorkingFile, ink_of
from penstock_jobs.simulator.grammar import Dice, Names
from penstock_jobs.simulator.policy import Policy, Style, Task
from penstock_jobs.simulator.truth import (
    EditTruth,
    SessionTruth,
    TurnTruth,
    User,
    seconds_until_acting,
)

#: How often somebody still observes a file after so many seconds.
_OBSERVED = {600: 0.95, 3_600: 0.9, 86_400: 0.85}
_PROMPT_TOKENS_MAX = 110
_COMPLAINTS = ("still_broken", "misunderstood", "undo", "corrected", "fed_up")

_encode = msgspec.json.Encoder().encode

Payload = dict[str, Any]


class Journal:
    """The events of a session as its client sends them, and the time that passes in it.

    `now_us` only moves forward, and what was planned for a moment happens then. `event_time_us`
    gives the time that an event bears which happens at a moment."""

    def __init__(
        self, start_us: int, event_time_us: Callable[[int], int], truth: SessionTruth
    ) -> None:
        self.now_us = start_us
        self._event_time_us = event_time_us
        #: The time that each event bears, its type, and its line.
        self.lines: list[tuple[int, str, bytes]] = []
        self._truth = truth
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0

    def record(self, kind: str, payload: Payload) -> None:
        number, at_us = len(self.lines), self._event_time_us(self.now_us)
        event = {
            "session_id": self._truth.session_id,
            "seq": number,
            "ts": at_us,
            "type": kind,
            "event_id": f"e{number:05}",
            "source": "simulator",
            "checkpoint": self._truth.checkpoint,
            "user": self._truth.user,
            "project": self._truth.project,
            "payload": payload,
        }
        self.lines.append((at_us, kind, _encode(event)))
        self.now_us += 1_000  # no two events of a session share a time

    def wait(self, seconds: float) -> None:
        self._advance_to(self.now_us + round(seconds * 1_000_000))

    def finish(self) -> None:
        """Let all time pass."""
        while self._plans:
            self._advance_to(self._plans[0][0])

    def plan(self, at_us: int, action: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._plans, (at_us, self._planned, action))

    def _advance_to(self, moment_us: int) -> None:
        while self._plans and self._plans[0][0] <= moment_us:
            due_us, _, action = heapq.heappop(self._plans)
            self.now_us = max(self.now_us, due_us)
            action()
        self.now_us = max(self.now_us, moment_us)


@dataclass
class SessionSimulation:
    """Runs once. Then the truth and the journal are complete."""

    dice: Dice
    journal: Journal
    truth: SessionTruth
    policy: Policy
    user: User
    files: list[WorkingFile]
    _changes: list[FileChange] = field(default_factory=list)
    _prompt: list[int] = field(default_factory=lambda: [ids.SYSTEM])
    #: Of each tool call, whether it worked.
    _calls: list[bool] = field(default_factory=list)
    _generated: int = 0
    _edited_last: bool = False
    _stopped: bool = False
    #: The user said something about the work.
    _heard: bool = False

    def run(self, start: Payload) -> None:
        self.journal.record("session_start", start)
        self._names = self._names_of(self.dice.pick(self.files))
        message = conversation.line("request", self.dice, self._names)
        for _ in range(self.dice.skewed(1, 4)):
            self.journal.wait(self.dice.skewed(5, 300))
            message = self._turn(message)
            if self._stopped:
                break
        if self.truth.turns:
            # Nobody wrote again. A user who stopped the agent was dissatisfied.
            self.truth.turns[-1].dissatisfied = True if self._stopped else None
        self.journal.wait(self.dice.skewed(3, 600))
        if self._stopped or self.dice.chance(0.95):
            reason = "user_stop" if self._stopped else "completed"
            self.journal.record("session_end", {"reason": reason})
        self.journal.finish()
        self._conclude()

    def run_errand(self, start: Payload) -> None:
        """What a subagent does: it looks something up, and reports."""
        self.journal.record("session_start", start)
        self._names = self._names_of(self.dice.pick(self.files))
        self._hear(conversation.line("request", self.dice, self._names))
        self._look()
        self._say_answer()
        self.journal.record("session_end", {"reason": "completed"})

    def _turn(self, message: str) -> str:
        """The message that the user writes next."""
        dice = self.dice
        task: Task = "risky" if dice.chance(ids.RISKY_SHARE) else "clear"
        if self.truth.turns:
            self._heard = True
        if (size := len(self._prompt)) > _PROMPT_TOKENS_MAX:
            recap = conversation.line("recap", dice, self._names)
            thoughts = conversation.thinking(dice, self._names, 4)
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
            self._say(ids.STYLE_IDS[style.name], ids.TASK_IDS[task], text)
        else:
            turn.worth = self._work(style, task, turn)
            self._say_answer()
        return self._react(turn)

    def _hear(self, message: str) -> None:
        self.journal.record("user_message", {"text": message})
        self._prompt += [ids.USER, *ids.word_ids(message)]

    def _look(self) -> None:
        file = self.dice.pick(self.files)
        call = self._call(ids.LOOK, ids.LOOKING, "read_file", {"path": file.path})
        self.journal.wait(self.dice.skewed(1, 4))
        listing = conversation.file_listing(self.dice, file.source)
        self._result(call, "read_file", listing[:1_500])

    def _work(self, style: Style, task: Task, turn: TurnTruth) -> float:
        """One edit, or a call that the tool does not understand; what it was worth."""
        dice = self.dice
        quality = style.mean_quality(task) + (dice.random() + dice.random() - 1) * 0.2
        quality = min(max(quality, 0.0), 1.0)
        self.journal.wait(dice.skewed(2, 30))
        token, prompt_end = ids.STYLE_IDS[style.name], ids.TASK_IDS[task]
        if dice.chance(style.breaks):
            turn.broken = True
            wrong = {"file": "", "changes": "all of it"}
            call = self._call(token, prompt_end, "edit_file", wrong)
            output = conversation.line("invalid_arguments", dice, self._names)
            self._result(call, "edit_file", output, "invalid_arguments")
            return 0.0
        file = dice.pick(self.files)
        self._names = self._names_of(file)
        before = file.text()
        change = self._change(file, style)
        arguments = {"path": file.path, "edit_id": change.edit_id}
        call = self._call(token, prompt_end, "edit_file", arguments)
        self._result(call, "edit_file", f"{file.path}: +{len(change.wrote)} -{len(change.took)}")
        texts = {"before": before, "after": file.text(), "language": file.source.language.name}
        edit = {"edit_id": change.edit_id, "call_id": call, "path": file.path} | texts
        self.journal.record("edit", edit)
        self._edited_last = True
        self._changes.append(change)
        self._plan_fate(change, style, round(quality, 4))
        return quality * style.done

    def _change(self, file: WorkingFile, style: Style) -> FileChange:
        dice, lines = self.dice, file.lines
        count = dice.between(*style.lines)
        # Now and then where the agent was at work before.
        earlier = [change for change in self._changes if change.file is file and change.stretch()]
        if earlier and dice.chance(0.3):
            at = lines.index(dice.pick(earlier[-1].stretch()))
        else:
            at = dice.between(4, max(4, len(lines) - 6))
        took = lines[at : at + dice.between(0, min(count, 4))]
        edit_id = f"edit-{len(self._changes) + 1}"
        anchor = lines[at - 1] if at else None
        if len(took) > 2 and dice.chance(0.15):
            wrote = []
        else:
            comments, mark = round(count * style.comment_share), file.source.language.comment
            sentences = [conversation.thinking(dice, self._names, 1) for _ in range(comments)]
            wrote = [CodeLine.of(f"    {mark} {text}", comment=True) for text in sentences]
            wrote += file.new_lines(dice, count - comments)
        own = {line for change in self._changes for line in change.wrote}
        for line in took:
            line.reworked = line in own
        lines[at : at + len(took)] = wrote
        return FileChange(edit_id, file, took, wrote, anchor)

    def _plan_fate(self, change: FileChange, style: Style, quality: float) -> None:
        """What the user will do to the edit, and who observes it when."""
        dice, journal = self.dice, self.journal
        place = (change.edit_id, len(self.truth.turns), change.file.path)
        written = change.wrote or change.took
        ink = sum(ink_of(line.text) for line in written)
        reaction = self.user.reaction(dice, quality, style.comment_share)
        truth = EditTruth(*place, style.name, quality, ink, len(written), reaction)
        self.truth.edits.append(truth)
        made_us = journal.now_us - 1_000  # the edit's own moment
        when_us = made_us + seconds_until_acting(dice) * 1_000_000
        journal.plan(when_us, lambda: self._act(change, truth, by_hand=dice.chance(0.3)))
        if dice.chance(0.2):
            when_us = made_us + seconds_until_acting(dice) * 1_000_000
            journal.plan(when_us, partial(change.change_beside, dice))
        for horizon_s, share in _OBSERVED.items():
            due_us = made_us + horizon_s * 1_000_000
            journal.plan(due_us, partial(truth.measure, horizon_s, change))
            if dice.chance(share):
                truth.looked.append(horizon_s)
                observed_us = due_us + dice.between(1, 8_000) * 1_000
                journal.plan(observed_us, lambda: self._observe(change))
            elif dice.chance(0.3):
                journal.plan(due_us + 2_000_000, lambda: self._observe(change, elsewhere=True))

    def _act(self, change: FileChange, truth: EditTruth, *, by_hand: bool) -> None:
        if self._stopped:
            return
        if truth.reaction == "fixed":
            change.fix(self.dice)
        elif truth.reaction == "partly_reverted":
            change.revert_part(self.dice)
        elif truth.reaction == "reverted":
            change.revert()
            if not by_hand:
                self.journal.record("feedback", {"kind": "undo", "target": change.edit_id})
                self._heard = True

    def _observe(self, change: FileChange, *, elsewhere: bool = False) -> None:
        file = change.file
        payload: Payload = {"path": file.path, "text": "" if elsewhere else file.text()}
        if elsewhere:
            payload["branch_changed"] = True
        self.journal.record("file_observed", payload | {"edit_ids": [change.edit_id]})

    def _react(self, turn: TurnTruth) -> str:
        """The user judges the turn; the next message."""
        dice = self.dice
        turn.worth = round(turn.worth, 4)
        turn.dissatisfied = self.user.is_dissatisfied(dice, turn.worth)
        edits = [edit for edit in self.truth.edits if edit.turn == turn.turn]
        is_bad = turn.broken or any(edit.quality < 0.35 for edit in edits)
        if is_bad and dice.chance(0.1):
            self._stop()
        elif dice.chance(0.12):
            self.journal.wait(dice.skewed(2, 30))
            thumb = "down" if turn.dissatisfied else "up"
            self.journal.record("feedback", {"kind": "thumbs", "value": thumb})
            self._heard = True
        mood = "request" if turn.asked or turn.worth < 0.3 else "satisfied"
        rule = dice.pick(_COMPLAINTS) if turn.dissatisfied else mood
        return conversation.line(rule, dice, self._names)

    def _stop(self) -> None:
        """The user has had enough, and takes everything back at once."""
        self._stopped = True
        self.journal.wait(self.dice.between(2, 20))
        self.journal.record("interrupt", {"reason": "user_stop"})
        for change, truth in reversed(list(zip(self._changes, self.truth.edits, strict=True))):
            change.revert()
            truth.reaction = "reverted"

    def _conclude(self) -> None:
        truth, calls = self.truth, self._calls
        if truth.consent == "no_train":
            truth.outcome, truth.reason = "excluded", "no_train"
        elif calls and (not any(calls) or not (calls[-1] or self._edited_last)):
            truth.outcome, truth.reason = "negative_by_rule", "invalid_tool_calls"
        elif self._stopped:
            truth.outcome, truth.reason = "negative_by_rule", "abandoned"
        elif not (self._heard or any(min(_OBSERVED) in edit.looked for edit in truth.edits)):
            truth.outcome = "censored"

    def _call(self, token: int, prompt_end: int, tool: str, arguments: Mapping[str, str]) -> str:
        """A model call with one tool call; the id of the tool call."""
        call_id = f"call-{len(self._calls) + 1}"
        text = conversation.lead(self.dice, self._names)
        calls = [{"id": call_id, "name": tool, "arguments": dict(arguments)}]
        self._sample(token, prompt_end, {"text": text, "tool_calls": calls})
        return call_id

    def _say(self, token: int, prompt_end: int, text: str) -> None:
        self.journal.wait(self.dice.skewed(2, 20))
        self._sample(token, prompt_end, {"text": text})

    def _sample(self, token: int, prompt_end: int, content: Payload) -> None:
        """Record a model call that sampled `token` behind a prompt with that last token."""
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

    def _say_answer(self) -> None:
        # A question would ask the user instead of doing the work.
        text = conversation.answer(self.dice, self._names).replace("?", ".")
        self._say(ids.ANSWER, ids.CLOSING, text)

    def _names_of(self, file: WorkingFile) -> Names:
        sources = [other.source for other in self.files]
        return conversation.names_of(self.dice, file.source, sources)
