"""Finding hints in a slice: reads what was said of calls, and asks the recipe's sources."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import ChainMember, Relations, TurnKey, as_bucket
from penstock_jobs.rewards.followups.follow_ups import FollowUp, follow_ups_of
from penstock_jobs.rewards.followups.judge import DISSATISFIED
from penstock_jobs.rewards.requests import judgements_of, requests_of
from penstock_jobs.rewards.rows import payload_fields, row_tuples
from penstock_jobs.shards.conversation.conversation import Conversation
from penstock_jobs.shards.conversation.session_events import tool_calls_of
from penstock_jobs.shards.hints.hint import Hint, Report, ToldChain, WriteHints
from penstock_jobs.shards.hints.sources import SOURCES, WRITTEN
from penstock_jobs.shards.rows.preferences import Correction, texts_of
from penstock_jobs.shards.rows.token_credit import EditMark, edit_marks

_TABLES = ("turns", "model_calls", "edits", "feedback", "events")
_REPORTS = ("tool_result", "test_result", "feedback")
#: Judgements that say what was wrong. Mere displeasure names nothing.
_CORRECTING = DISSATISFIED - {"complains"}
#: A lower probability is too often a new wish: `python -m bench.hint_calls` shows what it costs.
_SURE = 0.8
#: Shorter lines are in many answers by chance.
_LINE_CHARS_MIN = 16


class HintFinder:
    """Finds the hints of a slice's chains."""

    def __init__(
        self,
        rows: pa.Table,
        sources: Sequence[str],
        *,
        tenant: str,
        as_of_us: int,
        chains: Mapping[str, str],
        corrections: Mapping[str, Sequence[Correction]],
        write: WriteHints | None = None,
    ) -> None:
        """`rows` are all columns of the events of whole `chains`, by session."""
        self._sources, self._corrections, self._write = sources, corrections, write
        subagents = _subagents(rows)
        members = {name: ChainMember(chain, name in subagents) for name, chain in chains.items()}
        known = rows.filter(pc.is_in(rows["session_id"], pa.array(members, pa.string())))
        bucket = as_bucket(
            known, tenant, as_of_us, relations=Relations(chains=members), tables=_TABLES
        )
        self._edits: dict[str, list[EditMark]] = edit_marks(known)
        self._reports = _reports(known)
        self._users = _users(known)
        numbers = {request: number for number, request in enumerate(requests_of(bucket).all)}
        self.requests: dict[TurnKey, int] = {
            turn: numbers[request] for turn, request in requests_of(bucket).of_turn.items()
        }
        self._messages: defaultdict[str, list[FollowUp]] = defaultdict(list)
        for said, judged in zip(follow_ups_of(bucket), judgements_of(bucket), strict=True):
            if judged.label in _CORRECTING and judged.dissatisfied >= _SURE:
                self._messages[chains[said.session_id]].append(said)

    def of_chain(self, chain: str, conversations: Sequence[Conversation]) -> dict[str, list[Hint]]:
        """Find hints by the session of the call, the recipe's first source first."""
        names = [each.session_id for each in conversations]
        if len(set().union(*(self._users[name] for name in names))) > 1:
            return {}  # nothing of another user
        told = ToldChain(
            conversations={each.session_id: each for each in conversations},
            messages=self._messages.get(chain, ()),
            reports=[report for name in names for report in self._reports.get(name, ())],
            corrections={name: self._corrections.get(name, ()) for name in names},
            edits={name: self._edits.get(name, ()) for name in names},
            requests=self.requests,
            write=self._write,
        )
        by_source: dict[str, list[Hint]] = {}
        for source in sorted(self._sources, key=WRITTEN.__eq__):  # it reads all others
            by_source[source] = [holds_answer(hint, told) for hint in SOURCES[source].find(told)]
            told = replace(told, hints=[*told.hints, *by_source[source]])
        found: dict[str, list[Hint]] = {}
        for hint in (hint for source in self._sources for hint in by_source[source]):
            found.setdefault(hint.call.session_id, []).append(hint)
        return found


def _subagents(rows: pa.Table) -> set[str]:
    """Find sessions of subagents: another agent writes the messages there."""
    rows = rows.filter(pc.equal(rows["type"], "session_start"))
    starts = row_tuples(rows, "session_id", "payload")
    return {name for name, payload in starts if payload_fields(payload).get("link") == "subagent"}


def _reports(rows: pa.Table) -> dict[str, list[Report]]:
    rows = rows.filter(pc.is_in(rows["type"], pa.array(_REPORTS)))
    found: defaultdict[str, list[Report]] = defaultdict(list)
    names = ("session_id", "ts", "seq", "event_id", "type", "payload")
    for session, ts_us, seq, event_id, kind, payload in row_tuples(rows, *names):
        found[session].append(Report(session, ts_us, seq, event_id, kind, payload_fields(payload)))
    return dict(found)


def _users(rows: pa.Table) -> dict[str, set[str]]:
    """Return the users that the events of each session name."""
    users: defaultdict[str, set[str]] = defaultdict(set)
    pairs = rows.group_by(["session_id", "user"]).aggregate([])
    for session, user in row_tuples(pairs, "session_id", "user"):
        users[session] |= {user} - {None}
    return users


# Solutions in hints: lines of later answers, word for word


def holds_answer(hint: Hint, chain: ToldChain) -> Hint:
    """Mark a hint that holds a line of a later answer, unless it was known before the call."""
    if not hint.answer_free:
        return hint
    own = chain.conversations[hint.call.session_id]
    moment = own.calls[hint.call.number].event.ts_us, hint.call
    lines = {
        line
        for place, facts in chain.calls
        if (facts.ts_us, place) > moment
        for text in _written(chain.conversations[place.session_id], place.number)
        for line in map(str.strip, text.splitlines())
        if len(line) >= _LINE_CHARS_MIN and line in hint.text
    }
    if not lines:
        return hint
    known = "\n".join(_told_before(own, hint.call.number))
    return replace(hint, answer_free=all(line in known for line in lines))


def _written(conversation: Conversation, call: int) -> Iterator[str]:
    """Yield what a call wrote: its text, and the texts in its tool calls."""
    payload = conversation.calls[call].payload
    yield payload.text or ""
    for tool in tool_calls_of(payload):
        yield from texts_of(tool.arguments)


def _told_before(conversation: Conversation, call: int) -> Iterator[str]:
    """Yield what the model had read, and what it had written with this call."""
    for message in conversation.messages:
        if message.call is None:
            yield message.content
        elif message.call > call:
            break
        else:
            yield from _written(conversation, message.call)
