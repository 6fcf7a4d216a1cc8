"""What each engine is asked for beside what its client wants, and how that leaves its answer.

vLLM and SGLang say token ids and log-probabilities where the request asks for them. What the client
did not ask for itself is taken out of the answer again, so that it gets byte for byte what the
engine would have said to it alone."""

import enum
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec import Raw

from penstock.doors.proxy.target import Endpoint

# Members of JSON objects, found in their text: what is cut out of it or put into it leaves every
# other byte as it was.

_object_decoder = msgspec.json.Decoder(dict[str, Raw])
_array_decoder = msgspec.json.Decoder(list[Raw])
_NAME = re.compile(rb'[ \t\r\n]*+("(?:[^"\\]++|\\.)*+"[ \t\r\n]*+:[ \t\r\n]*+)', re.DOTALL)
_BETWEEN = re.compile(rb"[ \t\r\n]*+,?[ \t\r\n]*+")


class Member(NamedTuple):
    """Its places in the text: of its name's quote, of its value, and behind that."""

    start: int
    value: int
    end: int


class MemberChange(NamedTuple):
    start: int
    end: int
    content: bytes = b""


def members_of(text: bytes, start: int = 0, end: int | None = None) -> dict[str, Member]:
    """Those of the object that stands there, in their order. Raises ValueError for what is no
    object, or has a name twice."""
    part = text if end is None and not start else text[start:end]
    found: dict[str, Member] = {}
    place = start + part.find(b"{") + 1
    for name, raw in _object_decoder.decode(part).items():
        head = _NAME.match(text, place)
        value = head.end() if head else 0
        written = memoryview(raw)
        value_end = value + len(written)
        # A name that stands twice has its last value at the place of its first.
        if head is None or text[value:value_end] != written:
            raise ValueError("a name stands twice in an object")
        found[name] = Member(head.start(1), value, value_end)
        place = _behind(text, value_end)
    return found


def elements_of(text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    place = text.find(b"[", start, end) + 1
    for raw in _array_decoder.decode(text[start:end]):
        begin = _BETWEEN.match(text, place)
        place = begin.end() if begin else place
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
    #: A provider, or an engine that says no token ids: it is asked as it was asked.
    NONE = "none"


_QUESTIONS: dict[tuple[EngineKind, Endpoint], dict[str, bytes]] = {
    (EngineKind.VLLM, Endpoint.CHAT): {"return_token_ids": b"true", "logprobs": b"true"},
    (EngineKind.VLLM, Endpoint.COMPLETIONS): {"return_token_ids": b"true", "logprobs": b"0"},
    (EngineKind.VLLM, Endpoint.RESPONSES): {"enable_response_messages": b"true"},
    (EngineKind.SGLANG, Endpoint.CHAT): {
        "return_input_ids_in_sglext": b"true",
        "return_output_ids_in_sglext": b"true",
        "logprobs": b"true",
    },
    (EngineKind.SGLANG, Endpoint.COMPLETIONS): {"return_token_ids": b"true", "logprobs": b"0"},
}
#: What of an answer is there because of each question: at its top, and in each choice. None stands
#: for a null that the engine says where nobody asks; else the member is not there at all.
_TOP = {
    "return_token_ids": ("prompt_token_ids",),
    "enable_response_messages": ("input_messages", "output_messages"),
    "return_input_ids_in_sglext": ("sglext",),
}
_IN_CHOICE = {"return_token_ids": ("token_ids", "prompt_token_ids"), "logprobs": ("logprobs",)}
#: SGLang leaves these out where nobody asks.
_ABSENT = {
    EngineKind.VLLM: frozenset[str](),
    EngineKind.SGLANG: frozenset(("token_ids", "prompt_token_ids", "sglext")),
}
#: Without these questions an engine says nothing while a parser holds its text back.
_HELD_BACK_FOR = {
    EngineKind.VLLM: frozenset(("return_token_ids", "logprobs")),
    EngineKind.SGLANG: frozenset(("logprobs",)),
}
_EMPTY_DELTAS = (b"{}", b'{"reasoning_content":null}')
_NULL = b"null"


@dataclass(frozen=True, slots=True)
class EngineRequest:
    body: bytes
    #: What the client did not ask for; empty: its answer is passed on as it is.
    hidden: frozenset[str] = frozenset()
    kind: EngineKind = EngineKind.NONE


def engine_request(kind: EngineKind, endpoint: Endpoint, body: bytes) -> EngineRequest:
    questions = _QUESTIONS.get((kind, endpoint))
    if not questions:
        return EngineRequest(body)
    try:
        members = members_of(body)
    except (ValueError, RecursionError):  # what the engine makes of it is not for us to say
        return EngineRequest(body)
    changes, hidden, new = [], set(), []
    echoes = _value(body, members.get("echo")) == b"true"
    for name, value in questions.items():
        if name == "logprobs" and echoes:  # engines refuse both, or tell the prompt's too
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
    """An answer, or an event of one, as the client would have got it without us; None where it
    would have got none."""
    try:
        changes = _hidden_changes(request, answer)
    except (ValueError, RecursionError):  # no JSON object: the end of a stream
        return answer
    return None if changes is None else changed(answer, changes) if changes else answer


def _hidden_changes(request: EngineRequest, text: bytes) -> list[MemberChange] | None:
    top = members_of(text)
    changes, absent = [], _ABSENT[request.kind]
    named = [name for question in request.hidden for name in _TOP.get(question, ())]
    if "response" in top and "input_messages" in named:  # an event of a stream of Responses
        place = top["response"]
        inner = members_of(text, place.value, place.end)
        return _taken_out(text, inner, named, absent)
    changes = _taken_out(text, top, named, absent)
    choices = top.get("choices")
    if choices is None:
        return changes
    within = [name for question in request.hidden for name in _IN_CHOICE.get(question, ())]
    places = list(elements_of(text, choices.value, choices.end))
    #: Pieces that are there for their tokens alone would come to whoever asks for one of these.
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
_DATA = b"data:"


class EventCutter:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        #: The end of what came; an end of an event may lie across two pieces.
        self._tail = b""

    def cut(self, piece: bytes) -> list[bytes]:
        # Large events come in many pieces: they are put together once.
        seen = self._tail + piece
        self._parts.append(piece)
        self._tail = seen[-3:]
        self._size += len(piece)
        if self._size <= self._bytes_max and not _END.search(seen):
            return []
        text = self.rest()
        events, place = [], 0
        for end in _END.finditer(text):
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


def data_of(event: bytes) -> tuple[int, int]:
    start = 0 if event.startswith(_DATA) else event.find(b"\n" + _DATA) + 1
    if not start and not event.startswith(_DATA):
        return 0, 0
    begin = start + len(_DATA)
    begin += event[begin : begin + 1] == b" "
    end = len(event.rstrip(b"\r\n"))
    line = event.find(b"\n", begin, end)
    return (0, 0) if line >= 0 else (begin, end)
