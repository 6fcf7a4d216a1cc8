"""Token ids go of all calls that read something masked, whichever gateway they came by, in whatever
order, and in sessions that continue: the writer sees to it."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.events.frames import Sign, decode_frame
from penstock.ingest.gateway import Acceptor
from penstock.lake.tables import masked_session
from tests.support.lakes import START_US, Event, HandLake, make_event
from tests.support.planted_secrets import aws_key

pytestmark = pytest.mark.usefixtures("each_database")
SECRET = aws_key(random.Random(7))
#: What stands for the ids that decode to it: a number that is nowhere else.
MARKER = 918_273_645


def said(session: str, number: int, text: str = f"use {SECRET}") -> Event:
    return make_event(session, number, payload={"text": text})


def call(session: str, number: int, **fields: Any) -> Event:
    tokens = {"prompt_ids": [1, MARKER], "completion_ids": [2], "logprobs": [-0.5]}
    payload = {"call_id": f"c{number}", "text": "done", "tokens": tokens | {"tokenizer": "t"}}
    return make_event(session, number, "model_call", payload=payload, **fields)


def elsewhere(lake: HandLake, events: list[Event]) -> None:
    """By a gateway that was started since, or another one: it remembers no session."""
    lake.lake.__dict__.pop("redactor", None)
    lake.send(events)


def with_ids(lake: HandLake) -> set[tuple[str, int]]:
    rows = lake.rows("select session_id, seq, payload from events where type = 'model_call'")
    left = set()
    for row in rows:
        tokens = json.loads(row["payload"])["tokens"]
        assert ("prompt_ids" in tokens) != tokens.get("redacted", False)
        assert tokens["tokenizer"] == "t"
        if "prompt_ids" in tokens:
            left.add((row["session_id"], row["seq"]))
    return left


def test_a_call_at_another_gateway_loses_its_ids_also_on_disk(
    lake: HandLake, tmp_path: Path
) -> None:
    lake.send([said("s", 1), said("t", 1, "nothing")])
    elsewhere(lake, [call("s", 2)])
    lake.writer().drain()
    marker = str(MARKER).encode()
    files = (file for file in tmp_path.rglob("*") if file.is_file())
    assert not [file for file in files if marker in file.read_bytes()]
    elsewhere(lake, [call("s", 3), call("t", 3)])
    lake.writer().drain()
    assert with_ids(lake) == {("t", 3)}


def test_a_call_that_comes_first_loses_them_too(lake: HandLake, tmp_path: Path) -> None:
    """Within what one flush takes, whatever the order; earlier calls keep theirs."""
    elsewhere(lake, [call("s", 5), call("s", 1), call("s", 9)])
    elsewhere(lake, [said("s", 4)])
    lake.writer().drain()
    assert with_ids(lake) == {("s", 1)}


def test_a_session_that_goes_on_from_a_masked_one_keeps_none(lake: HandLake) -> None:
    lake.store([said("a", 1)])
    link = {"parent_session": "a", "link": "compaction"}
    below = {"parent_session": "b", "link": "fork"}
    elsewhere(
        lake,
        [
            make_event("c", 0, "session_start", payload=below),
            make_event("b", 0, "session_start", payload=link),
            call("b", 1),
            call("c", 1),
            call("d", 1),
        ],
    )
    lake.writer().drain()
    elsewhere(lake, [call("c", 2)])
    lake.writer().drain()
    assert with_ids(lake) == {("d", 1)}


def test_a_retry_is_a_duplicate_though_its_ids_were_dropped(lake: HandLake) -> None:
    lake.store([said("s", 1)])
    again = call("s", 2, event_id=None)
    for _ in range(2):
        elsewhere(lake, [again])
        lake.writer().drain()
    assert lake.stored().total() == 2


def test_an_erasure_forgets_which_sessions_were_masked(lake: HandLake) -> None:
    lake.store([said("s", 1), said("t", 1)])
    scope = ErasureScope("default", "session", "s", START_US + 10**12)
    carry_out(lake.lake, order_erasure(lake.lake, scope, reason="", by="tester"))
    with lake.lake.database.read() as connection:
        assert list(connection.scalars(sa.select(masked_session.c.session_id))) == ["t"]


def test_a_gateway_says_what_it_saw(lake: HandLake) -> None:
    """So that the writer does not look at each line again."""

    def signs_of(*events: Event) -> list[list[Sign] | None]:
        acceptor = Acceptor("default", lake.lake.settings, lake.lake.log, lake.lake.redactor)
        body = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
        values = [
            value
            for piece in acceptor.accept([body], START_US)
            for of_partition in piece.values.values()
            for value in of_partition
        ]
        return [decode_frame(value).header.signs for value in values]

    plain = said("s", 1) | {"payload": {"text": "hi"}}
    assert signs_of(plain) == [[]]
    assert signs_of(plain, said("s", 1)) == [["placeholders"]]
    assert signs_of(plain, call("t", 1)) == [["token_ids"]]
