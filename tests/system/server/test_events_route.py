"""POST /v1/events of a real server: what comes in, what is refused, and at what cost."""

import gzip
import json
import platform
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.backends.http.client import HttpAnswer
from penstock.core.metrics import CATALOGUE, PREFIX
from penstock.ingest.routes import ARRAY_BYTES_MAX
from tests.support.service import ENGINE_BYTES

KIB, MIB = 1024, 1024 * 1024
BODY, DECODED, EVENT = 4 * MIB, 20 * MIB, MIB


@pytest.fixture(scope="module")
def service(start: Callable[..., Any]) -> Iterator[Any]:
    with start(
        body_bytes_max=BODY,
        body_decoded_bytes_max=DECODED,
        event_bytes_max=EVENT,
        tenant_inflight_bytes_max=DECODED,
        inflight_bytes_max=4 * DECODED,
    ) as running:
        yield running


def event(session: str, text: str = "hi", **fields: object) -> bytes:
    ts = "2026-11-21T10:00:00Z"
    made = {"session_id": session, "ts": ts, "type": "user_message", "payload": {"text": text}}
    return json.dumps(made | fields).encode()


def lines(session: str, count: int) -> list[bytes]:
    return [event(session, event_id=f"e{i}") for i in range(count)]


def zstd(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(body)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def stored(service: Any, session: str, key: str = "admin") -> int:
    [row] = service.query(
        f"select count(*) as n from events where session_id = '{session}'", key=key
    )
    return int(row["n"])


def problem(reply: HttpAnswer, status: int) -> str:
    """The detail of an answer that must be a problem of this status."""
    assert reply.headers["content-type"] == "application/problem+json"
    body = reply.json()
    assert (reply.status, body["status"], body["type"]) == (status, status, "about:blank")
    assert body["title"]
    detail: str = body["detail"]
    return detail


# What comes in


def test_keys_that_are_nearly_right_are_told_in_the_answer(service: Any) -> None:
    payload = {"text": "hi", "usage": {"prompt_tokens": 3}}
    near = [event("near", type="model_call", payload=payload, event_id=f"n{n}") for n in range(2)]
    fine = event("near", type="model_call", payload={"usage": {"prompt": 3}}, event_id="f")
    answer = service.post("/v1/events", b"\n".join([fine, *near])).json()
    assert answer == {
        "accepted": 3,
        "rejected": [],
        "warnings": [
            {
                "key": "payload.usage.prompt_tokens",
                "known": "payload.usage.prompt",
                "events": 2,
                "line": 2,
            }
        ],
    }
    assert "warnings" not in service.post("/v1/events", fine).json()


FORMS: dict[str, tuple[Callable[[list[bytes]], bytes], str]] = {
    "ndjson": (b"\n".join, ""),
    "crlf": (lambda some: b"\r\n".join(some) + b"\r\n", "identity"),
    "array": (lambda some: b"[" + b",\n ".join(some) + b"]", ""),
    "gzip": (lambda some: gzip.compress(b"\n".join(some)), "gzip"),
    "gzip members": (lambda some: b"".join(gzip.compress(s + b"\n") for s in some), "GZIP"),
    "gzip array": (lambda some: gzip.compress(b"[" + b",".join(some) + b"]"), " x-gzip "),
    "zstd": (lambda some: zstd(b"\n".join(some)), "zstd"),
    "zstd frames": (lambda some: b"".join(zstd(s + b"\n") for s in [*some, b""]), "zstd"),
}


@pytest.mark.smoke
def test_each_form_of_body(service: Any) -> None:
    for name, (pack, encoding) in FORMS.items():
        headers = {"Content_Encoding": encoding} if encoding else {}
        reply = service.post("/v1/events", pack(lines(name, 7)), "ingest", **headers)
        assert (reply.status, reply.json()) == (200, {"accepted": 7, "rejected": []}), name
        assert reply.headers["content-type"] == "application/json"
    counts = service.query("select session_id, count(*) as n from events group by all")
    assert [row["n"] for row in counts if row["session_id"] in FORMS] == [7] * len(FORMS)


@pytest.mark.parametrize("body", [b"", b"\n\n", b"[]"])
def test_empty_body_is_no_events(service: Any, body: bytes) -> None:
    assert service.post("/v1/events", body).json() == {"accepted": 0, "rejected": []}


@pytest.mark.smoke
def test_bad_lines_are_told_by_number_and_cost_no_neighbour(service: Any) -> None:
    one, two, three = lines("partly", 3)
    body = b"\n".join([one, b"oops", b"", two, event("partly", type="user_massage"), three])
    answer = service.post("/v1/events", body).json()
    assert answer["accepted"] == 3
    assert [(line["line"], line["error"][:32]) for line in answer["rejected"]] == [
        (2, "not valid JSON: invalid characte"),
        (5, "unknown type 'user_massage'; kno"),
    ]
    assert stored(service, "partly") == 3


def test_ndjson_is_what_its_type_says(service: Any) -> None:
    """A log line in front of it is one bad line, and no array."""
    one, two = lines("typed", 2)
    body = b"[INFO] up, and\n" + one + b"\n" + two
    kind = "application/x-ndjson; charset=utf-8"
    answer = service.post("/v1/events", body, Content_Type=kind).json()
    assert answer["accepted"] == 2
    assert [line["line"] for line in answer["rejected"]] == [1]


# What is refused


def test_unknown_encoding_is_415_and_names_what_is_known(service: Any) -> None:
    reply = service.post("/v1/events", event("x"), Content_Encoding="br")
    assert problem(reply, 415) == ("The content encoding br is unknown; send gzip, zstd or none.")
    assert reply.headers["accept-encoding"] == "gzip, zstd"
    assert service.post("/v1/events", b"", Content_Encoding="gzip, zstd").status == 415


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
def test_damaged_compression_is_400_and_nothing_of_it_is_accepted(
    service: Any, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    damaged = pack(b"\n".join(lines("damaged", 500)))[:-3]
    reply = service.post("/v1/events", damaged, Content_Encoding=encoding)
    why = f"The request body could not be read: not valid {encoding}: "
    assert problem(reply, 400).startswith(why)
    assert stored(service, "damaged") == 0


@pytest.mark.parametrize("line", [b"1\n", b"\n"])
def test_body_of_junk_is_400_and_not_an_endless_list(service: Any, line: bytes) -> None:
    reply = service.post("/v1/events", line * 200_000)
    assert "more than 100000 of its lines are not events" in problem(reply, 400)


def test_bomb_is_413_at_flat_memory(service: Any) -> None:
    """What is read of it ends at the limit, whatever it says it holds."""
    service.post("/v1/events", gzip.compress(b" " * DECODED), Content_Encoding="gzip")
    before = service.peak_bytes()
    for encoding, pack in (("gzip", gzip.compress), ("zstd", zstd)):
        bomb = pack(b"\0" * MIB) * 2000
        reply = service.post("/v1/events", bomb, Content_Encoding=encoding)
        assert problem(reply, 413).startswith(
            f"The request body is over the limit of {DECODED} bytes after decompression."
        )
    assert service.peak_bytes() - before < 4 * DECODED + ENGINE_BYTES


def test_any_body_within_the_limits_fits_when_no_other_is_there(service: Any) -> None:
    """As sent and as decompressed it is not counted twice."""
    noise = json.dumps({"text": "".join(chr(33 + i * i % 89) for i in range(EVENT // 2))}).encode()
    line = b'{"session_id":"fits","ts":1795255200000000,"type":"x_a","payload":%s}\n' % noise
    body = line * (DECODED // len(line))
    plain = line * (BODY // len(line))
    assert service.post("/v1/events", plain).status == 200
    assert service.post("/v1/events", zstd(body), Content_Encoding="zstd").status == 200


def test_array_over_the_limit_is_413_and_says_what_may_be_larger(service: Any) -> None:
    array = b"[" + b"1," * (ARRAY_BYTES_MAX // 2) + b"1]"
    detail = problem(service.post("/v1/events", gzip.compress(array), Content_Encoding="gzip"), 413)
    limit = f"over the limit of {ARRAY_BYTES_MAX} bytes for an array after decompression"
    assert detail.startswith(f"The request body is {limit}; one event per line may be larger.")


def test_body_over_the_limit_is_413_and_the_connection_lives_on(service: Any) -> None:
    """Also for one line of 100 MB: it is refused by its announced length, and passed over."""
    client = service.client()
    for size in (BODY + 1, 100 * MIB):
        detail = problem(client.post("/v1/events", b"x" * size), 413)
        assert detail.startswith(f"The request body is over the limit of {BODY} bytes as sent.")
        assert client.get("/healthz").status == 200
    client.close()


# Keys


@pytest.mark.parametrize("header", [None, "", "Bearer pk_admin_nope", "Basic eDp5", "Bearer \xff"])
def test_without_a_known_key_it_is_401(service: Any, header: str | None) -> None:
    client = service.client()
    client._headers = {} if header is None else {"Authorization": header}
    reply = client.post("/v1/events", b"x" * MIB)
    assert "Authorization: Bearer <key>" in problem(reply, 401)
    assert reply.headers["www-authenticate"] == "Bearer"
    assert client.get("/healthz").status == 200  # on the same connection, past the body
    client.close()


@pytest.mark.smoke
def test_tenant_is_that_of_the_key(service: Any) -> None:
    """Whatever an event says of itself."""
    service.post("/v1/events", event("mine", tenant="bolt", event_id="e"), "ingest")
    service.post("/v1/events", event("mine", "theirs", event_id="e"), "bolt")
    [row] = service.query("select payload, extra from events where session_id = 'mine'")
    assert json.loads(row["payload"])["text"] == "hi"
    assert json.loads(row["extra"]) == {"tenant": "bolt"}
    assert stored(service, "mine", "bolt") == 1


# Clients that do not behave


def test_client_that_goes_away_leaves_nothing_behind(service: Any) -> None:
    """Neither of its events, of which some were whole, nor of the memory that they took."""
    body = b"\n".join(lines("gone", 100))
    for head in (f"Content-Length: {len(body) + 1}", "Transfer-Encoding: chunked"):
        with service.dial(head) as connection:
            chunked = b"%x\r\n%s\r\n" % (len(body), body)
            connection.sendall(chunked if "chunked" in head else body)
            service.wait_for(lambda: service.metric("inflight_bytes") >= len(body))
        service.wait_for(lambda: service.metric("inflight_bytes") == 0)
    assert stored(service, "gone") == 0


# Around it


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/event", 404),
        ("GET", "/%2e%2e/etc/passwd", 404),
        ("PUT", "/v1/query", 405),
        ("HEAD", "/v1/events", 405),
    ],
)
def test_unknown_route_or_method_is_a_problem(
    service: Any, method: str, path: str, status: int
) -> None:
    client = service.client()
    reply = client._request(method, path, None, {})
    if method != "HEAD":
        assert path in problem(reply, status).replace("/../", "/%2e%2e/")
    assert reply.status == status
    assert ("allow" in reply.headers) == (status == 405)
    client.close()


def test_health_needs_no_key(service: Any) -> None:
    assert service.get("/healthz").body == b"alive\n"
    service.wait_for(lambda: service.get("/readyz").status == 200)
    assert service.get("/readyz").json() == {"ready": True, "problems": [], "warnings": []}


def test_every_metric_is_exported_with_process_and_release_and_no_created_series(
    service: Any,
) -> None:
    reply = service.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = reply.body.decode()
    assert [name for name in CATALOGUE if f"# HELP {PREFIX}{name} " not in text] == []
    version = f'python="{platform.python_version()}",role="all",version="{penstock.__version__}"'
    assert f"{PREFIX}build_info{{{version}}} 1.0" in text
    assert float(re.findall(r"^process_cpu_seconds_total (.+)$", text, re.MULTILINE)[0]) > 0
    assert "_created" not in text


def test_refusals_and_events_are_counted(service: Any) -> None:
    service.post("/v1/events", event("counted") + b"\noops")
    service.post("/v1/events", b"", Content_Encoding="br")
    samples = ("events_accepted_total", "events_rejected_total")
    with service.client() as client:
        text = client.get("/metrics").body.decode()
    for sample in (*(f'{name}{{tenant="acme"}}' for name in samples), _REFUSED):
        assert f"{PREFIX}{sample} " in text
    text = service.get("/metrics").body.decode()
    for sample in (*samples, _REFUSED):
        assert f"{PREFIX}{sample} " in text


_REFUSED = 'requests_refused_total{status="415"}'


def test_no_scrape_names_a_tenant_that_its_key_is_not_of(service: Any) -> None:
    before = {key: _accepted(service, key) for key in ("admin", "bolt", None)}
    service.post("/v1/events", event("a", "1") + b"\n" + event("a", "2"))
    service.post("/v1/events", event("b", "1"), "bolt")
    after = {key: _accepted(service, key) for key in before}
    assert {key: after[key] - before[key] for key in before} == {"admin": 2, "bolt": 1, None: 3}
    bare = service.get("/metrics").body
    assert b'tenant="' not in bare
    assert b'channel="' not in bare
    assert b"acme" not in bare
    assert b"bolt" not in bare
    with service.client("bolt") as client:
        assert b"acme" not in client.get("/metrics").body


def _accepted(service: Any, key: str | None) -> float:
    """As a scrape with this key tells it."""
    name = f"{PREFIX}events_accepted_total"
    if key is None:
        lines = service.get("/metrics").body.decode().splitlines()
    else:
        with service.client(key) as client:
            lines = client.get("/metrics").body.decode().splitlines()
    values = [float(line.split()[-1]) for line in lines if re.match(rf"{name}[ {{]", line)]
    assert len(values) <= 1
    return sum(values)
