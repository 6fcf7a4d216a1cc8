"""Sessions as a data set for the Hugging Face Hub: what its trace viewer reads, and signals.

A session is a file of lines: a header, then messages. Users, projects, token ids and files beyond
what messages show stay behind. A session gets a new id, so that importing the data set adds nothing
to the session that it comes from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.access.privacy.consents import decided_consents
from penstock.core.errors import PenstockError
from penstock.events.messages import present
from penstock.lake.client import LocalClient
from penstock_jobs.importers.fields import digest_of
from penstock_jobs.rewards.rows import quoted
from penstock_jobs.sessions.export import (
    Event,
    events_of_sessions,
    message_of_event,
    session_start,
    sessions_of,
)
from penstock_jobs.sessions.reading import sql_of
from penstock_jobs.shards.export import appearing_folder
from penstock_jobs.shards.publication import (
    CARD_NAME,
    DataCard,
    check_license,
    count_placeholders,
    redaction_report,
    table,
)

_TITLE_CHARS_MAX = 80
#: Names of the viewer's fields that differ from OpenAI's.
_FIELDS = {
    "reasoning_content": "reasoningContent", "tool_calls": "toolCalls",
    "tool_call_id": "toolCallId",
}  # fmt: skip
Facts = Mapping[str, Any]
_FACTS = """SELECT session_id, consent, coalesce(client, source, 'unknown') AS client,
    coalesce(model, 'unknown') AS model FROM sessions WHERE session_id IN ({sessions})"""


class NothingToPublish(PenstockError):
    """Nobody consented to {reasons}: no folder was made. `penstock consent set train` with --user,
    --project or --session says that data may be used."""


@dataclass
class PublishedSessions:
    sessions: int
    messages: int
    left_out: dict[str, int]


@dataclass
class _Content:
    """Counts of what is written, for the card."""

    left_out: Counter[str]
    sessions: int = 0
    roles: Counter[str] = field(default_factory=Counter)
    clients: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)

    def add(
        self, facts: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], text: bytes
    ) -> None:
        self.sessions += 1
        self.roles.update(line["message"]["role"] for line in lines[1:])
        self.clients[facts["client"]] += 1
        self.models[facts["model"]] += 1
        _, _, messages = text.decode().partition("\n")  # the header repeats the first
        self.masked += count_placeholders(messages)


def publish_sessions(
    client: LocalClient, query: str, licence: str, out: Path, as_of: str | None = None
) -> PublishedSessions:
    """Write the sessions that a query selects, and whose users consented, into a new folder.

    Raises InvalidInput and NothingToPublish."""
    check_license(licence)
    chosen, left_out = _consenting(client, sessions_of(client, query, as_of), as_of)
    if not chosen:
        reasons = ", ".join(f"{count} sessions ({reason})" for reason, count in left_out.items())
        raise NothingToPublish(reasons=reasons or "any session: the query selects none")
    content = _Content(left_out)
    with appearing_folder(out) as folder:
        (folder / "sessions").mkdir()
        for events in events_of_sessions(client, sorted(chosen), as_of):
            facts = chosen[events[0]["session_id"]]
            lines = trace_lines(events, facts)
            text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
            (folder / "sessions" / f"{public_id(facts['session_id'])}.jsonl").write_bytes(text)
            content.add(facts, lines, text)
        pq.write_table(_signals(client, sorted(chosen), as_of), folder / "signals.parquet")
        (folder / CARD_NAME).write_text(_card(licence, content).text(), encoding="utf-8")
    return PublishedSessions(content.sessions, content.roles.total(), dict(left_out))


def _consenting(
    client: LocalClient, names: Sequence[str], as_of: str | None
) -> tuple[dict[str, Facts], Counter[str]]:
    """Facts of the sessions that may be used, and a count of the others by reason."""
    decided = decided_consents(client.lake, client.caller.tenant, names)
    chosen: dict[str, Facts] = {}
    left_out: Counter[str] = Counter()
    for facts in _rows(client, _FACTS, names, as_of).to_pylist():
        name = facts["session_id"]
        if name in decided.denied or facts["consent"] == "no_train":
            left_out["consent_denied"] += 1
        elif name in decided.allowed or facts["consent"] == "train":
            chosen[name] = facts
        else:
            left_out["consent_unknown"] += 1
    return chosen, left_out


def public_id(session: str) -> str:
    return digest_of(session)[:24]


def trace_lines(events: Sequence[Event], facts: Facts) -> list[dict[str, Any]]:
    """Make the lines of a session in the Hub's Session Trace Simple Format."""
    start = session_start(events)
    lines: list[dict[str, Any]] = []
    if isinstance(system := start.get("system"), str):
        lines.append(_line({"role": "system", "content": system}, {}))
    for event in events:
        payload = event["payload"]
        if payload.get("is_copied_context") is True:  # the session that it comes from has it
            continue
        if (message := message_of_event(event["type"], payload)) is not None:
            when = {"timestamp": event["ts"] // 1000, "model": payload.get("model")}
            lines.append(_line(message, when))
    asked = (line["message"]["content"] for line in lines if line["message"]["role"] == "user")
    header = {
        "type": "session",
        "harness": facts["client"],
        "id": public_id(facts["session_id"]),
        "name": " ".join(next(asked, "").split())[:_TITLE_CHARS_MAX] or None,
        "client_version": start.get("client_version"),
        "tools": start.get("tools"),
    }
    return [present(header), *lines]


def _line(message: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    named = {_FIELDS.get(name, name): value for name, value in message.items()}
    return {"type": "message", "message": {"content": ""} | named | present(beside)}


def _signals(client: LocalClient, names: Sequence[str], as_of: str | None) -> pa.Table:
    rows = _rows(client, sql_of("signals.sql"), names, as_of)
    ids = pa.array([public_id(name.as_py()) for name in rows["session_id"]], pa.string())
    return rows.set_column(0, "session_id", ids)


def _rows(client: LocalClient, sql: str, names: Sequence[str], as_of: str | None) -> pa.Table:
    with client.rows(sql.format(sessions=quoted(names)), as_of) as answer:
        return answer.batches.read_all()


def _card(licence: str, content: _Content) -> DataCard:
    parts = {"traces": "sessions/*.jsonl", "signals": "signals.parquet"}
    title = f"{content.sessions} sessions of coding agents"
    tags = ("agent-traces", "format:agent-traces")
    card = DataCard(title, licence, content.sessions, parts, tags)
    card.body += [
        "`sessions/` has a file a session, which the trace viewer shows. `signals.parquet` has a"
        " row a message of a user: its text, what people and models labelled it as, and the"
        " rewards that Penstock computed for its turn and its session.",
        table(("role", "messages"), content.roles.most_common()),
        table(("client", "sessions"), content.clients.most_common()),
        table(("model", "sessions"), content.models.most_common()),
    ]
    card.add("Consent", "Each session has consent `train`, by itself or by a decision.")
    if content.left_out:
        card.body.append(table(("left out", "sessions"), sorted(content.left_out.items())))
    card.add("Redaction", *redaction_report(content.masked))
    return card
