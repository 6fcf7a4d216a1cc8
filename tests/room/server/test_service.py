"""Starting and stopping in one process, and what a request waits for."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from litestar.exceptions import HTTPException

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.eventlog.log import LogUnwritable
from penstock.backends.http import BodyTooLarge
from penstock.backends.http import request_limits as body
from penstock.backends.http.problems import on_penstock_error
from penstock.core.errors import Backlogged, PenstockError, TooManyRequests
from penstock.core.lake_keys import SigningKeyUnfit
from penstock.core.settings import Settings, load_settings
from penstock.doors.server import app, service
from penstock.doors.server.app import make_app
from penstock.doors.server.service import Service
from penstock.doors.settings import ServerRole
from penstock.events.validation import PART_LINES
from penstock.ingest.gateway import Acceptor
from penstock.lake.lake import open_or_make
from tests.support.lakes import hand_lake


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = load_settings(tmp_path, environment={}, flags={"queries_max": 1})
    open_or_make(made).close()
    return made


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


async def start_and_stop(made: Service) -> None:
    async with made.running():
        assert {"group-commit", "writer", "upkeep"} <= threads()


def test_stop_ends_every_thread(settings: Settings) -> None:
    before = threads()
    asyncio.run(start_and_stop(Service(settings)))
    assert threads() <= before


@pytest.mark.parametrize(("role", "opens"), [("console", False), ("writer", True)])
def test_a_console_opens_no_event_log_for_warnings(
    settings: Settings, role: ServerRole, *, opens: bool
) -> None:
    made = Service(settings, role)
    made._refresh_warnings()
    assert (made.lake._log is not None) is opens
    made.lake.close()


@pytest.mark.parametrize("part", ["Writer", "Upkeep", "GroupCommit"])
def test_start_that_fails_leaves_no_thread_and_no_lock(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    before = threads()

    def fail(*_: object) -> None:
        raise DatabaseUnreachable(why="it is being moved")

    with monkeypatch.context() as patch:
        patch.setattr(service, part, fail)
        with pytest.raises(DatabaseUnreachable, match="it is being moved"):
            asyncio.run(start_and_stop(Service(settings)))
    assert threads() <= before
    asyncio.run(start_and_stop(Service(settings)))  # nothing stands in the way of the next


@pytest.mark.usefixtures("in_postgresql")
def test_a_service_says_that_no_key_signs_the_evidence(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Service(settings)
    asyncio.run(start_and_stop(made))
    assert "PENSTOCK_SIGNING_KEY_FILE" in str(made.warnings())
    assert "PENSTOCK_SIGNING_KEY_FILE" in "".join(capsys.readouterr())
    named = {"PENSTOCK_SIGNING_KEY_FILE": str(tmp_path / "missing.key")}
    with pytest.raises(SigningKeyUnfit, match="no such file"):
        asyncio.run(start_and_stop(Service(load_settings(tmp_path, environment=named))))


@pytest.mark.parametrize(
    ("error", "retry_after"),
    [
        (TooManyRequests(why="x", retry_after_s=7), "7"),
        (Backlogged(why="x"), "1"),
        (LogUnwritable(why="x", retry_after_s=5), "5"),
        (DatabaseUnreachable(why="x"), "5"),
    ],
)
def test_every_429_and_503_says_when_to_come_back(error: PenstockError, retry_after: str) -> None:
    answer = on_penstock_error(cast(Any, None), error)
    assert answer.status_code in (429, 503)
    assert answer.headers["Retry-After"] == retry_after


# What a request costs


@pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")
def test_what_anybody_may_read_is_made_once_and_not_on_the_loop(settings: Settings) -> None:
    """The page of the API takes a third of a second: whoever has no key could stop the service."""
    made = Service(settings, "console")
    transport = httpx.ASGITransport(app=cast(Any, make_app(made)))

    async def calls_on_the_loop(path: str) -> int:
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            sys.setprofile(count)
            try:
                answer = await client.get(path)
            finally:
                sys.setprofile(None)
        assert answer.status_code == 200
        return calls

    before = app._api_schema.cache_info().misses
    for path in ("/docs", "/openapi.json", "/docs", "/metrics"):
        assert asyncio.run(calls_on_the_loop(path)) < 20_000
    assert app._api_schema.cache_info().misses == before + 1
    assert made.calls.stop()


# Reading a body


class Sent:
    """A request whose body comes as these parts; `None` is a pause for ever."""

    def __init__(self, *parts: bytes | None, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._parts = parts

    async def stream(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            if part is None:
                await asyncio.Event().wait()
            else:
                yield part


def read(sent: Sent, held: list[int], bytes_max: int = 10) -> bytes:
    return asyncio.run(body.read_body(cast(Any, sent), bytes_max, held.append))


def test_body_is_held_as_it_comes() -> None:
    held: list[int] = []
    assert read(Sent(b"ab", b"", b"cde"), held) == b"abcde"
    assert sum(held) == 5


def test_body_over_the_limit_is_not_held_beyond_it() -> None:
    held: list[int] = []
    with pytest.raises(BodyTooLarge):
        read(Sent(b"12345", b"67890", b"1", b"never read"), held)
    assert sum(held) == 10
    with pytest.raises(BodyTooLarge):
        read(Sent(None, content_length="11"), held)


def test_client_that_sends_no_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a body must not hold its memory until the connection is found to be dead."""
    monkeypatch.setattr(body, "BODY_PAUSE_SECONDS_MAX", 0.01)
    with pytest.raises(HTTPException, match="The body stopped for") as given_up:
        read(Sent(b"ab", None), [])
    assert given_up.value.status_code == 408


def test_large_body_is_judged_in_small_steps(tmp_path: Path) -> None:
    """Between them other requests get their turn."""
    line = (
        b'{"session_id":"s","ts":1795255200000000,"type":"user_message","payload":{"text":"hi"}}\n'
    )
    with hand_lake(tmp_path) as lake:
        acceptor = Acceptor("t", lake.lake.settings, lake.lake.log, lake.lake.redactor)
        steps = [piece.accepted for piece in acceptor.accept([line * 10_000], 0)]
        small = [len(piece.rejections) for piece in acceptor.accept([b"1\n" * 10_000], 0)]
    assert sum(steps) == sum(small) == 10_000
    assert max(*steps, *small) <= 4096
    assert len(small) >= 10_000 // PART_LINES
