"""Reading a conversation: a session's events as messages in OpenAI's form.

Each message knows its event. A compaction begins a new context: from then on the model saw the
summary and what followed. Sessions that others go on from, by compaction or subagents, are
conversations of their own.

The result of a tool stands behind the message that called it, in the order of the calls; a result
without a known call stays where it came. Several model calls in a row stand one behind another.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from msgspec import UNSET, Raw

from penstock_jobs.shards.conversation import (
    ChatContext,
    ChatMessage,
    Conversation,
    Ending,
    Flag,
    ModelCall,
    Role,
)
from penstock_jobs.shards.session_events import (
    CompactionPayload,
    Event,
    EventPayload,
    InterruptPayload,
    ModelCallPayload,
    SessionEndPayload,
    SessionStartPayload,
    ToolAnswer,
    ToolCall,
    ToolMatches,
    ToolRequest,
    ToolResultPayload,
    UserMessagePayload,
    in_order,
    match_results,
    read_events,
    temperature_of,
    text_of,
    tool_calls_of,
    tools_of,
)

#: Claude Code's name for what the harness says in the model's place.
_NO_MODEL = "<synthetic>"


def read_conversation(
    session_id: str, events: Iterable[Event], *, copied: frozenset[str] = frozenset()
) -> Conversation:
    """Whatever the order of the events. `copied` holds names of events that another session of
    the tenant told first. A session without legible events is an empty conversation."""
    decoded = read_events(in_order(events))
    reader = _ConversationReader(decoded.events, copied)
    for at, (event, payload) in enumerate(decoded.events):
        reader.add(at, event, payload)
    moments = [event.ts_us for event, _ in decoded.events]
    start = reader.start
    return Conversation(
        session_id=session_id,
        contexts=tuple(reader.contexts()),
        calls=tuple(reader.calls),
        tools=reader.tools,
        parent_session=start.parent_session,
        link=start.link,
        task_id=start.task_id,
        group_id=start.group_id,
        end_reason=reader.end_reason,
        ending=reader.ending,
        first_us=min(moments, default=0),
        last_us=max(moments, default=0),
        problems=tuple(decoded.problems),
    )


@dataclass(slots=True)
class _ContextDraft:
    """A context whose messages are still being collected."""

    messages: list[tuple[int, ChatMessage]] = field(default_factory=list)
    complete: bool = True


class _ConversationReader:
    """Goes through a session's events once; `contexts` puts the results in their places."""

    def __init__(
        self, decoded: Sequence[tuple[Event, EventPayload]], copied: frozenset[str]
    ) -> None:
        self.calls: list[ModelCall] = []
        self.tools: str | None = None
        self.start = SessionStartPayload()
        self.end_reason: str | None = None
        self.ending: Ending | None = None
        self._copied = copied
        self._drafts = [_ContextDraft()]
        self._turn = 0
        self._results: dict[int, ChatMessage] = {}
        self._seen: set[tuple[object, ...]] = set()
        self._seqs: set[int] = set()
        self._matches = _matches(decoded)
        self._summaries = _summaries(decoded)
        self._texts = {
            call_id: payload.text
            for call_id, at in self._summaries.items()
            if isinstance(payload := decoded[at][1], ModelCallPayload)
        }
        #: By the place of a late summary: the context that it belongs to.
        self._summed_up: dict[int, int] = {}
        #: What was payload last, by role and event.
        self._last: tuple[Role, int | None] = ("user", None)

    def add(self, at: int, event: Event, payload: EventPayload) -> None:
        match payload:
            case SessionStartPayload():
                self._starts(at, event, payload)
            case UserMessagePayload():
                self._user(at, event, payload)
            case ModelCallPayload():
                self._model(at, event, payload)
            case ToolResultPayload():
                self._result(at, event, payload)
            case CompactionPayload():
                self._compact(at, event, payload)
            case InterruptPayload():
                self._stop(event, payload)
            case SessionEndPayload():
                self.end_reason = payload.reason

    def contexts(self) -> list[ChatContext]:
        drafts = (draft for draft in self._drafts if draft.messages or len(self._drafts) == 1)
        return [ChatContext(tuple(self._answered(draft)), draft.complete) for draft in drafts]

    # Events

    def _starts(self, at: int, event: Event, payload: SessionStartPayload) -> None:
        self.start = payload  # the latest counts, as in the view `sessions`
        self._offer(payload.tools)
        self._system(at, event, payload.system)

    def _user(self, at: int, event: Event, payload: UserMessagePayload) -> None:
        self._turn += 1
        flags: set[Flag] = {"synthetic"} if payload.synthetic else set()
        if self._is_copy(event, payload):
            flags.add("copied")
        self._add(at, self._message("user", payload.text, event, flags))
        self.ending = None

    def _model(self, at: int, event: Event, payload: ModelCallPayload) -> None:
        if event.seq in self._seqs:
            event = event._replace(seq=None)  # it names another call
        elif event.seq is not None:
            self._seqs.add(event.seq)
        self._offer(payload.tools)
        self._system(at, event, payload.system)
        number, context = len(self.calls), self._context_of(at)
        flags = self._flags_of(at, event, payload)
        after, after_seq = self._last
        self.calls.append(
            ModelCall(
                number=number,
                turn=self._turn,
                ts_us=event.ts_us,
                seq=event.seq,
                event_id=event.event_id,
                call_id=payload.call_id,
                context=context,
                after=after,
                after_seq=after_seq,
                model=payload.model,
                checkpoint=event.checkpoint,
                source=event.source,
                finish_reason=payload.finish_reason,
                temperature=temperature_of(payload),
                flags=flags,
                tokens=None if payload.tokens is UNSET else payload.tokens,
            )
        )
        message = replace(
            self._message("assistant", payload.text or "", event, flags),
            reasoning=payload.thinking or None,
            tool_calls=tool_calls_of(payload),
            call=number,
        )
        if message.content or message.reasoning or message.tool_calls:
            self._add(at, message, context)
        self.ending = None

    def _result(self, at: int, event: Event, payload: ToolResultPayload) -> None:
        self.ending = None
        if at in self._matches.repeated:
            return
        message = replace(
            self._message("tool", text_of(payload.output), event, set()),
            tool_call_id=payload.call_id or None,
            name=payload.tool,
        )
        if at in self._matches.orphans:
            self._add(at, replace(message, flags=frozenset({"orphan"})))
        else:
            self._results[at] = message  # where it stands is settled at the end
            self._last = ("tool", event.seq)

    def _compact(self, at: int, event: Event, payload: CompactionPayload) -> None:
        system = [one for one in self._drafts[-1].messages if one[1].role == "system"]
        if len(system) == len(self._drafts[-1].messages):
            return  # nothing was compacted
        summary = payload.summary_call_id or ""
        if self._summaries.get(summary, at) > at:
            self._summed_up[self._summaries[summary]] = len(self._drafts) - 1
        text = self._texts.get(summary) or payload.summary
        self._drafts.append(_ContextDraft(system, complete=bool(text)))
        if text:
            self._add(at, self._message("user", text, event, {"summary", "synthetic"}))
        self.ending = None

    def _stop(self, event: Event, payload: InterruptPayload) -> None:
        self.ending = "interrupt" if event.type == "interrupt" else "error"
        if self.ending == "interrupt":
            self._interrupt(payload.call_id)

    # What they share

    def _system(self, at: int, event: Event, text: str | None) -> None:
        draft = self._drafts[-1]
        if text and not any(message.role == "system" for _, message in draft.messages[:1]):
            draft.messages.insert(0, (at, self._message("system", text, event, set())))

    def _offer(self, tools: object) -> None:
        if self.tools is None and isinstance(tools, Raw):
            self.tools = tools_of(tools)

    def _flags_of(self, at: int, event: Event, payload: ModelCallPayload) -> frozenset[Flag]:
        flags: set[Flag] = set()
        if payload.model == _NO_MODEL:
            flags.add("synthetic")
        if payload.call_id is not None and at == self._summaries.get(payload.call_id):
            flags.add("summary")
        if self._is_copy(event, payload) or self._is_repeated(payload):
            flags.add("copied")
        return frozenset(flags)

    def _is_copy(self, event: Event, payload: ModelCallPayload | UserMessagePayload) -> bool:
        return payload.is_copied_context or event.name in self._copied

    def _is_repeated(self, payload: ModelCallPayload) -> bool:
        """The same call, sent twice under different events."""
        if payload.call_id is None:
            return False
        call = (payload.call_id, payload.text, payload.thinking, tool_calls_of(payload))
        was_seen = call in self._seen
        self._seen.add(call)
        return was_seen

    def _context_of(self, at: int) -> int:
        """The latest; a summary belongs to the context that it sums up, even if it comes after
        the compaction."""
        return self._summed_up.get(at, len(self._drafts) - 1)

    def _interrupt(self, call_id: str | None) -> None:
        number = self._call_named(call_id)
        if number is None:
            return
        call = self.calls[number]
        self.calls[number] = replace(call, flags=call.flags | {"interrupted"})
        messages = self._drafts[call.context].messages
        for position in range(len(messages) - 1, -1, -1):
            at, message = messages[position]
            if message.call == number:
                flagged = replace(message, flags=message.flags | {"interrupted"})
                messages[position] = (at, flagged)
                return

    def _call_named(self, call_id: str | None) -> int | None:
        """The model call that has this id, or made the call of a tool that has it; else the last,
        if nothing was asked since."""
        if call_id is not None:
            for call in reversed(self.calls):
                if call.call_id == call_id:
                    return call.number
            for draft in reversed(self._drafts):
                for _, message in reversed(draft.messages):
                    if any(one.id == call_id for one in message.tool_calls):
                        return message.call
        last = self._drafts[-1].messages[-1:]
        return last[0][1].call if last else None

    def _message(
        self, role: Role, content: str, event: Event, flags: Iterable[Flag]
    ) -> ChatMessage:
        return ChatMessage(
            role=role,
            content=content,
            turn=self._turn,
            seq=event.seq,
            event_id=event.event_id,
            flags=frozenset(flags),
        )

    def _add(self, at: int, message: ChatMessage, context: int = -1) -> None:
        self._drafts[context].messages.append((at, message))
        self._last = (message.role, message.seq)

    def _answered(self, draft: _ContextDraft) -> Iterable[ChatMessage]:
        """The messages with the results behind the calls."""
        answers = [at for at, message in draft.messages if message.role == "assistant"]
        for position, (at, message) in enumerate(draft.messages, start=1):
            yield message
            next_answer = bisect_right(answers, at)
            later = answers[next_answer] if next_answer < len(answers) else None
            goes_on = position < len(draft.messages)
            for index, call in enumerate(message.tool_calls):
                yield from self._answer(at, index, call, message, later, goes_on=goes_on)

    def _answer(
        self,
        at: int,
        index: int,
        call: ToolCall,
        message: ChatMessage,
        later: int | None,
        *,
        goes_on: bool,
    ) -> Iterable[ChatMessage]:
        found = self._matches.of.get((at, index))
        if found is not None and found in self._results:
            result = self._results[found]
            flags = set(result.flags)
            if later is not None and found > later:
                flags.add("late")
            yield replace(
                result,
                tool_call_id=call.id or None,
                name=result.name or call.name,
                flags=frozenset(flags),
            )
        elif goes_on:
            yield ChatMessage(
                role="tool",
                content="",
                turn=message.turn,
                seq=message.seq,
                event_id=message.event_id,
                tool_call_id=call.id or None,
                name=call.name,
                flags=frozenset({"synthetic"}),
            )


def _matches(decoded: Sequence[tuple[Event, EventPayload]]) -> ToolMatches:
    asked: list[ToolRequest] = []
    answers: list[ToolAnswer] = []
    for at, (_, payload) in enumerate(decoded):
        if isinstance(payload, ModelCallPayload):
            calls = payload.tool_calls or ()
            asked += [ToolRequest(at, nth, one.id, one.name) for nth, one in enumerate(calls)]
        elif isinstance(payload, ToolResultPayload):
            answers.append(ToolAnswer(at, payload.call_id or None, payload.tool))
    return match_results(asked, answers)


def _summaries(decoded: Sequence[tuple[Event, EventPayload]]) -> dict[str, int]:
    """Where the model calls stand that wrote summaries, by their ids."""
    asked = {
        payload.summary_call_id for _, payload in decoded if isinstance(payload, CompactionPayload)
    }
    found: dict[str, int] = {}
    for at, (_, payload) in enumerate(decoded):
        if (
            isinstance(payload, ModelCallPayload)
            and payload.call_id is not None
            and payload.call_id in asked
        ):
            found.setdefault(payload.call_id, at)
    return found
