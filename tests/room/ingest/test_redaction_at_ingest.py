"""What is planted in events is nowhere on disk afterwards: not in the log, in segments, in rejected
lines or in the database."""

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from penstock.backends.http.client import ServiceClient
from penstock.events.event import PAYLOADS, SCHEMA_VERSION
from penstock.events.frames import encode_unjudged
from penstock.events.redaction.rules import RedactionRulesInvalid
from penstock.ingest.file_import import event_importer
from penstock.ingest.gateway import Acceptor
from penstock.ingest.rejected_lines import list_rejected, replay_rejected
from penstock.lake.client import RemoteClient
from penstock.lake.tenant_redaction import read_redaction_counts
from tests.support import planted_secrets
from tests.support.lakes import HandLake, body_of, hand_lake, make_event
from tests.support.planted_secrets import ENCODINGS, SHAPED

FIELDS = ("session_id", "event_id", "source", "source_key", "checkpoint", "user", "project")
PAYLOAD: dict[str, dict[str, Any]] = {
    "session_start": {"client": "{}", "repo": "{}", "system": "{}", "tools": [{"n": "{}"}]},
    "user_message": {"text": "{}", "x_more": {"{}": ["{}"]}},
    "model_call": {
        "text": "{}", "thinking": "{}", "model": "{}", "sampling": {"{}": "{}"},
        "tool_calls": [{"id": "{}", "name": "{}", "arguments": {"a": ["{}"]}}],
        "tokens": {"prompt_ids": [1, 2], "completion_ids": [987654, 876543], "tokenizer": "{}"},
    },
    "tool_result": {"tool": "{}", "output": {"out": "{}", "lines": ["{}"]}},
    "edit": {"path": "{}", "before": "{}", "after": "{}"},
    "file_observed": {"path": "{}", "text": "{}"},
    "feedback": {"kind": "comment", "comment": "{}"},
    "vcs_commit": {"message": "{}", "files": ["{}"]},
    "test_result": {"command": "{}", "output": "{}"},
    "interrupt": {"reason": "{}"},
    "error": {"message": "{}"},
    "x_own": {"anything": {"{}": "{}"}},
}  # fmt: skip


def filled(value: Any, by: str) -> Any:
    if isinstance(value, dict):
        return {filled(name, by): filled(inner, by) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, by) for inner in value]
    return by if value == "{}" else value


def planted_events(secret: str, hidden: str, number: int) -> Iterator[dict[str, Any]]:
    for type_, payload in PAYLOAD.items():
        event = make_event(f"s{number}", 1, type_) | {"payload": filled(payload, hidden)}
        yield event | {"event_id": f"{type_}-{number}"}
    event = make_event(f"f{number}", 1)
    yield event | dict.fromkeys(FIELDS, f"a {secret}")
    yield event | {secret: 1, "payload": {"text": 1, "more": hidden}}  # rejected
    yield event | {"type": f"no {secret}"}  # rejected, with its type in the reason


def everything_on_disk(lake: HandLake, data: Path) -> str:
    """All files as they are, and the rows of Parquet, which are compressed."""
    parts = []
    for file in data.rglob("*"):
        if file.suffix == ".parquet":
            parts.append(json.dumps(pq.read_table(file).to_pylist(), default=str))
        elif file.is_file():
            parts.append(file.read_bytes().decode("latin-1"))
    parts += [json.dumps(str(entry)) for entry in list_rejected(lake.lake, limit=10_000)]
    return "\n".join(parts)


def test_the_payloads_here_are_those_of_all_types_with_texts() -> None:
    assert PAYLOADS.keys() - PAYLOAD.keys() == {"session_end", "compaction"}


def test_what_was_planted_is_nowhere_on_disk(tmp_path: Path) -> None:
    planted: list[str] = []
    with hand_lake(tmp_path) as lake:
        for number, (name, encode) in enumerate(ENCODINGS.items()):
            dice = random.Random(name)
            secret = SHAPED[number % len(SHAPED)](dice)
            hidden = encode(secret, dice)
            planted += [secret, hidden, json.dumps(hidden)[1:-1], secret[-12:]]
            lines = [json.dumps(event) for event in planted_events(secret, hidden, number)]
            lines += [f"no JSON {secret}", f'{{"cut": "{secret}']
            half = len(lines) // 2
            lake.store("\n".join(lines[:half]).encode())
            lake.send("\n".join(lines[half:]).encode())  # stays in the log
        assert lake.rows("select count(*) as n from events")[0]["n"] > 100
        on_disk = everything_on_disk(lake, tmp_path)
    assert [text for text in planted if text in on_disk] == []
    assert "987654" not in on_disk
    assert "[SECRET:" in on_disk


def test_equal_secrets_have_equal_placeholders_of_this_lake_alone(tmp_path: Path) -> None:
    secret = planted_secrets.github_token(random.Random(1))
    texts = []
    for name in ("one", "other"):
        with hand_lake(tmp_path / name) as lake:
            for number in (1, 2):
                event = make_event("s", number) | {"payload": {"text": secret}}
                lake.store([event])
            texts += [row["text"] for row in lake.rows("select text from user_messages")]
    assert len(texts) == 4
    assert texts[0] == texts[1] != texts[2] == texts[3]


@pytest.mark.parametrize("mode", ["drop", "quarantine"])
def test_a_refused_event_is_rejected_and_a_quarantined_one_can_be_taken_masked(
    tmp_path: Path, mode: str
) -> None:
    secret = planted_secrets.payment_key(random.Random(1))
    with hand_lake(tmp_path, redact_secrets=mode) as lake:
        lake.store([make_event("s", 1) | {"payload": {"text": secret}}, make_event("s", 2)])
        [entry] = list_rejected(lake.lake, limit=10)
        assert f"payment_key has the mode {mode}" in entry.reason
        assert secret.encode() not in entry.raw
        outcome = replay_rejected(lake.lake, lake.clock)
        assert outcome.accepted == (mode == "quarantine")
        lake.store()
        assert len(lake.rows("select * from events")) == 1 + (mode == "quarantine")


def test_what_came_into_the_log_past_a_gateway_is_masked_by_its_readers(tmp_path: Path) -> None:
    secret = planted_secrets.payment_key(random.Random(1))
    event = make_event("s", 1) | {"payload": {"text": f"use {secret}"}}
    with hand_lake(tmp_path) as lake:
        for version in (SCHEMA_VERSION, SCHEMA_VERSION + 1):
            lines = json.dumps(event).encode() + b"\nno JSON " + secret.encode()
            value = encode_unjudged(lines, "default", lake.clock.now_us(), version)
            lake.lake.log.append({0: [value]})
        [fresh] = lake.rows("select text from user_messages")
        lake.store()
        assert lake.rows("select text from user_messages") == [fresh]
        assert fresh["text"].startswith("use [SECRET:")
        entries = list_rejected(lake.lake, limit=10)
        assert len(entries) == 2
        assert not any(secret.encode() in entry.raw for entry in entries)
        # Queries masked them too; whoever stored them counted.
        lake.lake.redaction_tally.flush(lake.lake.database)
        counts = read_redaction_counts(lake.lake.database, "default")
        assert sum(each.matches for each in counts) == 4


def test_an_import_masks_before_it_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Service:
        sent = b""

        def send_events(self, content: bytes, **_more: object) -> dict[str, Any]:
            self.sent += content + b"\n"
            return {"accepted": content.count(b"session_id"), "rejected": []}

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    secret = planted_secrets.payment_key(random.Random(1))
    service = Service()
    for ndjson in (True, False):
        importer = event_importer(RemoteClient(cast(ServiceClient, service)))
        events = [make_event("s", 1) | {"payload": {"text": f"use {secret}"}}, make_event("s", 2)]
        importer.take_body(
            body_of(events) if ndjson else json.dumps(events).encode(), ndjson=ndjson
        )
        assert importer.summary.accepted == 2
        assert importer.summary.redacted == {"payment_key": 1}
    first, second, again, _ = service.sent.split(b"\n")[:4]
    assert secret.encode() not in service.sent
    assert json.loads(first)["payload"] == json.loads(again)["payload"]
    assert json.loads(second)["seq"] == 2
    assert (tmp_path / "penstock" / "redaction.key").exists()


def test_with_redaction_off_events_are_kept_as_they_are(tmp_path: Path) -> None:
    secret = planted_secrets.payment_key(random.Random(1))
    with hand_lake(tmp_path, redact_secrets="off") as lake:
        lake.store([make_event("s", 1) | {"payload": {"text": secret}}])
        assert lake.rows("select text from user_messages") == [{"text": secret}]


def test_nothing_is_taken_in_by_rules_that_cannot_be_used(tmp_path: Path) -> None:
    with (
        hand_lake(tmp_path, redaction_rules_file=str(tmp_path / "missing")) as lake,
        pytest.raises(RedactionRulesInvalid, match="missing"),
    ):
        lake.send([make_event("s", 1)])


def test_a_long_line_gives_others_their_turns(tmp_path: Path) -> None:
    words = [base64.b64encode(b"token %d and so on" % number).decode() for number in range(500)]
    line = make_event("s", 1) | {"payload": {"text": " ".join(words * 20)}}
    with hand_lake(tmp_path) as lake:
        acceptor = Acceptor("default", lake.lake.settings, lake.lake.log, lake.lake.redactor)
        pieces = list(acceptor.accept([json.dumps(line).encode()], lake.clock.now_us()))
    assert [piece.accepted for piece in pieces if piece.accepted] == [1]
    assert len(pieces) > 10
