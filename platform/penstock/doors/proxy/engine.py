"""Extra questions to each engine, and their removal from its answers.

vLLM and SGLang give token ids and log-probabilities if a request asks for them. The proxy asks, and
removes from the answer what the client did not ask for. The client gets the engine's own bytes."""

import enum
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

from penstock.doors.proxy.dialogue import ModelApi

# JSON objects are edited in their text, so every other byte stays as it was.

_object_decoder = msgspec.json.Decoder(dict[str, Raw])
_array_decoder = msgspec.json.Decoder(list[Raw])
_NAME = re.compile(rb'[ \t\r\n]*+("(?:[^"\\]++|\\.)*+"[ \t\r\n]*+:[ \t\r\n]*+)', re.DOTALL)
_BETWEEN = re.compile(rb"[ \t\r\n]*+,?[ \t\r\n]*+")


class Member(NamedTuple):
    """A member of a JSON object: where its name's quote, its value, and the rest begin."""

    start: int
    value: int
    end: int


class MemberChange(NamedTuple):
    start: int
    end: int
    content: bytes = b""


def members_of(text: bytes, start: int = 0, end: int | None = None) -> dict[str, Member]:
    """Find the members of a JSON object, in their order.

    Raises ValueError if it is not an object or repeats a name."""
    part = text if end is None and not start else text[start:end]
    found: dict[str, Member] = {}
    place = start + part.find(b"{") + 1
    for name, raw in _object_decoder.decode(part).items():
        head = _NAME.match(text, place)
        value = head.end() if head else 0
        written = bytes(raw)  # to compare a view is slow
        value_end = value + len(written)
        # The decoder gives a repeated name its last value, at its first place.
        if head is None or not text.startswith(written, value):
            raise ValueError("an object repeats a name")
        found[name] = Member(head.start(1), value, value_end)
        place = _behind(text, value_end)
    return found


def elements_of(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    place = text.find(b"[", start, end) + 1
    for raw in _array_decoder.decode(text[start:end]):
        place = _behind(text, place)
        yield place, place + len(memoryview(raw))
        place += len(memoryview(raw))


def removals(members: dict[str, Member], names: Collection[str]) -> list[MemberChange]:
    listed = list(members.items())
    kept = [at for at, (name, _) in enumerate(listed) if name not in names]
    last = kept[-1] if kept else -1
    changes = [
        MemberChange(member.start, listed[at + 1][1].start)
        for at, (name, member) in enumerate(listed[: max(last, 0)])
        if name in names
    ]
    if last + 1 < len(listed):
        begin = listed[last][1].end if kept else listed[0][1].start
        changes.append(MemberChange(begin, listed[-1][1].end))
    return changes


def changed(text: bytes, changes: Sequence[MemberChange]) -> bytes:
    parts, place = [], 0
    for change in sorted(changes):
        parts += [text[place : change.start], change.content]
        place = change.end
    return b"".join([*parts, text[place:]])


def _behind(text: bytes, place: int) -> int:
    between = _BETWEEN.match(text, place)
    return between.end() if between else place


class EngineKind(enum.StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"
    #: A provider, or an engine without token ids: requests pass unchanged.
    NONE = "none"


_VLLM = {"return_token_ids": b"true", "return_weight_versions": b"true"}
_QUESTIONS: dict[tuple[EngineKind, ModelApi], dict[str, bytes]] = {
    (EngineKind.VLLM, ModelApi.CHAT): _VLLM | {"logprobs": b"true"},
    (EngineKind.VLLM, ModelApi.COMPLETIONS): _VLLM | {"logprobs": b"0"},
    (EngineKind.SGLANG, ModelApi.CHAT): {
        "return_input_ids_in_sglext": b"true",
        "return_output_ids_in_sglext": b"true",
        "logprobs": b"true",
    },
    (EngineKind.SGLANG, ModelApi.COMPLETIONS): {"return_token_ids": b"true", "logprobs": b"0"},
}
#: Engines refuse these together, or add the prompt's log-probabilities.
_REFUSED_WITH = {"logprobs": "echo", "return_weight_versions": "use_beam_search"}
#: Members that each question adds to an answer: at its top, and in each choice.
_TOP = {"return_token_ids": ("prompt_token_ids",), "return_input_ids_in_sglext": ("sglext",)}
_IN_CHOICE = {
    "return_token_ids": ("token_ids", "prompt_token_ids"),
    "return_weight_versions": ("weight_versions",),
    "logprobs": ("logprobs",),
}
#: Members that are missing when nobody asks; the others are then null.
_ABSENT = {
    EngineKind.VLLM: frozenset(("weight_versions",)),
    EngineKind.SGLANG: frozenset(("token_ids", "prompt_token_ids", "sglext")),
}
#: Without these questions an engine sends no event while a parser holds its text back.
_HELD_BACK_FOR = {
    EngineKind.VLLM: frozenset(("return_token_ids", "logprobs")),
    EngineKind.SGLANG: frozenset(("logprobs",)),
}
_EMPTY_DELTAS = (b"{}", b'{"reasoning_content":null}')
_NULL = b"null"


class EngineRequest(msgspec.Struct, frozen=True):
    body: bytes
    #: Questions that the client did not ask. If empty, the answer passes unchanged.
    hidden: frozenset[str] = frozenset()
    #: The engine, if it tells tokens of this call.
    kind: EngineKind = EngineKind.NONE


def chat_questions(kind: EngineKind) -> dict[str, Raw]:
    return {name: Raw(value) for name, value in _QUESTIONS[kind, ModelApi.CHAT].items()}


def engine_request(kind: EngineKind, api: ModelApi, body: bytes) -> EngineRequest:
    questions = _QUESTIONS.get((kind, api))
    if not questions:
        return EngineRequest(body)
    try:
        members = members_of(body)
    except (ValueError, RecursionError):  # the engine will refuse it
        return EngineRequest(body)
    changes, hidden, new = [], set(), []
    for name, value in questions.items():
        if _value(body, members.get(_REFUSED_WITH.get(name, ""))) == b"true":
            continue
        member = members.get(name)
        if member is None:
            new.append(b'"%s":%s,' % (name.encode(), value))
        elif _value(body, member) in (_NULL, b"false"):
            changes.append(MemberChange(member.value, member.end, value))
        else:
            continue
        hidden.add(name)
    if new:
        place = body.find(b"{") + 1
        content = b"".join(new)
        changes.append(MemberChange(place, place, content if members else content[:-1]))
    return EngineRequest(changed(body, changes), frozenset(hidden), kind)


def client_answer(request: EngineRequest, answer: bytes) -> bytes | None:
    """Turn an answer, or an event of one, into what the client would have got without the proxy.

    Returns None for an event that it would not have got."""
    try:
        changes = _hidden_changes(request, answer)
    except (ValueError, RecursionError):  # not a JSON object: the end of a stream
        return answer
    return None if changes is None else changed(answer, changes) if changes else answer


def _hidden_changes(request: EngineRequest, text: bytes) -> list[MemberChange] | None:
    top = members_of(text)
    changes, absent = [], _ABSENT[request.kind]
    named = [name for question in request.hidden for name in _TOP.get(question, ())]
    changes = _taken_out(text, top, named, absent)
    choices = top.get("choices")
    if choices is None:
        return changes
    within = [name for question in request.hidden for name in _IN_CHOICE.get(question, ())]
    places = list(elements_of(text, choices.value, choices.end))
    # Pieces that exist only for their tokens come to any client that asks one of these itself.
    asks = _HELD_BACK_FOR[request.kind] <= request.hidden
    says_something = not places and "sglext" not in top
    for start, end in places:
        choice = members_of(text, start, end)
        changes += _taken_out(text, choice, within, absent)
        says_something = says_something or not (asks and _is_empty(text, choice))
    usage = _value(text, top.get("usage"))
    return changes if says_something or usage not in (b"", _NULL) else None


def _taken_out(
    text: bytes, members: dict[str, Member], names: list[str], absent: frozenset[str]
) -> list[MemberChange]:
    there = [name for name in names if name in members]
    nulls = [
        MemberChange(members[name].value, members[name].end, _NULL)
        for name in there
        if name not in absent
    ]
    return nulls + removals(members, [name for name in there if name in absent])


def _is_empty(text: bytes, choice: dict[str, Member]) -> bool:
    delta = _value(text, choice.get("delta"))
    return delta in _EMPTY_DELTAS and _value(text, choice.get("finish_reason")) == _NULL


def _value(text: bytes, member: Member | None) -> bytes:
    return text[member.value : member.end] if member else b""


def engine_of(models: bytes) -> EngineKind:
    for owner, kind in ((b"vllm", EngineKind.VLLM), (b"sglang", EngineKind.SGLANG)):
        if b'"owned_by":"%s"' % owner in models.replace(b'": "', b'":"'):
            return kind
    return EngineKind.NONE


_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
#: In text without carriage returns: a quick search, also through the ids of a long prompt.
_LINE_FEEDS = re.compile(rb"\n\n")
_DATA = b"data:"


class EventCutter:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        #: The last bytes: the end of an event may lie across two pieces.
        self._tail = b""

    def cut(self, piece: bytes) -> list[bytes]:
        # Large events come in many pieces, and are joined once.
        seen = self._tail + piece
        self._parts.append(piece)
        self._tail = seen[-3:]
        self._size += len(piece)
        if self._size <= self._bytes_max and not _end_in(seen).search(seen):
            return []
        text = self.rest()
        events, place = [], 0
        for end in _end_in(text).finditer(text):
            events.append(text[place : end.end()])
            place = end.end()
        rest = text[place:]
        if len(rest) > self._bytes_max:
            events.append(rest)
        elif rest:
            self._parts, self._size, self._tail = [rest], len(rest), rest[-3:]
        return events

    def rest(self) -> bytes:
        rest = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size, self._tail = [], 0, b""
        return rest


def _end_in(text: bytes) -> re.Pattern[bytes]:
    return _END if b"\r" in text else _LINE_FEEDS


def data_of(event: bytes) -> tuple[int, int]:
    start = 0 if event.startswith(_DATA) else event.find(b"\n" + _DATA) + 1
    if not start and not event.startswith(_DATA):
        return 0, 0
    begin = start + len(_DATA)
    begin += event[begin : begin + 1] == b" "
    end = len(event.rstrip(b"\r\n"))
    line = event.find(b"\n", begin, end)
    return (0, 0) if line >= 0 else (begin, end)
