"""What was said to a model: the requests of all four endpoints in one form; which session a call
belongs to, and what of it is new.

A call repeats what was said before. Each position in what was said has a number made of all that
stands before it, so that whoever says it again, also after a restart, says the same events."""

import os
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from penstock.doors.proxy.target import Endpoint, Labels
from penstock.events.event import ID_CHARS_MAX
from penstock.events.messages import Message, json_of, messages_of, text_of

_encoder = msgspec.json.Encoder(order="deterministic")
#: Programs write so in the user's name.
_REMINDER = re.compile(r"\s*(?:<system-reminder>.*?</system-reminder>\s*)+", re.DOTALL)
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "max_completion_tokens",
    "max_output_tokens", "frequency_penalty", "presence_penalty", "repetition_penalty", "stop",
    "stop_sequences", "n", "tool_choice", "reasoning_effort",
)  # fmt: skip
#: Ends of calls that are known; of what is older, a session goes on as after a restart.
_ENDS_MAX = 200_000
_SESSIONS_MAX = 20_000
_ROOTS_MAX = 16
_LENGTHS_MAX = 32
#: An id with the digest of a child behind it is no longer than an id may be.
_NAME_CHARS_MAX = ID_CHARS_MAX - 20


@dataclass(slots=True)
class Dialogue:
    messages: list[Message] = field(default_factory=list)
    system: str | None = None
    tools: list[Any] | None = None
    model: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    #: The answer that it goes on from, where the server keeps what was said.
    previous: str | None = None
    prompt: str | None = None

    def chains(self) -> list[int]:
        """A number for all that was said up to each message, the same whenever it is said."""
        chain = text_chain(self.previous or "")
        return [chain := chained(chain, message) for message in self.messages]


def text_chain(text: str) -> int:
    return xxh3_64_intdigest(text.encode())


def chained(before: int, message: Message) -> int:
    """Clients repeat answers in forms of their own: without thoughts, with other spaces."""
    calls = [(call["name"], json_of(call["arguments"])) for call in message.calls]
    results = [(told.call_id, told.output) for told in message.outputs]
    text = (message.text or "").strip()
    said = (before, message.role, text, calls, results, message.content)
    return xxh3_64_intdigest(_encoder.encode(said))


def is_synthetic(message: Message) -> bool:
    return bool(message.text and _REMINDER.fullmatch(message.text))


def dialogue_of(endpoint: Endpoint, body: bytes) -> Dialogue:
    """Raises ValueError where the request is none that anybody could answer."""
    try:
        request = msgspec.json.decode(body)
        if not isinstance(request, dict):
            raise TypeError("the request is no object")
        dialogue = _dialogue(endpoint, request)
    except (TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ValueError(f"the request has another form than {endpoint}") from error
    dialogue.model = request.get("model") if isinstance(request.get("model"), str) else None
    dialogue.tools = request.get("tools") if isinstance(request.get("tools"), list) else None
    dialogue.sampling = {name: request[name] for name in _SAMPLING if request.get(name) is not None}
    return dialogue


def _dialogue(endpoint: Endpoint, request: Mapping[str, Any]) -> Dialogue:
    if endpoint is Endpoint.COMPLETIONS:
        prompt = request["prompt"]
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        return Dialogue(prompt=prompt if isinstance(prompt, str) else None)
    told = request["input" if endpoint is Endpoint.RESPONSES else "messages"]
    messages = messages_of(told)
    systems = [text_of(request.get("system")), request.get("instructions")]
    while messages and messages[0].role == "system":
        systems.append(messages.pop(0).text)
    system = "\n\n".join(filter(None, systems)) or None
    return Dialogue(messages, system, previous=request.get("previous_response_id") or None)


class Place(NamedTuple):
    session_id: str
    parent: str | None
    new_from: int
    #: Of each message: the number of all that was said up to it.
    chains: list[int]
    #: What was said was put together anew: a summary took its place.
    is_compacted: bool = False

    @property
    def end(self) -> int:
        return self.chains[-1] if self.chains else 0


@dataclass(slots=True)
class _Begun:
    face: int
    has_tools: bool
    roots: set[int]


class SessionBook:
    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[str | None, int], str] = OrderedDict()
        self._begun: OrderedDict[str, _Begun] = OrderedDict()
        #: How long texts were that models went on with, answers included.
        self._lengths: OrderedDict[str | None, list[int]] = OrderedDict()

    def place(self, labels: Labels, dialogue: Dialogue) -> Place:
        if dialogue.prompt is not None:
            return self._prompt_place(labels, dialogue, dialogue.prompt)
        chains = dialogue.chains()
        for at in reversed(range(len(chains))):
            if session := self._ends.get((labels.session, chains[at])):
                self._ends.move_to_end((labels.session, chains[at]))
                return Place(session, None, at + 1, chains)
        before = text_chain(dialogue.previous) if dialogue.previous else None
        if before is not None and (session := self._ends.get((labels.session, before))):
            return Place(session, None, 0, chains)
        return self._other_place(labels, dialogue, chains)

    def _other_place(self, labels: Labels, dialogue: Dialogue, chains: list[int]) -> Place:
        face, has_tools, root = _face(dialogue), bool(dialogue.tools), chains[:1]
        named = labels.session
        if named is None:
            session = f"proxy-{os.urandom(8).hex()}"
            self._begin(session, _Begun(face, has_tools, set(root)))
            return Place(session, None, 0, chains)
        begun = self._begun.get(named)
        if begun is None:
            self._begin(named, _Begun(face, has_tools, set(root)))
            return Place(named, None, 0, chains)
        if has_tools and not begun.has_tools:  # what came before was said beside it
            begun.face, begun.has_tools, begun.roots = face, True, set(root)
            return Place(named, None, 0, chains)
        if begun.face == face:
            is_compacted = not begun.roots.issuperset(root) and not dialogue.previous
            if len(begun.roots) < _ROOTS_MAX:
                begun.roots.update(root)
            return Place(named, None, 0, chains, is_compacted)
        child = f"{named[:_NAME_CHARS_MAX]}/{xxh3_64_hexdigest(_encoder.encode((face, root)))}"
        return Place(child, named, 0, chains)

    def _prompt_place(self, labels: Labels, dialogue: Dialogue, prompt: str) -> Place:
        chain = text_chain(prompt)
        lengths = self._lengths.setdefault(labels.session, [])
        for length in sorted(lengths, reverse=True):
            key = labels.session, text_chain(prompt[:length])
            if length <= len(prompt) and (session := self._ends.get(key)):
                dialogue.messages = [Message("user", prompt[length:])]
                return Place(session, None, 0 if prompt[length:] else 1, [chain])
        dialogue.messages = [Message("user", prompt)]
        return self._other_place(labels, dialogue, [chain])

    def end(self, labels: Labels, place: Place, *chains: int, length: int | None = None) -> None:
        """What a call ended with, before and after its answer; `length` is that of a text that
        goes on behind both."""
        for chain in chains:
            self._ends[labels.session, chain] = place.session_id
        while len(self._ends) > _ENDS_MAX:
            self._ends.popitem(last=False)
        if length is not None:
            lengths = self._lengths.setdefault(labels.session, [])
            lengths[:] = [*lengths[1 - _LENGTHS_MAX :], length]
            if len(self._lengths) > _SESSIONS_MAX:
                self._lengths.popitem(last=False)

    def is_known(self, labels: Labels, chain: int) -> bool:
        return (labels.session, chain) in self._ends

    def _begin(self, session: str, begun: _Begun) -> None:
        self._begun[session] = begun
        if len(self._begun) > _SESSIONS_MAX:
            self._begun.popitem(last=False)


def _face(dialogue: Dialogue) -> int:
    """Who speaks: an agent has the same tools from call to call, and a subagent, or a call that
    makes up a title, has others."""
    names = sorted(str(_tool_name(tool)) for tool in dialogue.tools or ())
    return xxh3_64_intdigest(_encoder.encode(names or [dialogue.system]))


def _tool_name(tool: object) -> object:
    if not isinstance(tool, dict):
        return tool
    function = tool.get("function")
    return (function if isinstance(function, dict) else tool).get("name") or tool.get("type")
