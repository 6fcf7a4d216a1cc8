"""Generated traffic: events of the sizes, the mix and the compressibility that production has, made
quickly and before anything is measured. Nothing is known of what the sessions are worth; the
simulator makes those whose truth is known."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from penstock_jobs.simulator.files import (
    LANGUAGES,
    CodeLine,
    Language,
    WorkingFile,
    closing_answer,
    file_listing,
    lead_in,
    names_of,
    thinking,
    write_file,
)
from penstock_jobs.simulator.grammar import Dice, Grammar, Names, phrases

Event = dict[str, Any]

CHECKPOINTS = ("ckpt-0011", "ckpt-0012", "ckpt-0013")
#: One session starts about this long after the one before.
_SPACING = timedelta(seconds=7)
_SECOND_US = 1_000_000
_REPOSITORIES = 60
_USERS = 400
_ERROR_CLASSES = (
    "invalid_arguments", "unexpected_environment", "provider_error", "user_aborted", "timeout",
    "unknown",
)  # fmt: skip
_COMMANDS = ("log", "log", "check", "listing", "record", "row", "row", "history", "locked")
_OBSERVED_AFTER_S = (30, 120, 300, 600, 600, 900)

START = datetime(2026, 11, 2, 9, tzinfo=UTC)
_EVENTS_PER_SESSION = 40

_outputs = Grammar(Path(__file__).with_name("tool_outputs.toml"))


@dataclass(frozen=True)
class Traffic:
    """`plain` are NDJSON bodies, `packed` the same in zstd."""

    plain: list[bytes]
    packed: list[bytes]
    events: int


def make_traffic(events: int, batch: int = 100, seed: int = 11) -> Traffic:
    sessions = generate_sessions(events // _EVENTS_PER_SESSION + 200, seed, start=START)
    some = itertools.islice(interleave(sessions, concurrent=200, seed=seed), events)
    codec = pa.Codec("zstd", compression_level=3)
    plain = list(batches(some, batch))
    packed = [codec.compress(body, asbytes=True) for body in plain]
    return Traffic(plain, packed, sum(body.count(b"\n") for body in plain))


def single_events(count: int, seed: int = 13) -> Iterator[bytes]:
    """Bodies of one event each."""
    sessions = generate_sessions(count // _EVENTS_PER_SESSION + 50, seed, start=START)
    for event in itertools.islice(interleave(sessions, concurrent=50, seed=seed), count):
        yield msgspec.json.encode(event)


def generate_sessions(count: int, seed: int, *, start: datetime) -> Iterator[list[Event]]:
    """Sessions in the wire form, each in its own order; the first begins at `start`.

    The same seed gives the same bytes, and session number i does not depend on count. A session
    lasts minutes to an hour; files may still be observed after its `session_end`."""
    naive = start.astimezone(UTC).replace(tzinfo=None)
    for index in range(count):
        dice = Dice(f"traffic:{seed}:{index}")
        yield _Session.create(dice, naive + index * _SPACING).run()


def interleave(sessions: Iterable[list[Event]], concurrent: int, seed: int) -> Iterator[Event]:
    """All events, those of a session in its order, with so many sessions in flight at a time.

    Holds no more than `concurrent` sessions in memory."""
    dice = Dice(f"interleave:{seed}")
    waiting = iter(sessions)
    flying = [iter(session) for session in itertools.islice(waiting, concurrent)]
    while flying:
        at = int(dice.random() * len(flying))
        event = next(flying[at], None)
        if event is not None:
            yield event
        elif (session := next(waiting, None)) is not None:
            flying[at] = iter(session)
        else:
            flying[at] = flying[-1]
            flying.pop()


def batches(events: Iterable[Event], size: int) -> Iterator[bytes]:
    """NDJSON bodies of so many events each; the last may hold fewer."""
    encoder = msgspec.json.Encoder()
    remaining = iter(events)
    while batch := list(itertools.islice(remaining, size)):
        yield encoder.encode_lines(batch)


@dataclass
class _Session:
    dice: Dice
    #: In UTC, without its zone.
    start: datetime
    #: What every event says.
    fields: dict[str, str]
    files: list[WorkingFile]
    context: int
    #: Since the start.
    now_us: int = 0
    events: list[Event] = field(default_factory=list)
    #: The edits of each file.
    edits: dict[str, list[str]] = field(default_factory=dict)
    #: When which file is observed.
    observations: list[tuple[int, WorkingFile]] = field(default_factory=list)

    @classmethod
    def create(cls, dice: Dice, start: datetime) -> "_Session":
        source = dice.pick(("harbor-editor", "harbor-editor", "quill-cli", "merge-bot"))
        fields = {
            "session_id": f"s-{dice.hex(16)}",
            "source": source,
            "checkpoint": dice.pick(CHECKPOINTS),
            "user": f"u-{dice.skewed(1, _USERS):04}",
            "project": f"galehouse/orders-{dice.skewed(0, _REPOSITORIES - 1)}",
        }
        language = dice.pick(LANGUAGES)
        files = [_new_file(dice, language) for _ in range(dice.between(2, 3))]
        return cls(dice, start, fields, files, dice.between(3_000, 9_000))

    def run(self) -> list[Event]:
        dice = self.dice
        self._record("session_start", self._session_start())
        for _ in range(dice.skewed(1, 3) + dice.between(0, 3)):
            self._wait(5, 400)
            self._turn()
            self._observe(self.now_us)
        if dice.chance(0.93):
            self._record("session_end", {"reason": "completed"})
        self._observe(self.now_us + 2_000 * _SECOND_US)
        return self.events

    def _session_start(self) -> Event:
        dice, source = self.dice, self.fields["source"]
        return {
            "client": source,
            "client_version": dice.pick(("4.11.2", "4.12.0")),
            "repo": f"git@git.example.org:{self.fields['project']}.git",
            "branch": "main",
            "commit": dice.hex(40),
            "consent": dice.pick(("train",) * 17 + ("no_train", "no_train", "unknown")),
        }

    def _turn(self) -> None:
        dice = self.dice
        names = names_of(dice, dice.pick(self.files).source, [file.source for file in self.files])
        said = ("request_code", "detail", "detail")
        message = " ".join(phrases("en").expand(act, dice, names) for act in said)
        if dice.chance(0.2):
            kind = dice.pick(("log", "check", "frame", "record"))
            message += "\n\n" + "\n".join(
                _outputs.expand_many(kind, dice, names, dice.between(1, 6))
            )
        self._record("user_message", {"text": message})
        for _ in range(dice.between(1, 3)):
            self._use(names, [self._look(names) for _ in range(dice.pick((1, 1, 1, 2)))])
        for _ in range(dice.pick((0, 1, 1, 1, 2))):
            for _ in range(dice.pick((1, 1, 1, 2))):
                self._edit(names)
            if dice.chance(0.75):
                self._test(names)
        call_id = self._call_model(names, [], closing_answer(dice, names))
        self._end_turn(call_id)

    def _end_turn(self, call_id: str) -> None:
        """What comes up now and then."""
        dice = self.dice
        if dice.chance(0.18):
            thumbs = {"target": call_id, "kind": "thumbs", "value": dice.chance(0.7)}
            self._record("feedback", thumbs)
        if dice.chance(0.05):
            self._record("interrupt", {"call_id": call_id, "reason": "user_stop"})
        if dice.chance(0.06):
            self._record("error", {"message": "upstream answered 529", "error_class": "timeout"})
        if dice.chance(0.1):
            paths = sorted(file.path for file in self.files)
            commit = {"commit": dice.hex(40), "branch": "main", "message": "As asked"}
            self._record("vcs_commit", {**commit, "files": paths})
        if dice.chance(0.03):
            self._record("x_editor_focus", {"focused": False, "files": dice.between(1, 30)})
        if self.context > 90_000:
            tokens = {"tokens_before": self.context, "tokens_after": 9_000}
            self._record("compaction", {"trigger": "limit", **tokens, "summary_call_id": call_id})
            self.context = 9_000

    # Tools: a call's name and arguments, and what the tool prints

    def _look(self, names: Names) -> tuple[str, Event, str]:
        dice = self.dice
        draw = dice.random()
        if draw < 0.36:
            # Agents read far more files than they change.
            file = _new_file(dice, self.files[0].source.language).source
            return "read_file", {"path": file.path}, file_listing(dice, file)
        if draw < 0.56:
            arguments = {"pattern": dice.pick(names["func"]), "path": dice.pick(names["path"])}
            hits = _outputs.expand_many("hit", dice, names, dice.between(4, 33))
            return "search", arguments, "\n".join(hits)
        line = f"{dice.pick(('make', 'git', 'logs', 'db'))} {dice.pick(names['key'])}"
        rows = _outputs.expand_many(dice.pick(_COMMANDS), dice, names, dice.between(4, 50))
        return "run_command", {"command": line}, "\n".join(rows)

    def _test(self, names: Names) -> None:
        dice = self.dice
        failed = 0 if dice.chance(0.6) else dice.skewed(1, 5)
        passed = dice.skewed(3, 160)
        rows = _outputs.expand_many("case", dice, names, min(passed, 40))
        for _ in range(failed):
            rows += _outputs.expand_many("frame", dice, names, dice.between(1, 7))
            rows += _outputs.expand_many("log", dice, names, dice.between(0, 16))
        command = f"run-tests tests/{dice.pick(names['module'])}"
        self._use(names, [("run_tests", {"command": command}, "\n".join(rows))])
        if dice.chance(0.5):
            counts = {"passed": passed, "failed": failed, "ok": not failed}
            self._record("test_result", {"command": command, **counts, "duration_ms": 900})

    def _edit(self, names: Names) -> None:
        dice, file = self.dice, self.dice.pick(self.files)
        lines = file.lines
        at = dice.between(4, max(4, len(lines) - 6))
        took = lines[at : at + dice.between(0, 6)]
        wrote = file.new_lines(dice, dice.between(2, 12))
        around = max(0, at - dice.between(4, 13)), at + dice.between(4, 13)
        before = _text(lines[around[0] : around[1] + len(took)])
        lines[at : at + len(took)] = wrote
        after = _text(lines[around[0] : around[1] + len(wrote)])
        arguments = {"path": file.path, "old_text": _text(took), "new_text": _text(wrote)}
        output = f"{file.path}: +{len(wrote)} -{len(took)}"
        [tool_call] = self._use(names, [("edit_file", arguments, output)], works=True)
        edit_id = dice.hex(16)
        self._record(
            "edit",
            {
                "edit_id": edit_id,
                "call_id": tool_call,
                "path": file.path,
                "before": before,
                "after": after,
                "language": file.source.language.name,
            },
        )
        self.edits.setdefault(file.path, []).append(edit_id)
        draw = dice.random()
        if draw < 0.1:  # the user takes it back
            lines[at : at + len(wrote)] = took
        elif draw < 0.25:  # or changes it
            lines[at : at + 1] = file.new_lines(dice, 2)
        for _ in range(dice.pick((0, 1, 1, 1, 2))):
            due_us = self.now_us + dice.pick(_OBSERVED_AFTER_S) * _SECOND_US
            self.observations.append((due_us, file))

    def _observe(self, until_us: int) -> None:
        due = [entry for entry in self.observations if entry[0] <= until_us]
        self.observations = [entry for entry in self.observations if entry[0] > until_us]
        for due_us, file in sorted(due, key=itemgetter(0)):
            self.now_us = max(self.now_us, due_us)
            payload = {"path": file.path, "edit_ids": self.edits[file.path][-6:]}
            self._record("file_observed", payload | {"text": file.text()})

    # Records

    def _use(
        self, names: Names, tools: list[tuple[str, Event, str]], *, works: bool = False
    ) -> list[str]:
        """A model call with its tool calls, and their results; the ids of the tool calls."""
        dice = self.dice
        calls = [
            {"id": f"call_{dice.hex(24)}", "name": name, "arguments": arguments}
            for name, arguments, _ in tools
        ]
        self._call_model(names, calls, lead_in(dice, names))
        for (name, _, output), call in zip(tools, calls, strict=True):
            self._wait(1, 20)
            result: Event = {"call_id": call["id"], "tool": name, "ok": True, "output": output}
            if not works and dice.chance(0.06):
                error_class = dice.pick(_ERROR_CLASSES)
                failure = _outputs.expand(error_class, dice, names)
                result |= {"ok": False, "error_class": error_class, "output": failure}
            self._record("tool_result", {**result, "duration_ms": 120})
        return [str(call["id"]) for call in calls]

    def _call_model(self, names: Names, calls: list[Event], text: str) -> str:
        dice = self.dice
        self._wait(1, 40)
        call_id = f"gen_{dice.hex(24)}"
        payload: Event = {"call_id": call_id, "model": "composer", "text": text}
        if dice.chance(0.85):
            payload["thinking"] = thinking(dice, names, dice.between(4, 20))
        if calls:
            payload["tool_calls"] = calls
        completion = dice.skewed(100, 2_000)
        payload["usage"] = {
            "prompt": self.context,
            "completion": completion,
            "thinking": completion // 2,
            "cached": self.context - dice.skewed(100, 2_500),
        }
        payload |= {"ttft_ms": dice.skewed(180, 2_500), "latency_ms": completion * 12}
        payload["finish_reason"] = "tool_calls" if calls else "stop"
        self.context += completion + dice.skewed(200, 9_000)
        self._record("model_call", payload)
        return call_id

    def _wait(self, low_s: int, high_s: int) -> None:
        self.now_us += self.dice.skewed(low_s * _SECOND_US, high_s * _SECOND_US)

    def _record(self, kind: str, payload: Event) -> None:
        dice, number = self.dice, len(self.events)
        self.now_us += 1_000  # no two events of a session share a time
        if dice.chance(0.02):  # what a newer client sends
            payload["trace_id"] = dice.hex(32)
        moment = self.start + timedelta(microseconds=self.now_us)
        time = f"{moment.isoformat(timespec='microseconds')}Z"
        event: Event = {"seq": number, "ts": time, "type": kind, **self.fields}
        draw = dice.random()
        if draw > 0.05:
            event["event_id"] = dice.hex(16)
        elif draw > 0.007:
            event["source_key"] = f"{self.fields['source']}:{number}"
        event["payload"] = payload
        self.events.append(event)


def _new_file(dice: Dice, language: Language) -> WorkingFile:
    source = write_file(dice, language, dice.between(2, 3))
    return WorkingFile(source, list(map(CodeLine.of, source.text.splitlines())))


def _text(lines: list[CodeLine]) -> str:
    return "".join(f"{line.text}\n" for line in lines)
