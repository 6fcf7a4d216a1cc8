"""Single calls of models, from a log or an export, put together to sessions.

A call repeats earlier messages. Calls that continue each other make one session, in which each
message appears once. If the source names a session, its first call begins that session. A later
call that continues none, such as a subagent's, begins a child session.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar

import msgspec

from penstock.events.messages import Message, json_of
from penstock_jobs.importers.fields import Row, digest_of
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import columns_of, is_export, rows_of
from penstock_jobs.importers.transcript import SessionDraft

#: An export is sorted and put together in pieces of this size.
_PIECE_BYTES = 32 * 1024 * 1024


class ExportedCall(msgspec.Struct, frozen=True, kw_only=True):
    #: Identifies this call. The id of a session that it begins is made of it.
    id: object
    began_us: int
    messages: Sequence[Message]
    #: None if the call failed, or if its answer was not kept.
    answer: Message | None
    ended_us: int | None = None
    session: str | None = None
    #: Span ids, if calls are spans: two tracers may report one call twice.
    span: str | None = None
    parent: str | None = None
    user: str | None = None
    tools: object = None
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    error: str | None = None


#: A call, or a finished event, such as a score of a session.
Exported = ExportedCall | ImportedEvent


class CallImporter(Importer):
    """A format whose files hold calls of models, one by one."""

    #: A file is recognised if all patterns of one group occur in its beginning.
    marks: ClassVar[Sequence[Sequence[re.Pattern[bytes]]]]
    #: A Parquet file is recognised if it has all columns of one group.
    columns: ClassVar[Sequence[set[str]]] = ()
    #: Names under which a document may hold its rows.
    holders: ClassVar[Sequence[str]] = ()

    def recognises(self, candidate: Candidate) -> bool:
        if not is_export(candidate):
            return False
        begins, columns = candidate.beginning, columns_of(candidate)
        marked = any(all(mark.search(begins) for mark in each) for each in self.marks)
        return marked or any(each <= columns for each in self.columns)

    @abstractmethod
    def calls(self, row: Row, source: Source, notes: Notes, where: str) -> Iterator[Exported]: ...

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        """Read an export, whose calls may be in any order, in pieces of 32 MiB.

        A session that continues in the next piece repeats its earlier answers there, as copies."""
        piece: list[Exported] = []
        begins = source.progress.position
        for where, row in rows_of(source, notes, *self.holders):
            piece += self.calls(row, source, notes, where)
            if source.progress.position - begins > _PIECE_BYTES:
                yield from _session_events(piece, self.name, notes)
                piece, begins = [], source.progress.position
        yield from _session_events(piece, self.name, notes)

    def reward(
        self, session: str, key: object, ts_us: int, given_by: object, **payload: Any
    ) -> ImportedEvent:
        """Make an event of a score that somebody gave to a session, or to a call in it."""
        draft = SessionDraft(session, self.name, ts_us, Notes(""))
        payload["given_by"] = f"{self.name}:{str(given_by).lower()}"
        return draft.add("x_reward", payload, f"score-{key}")


def skip_other(notes: Notes, kind: object, example: object) -> None:
    """Note a row that is not a call, such as a step of a program, a search or a run of a tool."""
    notes.skip(f"{str(kind or 'row of no kind').lower()[:40]} that is not a model call", example)


def _session_events(piece: Iterable[Exported], form: str, notes: Notes) -> Iterator[ImportedEvent]:
    items = list(piece)
    calls = [item for item in items if isinstance(item, ExportedCall)]
    spans = {call.span for call in calls if call.span}
    sessions = CallSessions(form, notes)
    for call in sorted(calls, key=lambda each: (each.began_us, str(each.id))):
        if call.parent in spans and call.parent != call.span:
            notes.skip("call within a call, which repeats it", call.span)
        else:
            yield from sessions.take(call)
    yield from (item for item in items if isinstance(item, ImportedEvent))


class CallSessions:
    """The sessions of calls, which come in order of time as far as the source keeps it."""

    def __init__(self, form: str, notes: Notes) -> None:
        self._form, self._notes = form, notes
        #: By the source's session, and the hash of the conversation that a call may continue.
        self._sessions: dict[tuple[str | None, str], SessionDraft] = {}
        self._first: set[str] = set()

    def take(self, call: ExportedCall) -> Iterator[ImportedEvent]:
        _, *hashes = accumulate(call.messages, _next_hash, initial="")
        ends = (at for at in reversed(range(len(hashes))))
        known = next((at for at in ends if (call.session, hashes[at]) in self._sessions), -1)
        if known >= 0:
            session = self._sessions[call.session, hashes[known]]
        else:
            session = self._new_session(call, hashes)
        sent = len(session.made)
        # New messages. Answers among them were given before the log begins.
        session.clock_us = call.began_us
        for message, chain in zip(call.messages[known + 1 :], hashes[known + 1 :], strict=True):
            if message.role == "assistant":
                session.add_message(message, f"{chain}:copy", is_copied_context=True)
            else:
                session.add_message(message, chain)
        end = _add_answer(session, call, hashes[-1] if hashes else "")
        self._sessions[call.session, end] = session
        yield from session.finished()[sent + 1 if sent else 0 :]

    def _new_session(self, call: ExportedCall, hashes: Sequence[str]) -> SessionDraft:
        digest = digest_of(hashes[-1:], call.id)[:16]
        name, parent = f"calls-{digest}", None
        if call.session in self._first:
            name, parent = f"{call.session}/{digest}", call.session
        elif call.session is not None:
            self._first.add(name := call.session)
        session = SessionDraft(name, self._form, call.began_us, self._notes)
        session.user = call.user
        session.start = {"tools": call.tools or None, "parent_session": parent}
        return session


def _add_answer(session: SessionDraft, call: ExportedCall, said: str) -> str:
    """Add a call's answer. Returns the hash of the conversation with it."""
    if call.ended_us is not None:
        session.clock_us = call.ended_us
    if call.answer is None:
        message = call.error or "the export holds no answer of this call"
        payload = {"message": message, "call_id": call.facts.get("call_id")}
        session.add("error", payload, f"{digest_of(said, call.id)}:error")
        return said
    key = _next_hash(said, call.answer)
    session.add_message(call.answer, key, **call.facts)
    return key


def _next_hash(before: str, message: Message) -> str:
    calls = [(call["name"] or "unknown", json_of(call["arguments"])) for call in message.calls]
    said: Any = (message.text or "").strip()
    call_id = None
    if message.role == "tool":
        [result] = message.outputs
        call_id, said = result.call_id, result.output
        said = said.strip() or None if isinstance(said, str) else said
    elif message.role != "assistant":
        results = [(output.call_id, output.output) for output in message.outputs]
        said = said or message.content or results or None
    return digest_of(before, message.role, said, calls, call_id)
