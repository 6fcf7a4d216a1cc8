"""One session, lived through: a user asks, the agent works, time shows what its work was worth."""

import heapq
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock_jobs.simulator import outputs, prose
from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.workspace import Edit, Workspace
from tests.support.recorder import Payload, Recorder

SECOND = 1000
#: When an editor looks again at a file that the agent changed.
OBSERVED_AFTER_S = (30, 120, 300, 600, 600, 900)
CONTEXT_TOKENS_MAX = 90_000


class Tool(NamedTuple):
    """A tool call that the model asks for, and how it will end."""

    name: str
    arguments: dict[str, Any]
    output: str
    error_class: str | None = None


class Simulation:
    """Runs once. Quality, from 0 to 1, is how often the agent's work pleases."""

    def __init__(self, dice: Dice, recorder: Recorder, quality: float) -> None:
        self._dice = dice
        self._recorder = recorder
        self._quality = quality
        self._workspace = Workspace.create(dice)
        self._names = self._workspace.names()
        self._language = dice.pick(prose.LANGUAGES)
        self._context = dice.between(3_000, 9_000)
        self._turn_edits: list[Edit] = []
        self._call_id = ""
        # What time will do: (when, order of planning, deed). The order keeps deeds uncompared.
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0

    def run(self, start: Payload) -> None:
        self._recorder.record("session_start", start)
        message = prose.request(self._dice, self._names)
        for _ in range(self._dice.skewed(1, 3) + self._dice.between(0, 3)):
            self._wait(self._dice.skewed(5, 400) * SECOND)
            self._turn(message)
            message = self._judge()
        self._end()

    # Time

    def _wait(self, milliseconds: int) -> None:
        """Let time pass, and what was planned for it happen."""
        until = self._recorder.now_ms + milliseconds
        while self._plans and self._plans[0][0] <= until:
            due, _, deed = heapq.heappop(self._plans)
            self._recorder.now_ms = max(self._recorder.now_ms, due)
            deed()
        self._recorder.now_ms = max(self._recorder.now_ms, until)

    def _plan(self, seconds: int, deed: Callable[[], None]) -> None:
        self._planned += 1
        due = self._recorder.now_ms + seconds * SECOND + self._dice.between(0, 8 * SECOND)
        heapq.heappush(self._plans, (due, self._planned, deed))

    # A turn

    def _turn(self, message: str) -> None:
        dice = self._dice
        self._names = self._workspace.names()
        self._turn_edits = []
        if dice.chance(0.2):
            message += "\n\n" + outputs.paste(dice, self._names)
        self._recorder.record("user_message", {"text": message})
        if dice.chance(0.04):
            self._recorder.record(
                "x_editor_focus", {"focused": False, "files": dice.between(1, 30)}
            )
        for step in self._steps():
            if dice.chance(0.015):
                self._error()
            if dice.chance(0.01):
                self._interrupt()
                return
            step()
        if self._context > CONTEXT_TOKENS_MAX:
            self._compact()
        self._model_call([], prose.answer(dice, self._names))
        if self._turn_edits and dice.chance(0.12):
            self._commit()

    def _steps(self) -> list[Callable[[], None]]:
        """First look, then change and check, as often as it takes."""
        dice = self._dice
        steps = [self._explore] * dice.between(1, 3)
        for _ in range(dice.pick((0, 1, 1, 1, 2))):
            steps += [self._edit] * dice.pick((1, 1, 1, 2))
            if dice.chance(0.75):
                steps.append(self._check)
        return steps

    def _explore(self) -> None:
        tools = [self._look() for _ in range(self._dice.pick((1, 1, 1, 2)))]
        self._use(tools, lambda: self._dice.skewed(20, 4_000))

    def _look(self) -> Tool:
        dice, names, files = self._dice, self._names, self._workspace.files
        draw = dice.random()
        if draw < 0.36:
            # Agents read far more files than they change.
            file = self._workspace.elsewhere() if dice.chance(0.75) else dice.pick(files)
            return self._may_fail("read_file", {"path": file.path}, outputs.read(dice, file))
        if draw < 0.56:
            arguments = {"pattern": dice.pick(names["func"]), "path": dice.pick(names["path"])}
            return self._may_fail("search", arguments, outputs.search(dice, files, names))
        line = f"{dice.pick(('make', 'git', 'logs', 'db'))} {dice.pick(names['key'])}"
        arguments = {"command": f"{line} --{dice.pick(names['word'])} {dice.pick(names['num'])}"}
        return self._may_fail("run_command", arguments, outputs.command(dice, names))

    def _check(self) -> None:
        dice, names = self._dice, self._names
        failed = 0 if dice.chance(0.6) else dice.skewed(1, 5)
        passed = dice.skewed(3, 160)
        output = outputs.test_run(dice, names, passed, failed)
        command = f"run-tests tests/{dice.pick(names['module'])}"
        tool = self._may_fail("run_tests", {"command": command}, output)
        milliseconds = dice.skewed(400, 90_000)
        self._use([tool], lambda: milliseconds)
        if tool.error_class is None and dice.chance(0.5):
            result = {"command": command, "passed": passed, "failed": failed, "ok": not failed}
            self._recorder.record("test_result", {**result, "duration_ms": milliseconds})

    def _edit(self) -> None:
        dice = self._dice
        # Time passes before the change is made, not between the call and its edit: the text
        # that the edit replaces has to be the text that the file has.
        self._wait(dice.skewed(1_200, 30_000))
        edit = self._workspace.edit()
        path = edit.file.path
        arguments = {"path": path, "old_text": edit.old_text, "new_text": edit.new_text}
        added, removed = edit.new_text.count("\n"), edit.old_text.count("\n")
        tool = self._may_fail("edit_file", arguments, f"{path}: +{added} -{removed}")
        if tool.error_class is not None:
            self._workspace.drop(edit)
        calls = self._record_model_call([tool], prose.lead(dice, self._names))
        self._recorder.now_ms += dice.between(5, 60)
        self._record_result(tool, calls[0]["id"], dice.between(4, 50))
        if tool.error_class is None:
            self._record_edit(edit, calls[0]["id"])

    def _may_fail(self, name: str, arguments: dict[str, Any], output: str) -> Tool:
        dice = self._dice
        if dice.chance(0.94):
            return Tool(name, arguments, output)
        error_class = dice.pick(outputs.ERROR_CLASSES)
        failure = outputs.failure(dice, self._names, error_class)
        return Tool(name, arguments, failure, error_class)

    def _use(self, tools: Sequence[Tool], duration: Callable[[], int]) -> None:
        calls = self._model_call(tools, prose.lead(self._dice, self._names))
        for tool, call in zip(tools, calls, strict=True):
            milliseconds = duration()
            self._wait(milliseconds)
            self._record_result(tool, call["id"], milliseconds)

    # Records

    def _model_call(self, tools: Sequence[Tool], text: str) -> list[dict[str, Any]]:
        self._wait(self._dice.skewed(900, 40_000))
        return self._record_model_call(tools, text)

    def _record_model_call(self, tools: Sequence[Tool], text: str) -> list[dict[str, Any]]:
        dice = self._dice
        self._call_id = f"gen_{dice.hex(24)}"
        calls = [
            {"id": f"call_{dice.hex(24)}", "name": tool.name, "arguments": tool.arguments}
            for tool in tools
        ]
        payload: Payload = {"call_id": self._call_id, "model": "composer", "text": text}
        thinking = ""
        if dice.chance(0.85):
            thinking = prose.thinking(dice, self._names, dice.between(4, 20))
            payload["thinking"] = thinking
        if calls:
            payload["tool_calls"] = calls
        payload |= self._costs(len(text) + len(str(calls)), len(thinking))
        payload["finish_reason"] = "tool_calls" if calls else "stop"
        if dice.chance(0.3):
            payload["sampling"] = {"temperature": dice.pick((0.2, 0.7, 1.0)), "top_p": 0.95}
        self._recorder.record("model_call", payload)
        return calls

    def _costs(self, text_chars: int, thinking_chars: int) -> Payload:
        dice = self._dice
        thinking = thinking_chars // 4
        completion = text_chars // 4 + thinking
        usage = {
            "prompt": self._context,
            "completion": completion,
            "thinking": thinking,
            "cached": self._context - dice.skewed(100, 2_500),
        }
        self._context += completion + dice.skewed(200, 9_000)
        ttft = dice.skewed(180, 2_500)
        return {
            "usage": usage,
            "ttft_ms": ttft,
            "latency_ms": ttft + completion * dice.between(9, 24),
        }

    def _record_result(self, tool: Tool, call_id: str, milliseconds: int) -> None:
        payload: Payload = {"call_id": call_id, "tool": tool.name, "ok": tool.error_class is None}
        if tool.error_class is not None:
            payload["error_class"] = tool.error_class
        self._recorder.record(
            "tool_result", {**payload, "output": tool.output, "duration_ms": milliseconds}
        )

    def _record_edit(self, edit: Edit, call_id: str) -> None:
        self._turn_edits.append(edit)
        self._recorder.record(
            "edit",
            {
                "edit_id": edit.edit_id,
                "call_id": call_id,
                "path": edit.file.path,
                "before": edit.before,
                "after": edit.after,
                "language": edit.file.language.name,
            },
        )
        for seconds in self._dice.some(OBSERVED_AFTER_S, self._dice.pick((0, 1, 1, 1, 2))):
            self._plan(seconds, lambda: self._observe(edit))

    def _observe(self, edit: Edit) -> None:
        file = edit.file
        edits = self._workspace.edits[file.path]
        payload: Payload = {"path": file.path, "edit_ids": [each.edit_id for each in edits[-6:]]}
        if file not in self._workspace.files:
            payload["deleted"] = True
        elif edit.undo is not None and self._dice.chance(0.02):
            other = "".join(map("".join, edit.undo))
            payload |= {"text": file.head + other, "branch_changed": True}
        else:
            payload["text"] = file.text()
        self._recorder.record("file_observed", payload)

    def _error(self) -> None:
        dice = self._dice
        kind = dice.pick(("provider_error", "timeout", "unknown"))
        message = outputs.failure(dice, self._names, kind)
        self._recorder.record("error", {"message": message, "error_class": kind})
        self._wait(dice.skewed(500, 20_000))

    def _interrupt(self) -> None:
        reason = self._dice.pick(("user_stop", "new_message", "window_closed"))
        self._recorder.record("interrupt", {"call_id": self._call_id, "reason": reason})

    def _compact(self) -> None:
        dice, before = self._dice, self._context
        self._model_call([], prose.recap(dice, self._names))
        self._context = dice.between(6_000, 15_000)
        self._recorder.record(
            "compaction",
            {
                "trigger": "context_limit",
                "tokens_before": before,
                "tokens_after": self._context,
                "summary_call_id": self._call_id,
            },
        )

    def _commit(self) -> None:
        dice = self._dice
        self._recorder.record(
            "vcs_commit",
            {
                "commit": dice.hex(40),
                "branch": f"{dice.pick(self._names['module'])}/{dice.pick(self._names['plain'])}",
                "message": prose.title(dice, self._names),
                "files": sorted({edit.file.path for edit in self._turn_edits}),
            },
        )

    # What the user makes of it

    def _judge(self) -> str:
        """Decide how the turn was received; return what the user says next."""
        dice = self._dice
        pleased = dice.chance(self._quality)
        for edit in self._turn_edits:
            self._plan_fate(edit, pleased)
        if dice.chance(0.18):
            self._wait(dice.skewed(2, 40) * SECOND)
            self._feedback(pleased)
        if not pleased and dice.chance(0.8):
            return prose.dissatisfied(dice, self._names, self._language)
        if dice.chance(0.6):
            return prose.satisfied(dice, self._names, self._language)
        return prose.request(dice, self._names)

    def _plan_fate(self, edit: Edit, pleased: bool) -> None:
        draw = self._dice.random()
        reverted, changed = (0.03, 0.2) if pleased else (0.35, 0.65)
        if draw < reverted:
            self._plan(self._dice.skewed(5, 400), lambda: self._workspace.revert(edit))
        elif draw < changed:
            self._plan(self._dice.skewed(15, 800), lambda: self._workspace.touch(edit))

    def _feedback(self, pleased: bool) -> None:
        dice = self._dice
        edit = dice.pick(self._turn_edits) if self._turn_edits else None
        if edit and dice.chance(0.5):
            kind = "accept" if pleased else dice.pick(("reject", "undo"))
            self._recorder.record("feedback", {"target": edit.edit_id, "kind": kind})
            return
        payload: Payload = {"target": self._call_id, "kind": "thumbs", "value": pleased}
        if dice.chance(0.3):
            payload |= {
                "kind": "rating",
                "value": dice.between(4, 5) if pleased else dice.between(1, 3),
            }
        elif dice.chance(0.3):
            say = prose.satisfied if pleased else prose.dissatisfied
            payload |= {"kind": "comment", "comment": say(dice, self._names, self._language)}
            del payload["value"]
        self._recorder.record("feedback", payload)

    def _end(self) -> None:
        """The session ends, mostly with an event; files are looked at until later."""
        dice = self._dice
        self._wait(dice.skewed(3, 900) * SECOND)
        if dice.chance(0.93):
            reason = dice.pick(("completed",) * 7 + ("user_stop", "user_stop", "timeout", "crash"))
            self._recorder.record("session_end", {"reason": reason})
        self._wait(2_000 * SECOND)
