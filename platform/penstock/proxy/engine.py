"""What each engine is asked for beside what its client wants, and how that leaves its answer.

vLLM and SGLang say token ids and log-probabilities where the request asks for them. What the client
did not ask for itself is taken out of the answer again, so that it gets byte for byte what the
engine would have said to it alone."""

import enum
from dataclasses import dataclass

from penstock.proxy.json_members import (
    Member,
    MemberChange,
    changed,
    elements_of,
    members_of,
    removals,
)
from penstock.proxy.target import Endpoint


class EngineKind(enum.StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"
    #: A provider, or an engine that says no token ids: it is asked as it was asked.
    NONE = "none"


#: What is asked of each engine at each endpoint: names of the request, with their values.
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
_IN_CHOICE = {
    "return_token_ids": ("token_ids", "prompt_token_ids"),
    "logprobs": ("logprobs",),
}
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
    """The request with the questions for what the engine is to tell."""
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
    """A piece of a stream that is there for its token ids alone."""
    delta = _value(text, choice.get("delta"))
    return delta in _EMPTY_DELTAS and _value(text, choice.get("finish_reason")) == _NULL


def _value(text: bytes, member: Member | None) -> bytes:
    return text[member.value : member.end] if member else b""


def engine_of(models: bytes) -> EngineKind:
    """By the answer of `/v1/models`, which names who serves them."""
    for owner, kind in ((b"vllm", EngineKind.VLLM), (b"sglang", EngineKind.SGLANG)):
        if b'"owned_by":"%s"' % owner in models.replace(b'": "', b'":"'):
            return kind
    return EngineKind.NONE
