"""Which result answers which call of a tool, whatever the order in which they were told."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from msgspec import UNSET, Raw

from penstock_jobs.shards.conversation import (
    Context,
    Conversation,
    Ending,
    Flag,
    Message,
    ModelCall,
    Role,
)
from penstock_jobs.shards.session_events import (
    Event,
    Said,
    SaidCall,
    SaidCompaction,
    SaidEnd,
    SaidInterrupt,
    SaidMessage,
    SaidResult,
    SaidStart,
    ToolCall,
    in_order,
    read_events,
    temperature_of,
    text_of,
    tool_calls_of,
    tools_of,
)


class Asked(NamedTuple):
    """A call of a tool, at the place of its model call among the events."""

    at: int
    nth: int
    id: str
    tool: str


class Answer(NamedTuple):
    at: int
    #: None: the producer gives none, or an empty one.
    id: str | None
    tool: str | None


@dataclass(frozen=True, slots=True)
class Matches:
    #: The place of the result by the place and index of its call.
    of: dict[tuple[int, int], int]
    #: Places of results that no call is known for.
    orphans: frozenset[int]
    #: Places of results of calls that have one already; the first counts.
    repeated: frozenset[int]


def match_results(asked: Sequence[Asked], answers: Iterable[Answer]) -> Matches:
    """A result answers the last open call of its id before it; without one the next after it,
    where a clock was off. One without an id answers the first open call of its tool in the model
    call before it."""
    by_id: defaultdict[str, list[Asked]] = defaultdict(list)
    by_place: defaultdict[int, list[Asked]] = defaultdict(list)
    for one in asked:
        by_id[one.id].append(one)
        by_place[one.at].append(one)
    places = sorted(by_place)
    of: dict[tuple[int, int], int] = {}
    orphans, repeated = set(), set()
    last = 0
    for answer in sorted(answers):
        while last < len(places) and places[last] < answer.at:
            last += 1
        if answer.id is None:
            before = by_place[places[last - 1]] if last else []
            known = [one for one in before if answer.tool in (None, one.tool)]
            chosen = next((one for one in known if (one.at, one.nth) not in of), None)
        else:
            known = by_id.get(answer.id, [])
            chosen = _nearest(known, answer.at, of)
        if chosen is not None:
            of[chosen.at, chosen.nth] = answer.at
        elif answer.id is not None and known:
            repeated.add(answer.at)
        else:
            orphans.add(answer.at)
    return Matches(of, frozenset(orphans), frozenset(repeated))


def _nearest(known: list[Asked], at: int, of: dict[tuple[int, int], int]) -> Asked | None:
    split = bisect_left(known, at, key=_place)
    for position in range(split - 1, -1, -1):
        if known[position][:2] not in of:
            return _first_of_its_place(known, position, of)
    return next((one for one in known[split:] if one[:2] not in of), None)


def _first_of_its_place(known: list[Asked], position: int, of: dict[tuple[int, int], int]) -> Asked:
    """Of parallel calls with one id, the first that is open."""
    found = known[position]
    while position and known[position - 1].at == found.at:
        position -= 1
        if known[position][:2] not in of:
            found = known[position]
    return found


def _place(one: Asked) -> int:
    return one.at


#: Claude Code's name for what the harness says in the model's place.
_NO_MODEL = "<synthetic>"


def read_conversation(
    session_id: str, events: Iterable[Event], *, copied: frozenset[str] = frozenset()
) -> Conversation:
    """Whatever the order of the events. `copied` holds names of events that another session of
    the tenant told first. A session without legible events is an empty conversation."""
    told = read_events(in_order(events))
    teller = _Teller(told.events, copied)
    for at, (event, said) in enumerate(told.events):
        teller.tell(at, event, said)
    moments = [event.ts_us for event, _ in told.events]
    start = teller.start
    return Conversation(
        session_id=session_id,
        contexts=tuple(teller.contexts()),
        calls=tuple(teller.calls),
        tools=teller.tools,
        parent_session=start.parent_session,
        link=start.link,
        task_id=start.task_id,
        group_id=start.group_id,
        end_reason=teller.end_reason,
        ending=teller.ending,
        first_us=min(moments, default=0),
        last_us=max(moments, default=0),
        problems=tuple(told.problems),
    )


@dataclass(slots=True)
class _Draft:
    """A context that is being told."""

    messages: list[tuple[int, Message]] = field(default_factory=list)
    complete: bool = True


class _Teller:
    """Goes through a session's events once; `contexts` puts the results in their places."""

    def __init__(self, told: Sequence[tuple[Event, Said]], copied: frozenset[str]) -> None:
        self.calls: list[ModelCall] = []
        self.tools: str | None = None
        self.start = SaidStart()
        self.end_reason: str | None = None
        self.ending: Ending | None = None
        self._copied = copied
        self._drafts = [_Draft()]
        self._turn = 0
        self._results: dict[int, Message] = {}
        self._seen: set[tuple[object, ...]] = set()
        self._seqs: set[int] = set()
        self._matches = _matches(told)
        self._summaries = _summaries(told)
        self._texts = {
            call_id: said.text
            for call_id, at in self._summaries.items()
            if isinstance(said := told[at][1], SaidCall)
        }
        #: The context that a summary which is told late belongs to, by its place.
        self._summed_up: dict[int, int] = {}
        #: What was said last, by role and event.
        self._last: tuple[Role, int | None] = ("user", None)

    def tell(self, at: int, event: Event, said: Said) -> None:
        match said:
            case SaidStart():
                self._starts(at, event, said)
            case SaidMessage():
                self._user(at, event, said)
            case SaidCall():
                self._model(at, event, said)
            case SaidResult():
                self._result(at, event, said)
            case SaidCompaction():
                self._compact(at, event, said)
            case SaidInterrupt():
                self._stop(event, said)
            case SaidEnd():
                self.end_reason = said.reason

    def contexts(self) -> list[Context]:
        drafts = (draft for draft in self._drafts if draft.messages or len(self._drafts) == 1)
        return [Context(tuple(self._answered(draft)), draft.complete) for draft in drafts]

    # Events

    def _starts(self, at: int, event: Event, said: SaidStart) -> None:
        self.start = said  # the latest counts, as in the view `sessions`
        self._offer(said.tools)
        self._system(at, event, said.system)

    def _user(self, at: int, event: Event, said: SaidMessage) -> None:
        self._turn += 1
        flags: set[Flag] = {"synthetic"} if said.synthetic else set()
        if self._is_copy(event, said):
            flags.add("copied")
        self._add(at, self._message("user", said.text, event, flags))
        self.ending = None

    def _model(self, at: int, event: Event, said: SaidCall) -> None:
        if event.seq in self._seqs:
            event = event._replace(seq=None)  # it names another call
        elif event.seq is not None:
            self._seqs.add(event.seq)
        self._offer(said.tools)
        self._system(at, event, said.system)
        number, context = len(self.calls), self._context_of(at)
        flags = self._flags_of(at, event, said)
        after, after_seq = self._last
        self.calls.append(
            ModelCall(
                number=number,
                turn=self._turn,
                ts_us=event.ts_us,
                seq=event.seq,
                event_id=event.event_id,
                call_id=said.call_id,
                context=context,
                after=after,
                after_seq=after_seq,
                model=said.model,
                checkpoint=event.checkpoint,
                source=event.source,
                finish_reason=said.finish_reason,
                temperature=temperature_of(said),
                flags=flags,
                tokens=None if said.tokens is UNSET else said.tokens,
            )
        )
        message = replace(
            self._message("assistant", said.text or "", event, flags),
            reasoning=said.thinking or None,
            tool_calls=tool_calls_of(said),
            call=number,
        )
        if message.content or message.reasoning or message.tool_calls:
            self._add(at, message, context)
        self.ending = None

    def _result(self, at: int, event: Event, said: SaidResult) -> None:
        self.ending = None
        if at in self._matches.repeated:
            return
        message = replace(
            self._message("tool", text_of(said.output), event, set()),
            tool_call_id=said.call_id or None,
            name=said.tool,
        )
        if at in self._matches.orphans:
            self._add(at, replace(message, flags=frozenset({"orphan"})))
        else:
            self._results[at] = message  # where it stands is settled at the end
            self._last = ("tool", event.seq)

    def _compact(self, at: int, event: Event, said: SaidCompaction) -> None:
        system = [one for one in self._drafts[-1].messages if one[1].role == "system"]
        if len(system) == len(self._drafts[-1].messages):
            return  # nothing was compacted
        summary = said.summary_call_id or ""
        if self._summaries.get(summary, at) > at:
            self._summed_up[self._summaries[summary]] = len(self._drafts) - 1
        text = self._texts.get(summary) or said.summary
        self._drafts.append(_Draft(system, complete=bool(text)))
        if text:
            self._add(at, self._message("user", text, event, {"summary", "synthetic"}))
        self.ending = None

    def _stop(self, event: Event, said: SaidInterrupt) -> None:
        self.ending = "interrupt" if event.type == "interrupt" else "error"
        if self.ending == "interrupt":
            self._interrupt(said.call_id)

    # What they share

    def _system(self, at: int, event: Event, text: str | None) -> None:
        draft = self._drafts[-1]
        if text and not any(message.role == "system" for _, message in draft.messages[:1]):
            draft.messages.insert(0, (at, self._message("system", text, event, set())))

    def _offer(self, tools: object) -> None:
        if self.tools is None and isinstance(tools, Raw):
            self.tools = tools_of(tools)

    def _flags_of(self, at: int, event: Event, said: SaidCall) -> frozenset[Flag]:
        flags: set[Flag] = set()
        if said.model == _NO_MODEL:
            flags.add("synthetic")
        if said.call_id is not None and at == self._summaries.get(said.call_id):
            flags.add("summary")
        if self._is_copy(event, said) or self._is_repeated(said):
            flags.add("copied")
        return frozenset(flags)

    def _is_copy(self, event: Event, said: SaidCall | SaidMessage) -> bool:
        return said.is_copied_context or event.name in self._copied

    def _is_repeated(self, said: SaidCall) -> bool:
        """The same call, told twice under different events."""
        if said.call_id is None:
            return False
        told = (said.call_id, said.text, said.thinking, tool_calls_of(said))
        was_seen = told in self._seen
        self._seen.add(told)
        return was_seen

    def _context_of(self, at: int) -> int:
        """The latest; a summary belongs to the context that it sums up, even if it is told after
        the compaction."""
        return self._summed_up.get(at, len(self._drafts) - 1)

    def _interrupt(self, call_id: str | None) -> None:
        number = self._said_in(call_id)
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

    def _said_in(self, call_id: str | None) -> int | None:
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

    def _message(self, role: Role, content: str, event: Event, flags: Iterable[Flag]) -> Message:
        return Message(
            role=role,
            content=content,
            turn=self._turn,
            seq=event.seq,
            event_id=event.event_id,
            flags=frozenset(flags),
        )

    def _add(self, at: int, message: Message, context: int = -1) -> None:
        self._drafts[context].messages.append((at, message))
        self._last = (message.role, message.seq)

    def _answered(self, draft: _Draft) -> Iterable[Message]:
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
        message: Message,
        later: int | None,
        *,
        goes_on: bool,
    ) -> Iterable[Message]:
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
            yield Message(
                role="tool",
                content="",
                turn=message.turn,
                seq=message.seq,
                event_id=message.event_id,
                tool_call_id=call.id or None,
                name=call.name,
                flags=frozenset({"synthetic"}),
            )


def _matches(told: Sequence[tuple[Event, Said]]) -> Matches:
    asked: list[Asked] = []
    answers: list[Answer] = []
    for at, (_, said) in enumerate(told):
        if isinstance(said, SaidCall):
            calls = said.tool_calls or ()
            asked += [Asked(at, nth, one.id, one.name) for nth, one in enumerate(calls)]
        elif isinstance(said, SaidResult):
            answers.append(Answer(at, said.call_id or None, said.tool))
    return match_results(asked, answers)


def _summaries(told: Sequence[tuple[Event, Said]]) -> dict[str, int]:
    """Where the model calls stand that wrote summaries, by their ids."""
    asked = {said.summary_call_id for _, said in told if isinstance(said, SaidCompaction)}
    found: dict[str, int] = {}
    for at, (_, said) in enumerate(told):
        if isinstance(said, SaidCall) and said.call_id is not None and said.call_id in asked:
            found.setdefault(said.call_id, at)
    return found
