"""Prompts that begin with the tokens of the answer that they continue.

A chat template writes an earlier answer anew: without its thoughts, with other spaces, cut into
other tokens. The engine gets the ids that it sampled instead, and behind them the template's ids of
what is new. Harnesses rewrite answers too: one is known by the ids of its calls, or by its text.
"""

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from penstock.doors.proxy.chat_completions import ChatDraft, Object

_RENDER_PATH = b"/tokenize"
_BYTES_MAX = 256 * 1024 * 1024
_ANSWERS_MAX = 100_000
#: Members of a chat, beside its messages, that a template reads.
_SETTINGS = ("model", "chat_template_kwargs", "reasoning_effort")
_encoder = msgspec.json.Encoder(order="deterministic")

Ask = Callable[[bytes, bytes], Awaitable[bytes | None]]


class Prompt(NamedTuple):
    #: A list of JSON. None: the engine makes the prompt of the messages.
    ids: msgspec.Raw | None = None
    #: Why it does not continue the answer before it, where there is one.
    reason: str | None = None


class _Given(NamedTuple):
    """Hashes of all that a template reads beside the messages."""

    settings: int
    tools: int
    system: int


class _TurnEnd(NamedTuple):
    """The ids that a template writes up to the end of an answer."""

    #: How often the token that ends a turn occurs.
    ends: int
    before: list[int]


class _Known(NamedTuple):
    #: As the engine said it.
    message: bytes
    #: Of its prompt and itself, as a list of JSON that is open at its end; empty if no turn can
    #: follow them.
    ids: bytes
    #: The token that ended it.
    end: int

    @property
    def size(self) -> int:
        return len(self.message) + len(self.ids)


class Continuations:
    """Answers of this proxy by the conversation up to and including them.

    The oldest go where there is no room."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._given: OrderedDict[int, _Given] = OrderedDict()
        self._turn_ends: dict[tuple[str, bool, int], _TurnEnd] = {}
        self._bytes = 0
        #: Calls that did not continue the answer before them, by the reason.
        self.reasons: Counter[str] = Counter()

    async def prompt(self, chat: Object, ask: Ask | None) -> Prompt:
        """Make the prompt of a chat, and let its answers be as the engine said them.

        `ask` puts a question to the engine, if it takes the ids of a prompt."""
        messages: list[Object] = chat["messages"]
        answers = [at for at, each in enumerate(messages) if each["role"] == "assistant"]
        if not answers:
            return Prompt()
        hashes = _hashes(chat)
        known = {at: self._known[hashes[at]] for at in answers if hashes[at] in self._known}
        if not known:
            return self._without(self._why(chat, [messages[at] for at in answers]))
        for at, each in known.items():
            self._known.move_to_end(hashes[at])
            messages[at] = msgspec.json.decode(each.message)
        if ask is None:
            return Prompt()
        at = max(known)
        _, ids, end = known[at]
        if not ids:
            return self._without("answer_cut")
        new = await self._rendered(chat, messages[at], messages[at + 1 :], end, ask)
        if new is None:
            return self._without("template")
        return Prompt(msgspec.Raw(b"%s,%s" % (ids, _encoder.encode(new)[1:])))

    def add(self, chat: Object, draft: ChatDraft) -> None:
        """Remember an answer."""
        answer = draft.message()
        self._given[_answer_hash(answer)] = _given(chat)
        if len(self._given) > _ANSWERS_MAX:
            self._given.popitem(last=False)
        end = _hashes(chat | {"messages": [*chat["messages"], answer]})[-1]
        ids = b""
        if draft.ended_turn and draft.prompt_ids and draft.ids:
            ids = b"%s,%s" % (draft.prompt_ids[:-1], _encoder.encode(draft.ids)[1:-1])
        known = _Known(_encoder.encode(answer), ids, draft.ids[-1] if ids else 0)
        before = self._known.pop(end, None)
        self._known[end] = known
        self._bytes += known.size - (before.size if before else 0)
        while self._bytes > _BYTES_MAX:
            self._bytes -= self._known.popitem(last=False)[1].size

    def _without(self, reason: str) -> Prompt:
        self.reasons[reason] += 1
        return Prompt(reason=reason)

    def _why(self, chat: Object, answers: list[Object]) -> str:
        before = next(
            filter(None, map(self._given.get, map(_answer_hash, reversed(answers)))), None
        )
        if before is None:
            return "answer_unknown"
        for name, was, now in zip(_Given._fields, before, _given(chat), strict=True):
            if was != now:
                return f"{name}_changed"
        return "history_rewritten"

    async def _rendered(
        self, chat: Object, answer: Object, new: list[Object], end: int, ask: Ask
    ) -> list[int] | None:
        """Let the engine render what is new, behind an answer that stands for the real one."""
        settings = _settings(chat)
        calls = [
            call | {"function": call["function"] | {"arguments": "{}"}}
            for call in answer.get("tool_calls") or ()
        ]
        said = {"role": "assistant", "content": "."} | ({"tool_calls": calls} if calls else {})
        short = [{"role": "user", "content": "."}, said]
        key = _encoder.encode(settings).decode(), bool(calls), end
        if key not in self._turn_ends:
            open_end = settings | {"messages": short, "add_generation_prompt": False}
            ids = await _render(open_end, ask)
            if ids is None or end not in ids:
                return None
            self._turn_ends[key] = _TurnEnd(ids.count(end), ids[: ids.index(end)])
        turn_end = self._turn_ends[key]
        ids = await _render(settings | {"messages": [*short, *new]}, ask)
        ends = [at for at, each in enumerate(ids or ()) if each == end]
        if ids is None or len(ends) < turn_end.ends or ids[: ends[0]] != turn_end.before:
            return None
        return ids[ends[turn_end.ends - 1] + 1 :]


async def _render(chat: Object, ask: Ask) -> list[int] | None:
    answer = await ask(_RENDER_PATH, _encoder.encode(chat))
    try:
        ids = msgspec.json.decode(answer or b"").get("tokens")
    except (ValueError, AttributeError):
        return None
    return ids if isinstance(ids, list) else None


def _settings(chat: Object) -> Object:
    """Say what a template is told, as vLLM's chat tells it."""
    told = dict(chat.get("chat_template_kwargs") or {})
    if effort := chat.get("reasoning_effort"):
        told = {"reasoning_effort": effort, "enable_thinking": effort != "none"} | told
    return {"model": chat["model"], "chat_template_kwargs": told}


def _given(chat: Mapping[str, Any]) -> _Given:
    first = chat["messages"][0] if chat["messages"] else {}
    return _Given(
        _hash(*(chat.get(name) for name in _SETTINGS)),
        _hash(chat.get("tools")),
        _hash(first.get("content") if first.get("role") == "system" else None),
    )


def _hashes(chat: Mapping[str, Any]) -> list[int]:
    """Hash the conversation up to and including each message."""
    so_far = _hash(*_given(chat))
    return [so_far := _hash(so_far, _message_key(each)) for each in chat["messages"]]


def _message_key(message: Mapping[str, Any]) -> Iterable[Any]:
    if message["role"] != "assistant":
        return message["role"], message["content"], message.get("tool_call_id")
    if calls := message.get("tool_calls"):
        return ("assistant", *(call["id"] for call in calls))
    return "assistant", (message["content"] or "").strip()


def _answer_hash(answer: Mapping[str, Any]) -> int:
    return _hash(_message_key(answer))


def _hash(*parts: Any) -> int:
    return xxh3_64_intdigest(_encoder.encode(parts))
