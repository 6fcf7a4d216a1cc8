"""What the proxy passes on, whom it speaks to, and what it keeps to itself."""

import http.client
import json
import random
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.planted_secrets import github_token
from tests.support.proxy.conversations import Setting, setting_of
from tests.support.recording_proxy import NOBODY, ask, recording_proxy
from tests.support.servers.scripted_answers import ScriptedAnswer
from tests.support.waiting import eventually

_CHAT = "/v1/chat/completions"
_HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with setting_of("plain", tmp_path_factory.mktemp("spool")) as made:
        yield made


def _raw(url: str, request: bytes) -> bytes:
    host, port = url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=60)) as client:
        client.sendall(request)
        parts = []
        while part := client.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_a_provider_is_asked_what_its_client_asked(plain: Setting) -> None:
    body = b'{ "model":"m",  "messages": [{"role":"user","content":"a"}] }'
    ask(plain.proxy.url, f"/s/as-is{_CHAT}?v=1", body, {"X-Api-Key": "k", "X-Own": "1"})
    asked = plain.engine.asked[-1]
    assert (asked.path, asked.body) == (f"{_CHAT}?v=1", body)
    assert asked.headers["x-own"] == "1"
    assert asked.headers["x-api-key"] == "k"
    assert asked.headers["host"] == plain.engine.url.removeprefix("http://")
    assert "tokens" not in plain.proxy.until("as-is", "model_call")[-1]["payload"]


def test_other_paths_are_passed_on_and_not_recorded(plain: Setting) -> None:
    before = plain.proxy.status()["calls"]
    assert ask(plain.proxy.url, "/v1/models", method="GET")[0] == 200
    assert ask(plain.proxy.url, "/s/x/v1/messages/count_tokens", {})[0] == 200
    assert plain.engine.asked[-1].path == "/v1/messages/count_tokens"
    assert plain.proxy.status()["calls"] == before


def test_headers_of_one_connection_stay_there(plain: Setting) -> None:
    headers = {
        "Connection": "close, X-Mine",
        "X-Mine": "1",
        "Keep-Alive": "timeout=5",
        "TE": "trailers",
        "Proxy-Authorization": "Basic x",
        "X-Penstock-Session": "hops",
    }
    ask(plain.proxy.url, _CHAT, _HELLO, headers)
    asked = plain.engine.asked[-1].headers
    named = {"connection", "x-mine", "keep-alive", "te", "proxy-authorization"}
    assert not named & set(asked)
    assert not [name for name in asked if name.startswith("x-penstock")]


@pytest.mark.parametrize(
    "line",
    [
        b"GET http://127.0.0.1:9/v1/models HTTP/1.1",
        b"GET //127.0.0.1:9/v1/models HTTP/1.1",
        b"GET /s/x/http://127.0.0.1:9/ HTTP/1.1",
    ],
)
def test_no_request_reaches_another_server(plain: Setting, line: bytes) -> None:
    before = len(plain.engine.asked)
    answer = _raw(plain.proxy.url, line + b"\r\nHost: 127.0.0.1:9\r\nConnection: close\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
    for asked in plain.engine.asked[before:]:
        assert asked.headers["host"] == plain.engine.url.removeprefix("http://")


def test_no_tunnel_is_opened(plain: Setting) -> None:
    request = b"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert b" 200 " not in _raw(plain.proxy.url, request).split(b"\r\n", maxsplit=1)[0]


def test_keys_and_secrets_are_not_recorded(plain: Setting) -> None:
    secret = github_token(random.Random(1))
    headers = {"Authorization": "Bearer sk-of-nobody", "X-Api-Key": "another-key"}
    body = _HELLO | {"messages": [{"role": "user", "content": f"use {secret}"}]}
    ask(plain.proxy.url, f"/s/secret{_CHAT}", body, headers)
    written = json.dumps(plain.proxy.until("secret", "model_call"))
    assert "[SECRET:" in written
    for each in (secret, "sk-of-nobody", "another-key"):
        assert each not in written
    assert plain.engine.asked[-1].document == body


def test_a_large_request_is_passed_on_and_not_recorded(plain: Setting) -> None:
    before = plain.proxy.status()["unrecorded"]
    body = _HELLO | {"padding": "x" * (65 * 1024 * 1024)}
    status, _, answer = ask(plain.proxy.url, f"/s/large{_CHAT}", body)
    assert (status, json.loads(answer)["object"]) == (200, "chat.completion")
    assert len(plain.engine.asked[-1].body) > 65 * 1024 * 1024
    assert plain.proxy.status()["unrecorded"] == before + 1
    assert not plain.proxy.recorded("large")


def test_a_request_in_pieces_is_one(plain: Setting) -> None:
    pieces = [b"%x\r\n%s\r\n" % (1, bytes([each])) for each in json.dumps(_HELLO).encode()]
    head = f"POST /s/pieces{_CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    request = head.encode() + b"Connection: close\r\n\r\n" + b"".join(pieces) + b"0\r\n\r\n"
    assert b" 200 " in _raw(plain.proxy.url, request).split(b"\r\n", maxsplit=1)[0]
    assert plain.proxy.until("pieces", "model_call")


def test_a_refusal_is_passed_on_and_an_error(plain: Setting) -> None:
    plain.engine.refusal = 429, '{"error": {"message": "too many", "type": "rate"}}'
    try:
        status, _, body = ask(plain.proxy.url, f"/s/refused{_CHAT}", _HELLO)
    finally:
        plain.engine.refusal = None
    assert (status, json.loads(body)["error"]["message"]) == (429, "too many")
    ask(plain.proxy.url, f"/s/refused{_CHAT}", _HELLO)
    events = plain.proxy.until("refused", "model_call")
    assert [e["type"] for e in events] == ["session_start", "user_message", "error", "model_call"]
    assert events[2]["payload"]["message"] == "429: too many"
    assert events[2]["payload"]["status"] == 429


def test_an_upstream_that_is_away_is_said_in_the_form_of_the_api(tmp_path: Path) -> None:
    with recording_proxy(NOBODY, tmp_path) as proxy:
        status, _, body = ask(proxy.url, "/s/away/v1/messages", _HELLO)
        assert (status, json.loads(body)["type"]) == (502, "error")
        event = proxy.until("away", "error")[-1]
    assert "cannot be reached" in event["payload"]["message"]


def test_an_answer_that_breaks_off_breaks_off_here_too(plain: Setting) -> None:
    before = plain.engine.script
    plain.engine.script = lambda _: ScriptedAnswer("It goes on and on.", breaks_after=4)
    try:
        with pytest.raises(http.client.IncompleteRead):
            ask(plain.proxy.url, f"/s/broken{_CHAT}", _HELLO | {"stream": True})
    finally:
        plain.engine.script = before
    events = plain.proxy.until("broken", "error")
    assert [event["type"] for event in events][-2:] == ["model_call", "error"]
    assert events[-2]["payload"]["finish_reason"] == "abort"
    assert "broke off" in events[-1]["payload"]["message"]


def test_whoever_goes_away_ends_the_call(plain: Setting) -> None:
    before, called_off = plain.engine.script, plain.engine.called_off
    plain.engine.script = lambda _: ScriptedAnswer("x" * 100_000, pace_s=0.002)
    host, port = plain.proxy.url.removeprefix("http://").split(":")
    body = json.dumps(_HELLO | {"stream": True}).encode()
    head = f"POST /s/gone{_CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    try:
        with closing(socket.create_connection((host, int(port)), timeout=60)) as client:
            client.sendall(head.encode() + body)
            assert client.recv(1000)
        eventually(lambda: plain.engine.called_off > called_off)
    finally:
        plain.engine.script = before
    kinds = [event["type"] for event in plain.proxy.until("gone", "interrupt")]
    assert kinds[:2] == ["session_start", "user_message"]
    assert kinds[-1] == "interrupt"
    assert "error" not in kinds
