"""The page of the HTTP API, from the OpenAPI document that a service answers with."""

import asyncio
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from litestar.exceptions import LitestarDeprecationWarning

from bench.reference import template
from penstock.core.room import rooms
from penstock.core.settings import load_settings
from penstock.doors.server.app import fields_of, make_app, type_text
from penstock.doors.server.service import Service
from penstock.lake.lake import open_or_make

Document = Mapping[str, Any]

#: Calls that are no `Call`, and so do not say who may make them. None needs no key.
_ROLES = {
    "POST /v1/events": ("ingest",),
    "POST /v1/traces": ("ingest",),
    "POST /v1/logs": ("ingest",),
    "POST /v1/metrics": ("ingest",),
    "POST /v1/query": ("read",),
    "POST /v1/checkpoints": ("train", "promote"),
    "GET /v1/channels/{name}": ("read", "serve", "promote"),
    "GET /healthz": None,
    "GET /readyz": None,
    "GET /metrics": None,
}
#: What neither types nor summaries say.
_NOTES = {
    "POST /v1/events": "[Send events over HTTP](../connect.md#send-events-over-http) has examples"
    " and limits.",
    "POST /v1/traces": "[OpenTelemetry](../connect.md#opentelemetry) says what becomes of them.",
    "POST /v1/logs": "[OpenTelemetry](../connect.md#opentelemetry) says what becomes of them.",
    "POST /v1/metrics": "[OpenTelemetry](../connect.md#opentelemetry) says what becomes of them.",
    "POST /v1/query": "[Ask](../ask.md) has the dialect and limits. `complete` is false when the"
    " log held more fresh events than one query may read. For an Arrow stream the headers"
    " `Penstock-Snap` and `Penstock-Complete` say the same. Close the connection to end a query.",
    "GET /v1/sessions": "At most 1,000 on a page. `words` are looked for in the texts of 200"
    " sessions for one page: `searched` says in how many, and `found` has the text around them. A"
    " page with few sessions or none may have a `next`. Counts as a query.",
    "GET /v1/sessions/{session_id}": "A page has 200 events or 4 MiB. Later pages have events"
    " alone. `rewards_cut_off` says whether rewards are missing. Rewards are by the newest"
    " definition, unless `definition` names another, by name or version. Counts as a query.",
    "POST /v1/checkpoints": "Files are looked at in"
    " [artifact roots](settings.md) alone; the service compares files on its own disk for an admin"
    " key alone.",
    "GET /v1/channels/{name}": "The answer has an `ETag`; `If-None-Match` is honoured.",
    "GET /v1/channels/{name}/history": "A hundred changes at most on a page.",
    "GET /v1/channels/{name}/audit": "`flaw` is the first version that is not as it was written.",
    "GET /v1/audit/verify": "`flaw` is the first entry that is not as it was written.",
    "POST /v1/channels/{name}/promote": "`expect` is the checkpoint that the channel should point"
    " at, by name or digest, or null for none; `expect_version` is the version of the channel. 409"
    " has `expected`, `found` and `version`. Other reasons for 409: the channel is pinned, or at"
    " that checkpoint already, or the state of the checkpoint does not allow it. 422 has `outcome`,"
    " `verdict` and `verdict_id`. `override` is for an admin key.",
    "POST /v1/channels/{name}/rollback": "The answer names the checkpoint that the channel `left`.",
    "POST /v1/channels/{name}/policy": "An admin gives it; it is a change of the channel.",
    "POST /v1/channels/{name}/replicas": "409 also where another sidecar reports under that name,"
    " or the channel has 2,000 replicas.",
    "POST /v1/suites/{suite}/results": "At most 16 MiB.",
    "GET /v1/labels/next": "It comes with what was said before it.",
    "POST /v1/labels": "`session_id`, `turn`, `message`, `drawn` and `until_us` are as"
    " `GET /v1/labels/next` gave them.",
    "POST /v1/consents": "The answer names the shards that it marks, and the checkpoints that"
    " learned from them.",
    "GET /v1/rewards/rates": "With `before` and `after`, which rates moved between the two.",
    "GET /v1/shards/{shard}": "With some sessions of each reason why they were `left_out`.",
    "GET /v1/shards/{shard}/samples": "At most 20 on a page.",
    "GET /v1/shards/{shard}/files/{name}": "At most 8 MiB at once; the manifest is `manifest.json`",
    "GET /metrics": "[Metrics](metrics.md) lists them.",
}


def http_page() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LitestarDeprecationWarning)
        document = asyncio.run(_document())
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    usual = _usual_words(operations)
    names = document["components"]["schemas"]
    parts = [template("http"), *(f"- {status}: {words}\n" for status, words in usual.items())]
    roles = _ROLES | {
        f"{endpoint.method} {_plain(endpoint.path)}": endpoint.roles
        for room in rooms()
        for endpoint in room.endpoints()
    }
    for name, operation in operations.items():
        parts += _operation(name, operation, roles[name], usual, names)
    parts.append("\n## What endpoints answer\n")
    for name, schema in sorted(names.items()):
        parts.append(f"\n### {name}\n\n{_sentence(schema.get('description'))}")
        parts += _fields(schema, names)
    return "".join(parts)


async def _document() -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        settings = load_settings(Path(folder), {"PENSTOCK_REQUEST_LOG": "none"})
        open_or_make(settings).close()
        service = Service(settings)
        transport = httpx.ASGITransport(app=make_app(service))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://penstock") as client:
            document: dict[str, Any] = (await client.get("/openapi.json")).json()
        service.lake.close()
    return document


def _plain(path: str) -> str:
    return path.replace(":path}", "}")


def _usual_words(operations: Mapping[str, Document]) -> dict[str, str]:
    """What most calls say of each status."""
    said: dict[str, Counter[str]] = {}
    for operation in operations.values():
        for status, answer in operation["responses"].items():
            said.setdefault(status, Counter())[answer["description"]] += 1
    most = {status: words.most_common(1)[0] for status, words in sorted(said.items())}
    return {
        status: words
        for status, (words, times) in most.items()
        if status >= "4" and 2 * times > said[status].total()
    }


def _operation(
    name: str,
    operation: Document,
    roles: tuple[str, ...] | None,
    usual: Mapping[str, str],
    names: Document,
) -> Iterator[str]:
    who = "No key is needed." if roles is None else f"Roles: {', '.join(_with_admin(roles))}."
    said = (operation["summary"], operation.get("description"), who, _NOTES.get(name))
    yield f"\n## {name}\n\n{' '.join(map(_sentence, filter(None, said)))}\n\n"
    for each in operation.get("parameters", ()):
        yield _field({**each, "about": each.get("description")}, names)
    for kind, body in (operation.get("requestBody") or {}).get("content", {}).items():
        if kind == "application/json" and "properties" in body["schema"]:
            yield from _fields(body["schema"], names)
    responses = dict(operation["responses"])
    shown = [
        f"`{kind}`" if _is_text(kind, schema) else _linked(type_text(schema), names)
        for kind, content in (responses.pop("200").get("content") or {}).items()
        if (schema := content.get("schema") or {}) is not None
    ]
    yield f"- Answer: {', or '.join(shown)}\n"
    known = [status for status, answer in responses.items() if _is_usual(usual, status, answer)]
    own = [
        f"{status} ({answer['description'].rstrip('.')})"
        for status, answer in responses.items()
        if status not in known
    ]
    if known or own:
        yield f"- Else: {', '.join([*known, *own])}\n"


def _with_admin(roles: tuple[str, ...]) -> list[str]:
    return [f"`{role}`" for role in dict.fromkeys([*roles, "admin"])]


def _is_text(kind: str, schema: Document) -> bool:
    return kind != "application/json" or not schema


def _is_usual(usual: Mapping[str, str], status: str, answer: Document) -> bool:
    return str(answer["description"]) == usual.get(status)


def _sentence(text: str | None) -> str:
    if not text:
        return ""
    text = " ".join(text.split())
    return text if text.endswith((".", ":")) else f"{text}."


def _fields(schema: Document, names: Document) -> Iterator[str]:
    for field in fields_of(schema):
        yield _field({**field, "about": field["description"]}, names)


def _field(field: Document, names: Document) -> str:
    needed = ", required" if field.get("required") else ""
    about = f": {_sentence(field['about'])}" if field.get("about") else ""
    return f"- `{field['name']}` {_linked(type_text(field['schema']), names)}{needed}{about}\n"


def _linked(text: str, names: Document) -> str:
    words = text.split(" ")
    return " ".join(f"[{word}](#{word.lower()})" if word in names else word for word in words)
