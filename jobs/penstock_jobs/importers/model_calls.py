"""Calls of models as a log or an export keeps them, one by one, put together to sessions.

A call repeats what was said before. Calls that go on from each other are one session, and each
message is taken once. Whose session a call is, the source may say too: then the first call is the
session, and a call that does not go on from another, such as one of a subagent, begins a session
of its own with the first as its parent.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.events.messages import Message, json_of
from penstock_jobs.importers.fields import Row, digest_of
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.stores import columns_of, is_export, rows_of
from penstock_jobs.importers.transcript import SessionDraft

#: So much of an export is put in the order of time, and chained, at once.
_PIECE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ExportedCall:
    #: What is this call's alone; the id of a session that it begins is made of it.
    id: object
    began_us: int
    messages: Sequence[Message]
    #: None where the call failed, or nobody kept what it gave.
    answer: Message | None
    ended_us: int | None = None
    session: str | None = None
    #: Its own id and its parent's where calls are spans: two tracers may tell one call twice.
    span: str | None = None
    parent: str | None = None
    user: str | None = None
    tools: object = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


#: A call, or an event that stands for itself, such as what somebody said a session was worth.
Exported = ExportedCall | ImportedEvent


class CallImporter(Importer):
    """A format whose files hold calls of models, one by one."""

    #: All of one of these stand in the beginning of a file, or are columns of a Parquet file.
    marks: ClassVar[Sequence[Sequence[re.Pattern[bytes]]]]
    columns: ClassVar[Sequence[set[str]]] = ()
    #: Under which names a document may hold its rows.
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
        """An export need not be in the order of time. One longer than 32 MiB is read in pieces: a
        session that goes on in the next piece repeats there what was answered, as copies."""
        piece: list[Exported] = []
        begins = source.progress.position
        for where, row in rows_of(source, notes, *self.holders):
            piece += self.calls(row, source, notes, where)
            if source.progress.position - begins > _PIECE_BYTES:
                yield from _chained(piece, self.name, notes)
                piece, begins = [], source.progress.position
        yield from _chained(piece, self.name, notes)

    def reward(
        self, session: str, key: object, ts_us: int, given_by: object, **payload: Any
    ) -> ImportedEvent:
        """What somebody said a session was worth, or a call of it."""
        draft = SessionDraft(session, self.name, ts_us, Notes(""))
        payload["given_by"] = f"{self.name}:{str(given_by).lower()}"
        return draft.add("x_reward", payload, f"score-{key}")


def skip_other(notes: Notes, kind: object, example: object) -> None:
    """What an export has beside calls: steps of a program, searches, runs of tools."""
    notes.skip(f"{str(kind or 'row of no kind').lower()[:40]} that is no call of a model", example)


def _chained(piece: Iterable[Exported], form: str, notes: Notes) -> Iterator[ImportedEvent]:
    items = list(piece)
    calls = [item for item in items if isinstance(item, ExportedCall)]
    spans = {call.span for call in calls if call.span}
    sessions = CallSessions(form, notes)
    for call in sorted(calls, key=lambda each: (each.began_us, str(each.id))):
        if call.parent in spans and call.parent != call.span:
            notes.skip("call within a call, which tells the same again", call.span)
        else:
            yield from sessions.take(call)
    yield from (item for item in items if isinstance(item, ImportedEvent))


class CallSessions:
    """The sessions of calls that come in the order of time, as far as the source has it."""

    def __init__(self, form: str, notes: Notes) -> None:
        self._form, self._notes = form, notes
        #: By whose they are, and the chain of all that was said: what goes on from there.
        self._sessions: dict[tuple[str | None, str], SessionDraft] = {}
        self._first: set[str] = set()

    def take(self, call: ExportedCall) -> Iterator[ImportedEvent]:
        chains = list(_chains(call.messages))
        ends = (at for at in reversed(range(len(chains))))
        known = next((at for at in ends if (call.session, chains[at]) in self._sessions), -1)
        if known >= 0:
            session = self._sessions[call.session, chains[known]]
        else:
            session = self._begun(call, chains)
        sent = len(session.made)
        # What was said since the last call; answers among it were given before the log begins.
        session.clock_us = call.began_us
        for message, chain in zip(call.messages[known + 1 :], chains[known + 1 :], strict=True):
            if message.role == "assistant":
                session.told(message, f"{chain}:copy", is_copied_context=True)
            else:
                session.told(message, chain)
        end = _answered(session, call, chains[-1] if chains else "")
        self._sessions[call.session, end] = session
        yield from session.finished()[sent + 1 if sent else 0 :]

    def _begun(self, call: ExportedCall, chains: Sequence[str]) -> SessionDraft:
        digest = digest_of(chains[-1:], call.id)[:16]
        name, parent = f"calls-{digest}", None
        if call.session in self._first:
            name, parent = f"{call.session}/{digest}", call.session
        elif call.session is not None:
            self._first.add(name := call.session)
        session = SessionDraft(name, self._form, call.began_us, self._notes)
        session.user = call.user
        session.start = {"tools": call.tools or None, "parent_session": parent}
        return session


def _answered(session: SessionDraft, call: ExportedCall, said: str) -> str:
    """The chain with which a call ended."""
    if call.ended_us is not None:
        session.clock_us = call.ended_us
    if call.answer is None:
        message = call.error or "the export holds no answer of this call"
        payload = {"message": message, "call_id": call.facts.get("call_id")}
        session.add("error", payload, f"{digest_of(said, call.id)}:error")
        return said
    key = _chain(said, call.answer)
    session.told(call.answer, key, **call.facts)
    return key


def _chains(messages: Sequence[Message]) -> Iterator[str]:
    chain = ""
    for message in messages:
        chain = _chain(chain, message)
        yield chain


def _chain(before: str, message: Message) -> str:
    calls = [(call["name"] or "unknown", json_of(call["arguments"])) for call in message.calls]
    said: Any = (message.text or "").strip()
    call_id = None
    if message.role == "tool":
        [told] = message.outputs
        call_id, said = told.call_id, told.output
        said = said.strip() or None if isinstance(said, str) else said
    elif message.role != "assistant":
        results = [(told.call_id, told.output) for told in message.outputs]
        said = said or message.content or results or None
    return digest_of(before, message.role, said, calls, call_id)
