"""Calls of models as a log or an export keeps them, one by one, put together to sessions.

A call repeats what was said before. Calls that go on from each other are one session, and each
message is taken once. Whose session a call is, the source may say too: then the first call is the
session, and a call that does not go on from another, such as one of a subagent, begins a session
of its own with the first as its parent."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.events.messages import Message
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Source
from penstock_jobs.importers.transcript import SessionDraft, digest_of, json_of

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
    #: Of the `model_call` event.
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Score:
    """What somebody said a session was worth, or a call of it."""

    id: str
    session: str
    name: str
    value: object
    given_by: str
    ts_us: int
    comment: str | None = None
    call_id: str | None = None


class CallSessions:
    """The sessions of calls that come in the order of time, as far as the source has it."""

    def __init__(self, source: str) -> None:
        self._source = source
        #: By whose they are, and the chain of all that was said: what goes on from there.
        self._sessions: dict[tuple[str | None, str], _CallSession] = {}
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
        session.take(call, known + 1, chains)
        end = session.answer(call, chains[-1] if chains else "")
        self._sessions[call.session, end] = session
        yield from session.finished()[sent + 1 if sent else 0 :]

    def _begun(self, call: ExportedCall, chains: Sequence[str]) -> "_CallSession":
        digest = digest_of(chains[-1:], call.id)[:16]
        if call.session is None:
            return _CallSession(call, f"calls-{digest}", self._source)
        if call.session not in self._first:
            self._first.add(call.session)
            return _CallSession(call, call.session, self._source)
        session = _CallSession(call, f"{call.session}/{digest}", self._source)
        session.start["parent_session"] = call.session
        return session


class _CallSession(SessionDraft):
    def __init__(self, call: ExportedCall, name: str, source: str) -> None:
        super().__init__(name, source, call.began_us, user=call.user)
        self.start = {"tools": call.tools or None}

    def take(self, call: ExportedCall, new: int, chains: Sequence[str]) -> None:
        """What was said since the last call; answers among it were given before the log begins."""
        for message, chain in zip(call.messages[new:], chains[new:], strict=True):
            if message.role == "assistant":
                self.told(message, f"{chain}:copy", call.began_us, is_copied_context=True)
            else:
                self.told(message, chain, call.began_us)

    def answer(self, call: ExportedCall, said: str) -> str:
        if call.answer is None:
            message = call.error or "the export holds no answer of this call"
            name = digest_of(said, call.id)
            payload = {"message": message, "call_id": call.facts.get("call_id")}
            self.add("error", payload, f"{name}:error", call.ended_us)
            return said
        key = _chain(said, call.answer)
        self.told(call.answer, key, call.ended_us or call.began_us, **call.facts)
        return key


def sessions_of(
    items: Iterable[ExportedCall | Score], name: str, source: Source, notes: Notes
) -> Iterator[ImportedEvent]:
    """The sessions of an export, which need not be in the order of time. One longer than 32 MiB is
    read in pieces: a session that goes on in the next piece repeats there what was answered
    before, as copies."""
    piece: list[ExportedCall | Score] = []
    begins = source.progress.position
    for item in items:
        piece.append(item)
        if source.progress.position - begins > _PIECE_BYTES:
            yield from _chained(piece, name, notes)
            piece, begins = [], source.progress.position
    yield from _chained(piece, name, notes)


def _chained(
    piece: Iterable[ExportedCall | Score], name: str, notes: Notes
) -> Iterator[ImportedEvent]:
    items = list(piece)
    calls = [item for item in items if isinstance(item, ExportedCall)]
    spans = {call.span for call in calls if call.span}
    sessions = CallSessions(name)
    for call in sorted(calls, key=lambda each: (each.began_us, str(each.id))):
        if call.parent in spans and call.parent != call.span:
            notes.skip("call within a call, which tells the same again", call.span)
        else:
            yield from sessions.take(call)
    for score in items:
        if isinstance(score, Score):
            yield _reward(score, name)


def _reward(score: Score, source: str) -> ImportedEvent:
    payload = {
        "name": score.name,
        "value": score.value,
        "given_by": score.given_by,
        "comment": score.comment,
        "call_id": score.call_id,
    }
    draft = SessionDraft(score.session, source, score.ts_us)
    return draft.add("x_reward", payload, f"score-{score.id}")


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


def skip_other(notes: Notes, kind: object, example: object) -> None:
    """What an export has beside calls: steps of a program, searches, runs of tools."""
    notes.skip(f"{str(kind or 'row of no kind').lower()[:40]} that is no call of a model", example)


class CallImporter(Importer):
    """A format whose files hold calls of models, one by one."""

    @abstractmethod
    def calls(self, source: Source, notes: Notes) -> Iterator[ExportedCall | Score]: ...

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        yield from sessions_of(self.calls(source, notes), self.name, source, notes)
