"""Events made of the calls that passed through the proxy."""

import os
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import msgspec
from msgspec import Struct, field

from penstock.doors.proxy.answers import AnswerDraft, ChoiceDraft, problem_of, usage_of_choice
from penstock.doors.proxy.dialogue import (
    Dialogue,
    Labels,
    ModelApi,
    Place,
    SessionBook,
    dialogue_of,
    is_synthetic,
    next_hash,
    text_hash,
)
from penstock.doors.proxy.engine import EngineKind
from penstock.doors.proxy.known_engine import Weights
from penstock.events.event import DROPPED_TYPE
from penstock.events.messages import Message, present
from penstock.ingest.recorder.recorder import Recorder


class RecordedCall(Struct, tag="began", eq=False):
    """A call to record, as the answering process describes it at its start."""

    api: ModelApi
    #: The form of the upstream's answer.
    answers: ModelApi
    labels: Labels
    request: bytes
    engine: EngineKind
    began_us: int
    #: Names the answer if the upstream gives it no id.
    key: str = field(default_factory=lambda: os.urandom(8).hex())
    #: What the engine does where the request says nothing.
    sampling: dict[str, float] = {}
    #: Id between the two processes.
    number: int = 0
    #: Pieces of the answer that were not handed over yet.
    pieces: list[bytes] = field(default_factory=list)
    bytes: int = 0
    #: A part of it found no room, so the answer is not recorded.
    was_dropped: bool = False


@dataclass(slots=True)
class CallEnd:
    #: Status of the upstream's answer; 0 if there was none.
    status: int
    is_stream: bool
    latency_ms: float
    ttft_ms: float | None = None
    is_called_off: bool = False
    problem: str | None = None
    #: What made the answer; the old and the new if they changed meanwhile.
    weights: Sequence[Weights] = ()
    awaits_weights: bool = False
    #: Why its prompt does not continue the answer before it.
    branch_reason: str | None = None


_MIB = 1024 * 1024
_ANSWER_BYTES_MAX = 64 * _MIB
_PROBLEM_CHARS_MAX = 4_000
_STARTS_MAX = 20_000


class CallEvents:
    def __init__(self, recorder: Recorder, tokenizer: str | None = None) -> None:
        self._recorder = recorder
        self._tokenizer = tokenizer
        self._book = SessionBook()
        self._open: dict[RecordedCall, _OpenCall] = {}
        #: System prompt and tools of each session.
        self._given: OrderedDict[str, bytes] = OrderedDict()

    def take(
        self, call: RecordedCall, piece: bytes | None, end: CallEnd | None, *, is_settled: bool
    ) -> None:
        if end is not None:
            self._end(call, end)
            if is_settled:
                self._settle(call, end)
        elif piece is not None:
            if opened := self._open.get(call):
                opened.take(piece)
        else:
            self._begin(call)

    def drop(self, call: RecordedCall, reason: str) -> None:
        opened = self._open.pop(call, None)
        session = opened.place.session_id if opened else call.labels.session or "proxy"
        self._recorder.record(session, DROPPED_TYPE, {"events": 1, "reason": reason})

    def _begin(self, call: RecordedCall) -> None:
        try:
            dialogue = dialogue_of(call.api, call.request)
        except ValueError:  # the upstream will refuse it
            dialogue = Dialogue()
        place = self._book.place(call.labels, dialogue)
        opened = self._open[call] = _OpenCall(call, dialogue, place, self._recorder)
        self._start(opened)
        answered_before = place.new_from > 0
        names: dict[str, str] = {}
        for at, message in enumerate(dialogue.messages):
            names |= {each["id"]: each["name"] for each in message.calls}
            if at >= place.new_from:
                # The answer to a recorded call comes back in the client's own form.
                is_ours = message.role == "assistant" and answered_before and at == place.new_from
                if not is_ours:
                    self._say(opened, message, at, names)
        self._book.end(call.labels, place, place.end)

    def _start(self, opened: "_OpenCall") -> None:
        call, place, dialogue = opened.call, opened.place, opened.dialogue
        given = msgspec.json.encode([dialogue.system, dialogue.tools])
        known = self._given.get(place.session_id)
        self._given[place.session_id] = given
        self._given.move_to_end(place.session_id)
        if len(self._given) > _STARTS_MAX:
            self._given.popitem(last=False)
        if known is None:
            start = {
                "client": call.labels.client,
                "consent": call.labels.consent,
                "task_id": call.labels.task,
                "group_id": call.labels.group,
                "parent_session": place.parent,
                "link": "subagent" if place.parent else None,
                "system": dialogue.system,
                "tools": dialogue.tools,
            }
            opened.record("session_start", start, "start", call.began_us - 1)
        elif known != given:
            opened.given = {"system": dialogue.system, "tools": dialogue.tools}
        if place.is_compacted:
            key = f"c-{place.hashes[0]:016x}"
            opened.record("compaction", {}, key, call.began_us - 1)

    def _say(
        self, opened: "_OpenCall", message: Message, at: int, names: Mapping[str, str]
    ) -> None:
        prefix = f"{opened.place.hashes[at]:016x}"

        def record(kind: str, payload: Mapping[str, Any], mark: str) -> None:
            ts_us = opened.call.began_us + min(opened.said, 1_000_000)
            opened.record(kind, payload, f"{mark}-{prefix}", ts_us)
            opened.said += 1

        for nth, output in enumerate(message.outputs):
            tool = names.get(output.call_id or "")
            result = {
                "call_id": output.call_id,
                "tool": tool,
                "ok": output.ok,
                "output": output.output,
            }
            record("tool_result", result, f"r{nth or ''}")
        if message.role == "system":
            record("x_system_message", {"text": message.text}, "s")
        elif message.role == "assistant":  # an answer from before the proxy was used
            copied = {"call_id": f"m-{prefix}", "is_copied_context": True}
            record("model_call", _said(message) | copied, "m")
        elif message.text or message.others:
            synthetic = is_synthetic(message) or None
            said = {"text": message.text or "", "content": message.content, "synthetic": synthetic}
            record("user_message", said, "u")

    def _end(self, call: RecordedCall, end: CallEnd) -> None:
        opened = self._open.get(call)
        if opened is None or opened.has_ended:
            return
        draft = opened.end(end)
        if end.status >= 400 or draft.was_cut or call.was_dropped:
            return
        prompt = opened.dialogue.prompt
        for choice in draft.choices.values():
            after = opened.hash_with(choice.message())
            length = None if prompt is None else len(prompt) + len("".join(choice.texts))
            self._book.end(call.labels, opened.place, after, length=length)
        if call.api is ModelApi.RESPONSES and draft.id:
            self._book.end(call.labels, opened.place, text_hash(draft.id))

    def _settle(self, call: RecordedCall, end: CallEnd) -> None:
        opened = self._open.get(call)
        if opened is None or call.was_dropped:
            self.drop(call, "proxy_full")
            return
        del self._open[call]
        ts_us = call.began_us + round(1000 * end.latency_ms)
        draft = opened.draft
        problem = opened.refusal(end.status) if end.status >= 400 else end.problem or draft.problem
        if draft.was_cut:
            self._recorder.record(
                opened.place.session_id, DROPPED_TYPE, {"events": 1, "reason": "answer_too_large"}
            )
        elif end.status < 400 and draft.choices:
            self._answer(opened, end, ts_us)
        call_id = draft.id or call.key
        if end.is_called_off:
            why = {"call_id": call_id, "reason": "the client closed the connection"}
            opened.record("interrupt", why, f"i-{call.key}", ts_us + 1)
        elif problem is not None:
            payload = {
                "message": problem[:_PROBLEM_CHARS_MAX],
                "error_class": "provider_error",
                "call_id": call_id,
                "status": end.status or None,
            }
            opened.record("error", payload, f"e-{call.key}", ts_us + 1)

    def _answer(self, opened: "_OpenCall", end: CallEnd, ts_us: int) -> None:
        call, draft = opened.call, opened.draft
        for number, choice in sorted(draft.choices.items()):
            message = choice.message()
            usage = usage_of_choice(draft.usage if len(draft.choices) == 1 else {}, choice)
            called_off = "abort" if end.is_called_off or end.problem else None
            tokens = _tokens(draft, choice, end.weights, call.labels.version, self._tokenizer)
            # Each choice is a call of its own.
            nth = f":{number}" if len(draft.choices) > 1 else ""
            payload = _said(message) | opened.given | {
                "call_id": (draft.id or call.key) + nth,
                "model": draft.model or opened.dialogue.model,
                "usage": usage or None,
                "latency_ms": round(end.latency_ms, 3),
                "ttft_ms": None if end.ttft_ms is None else round(end.ttft_ms, 3),
                "finish_reason": choice.finish_reason or called_off,
                "sampling": (call.sampling | opened.dialogue.sampling) or None,
                "tokens": tokens,
                "branch_reason": end.branch_reason,
                "unreadable_events": draft.unreadable or None,
            }  # fmt: skip
            checkpoint = call.labels.checkpoint or _checkpoint(choice, end.weights)
            key = f"m-{opened.hash_with(message):016x}{nth}"
            opened.record("model_call", payload, key, ts_us, checkpoint)


class _OpenCall:
    def __init__(
        self, call: RecordedCall, dialogue: Dialogue, place: Place, recorder: Recorder
    ) -> None:
        self.call, self.dialogue, self.place = call, dialogue, place
        self._recorder = recorder
        #: System prompt and tools, if they differ from the session's.
        self.given: dict[str, Any] = {}
        self.draft = AnswerDraft(call.answers, _ANSWER_BYTES_MAX)
        self.has_ended = False
        self.said = 0
        self._first: list[bytes] = []

    def take(self, piece: bytes) -> None:
        if not self.draft.is_stream and not self._first:
            self.draft.is_stream = piece.lstrip()[:1] not in (b"{", b"[")
        self._first = self._first or [piece[:_PROBLEM_CHARS_MAX]]
        self.draft.take(piece)

    def end(self, end: CallEnd) -> AnswerDraft:
        self.has_ended = True
        if end.status < 400:
            self.draft.end()
        return self.draft

    def hash_with(self, answer: Message) -> int:
        if self.dialogue.prompt is not None:
            return text_hash(self.dialogue.prompt + (answer.text or ""))
        return next_hash(self.place.end, answer)

    def refusal(self, status: int) -> str:
        body = b"".join(self._first)
        with suppress(ValueError, RecursionError):
            return f"{status}: {problem_of(msgspec.json.decode(body))}"
        return f"{status}: {body.decode('utf-8', 'replace')}"

    def record(
        self,
        kind: str,
        payload: Mapping[str, Any],
        key: str,
        ts_us: int,
        checkpoint: str | None = None,
    ) -> None:
        labels = self.call.labels
        common = {
            "event_id": key,
            "ts": ts_us,
            "checkpoint": checkpoint or labels.checkpoint,
            "user": labels.user,
            "project": labels.project,
        }
        self._recorder.record(self.place.session_id, kind, present(payload), present(common))


def _said(message: Message) -> dict[str, Any]:
    calls = [present(call) for call in message.calls] or None
    return {"text": message.text, "thinking": message.thinking, "tool_calls": calls}


#: An event with more would find no room in the recorder.
_EXPERTS_CHARS_MAX = 8 * _MIB


def _tokens(
    draft: AnswerDraft,
    choice: ChoiceDraft,
    weights: Sequence[Weights],
    version: int | None,
    tokenizer: str | None,
) -> dict[str, Any] | None:
    """The tokens that an engine reported, with log-probabilities only if each token has one."""
    prompt = choice.prompt_ids or draft.choice().prompt_ids
    if not prompt or not choice.ids:
        return None
    ids, logprobs = choice.ids.tolist(), choice.logprobs.tolist()
    unscored: list[int] = []
    if len(logprobs) == len(ids) - 1 and choice.stop_id == ids[-1]:
        # SGLang's streams have no log-probability for the token that ends an answer.
        ids, unscored = ids[:-1], ids[-1:]
    count = len(ids)
    told = [(start, Weights.named(name).version) for start, name in choice.version_runs]
    if not told or any(number is None for _, number in told):
        # Where they changed is unknown: the lower version counts for all but the last token, also
        # where a canary ended and its engine went back.
        known = sorted(each.version for each in weights if each.version is not None)
        told = [*zip((0, count - 1), known, strict=False)] if len(known) == len(weights) else []
    if not told or any(number is None for _, number in told):
        told = [] if version is None else [(0, version)]
    # The second of two at one place is left out: of one token, the older version counts.
    starts = {start: number for start, number in reversed(told) if start < count}
    runs = [[start, starts[start]] for start in sorted(starts)]
    return present(
        {
            "prompt_ids": prompt,
            "completion_ids": ids,
            "unscored_ids": unscored or None,
            "logprobs": logprobs if len(logprobs) == count else None,
            "tokenizer": tokenizer,
            "policy_version_runs": runs or None,
            "routed_experts": _experts(choice.experts) if choice.experts else None,
        }
    )


def _experts(written: str) -> dict[str, Any] | None:
    import numpy as np  # seldom needed

    if len(written) <= _EXPERTS_CHARS_MAX:
        with suppress(ValueError, EOFError, OSError):
            rows = np.load(BytesIO(b64decode(written)), allow_pickle=False)
            data = b64encode(rows.tobytes()).decode()
            return {"data": data, "shape": list(rows.shape), "dtype": rows.dtype.name}
    return None


def _checkpoint(choice: ChoiceDraft, weights: Sequence[Weights]) -> str | None:
    """The older of several, since training leaves out what is too old or of no known age."""
    told = (*(Weights.named(name) for _, name in choice.version_runs), *weights)
    return next((each.checkpoint for each in told if each.checkpoint), None)
