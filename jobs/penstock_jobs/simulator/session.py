"""One session, lived through: a user asks, the agent samples what it does, the user reacts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from penstock_jobs.simulator import outputs, prose
from penstock_jobs.simulator.files import FileChange, WorkingFile, ink_of
from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.journal import Journal, Payload
from penstock_jobs.simulator.policy import (
    ANSWER,
    CLOSING,
    COMPACTING,
    END,
    FAILED,
    LOOK,
    LOOKING,
    RESULT,
    RISKY_SHARE,
    STYLE_IDS,
    SUMMARY,
    SYSTEM,
    TASK_IDS,
    USER,
    Policy,
    Style,
    Task,
    tokens_of,
    word_ids,
)
from penstock_jobs.simulator.truth import EditTruth, SessionTruth, TurnTruth
from penstock_jobs.simulator.users import User, act, meddle, seconds_until_acting
from penstock_jobs.simulator.workspace import Workspace

HORIZONS_S = (600, 3_600, 86_400)
#: How often somebody still looks at a file then.
_LOOKED = {600: 0.95, 3_600: 0.9, 86_400: 0.85}
_PROMPT_TOKENS_MAX = 110


@dataclass
class SessionSimulation:
    """Lived through once, by `run`. The truth is complete then, and the journal too."""

    dice: Dice
    journal: Journal
    truth: SessionTruth
    policy: Policy
    user: User
    files: list[WorkingFile]
    _changes: list[FileChange] = field(default_factory=list)
    _prompt: list[int] = field(default_factory=lambda: [SYSTEM])
    _calls: list[bool] = field(default_factory=list)
    _generated: int = 0
    _edited_last: bool = False
    _stopped: bool = False
    _heard: bool = False

    def run(self, start: Payload) -> None:
        self.journal.record("session_start", start)
        self._names = self._spoken_of(self.dice.pick(self.files))
        message = prose.request(self.dice, self._names)
        for _ in range(self.dice.skewed(1, 4)):
            self.journal.wait(self.dice.skewed(5, 300))
            message = self._turn(message)
            if self._stopped:
                break
        if self.truth.turns:
            # Nobody wrote again; who stopped it has said enough.
            self.truth.turns[-1].dissatisfied = True if self._stopped else None
        self._end()
        self.journal.finish()
        self._conclude()

    def run_errand(self, start: Payload) -> None:
        """What a subagent is sent to do: it looks something up, and says what it found."""
        self.journal.record("session_start", start)
        self._names = self._spoken_of(self.dice.pick(self.files))
        message = prose.request(self.dice, self._names)
        self.journal.record("user_message", {"text": message})
        self._prompt += [USER, *word_ids(message)]
        self._look()
        self._say(ANSWER, CLOSING, prose.answer(self.dice, self._names).replace("?", "."))
        self.journal.record("session_end", {"reason": "completed"})

    # A turn

    def _turn(self, message: str) -> str:
        """The message that the user writes next."""
        dice = self.dice
        task: Task = "risky" if dice.chance(RISKY_SHARE) else "clear"
        if self.truth.turns:
            self._heard = True
        if len(self._prompt) > _PROMPT_TOKENS_MAX:
            self._compact()
        self.journal.record("user_message", {"text": message})
        self._prompt += [USER, *word_ids(message)]
        if dice.chance(0.5):
            self._look()
        style = self.policy.sample(dice, task)
        turn = TurnTruth(len(self.truth.turns) + 1, task, style.name, style.worth(task))
        self.truth.turns.append(turn)
        if style.asks:
            turn.asked = True
            self._say(STYLE_IDS[style.name], TASK_IDS[task], self._question())
        else:
            turn.worth = self._work(style, task, turn)
            answer = prose.answer(dice, self._names).replace("?", ".")
            self._say(ANSWER, CLOSING, answer)
        return self._react(turn)

    def _look(self) -> None:
        file = self.dice.pick(self.files)
        call = self._call(LOOK, LOOKING, "read_file", {"path": file.path})
        self.journal.wait(self.dice.skewed(1, 4))
        self._result(call, "read_file", outputs.read(self.dice, file.source)[:1_500])

    def _work(self, style: Style, task: Task, turn: TurnTruth) -> float:
        """One edit, or a call that nobody understands; what that was worth."""
        dice = self.dice
        quality = style.mean_quality(task) + (dice.random() + dice.random() - 1) * 0.2
        quality = min(max(quality, 0.0), 1.0)
        self.journal.wait(dice.skewed(2, 30))
        token, asked = STYLE_IDS[style.name], TASK_IDS[task]
        if dice.chance(style.breaks):
            turn.broken = True
            call = self._call(token, asked, "edit_file", {"file": "", "changes": "all of it"})
            output = outputs.failure(dice, self._names, "invalid_arguments")
            self._result(call, "edit_file", output, "invalid_arguments")
            return 0.0
        file = dice.pick(self.files)
        self._names = self._spoken_of(file)
        before = file.text()
        change = self._change(file, style)
        after = file.text()
        said = {"path": file.path, "edit_id": change.edit_id}
        call = self._call(token, asked, "edit_file", said)
        self._result(call, "edit_file", f"{file.path}: +{len(change.wrote)} -{len(change.took)}")
        self.journal.record(
            "edit",
            {
                "edit_id": change.edit_id,
                "call_id": call,
                "path": file.path,
                "before": before,
                "after": after,
                "language": file.source.language.name,
            },
        )
        self._edited_last = True
        self._changes.append(change)
        self._follow(change, style, round(quality, 4))
        return quality * style.done

    def _change(self, file: WorkingFile, style: Style) -> FileChange:
        dice, lines = self.dice, file.lines
        count = dice.between(*style.lines)
        at = self._place(file)
        took = lines[at : at + dice.between(0, min(count, 4))]
        edit_id = f"edit-{len(self._changes) + 1}"
        anchor = lines[at - 1] if at else None
        if len(took) > 2 and dice.chance(0.15):
            come = []
        else:
            comments = round(count * style.comment_share)
            come = [
                file.comment_line(prose.thinking(dice, self._names, 1)) for _ in range(comments)
            ]
            come += file.new_lines(dice, count - comments)
        own = {id(line) for change in self._changes for line in change.wrote}
        for line in took:
            line.reworked = id(line) in own
        lines[at : at + len(took)] = come
        return FileChange(edit_id, file, took, come, anchor)

    def _place(self, file: WorkingFile) -> int:
        """Now and then where the agent was at work before."""
        earlier = [change for change in self._changes if change.file is file and change.stretch()]
        if earlier and self.dice.chance(0.3):
            return file.lines.index(self.dice.pick(earlier[-1].stretch()))
        return self.dice.between(4, max(4, len(file.lines) - 6))

    # What becomes of it

    def _follow(self, change: FileChange, style: Style, quality: float) -> None:
        dice, journal = self.dice, self.journal
        reaction = self.user.reaction(dice, quality, style.comment_share)
        truth = EditTruth(
            change.edit_id,
            len(self.truth.turns),
            change.file.path,
            style.name,
            quality,
            sum(ink_of(line.text) for line in change.wrote or change.took),
            len(change.wrote or change.took),
            reaction,
        )
        self.truth.edits.append(truth)
        made_us = journal.now_us - 1_000  # the edit's own moment
        when_us = made_us + seconds_until_acting(dice) * 1_000_000
        journal.plan(when_us, lambda: self._act(change, truth, by_hand=dice.chance(0.3)))
        if dice.chance(0.2):
            when_us = made_us + seconds_until_acting(dice) * 1_000_000
            journal.plan(when_us, lambda: meddle(dice, change))
        for horizon_s in HORIZONS_S:
            due_us = made_us + horizon_s * 1_000_000
            journal.plan(due_us, partial(_weigh, change, truth, horizon_s))
            if dice.chance(_LOOKED[horizon_s]):
                truth.looked.append(horizon_s)
                seen_us = due_us + dice.between(1, 8_000) * 1_000
                journal.plan(seen_us, lambda: self._observe(change))
            elif dice.chance(0.3):
                journal.plan(due_us + 2_000_000, lambda: self._observe(change, elsewhere=True))

    def _act(self, change: FileChange, truth: EditTruth, *, by_hand: bool) -> None:
        if self._stopped:
            return
        act(self.dice, change, truth.reaction)
        if truth.reaction == "reverted" and not by_hand:
            self.journal.record("feedback", {"kind": "undo", "target": change.edit_id})
            self._heard = True

    def _observe(self, change: FileChange, *, elsewhere: bool = False) -> None:
        payload: Payload = {"path": change.file.path, "text": change.file.text()}
        if elsewhere:
            payload = {"path": change.file.path, "text": "", "branch_changed": True}
        self.journal.record("file_observed", payload | {"edit_ids": [change.edit_id]})

    def _react(self, turn: TurnTruth) -> str:
        dice, names = self.dice, self._names
        turn.worth = round(turn.worth, 4)
        turn.dissatisfied = self.user.is_dissatisfied(dice, turn.worth)
        if self._is_bad(turn) and dice.chance(0.1):
            self._stop()
        elif dice.chance(0.12):
            self.journal.wait(dice.skewed(2, 30))
            thumbs = {"kind": "thumbs", "value": "down" if turn.dissatisfied else "up"}
            self.journal.record("feedback", thumbs)
            self._heard = True
        if turn.dissatisfied:
            return prose.dissatisfied(dice, names, "en")
        if turn.asked or turn.worth < 0.3:
            return prose.request(dice, names)
        return prose.satisfied(dice, names, "en")

    def _is_bad(self, turn: TurnTruth) -> bool:
        edits = [one for one in self.truth.edits if one.turn == turn.turn]
        return turn.broken or any(one.quality < 0.35 for one in edits)

    def _stop(self) -> None:
        """The user has had enough: all of it goes back, at once."""
        self._stopped = True
        self.journal.wait(self.dice.between(2, 20))
        self.journal.record("interrupt", {"reason": "user_stop"})
        for change, truth in reversed(list(zip(self._changes, self.truth.edits, strict=True))):
            change.revert()
            truth.reaction = "reverted"

    def _end(self) -> None:
        dice = self.dice
        self.journal.wait(dice.skewed(3, 600))
        if self._stopped:
            self.journal.record("session_end", {"reason": "user_stop"})
        elif dice.chance(0.95):
            self.journal.record("session_end", {"reason": "completed"})

    def _conclude(self) -> None:
        truth = self.truth
        if truth.consent == "no_train":
            truth.outcome, truth.reason = "excluded", "no_train"
        elif self._calls and (not any(self._calls) or not (self._calls[-1] or self._edited_last)):
            truth.outcome, truth.reason = "negative_by_rule", "invalid_tool_calls"
        elif self._stopped:
            truth.outcome, truth.reason = "negative_by_rule", "abandoned"
        elif not (self._heard or any(HORIZONS_S[0] in one.looked for one in truth.edits)):
            truth.outcome = "censored"

    # What the agent says

    def _call(self, token: int, asked: int, tool: str, arguments: Mapping[str, str]) -> str:
        """A model call with one tool call; the id of the tool call."""
        call_id = f"call-{len(self._calls) + 1}"
        text = prose.lead(self.dice, self._names)
        calls = [{"id": call_id, "name": tool, "arguments": dict(arguments)}]
        self._sample(token, asked, {"text": text, "tool_calls": calls})
        return call_id

    def _say(self, token: int, asked: int, text: str) -> None:
        self.journal.wait(self.dice.skewed(2, 20))
        self._sample(token, asked, {"text": text})

    def _sample(self, token: int, asked: int, said: Payload) -> None:
        self._prompt.append(asked)
        tokens = tokens_of(self.policy, self._prompt, token)
        completion = len(tokens["completion_ids"])
        self._generated += 1
        payload = {
            "call_id": f"gen-{self._generated}",
            "model": self.truth.checkpoint,
            **said,
            "usage": {"prompt": len(self._prompt), "completion": completion},
            "latency_ms": self.dice.skewed(300, 9_000),
            "finish_reason": "tool_calls" if "tool_calls" in said else "stop",
            "tokens": tokens,
        }
        self.journal.record("model_call", payload)
        self._prompt += tokens["completion_ids"]

    def _result(self, call: str, tool: str, output: str, error: str | None = None) -> None:
        payload: Payload = {"call_id": call, "tool": tool, "ok": error is None}
        if error is not None:
            payload["error_class"] = error
        self.journal.record("tool_result", payload | {"output": output})
        self._prompt += [RESULT if error is None else FAILED, *word_ids(output)[:8]]
        self._calls.append(error is None)
        self._edited_last = False

    def _compact(self) -> None:
        before = len(self._prompt)
        self._say(SUMMARY, COMPACTING, prose.recap(self.dice, self._names))
        self._prompt = [SYSTEM, SUMMARY, END]
        self.journal.record(
            "compaction",
            {
                "trigger": "context_limit",
                "tokens_before": before,
                "tokens_after": len(self._prompt),
                "summary_call_id": f"gen-{self._generated}",
            },
        )

    def _question(self) -> str:
        word = self.dice.pick(self._names["plain"])
        return f"Before I change anything: should {word} stay as it is for its other callers?"

    def _spoken_of(self, file: WorkingFile) -> Mapping[str, Sequence[str]]:
        sources = [one.source for one in self.files]
        return Workspace(self.dice, (), sources, file.source).names()


def _weigh(change: FileChange, truth: EditTruth, horizon_s: int) -> None:
    found = change.survival()
    truth.survival[horizon_s] = None if found is None else (round(found[0], 4), round(found[1], 4))
