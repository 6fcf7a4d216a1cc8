"""Requests to a model, in one form for all four APIs: the session of a call, and its new messages.

A call repeats earlier messages. Each message has a hash of the conversation up to and including
it, so a repetition yields the same events, even after a restart."""

import enum
import os
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from penstock.events.event import ID_CHARS_MAX
from penstock.events.messages import Message, json_of, messages_of, text_of


class ModelApi(enum.StrEnum):
    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    MESSAGES = "/v1/messages"
    RESPONSES = "/v1/responses"


_APIS = {api.encode(): api for api in ModelApi}
_NAMED = re.compile(rb"/s/([^/]+)(?:/c/([^/]+))?(?=/)")
HEADER_PREFIX = b"x-penstock-"
#: Headers in which agents name their session.
_SESSION_HEADERS = (b"x-claude-code-session-id", b"session_id", b"session-id", b"conversation_id")
_CONSENTS = frozenset(("train", "no_train", "unknown"))


class Labels(msgspec.Struct, frozen=True):
    session: str | None = None
    checkpoint: str | None = None
    user: str | None = None
    project: str | None = None
    consent: str | None = None
    task: str | None = None
    group: str | None = None
    version: int | None = None
    client: str | None = None


class Target(msgspec.Struct, frozen=True):
    #: Path at the upstream, with the query.
    path: bytes
    #: None: passed on without being recorded.
    api: ModelApi | None
    labels: Labels


def target_of(
    method: str, path: bytes, query: bytes, headers: Sequence[tuple[bytes, bytes]], defaults: Labels
) -> Target:
    session = checkpoint = None
    if named := _NAMED.match(path):
        session, checkpoint = (_plain(part) for part in named.groups())
        path = path[named.end() :]
    api = _APIS.get(path) if method == "POST" else None
    said = {
        name[len(HEADER_PREFIX) :]: value
        for name, value in headers
        if name.startswith(HEADER_PREFIX)
    }
    known = dict(reversed(headers))
    own = next((known[name] for name in _SESSION_HEADERS if name in known), None)
    consent = _text(said.get(b"consent"))
    version = said.get(b"policy-version", b"")
    labels = Labels(
        session=_text(said.get(b"session")) or session or _text(own),
        checkpoint=_text(said.get(b"checkpoint")) or checkpoint or defaults.checkpoint,
        user=_text(said.get(b"user")) or defaults.user,
        project=_text(said.get(b"project")) or defaults.project,
        consent=consent if consent in _CONSENTS else defaults.consent,
        task=_text(said.get(b"task")),
        group=_text(said.get(b"group")),
        version=int(version) if version.isdigit() and len(version) < 10 else None,
        client=_text(known.get(b"user-agent")),
    )
    return Target(path + (b"?" + query if query else b""), api, labels)


def _plain(part: bytes | None) -> str | None:
    return _text(unquote_to_bytes(part)) if part else None


def _text(value: bytes | None) -> str | None:
    text = value.decode("utf-8", "replace").replace("\0", "").strip() if value else ""
    return text[:ID_CHARS_MAX] or None


_encoder = msgspec.json.Encoder(order="deterministic")
#: Agents write such texts in the user's name.
_REMINDER = re.compile(r"\s*(?:<system-reminder>.*?</system-reminder>\s*)+", re.DOTALL)
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "max_completion_tokens",
    "max_output_tokens", "frequency_penalty", "presence_penalty", "repetition_penalty", "stop",
    "stop_sequences", "n", "tool_choice", "reasoning_effort",
)  # fmt: skip
#: Beyond this, old sessions continue as they would after a restart.
_HASHES_MAX = 200_000
_SESSIONS_MAX = 20_000
_ROOTS_MAX = 16
_LENGTHS_MAX = 32
#: Leaves room for the digest of a child session behind the id.
_NAME_CHARS_MAX = ID_CHARS_MAX - 20


@dataclass(slots=True)
class Dialogue:
    messages: list[Message] = field(default_factory=list)
    system: str | None = None
    tools: list[Any] | None = None
    model: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    #: The answer that this continues, if the server keeps the conversation.
    previous: str | None = None
    prompt: str | None = None

    def hashes(self) -> list[int]:
        """Hashes of the conversation up to and including each message."""
        so_far = text_hash(self.previous or "")
        return [so_far := next_hash(so_far, message) for message in self.messages]


def text_hash(text: str) -> int:
    return xxh3_64_intdigest(text.encode())


def next_hash(before: int, message: Message) -> int:
    """Hash a conversation with one more message.

    Thoughts and outer spaces do not count: clients repeat answers without them."""
    calls = [(call["name"], json_of(call["arguments"])) for call in message.calls]
    results = [(output.call_id, output.output) for output in message.outputs]
    text = (message.text or "").strip()
    said = (before, message.role, text, calls, results, message.content)
    return xxh3_64_intdigest(_encoder.encode(said))


def is_synthetic(message: Message) -> bool:
    return bool(message.text and _REMINDER.fullmatch(message.text))


def dialogue_of(api: ModelApi, body: bytes) -> Dialogue:
    """Read a request. Raises ValueError if no server could answer it."""
    try:
        request = msgspec.json.decode(body)
        if not isinstance(request, dict):
            raise TypeError("the request is not an object")
        dialogue = _dialogue(api, request)
    except (TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ValueError(f"the request does not have the form of {api}") from error
    dialogue.model = request.get("model") if isinstance(request.get("model"), str) else None
    dialogue.tools = request.get("tools") if isinstance(request.get("tools"), list) else None
    dialogue.sampling = {name: request[name] for name in _SAMPLING if request.get(name) is not None}
    return dialogue


def _dialogue(api: ModelApi, request: Mapping[str, Any]) -> Dialogue:
    if api is ModelApi.COMPLETIONS:
        prompt = request["prompt"]
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        return Dialogue(prompt=prompt if isinstance(prompt, str) else None)
    content = request["input" if api is ModelApi.RESPONSES else "messages"]
    messages = messages_of(content)
    systems = [text_of(request.get("system")), request.get("instructions")]
    while messages and messages[0].role == "system":
        systems.append(messages.pop(0).text)
    system = "\n\n".join(filter(None, systems)) or None
    return Dialogue(messages, system, previous=request.get("previous_response_id") or None)


class Place(NamedTuple):
    session_id: str
    parent: str | None
    new_from: int
    #: `Dialogue.hashes`.
    hashes: list[int]
    #: A summary replaced the earlier messages.
    is_compacted: bool = False

    @property
    def end(self) -> int:
        return self.hashes[-1] if self.hashes else 0


@dataclass(slots=True)
class _StartedSession:
    speaker: int
    has_tools: bool
    roots: set[int]


class SessionBook:
    def __init__(self) -> None:
        self._hash_sessions: OrderedDict[tuple[str | None, int], str] = OrderedDict()
        self._started: OrderedDict[str, _StartedSession] = OrderedDict()
        #: Lengths of prompts with their answers.
        self._lengths: OrderedDict[str | None, list[int]] = OrderedDict()

    def place(self, labels: Labels, dialogue: Dialogue) -> Place:
        if dialogue.prompt is not None:
            return self._prompt_place(labels, dialogue, dialogue.prompt)
        hashes = dialogue.hashes()
        for at in reversed(range(len(hashes))):
            if session := self._hash_sessions.get((labels.session, hashes[at])):
                self._hash_sessions.move_to_end((labels.session, hashes[at]))
                return Place(session, None, at + 1, hashes)
        before = text_hash(dialogue.previous) if dialogue.previous else None
        if before is not None and (session := self._hash_sessions.get((labels.session, before))):
            return Place(session, None, 0, hashes)
        return self._other_place(labels, dialogue, hashes)

    def _other_place(self, labels: Labels, dialogue: Dialogue, hashes: list[int]) -> Place:
        speaker, has_tools, root = _speaker(dialogue), bool(dialogue.tools), hashes[:1]
        named = labels.session
        if named is None:
            session = f"proxy-{os.urandom(8).hex()}"
            self._begin(session, _StartedSession(speaker, has_tools, set(root)))
            return Place(session, None, 0, hashes)
        started = self._started.get(named)
        if started is None:
            self._begin(named, _StartedSession(speaker, has_tools, set(root)))
            return Place(named, None, 0, hashes)
        if has_tools and not started.has_tools:  # earlier calls were side requests
            started.speaker, started.has_tools, started.roots = speaker, True, set(root)
            return Place(named, None, 0, hashes)
        if started.speaker == speaker:
            is_compacted = not started.roots.issuperset(root) and not dialogue.previous
            if len(started.roots) < _ROOTS_MAX:
                started.roots.update(root)
            return Place(named, None, 0, hashes, is_compacted)
        child = f"{named[:_NAME_CHARS_MAX]}/{xxh3_64_hexdigest(_encoder.encode((speaker, root)))}"
        return Place(child, named, 0, hashes)

    def _prompt_place(self, labels: Labels, dialogue: Dialogue, prompt: str) -> Place:
        whole = text_hash(prompt)
        lengths = self._lengths.setdefault(labels.session, [])
        for length in sorted(lengths, reverse=True):
            key = labels.session, text_hash(prompt[:length])
            if length <= len(prompt) and (session := self._hash_sessions.get(key)):
                dialogue.messages = [Message("user", prompt[length:])]
                return Place(session, None, 0 if prompt[length:] else 1, [whole])
        dialogue.messages = [Message("user", prompt)]
        return self._other_place(labels, dialogue, [whole])

    def end(self, labels: Labels, place: Place, *hashes: int, length: int | None = None) -> None:
        """Remember the hashes that a call ended with, before and after its answer.

        `length` counts the characters of a prompt with its answer."""
        for each in hashes:
            self._hash_sessions[labels.session, each] = place.session_id
        while len(self._hash_sessions) > _HASHES_MAX:
            self._hash_sessions.popitem(last=False)
        if length is not None:
            lengths = self._lengths.setdefault(labels.session, [])
            lengths[:] = [*lengths[1 - _LENGTHS_MAX :], length]
            if len(self._lengths) > _SESSIONS_MAX:
                self._lengths.popitem(last=False)

    def _begin(self, session: str, started: _StartedSession) -> None:
        self._started[session] = started
        if len(self._started) > _SESSIONS_MAX:
            self._started.popitem(last=False)


def _speaker(dialogue: Dialogue) -> int:
    """Identify the agent by its tools. Subagents, and calls that invent a title, have others."""
    names = sorted(str(_tool_name(tool)) for tool in dialogue.tools or ())
    return xxh3_64_intdigest(_encoder.encode(names or [dialogue.system]))


def _tool_name(tool: object) -> object:
    if not isinstance(tool, dict):
        return tool
    function = tool.get("function")
    return (function if isinstance(function, dict) else tool).get("name") or tool.get("type")
