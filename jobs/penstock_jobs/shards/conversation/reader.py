"""Reading a conversation: a session's events as messages.

A compaction begins a new context, with the summary and what follows. Tool results stand behind the
message that called the tools, in the order of the calls. A result without a known call stays at its
own place.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from penstock_jobs.shards.conversation.conversation import (
    ChatContext,
    ChatMessage,
    Conversation,
    Ending,
    Flag,
    ModelCall,
    Role,
    find_regenerations,
    marked,
)
from penstock_jobs.shards.conversation.session_events import (
    CompactionPayload,
    DecodedEvents,
    Event,
    EventPayload,
    FeedbackPayload,
    InterruptPayload,
    ModelCallPayload,
    SessionEndPayload,
    SessionStartPayload,
    ToolResultPayload,
    UserMessagePayload,
    decode_events,
    event_name,
    text_of,
    tool_calls_of,
    tools_of,
)

#: Claude Code's model name for messages of its harness.
NO_MODEL = "<synthetic>"


def read_conversation(
    session_id: str, events: Iterable[Event], *, copied: frozenset[str] = frozenset()
) -> Conversation:
    """Read events in any order. `copied` are names of events repeated from another session."""
    events = list(events)
    decoded, problems = decode_events(events)
    reader = _ConversationReader(decoded, copied)
    for at, (event, payload) in enumerate(decoded):
        reader.add(at, event, payload)
    moments = [event.ts_us for event, own in decoded if not isinstance(own, FeedbackPayload)]
    attempt = reader.start.task_id is not None or reader.start.group_id is not None
    taken_back = find_regenerations(reader.calls, reader.refused, attempt=attempt)
    return Conversation(
        session_id=session_id,
        contexts=tuple(marked(context, taken_back) for context in reader.contexts()),
        calls=tuple(reader.calls),
        tools=reader.tools,
        start=reader.start,
        end_reason=reader.end_reason,
        ending=reader.ending,
        first_us=min(moments, default=0),
        last_us=max(moments, default=0),
        problems=tuple(problems),
        redacted_from_us=min((event.ts_us for event in events if event.redacted), default=None),
    )


class _ToolRequest(NamedTuple):
    """The nth call of a tool in the model call at this place among the events."""

    at: int
    nth: int
    id: str
    tool: str


class _ToolMatches(NamedTuple):
    """Places of results: by call; without a known call; and repeated ones."""

    results: dict[tuple[int, int], int]
    orphans: set[int]
    repeated: set[int]


def _match_results(decoded: DecodedEvents) -> _ToolMatches:
    """Match results to calls.

    A result answers the last open call of its id before it, else the next after it. Without an id
    it answers the first open call of its tool in the previous model call."""
    by_place: dict[int, list[_ToolRequest]] = {}
    unanswered: defaultdict[str, list[_ToolRequest]] = defaultdict(list)
    for at, (_, payload) in enumerate(decoded):
        if isinstance(payload, ModelCallPayload) and payload.tool_calls:
            calls = enumerate(payload.tool_calls)
            by_place[at] = [_ToolRequest(at, nth, call.id, call.name) for nth, call in calls]
            for request in by_place[at]:
                unanswered[request.id].append(request)
    matches = _ToolMatches({}, set(), set())
    before: list[_ToolRequest] = []
    for at, (_, payload) in enumerate(decoded):
        before = by_place.get(at, before)
        if not isinstance(payload, ToolResultPayload):
            continue
        if payload.call_id:
            requests = _nearest(unanswered.get(payload.call_id, []), at)
        else:
            fitting = (request for request in before if payload.tool in (None, request.tool))
            requests = [request for request in fitting if request in unanswered[request.id]]
        if requests:
            answered = requests[0]
            unanswered[answered.id].remove(answered)
            matches.results[answered.at, answered.nth] = at
        elif payload.call_id and payload.call_id in unanswered:
            matches.repeated.add(at)
        else:
            matches.orphans.add(at)
    return matches


def _nearest(requests: list[_ToolRequest], at: int) -> list[_ToolRequest]:
    """Find the last request before this place, else the next; of parallel ones, the first."""
    place_of = attrgetter("at")
    later = bisect_left(requests, at, key=place_of)
    first = bisect_left(requests, requests[later - 1].at, key=place_of) if later else 0
    return requests[first : first + 1]


#: An unfinished context: messages with the places of their events.
_ContextDraft = list[tuple[int, ChatMessage]]


class _ConversationReader:
    """Reads a session's events in one pass. `contexts` puts results in their places."""

    def __init__(self, decoded: DecodedEvents, copied: frozenset[str]) -> None:
        self.calls: list[ModelCall] = []
        self.tools: str | None = None
        self.start = SessionStartPayload()
        self.end_reason: str | None = None
        self.ending: Ending | None = None
        self.refused: set[int] = set()
        self._copied = copied
        self._drafts: list[_ContextDraft] = [[]]
        self._turn = 0
        self._results: dict[int, ChatMessage] = {}
        self._known_calls: set[tuple[object, ...]] = set()
        self._seqs: set[int] = set()
        self._matches = _match_results(decoded)
        #: Places and texts of model calls that wrote summaries, by id.
        self._summaries: dict[str, tuple[int, str | None]] = {}
        payloads = [payload for _, payload in decoded]
        named = {each.summary_call_id for each in payloads if isinstance(each, CompactionPayload)}
        for at, payload in enumerate(payloads):
            if isinstance(payload, ModelCallPayload) and payload.call_id in named - {None}:
                self._summaries.setdefault(payload.call_id or "", (at, payload.text))
        #: Contexts of late summaries, by place.
        self._late_summaries: dict[int, int] = {}
        #: Role and event of the last message.
        self._last: tuple[Role, int | None] = ("user", None)

    def add(self, at: int, event: Event, payload: EventPayload) -> None:
        if isinstance(payload, UserMessagePayload | ModelCallPayload | ToolResultPayload):
            self.ending = None
        match payload:
            case SessionStartPayload():
                self.start = payload  # the latest counts, as in the view `sessions`
                self._offer(at, event, payload)
            case UserMessagePayload():
                self._turn += 1
                flags: set[Flag] = {"synthetic"} if payload.synthetic else set()
                if self._is_copy(event, payload):
                    flags.add("copied")
                self._add(at, self._message("user", payload.text, event, flags))
            case ModelCallPayload():
                self._add_call(at, event, payload)
            case ToolResultPayload():
                self._add_result(at, event, payload)
            case CompactionPayload():
                self._compact(at, event, payload)
            case InterruptPayload():
                self.ending = "interrupt" if event.type == "interrupt" else "error"
                if self.ending == "interrupt":
                    self._interrupt(payload.call_id)
            case SessionEndPayload():
                self.end_reason = payload.reason
            case FeedbackPayload():
                self._refuse(payload)

    def contexts(self) -> Iterator[ChatContext]:
        for draft in self._drafts:
            if draft or len(self._drafts) == 1:
                yield tuple(self._with_results(draft))

    def _offer(
        self, at: int, event: Event, payload: SessionStartPayload | ModelCallPayload
    ) -> None:
        self.tools = self.tools or tools_of(payload.tools)
        messages = self._drafts[-1]
        if payload.system and not (messages and messages[0][1].role == "system"):
            messages.insert(0, (at, self._message("system", payload.system, event)))

    def _add_call(self, at: int, event: Event, payload: ModelCallPayload) -> None:
        if event.seq in self._seqs:
            event = event._replace(seq=None)  # it names another call
        elif event.seq is not None:
            self._seqs.add(event.seq)
        self._offer(at, event, payload)
        number = len(self.calls)
        # A summary belongs to the summarized context, even after the compaction.
        context = self._late_summaries.get(at, len(self._drafts) - 1)
        tool_calls = tool_calls_of(payload)
        is_copy = self._is_copy(event, payload)
        if payload.call_id is not None and not is_copy:
            identity = (payload.call_id, payload.text, payload.thinking, tool_calls)
            is_copy = identity in self._known_calls  # sent twice under different events
            self._known_calls.add(identity)
        applies: dict[Flag, bool] = {
            "synthetic": payload.model == NO_MODEL,
            "summary": self._summaries.get(payload.call_id or "", (None,))[0] == at,
            "copied": is_copy,
        }
        flags = frozenset(flag for flag in applies if applies[flag])
        call = ModelCall(event, payload, number, self._turn, context, *self._last, flags)
        self.calls.append(call)
        content, reasoning = payload.text or "", payload.thinking or None
        more = {"reasoning": reasoning, "tool_calls": tool_calls, "call": number}
        if content or reasoning or tool_calls:
            message = self._message("assistant", content, event, flags, **more)
            self._add(at, message, context)

    def _is_copy(self, event: Event, payload: ModelCallPayload | UserMessagePayload) -> bool:
        name = event_name(event.event_id, event.source, event.source_key, event.ts_us, event.seq)
        return payload.is_copied_context or name in self._copied

    def _add_result(self, at: int, event: Event, payload: ToolResultPayload) -> None:
        if at in self._matches.repeated:
            return
        flags: set[Flag] = {"orphan"} if at in self._matches.orphans else set()
        names = {"tool_call_id": payload.call_id or None, "name": payload.tool}
        message = self._message("tool", text_of(payload.output), event, flags, **names)
        if flags:
            self._add(at, message)
        else:
            self._results[at] = message  # `contexts` places it
            self._last = ("tool", event.seq)

    def _compact(self, at: int, event: Event, payload: CompactionPayload) -> None:
        messages = self._drafts[-1]
        system = [(place, message) for place, message in messages if message.role == "system"]
        if len(system) == len(messages):
            return  # nothing was compacted
        place, written = self._summaries.get(payload.summary_call_id or "", (at, None))
        if place > at:
            self._late_summaries[place] = len(self._drafts) - 1
        text = written or payload.summary
        self._drafts.append(system)
        if text:
            self._add(at, self._message("user", text, event, {"summary", "synthetic"}))
        self.ending = None

    def _interrupt(self, call_id: str | None) -> None:
        if (number := self._call_named(call_id)) is None:
            return
        call = self.calls[number]
        self.calls[number] = replace(call, flags=call.flags | {"interrupted"})
        messages = self._drafts[call.context]
        for position, (at, message) in enumerate(messages):
            if message.call == number:
                flagged = replace(message, flags=message.flags | {"interrupted"})
                messages[position] = (at, flagged)

    def _refuse(self, payload: FeedbackPayload) -> None:
        """Note refusing feedback on the last answer. It may name a call, or nothing."""
        last = self.calls[-1:] if payload.refuses else []
        if last and payload.target in (None, last[0].payload.call_id):
            self.refused.add(last[0].number)

    def _call_named(self, call_id: str | None) -> int | None:
        """Find a model call by its id or a tool call's id; else the last one, if still current."""
        if call_id is not None:
            for call in reversed(self.calls):
                if call.payload.call_id == call_id:
                    return call.number
            for draft in reversed(self._drafts):
                for _, message in reversed(draft):
                    if any(tool_call.id == call_id for tool_call in message.tool_calls):
                        return message.call
        last = self._drafts[-1][-1:]
        return last[0][1].call if last else None

    def _message(
        self, role: Role, content: str, event: Event, flags: Iterable[Flag] = (), **more: Any
    ) -> ChatMessage:
        place = (self._turn, event.seq, event.event_id)
        return ChatMessage(role, content, *place, flags=frozenset(flags), **more)

    def _add(self, at: int, message: ChatMessage, context: int = -1) -> None:
        self._drafts[context].append((at, message))
        self._last = (message.role, message.seq)

    def _with_results(self, draft: _ContextDraft) -> Iterator[ChatMessage]:
        answers = [at for at, message in draft if message.role == "assistant"]
        for position, (at, message) in enumerate(draft, start=1):
            yield message
            next_answer = bisect_right(answers, at)
            for nth, call in enumerate(message.tool_calls):
                place = self._matches.results.get((at, nth))
                if place is not None:
                    result = self._results[place]
                    is_late = next_answer < len(answers) and place > answers[next_answer]
                    yield replace(
                        result,
                        tool_call_id=call.id or None,
                        name=result.name or call.name,
                        flags=result.flags | {"late"} if is_late else result.flags,
                    )
                elif position < len(draft):
                    yield ChatMessage(
                        *("tool", "", message.turn, message.seq, message.event_id),
                        tool_call_id=call.id or None,
                        name=call.name,
                        flags=frozenset({"synthetic"}),
                    )
