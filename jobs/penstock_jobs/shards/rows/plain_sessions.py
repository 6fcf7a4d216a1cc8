"""Plain sessions: nothing in them has to be reordered, completed or left out.

A session is plain if it continues no other, each tool result follows its call, and nothing was
interrupted, summarized, copied or redacted. Most sessions are. One pass over a slice decodes each
payload once. Other sessions are read as conversations, which give the same rows for a plain one;
tests compare both.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, Struct

from penstock.shards.schema import ROLES
from penstock_jobs.shards.conversation.conversation import (
    OpenAiCall,
    OpenAiMessage,
    SequenceEnd,
    openai_call,
    plain_end,
)
from penstock_jobs.shards.conversation.reader import NO_MODEL
from penstock_jobs.shards.conversation.session_events import (
    DECODERS,
    ModelCallPayload,
    SessionStartPayload,
    payload_views,
    temperature_of,
    text_of,
    tools_of,
)
from penstock_jobs.shards.conversation.token_payload import COMMA_WITHIN, ExpectedTokens, is_digest

_USER, _ASSISTANT, _TOOL = (ROLES.index(role) for role in ("user", "assistant", "tool"))
_IRREGULAR = ("compaction", "interrupt", "error")


class CallTokens(Struct, gc=False):
    """Tokens of a call, with all lists undecoded."""

    prompt_ids: Raw = Raw(b"null")
    completion_ids: Raw = Raw(b"null")
    logprobs: Raw = Raw(b"null")
    tokenizer: str | None = None
    template: str | None = None
    policy_version_runs: Raw = Raw(b"null")
    routed_experts: Raw = Raw(b"null")
    redacted: bool = False


class CallPayload(ModelCallPayload, gc=False):
    tokens: CallTokens | None = None  # type: ignore[assignment]  # decoded with the rest


_DECODES: dict[str, Callable[[memoryview], Any]] = {
    **{kind: each.decode for kind, each in DECODERS.items() if kind not in _IRREGULAR},
    "model_call": msgspec.json.Decoder(CallPayload).decode,
}


_encoder = msgspec.json.Encoder()


class PlainCall(NamedTuple):
    """A model call at a row of the slice, with role and event of the answered message."""

    row: int
    turn: int
    after: int
    after_seq: int | None
    seq: int | None
    #: Its id, and ids of its tool calls.
    names: tuple[str | None, ...]


@dataclass(slots=True)
class PlainSession:
    """A session while it is read. `finish` keeps what a row needs, without payloads."""

    session_id: str
    calls: list[PlainCall] = field(default_factory=list)
    payloads: list[CallPayload] = field(default_factory=list)
    #: Undecoded ids of calls: alternately a prompt's addition and the completion.
    texts: list[bytes] = field(default_factory=list)
    start: SessionStartPayload = field(default_factory=SessionStartPayload)
    end_reason: str | None = None
    tools: str | None = None
    #: Their numbers of ids.
    counts: list[int] = field(default_factory=list)
    logprobs: list[bytes] = field(default_factory=list)
    versions: list[bytes] = field(default_factory=list)
    temperatures: list[float | None] = field(default_factory=list)
    tokenizer: str = ""
    template: str | None = None
    model: str | None = None
    messages: str = ""
    end: SequenceEnd = field(default_factory=lambda: plain_end(None, None))
    _ids_before: bytes = b""
    _system: str | None = None
    _messages: list[OpenAiMessage] = field(default_factory=list)
    _answered: int = 0
    _turn: int = 0
    _after: tuple[int, int | None] = (_USER, None)
    #: Tool calls that wait for results, the next one last.
    _open: list[OpenAiCall] = field(default_factory=list)
    _call_ids: set[str | None] = field(default_factory=set)
    _seqs: set[int | None] = field(default_factory=set)

    def finish(self, expected: ExpectedTokens) -> bool:
        """Compute the row's facts. Returns False if the tokens are not one branch."""
        calls = [payload.tokens or CallTokens() for payload in self.payloads]
        first, last = calls[0], self.payloads[-1]
        self.tokenizer = (first.tokenizer or "").removeprefix("sha256:")
        self.template = (first.template or "").removeprefix("sha256:") or None
        if is_digest(self.tokenizer) and expected.tokenizer not in (None, self.tokenizer):
            return False
        for tokens in calls:
            same = (tokens.tokenizer, tokens.template) == (first.tokenizer, first.template)
            if tokens.redacted or not same or bytes(tokens.routed_experts) != b"null":
                return False
            reported = bytes(tokens.logprobs)
            self.logprobs.append(b"" if reported == b"null" else reported[1:-1])
            self.versions.append(bytes(tokens.policy_version_runs))
        if any(self.logprobs) and not all(self.logprobs):
            return False
        self.counts = [count_of(text) for text in self.texts]
        self.temperatures = [temperature_of(payload) for payload in self.payloads]
        messages = self._messages[: self._answered]
        if messages and self._system:
            messages.insert(0, OpenAiMessage("system", self._system))
        self.messages = _encoder.encode(messages).decode()
        self.end, self.model = plain_end(last.finish_reason, self.end_reason), last.model
        self.payloads, self._messages, self._open, self._ids_before = [], [], [], b""
        return True

    @property
    def is_plain(self) -> bool:
        """Whether the session is plain, after all of its events."""
        attempt = self.start.task_id is not None or self.start.group_id is not None
        # An answer after an answer may be a regenerated one.
        again = any(call.after == _ASSISTANT for call in self.calls)
        linked = self.start.parent_session is not None or self.start.link is not None
        return bool(self.calls) and not linked and (attempt or not again)

    def add(self, kind: str, payload: Any, row: int, seq: int | None) -> bool:
        """Add an event. Returns False if the session is not plain."""
        match kind:
            case "model_call":
                return self._add_call(payload, row, seq)
            case "tool_result":
                return self._add_result(payload, seq)
            case "user_message":
                if self._open or payload.is_copied_context:
                    return False
                self._turn += 1
                self._messages.append(OpenAiMessage("user", payload.text))
                self._after = (_USER, seq)
            case "session_start":
                self.start = payload
                self._offer(payload)
            case "session_end":
                self.end_reason = payload.reason
        return True

    def _offer(self, payload: SessionStartPayload | ModelCallPayload) -> None:
        if self.tools is None and bytes(payload.tools) != b"null":
            self.tools = tools_of(payload.tools)
        self._system = self._system or payload.system

    def _add_call(self, payload: CallPayload, row: int, seq: int | None) -> bool:
        call_id, asked = payload.call_id, payload.tool_calls or ()
        again = payload.regenerates is not None or payload.is_copied_context
        known = seq in self._seqs or call_id in self._call_ids
        if payload.tokens is None or self._open or payload.model == NO_MODEL or again or known:
            return False
        if not self._add_ids(payload.tokens):
            return False
        self._seqs |= {seq} - {None}
        self._call_ids |= {call_id} - {None}
        self._offer(payload)
        names = (call_id, *[call.id for call in asked])
        self.calls.append(PlainCall(row, self._turn, *self._after, seq, names))
        self.payloads.append(payload)
        content, reasoning = payload.text or "", payload.thinking or None
        calls = [openai_call(call.id, call.name, text_of(call.arguments, "{}")) for call in asked]
        self._open = calls[::-1]
        if content or reasoning or calls:
            self._messages.append(OpenAiMessage("assistant", content, reasoning, calls or None))
            self._answered = len(self._messages)
            self._after = (_ASSISTANT, seq)
        return True

    def _add_ids(self, tokens: CallTokens) -> bool:
        """Add ids, compared as text. Returns False if they do not continue earlier ones."""
        prompt, written = bytes(tokens.prompt_ids), bytes(tokens.completion_ids)
        before, begin = self._ids_before, b"[" + self._ids_before
        if not (prompt.startswith(begin) and written.startswith(b"[")):
            return False
        more, written = prompt[len(begin) : -1], written[1:-1]
        added = more
        if before and more:
            added = more[1:]
            if not (more.startswith(b",") and added):
                return False
        if not written or not (before or added):
            return False
        read = before + more
        comma = b", " if b", " in read[:COMMA_WITHIN] else b","
        self._ids_before = read + comma + written
        self.texts += [added, written]
        return True

    def _add_result(self, payload: Any, seq: int | None) -> bool:
        if not self._open or not payload.call_id or payload.call_id != self._open[-1].id:
            return False
        name = payload.tool or self._open[-1].function.name
        self._open.pop()
        result = OpenAiMessage(
            "tool", text_of(payload.output), tool_call_id=payload.call_id, name=name
        )
        self._messages.append(result)
        self._after = (_TOOL, seq)
        return True


def count_of(text: bytes) -> int:
    return text.count(b",") + 1 if text else 0


def read_plain(
    rows: pa.Table, redacted: pa.ChunkedArray, wanted: Collection[str], expected: ExpectedTokens
) -> Iterator[PlainSession]:
    """Yield plain ones among wanted sessions.

    `rows` are ordered rows of one tenant's segments, `redacted` masks those with redacted text."""
    masked = set(rows["session_id"].filter(redacted).unique().to_pylist())
    said = pc.is_in(rows["type"], pa.array(DECODERS, pa.string()))
    places = np.flatnonzero(said.to_numpy())
    events = rows.select(["session_id", "type", "seq"]).take(pa.array(places))
    views = payload_views(rows["payload"])
    names, kinds, seqs = (column.to_pylist() for column in events.columns)
    firsts = [at for at in range(len(names)) if not at or names[at] != names[at - 1]]
    rows_of = places.tolist()
    for first, end in pairwise([*firsts, len(names)]):
        if (name := names[first]) not in wanted or name in masked:
            continue
        session = PlainSession(name)
        own = zip(rows_of[first:end], kinds[first:end], seqs[first:end], strict=True)
        if _add_events(session, own, views) and session.is_plain and session.finish(expected):
            yield session


def _add_events(
    session: PlainSession, events: Iterable[tuple[int, str, int | None]], views: list[memoryview]
) -> bool:
    """Add events. Returns False once the session turns out not to be plain."""
    try:
        for row, kind, seq in events:
            decode = _DECODES.get(kind)
            if decode is None or not session.add(kind, decode(views[row]), row, seq):
                return False
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
