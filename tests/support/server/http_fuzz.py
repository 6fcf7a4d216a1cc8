"""Requests made from the OpenAPI document, as it says and not as it says, the same at each run; and
whether each answer is one that the document declares."""

import gzip
import http.client
import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

#: An answer that takes longer is a finding.
_ANSWER_SECONDS_MAX = 180.0
_DEEP = 3
#: Texts that break what reads them carelessly, beside names that exist.
_TEXTS = [
    "", " ", "a", "production", "base", "better", "none such", "x" * 300, "x" * 20_000, "..", "/",
    "a/b", "a\\b", "%00", "\0", "\n", "a\u202eb", "é", "😀", "\ud800", "'; --", "{}", "null", "NaN",
    "sha256:" + "0" * 64, "sha256:" + "f" * 64, "2026-11-21T10:00:00Z", "-1", "1e400", "s-1",
    "select 1", "select * from events", "select 1/0 from", "from sessions limit 1",
    "file:///etc/passwd", "http://127.0.0.1:9/", "s3://bucket/x", "loaded", "engine", "whole",
]  # fmt: skip
_INTEGERS = [0, 1, -1, 2, 7, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**30]
_NUMBERS = [0.0, 0.01, 0.5, 1.0, -1.0, 1e-300, 1e300]
#: As query strings, where no number is.
_WRONG_WORDS = [
    "", "x", "1.5", "nan", "inf", "-inf", "1e999", "0x10", "\uff11", "true", "null", "1,2",
]  # fmt: skip
_ENCODINGS = ["gzip", "zstd", "br", "identity", "gzip, gzip", ""]
_TYPES = ["application/json", "application/x-ndjson", "text/plain", 'application/json; x="', ""]
_BODIES = [
    b"", b"null", b"[]", b"{}", b"[", b'{"a":', b"\xff\xfe", b"NaN", b'"a"', b"1" * 400, b"[" * 999,
    b'{"a":' * 3000, b'{"a":1,"a":2}', b"\x1f\x8b\x08garbage", b"\0" * 64,
]  # fmt: skip

Schema = Mapping[str, Any]


@dataclass
class Request:
    method: str
    #: As the document has it.
    path: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None

    def __str__(self) -> str:
        shown = {**self.headers, "Authorization": self.headers.get("Authorization", "")[:12]}
        return f"{self.method} {self.target[:300]} {shown} {(self.body or b'')[:300]!r}"


class Generator:
    """The requests for one service."""

    def __init__(self, document: Schema, keys: Mapping[str, str], seed: int) -> None:
        self._document = document
        self._keys = keys
        self._chance = random.Random(seed)

    def requests(self, each: int) -> Iterator[Request]:
        """So many of each operation."""
        operations = [
            (path, method, operation)
            for path, methods in self._document["paths"].items()
            for method, operation in methods.items()
        ]
        for _ in range(each):
            for path, method, operation in operations:
                yield self._request(path, method.upper(), operation)

    def _request(self, path: str, method: str, operation: Schema) -> Request:
        target, query = path, []
        for parameter in operation.get("parameters", []):
            name = parameter["name"]
            if parameter["in"] == "path":
                # It is decoded before it is routed: slashes alone make it another path.
                text = self._often(["production", "base", "better"], _TEXTS).strip("/") or "x"
                encoded = quote(text.encode(errors="surrogatepass"), safe="")
                target = target.replace(f"{{{name}}}", encoded)
            elif parameter["required"] or self._chance.random() < 0.5:
                query += [(name, self._word(name, parameter["schema"]))] * self._rarely(2, 1)
        if self._chance.random() < 0.05:
            query.append(("unknown", "1"))
        if query:
            target += "?" + urlencode(query, errors="surrogatepass")
        request = Request(method, path, target, self._headers())
        if "requestBody" in operation:
            self._add_body(request, operation["requestBody"]["content"])
        return request

    def _headers(self) -> dict[str, str]:
        headers = {}
        kind = self._often(["admin"], ["none", "read", "ingest", "nobody's", "serve", "promote"])
        if kind != "none":
            headers["Authorization"] = f"Bearer {self._keys.get(kind, kind)}"
        if self._chance.random() < 0.2:
            accepted = ["*/*", "text/html", "application/vnd.apache.arrow.stream", "x", ""]
            headers["Accept"] = self._chance.choice(accepted)
        if self._chance.random() < 0.1:
            headers["If-None-Match"] = self._chance.choice(["*", '"x"', 'W/"x", *', ","])
        return headers

    def _add_body(self, request: Request, content: Schema) -> None:
        kind, form = self._chance.choice(list(content.items()))
        request.headers["Content-Type"] = self._often([kind], _TYPES)
        if self._chance.random() < 0.15:
            request.body = self._chance.choice(_BODIES)
        elif kind == "application/x-ndjson":
            array = content["application/json"]["schema"]
            lines = [self._encoded(self._value(array["items"])) for _ in range(self._rarely(9, 2))]
            request.body = b"\n".join(lines)
        else:
            request.body = self._encoded(self._value(form["schema"]))
        if self._chance.random() < 0.1:
            encoding = self._chance.choice(_ENCODINGS)
            request.headers["Content-Encoding"] = encoding
            if encoding == "gzip" and self._chance.random() < 0.7:
                request.body = gzip.compress(request.body)

    def _word(self, name: str, schema: Schema) -> str:
        """A parameter of the query string."""
        if name == "wait":  # nobody waits for long here
            return self._often(["0.01"], [*_WRONG_WORDS, "0", "-1"])
        value = self._value(schema)
        if self._chance.random() < 0.25:
            return self._chance.choice(_WRONG_WORDS)
        return value if isinstance(value, str) else json.dumps(value)

    def _value(self, schema: Schema, depth: int = 0) -> Any:
        """Mostly what the schema allows."""
        if self._chance.random() < 0.06:
            return self._anything(depth)
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self._value(self._document["components"]["schemas"][name], depth)
        for several in ("oneOf", "anyOf"):
            if several in schema:
                return self._value(self._chance.choice(schema[several]), depth)
        if "enum" in schema:
            return self._often(list(schema["enum"]), ["other"])
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self._chance.choice(kind)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            count = self._chance.choice([0, 1, 1, 2, 5])
            return [self._value(schema.get("items", {}), depth + 1) for _ in range(count)]
        choices: dict[Any, list[Any]] = {
            "integer": _INTEGERS,
            "number": [*_NUMBERS, *_INTEGERS],
            "boolean": [True, False],
            "null": [None],
        }
        return self._chance.choice(choices.get(kind, _TEXTS))

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        made = {
            name: self._value(inner, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if self._chance.random() < (0.97 if name in required else 0.4)
        }
        if not schema.get("properties"):
            made[self._chance.choice(["text", "path", "before", "x"])] = self._anything(depth)
        if self._chance.random() < 0.04:
            made[self._chance.choice(_TEXTS)] = 1
        return made

    def _anything(self, depth: int) -> Any:
        plain: list[Any] = [
            None,
            True,
            self._chance.choice(_TEXTS),
            self._chance.choice(_INTEGERS),
            1e300,
        ]
        if depth < _DEEP:
            plain += [[self._anything(depth + 1)], {"a": self._anything(depth + 1)}, math.inf]
        return self._chance.choice(plain)

    def _encoded(self, value: Any) -> bytes:
        # Half characters as bytes that are no UTF-8, or as escapes.
        ascii_only = self._chance.random() < 0.5
        text = json.dumps(value, ensure_ascii=ascii_only)
        return text.encode("utf-8", "surrogatepass")

    def _often(self, usual: list[str], others: list[str]) -> str:
        return self._chance.choice(usual if self._chance.random() < 0.75 else others)

    def _rarely(self, many: int, few: int) -> int:
        return many if self._chance.random() < 0.05 else few


class Declarations:
    """What the document says of answers."""

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._validators: dict[tuple[str, str, str, str], Draft202012Validator] = {}

    def problem(self, request: Request, answer: http.client.HTTPResponse, body: bytes) -> str:
        """Why this answer is none that the operation declares; empty where it is."""
        method, status = request.method.lower(), str(answer.status)
        declared = self._document["paths"][request.path][method]["responses"].get(status)
        if answer.status >= 500 and answer.status != 503:
            return f"{status}: {body[:300]!r}"
        if declared is None:
            return f"the status {status} is not declared: {body[:300]!r}"
        kind = (answer.headers["content-type"] or "").partition(";")[0]
        content = declared.get("content", {})
        if not body and not content:
            return ""
        if kind not in content:
            return f"{status} as {kind!r} is not declared: {body[:300]!r}"
        if kind.endswith("json"):
            return self._unlike((request.path, method, status, kind), content[kind], body)
        return ""

    def _unlike(self, place: tuple[str, str, str, str], form: Schema, body: bytes) -> str:
        if place not in self._validators:
            schema = {**form.get("schema", {}), "components": self._document["components"]}
            self._validators[place] = Draft202012Validator(schema)
        try:
            self._validators[place].validate(json.loads(body))
        except (ValidationError, ValueError) as error:
            return f"{place[2]} has another schema: {str(error)[:400]}"
        return ""


def findings(
    url: str, document: Schema, keys: Mapping[str, str], seed: int, each: int
) -> Iterator[str]:
    """What the service answered and does not declare."""
    declarations = Declarations(document)
    address = urlsplit(url)
    for request in Generator(document, keys, seed).requests(each):
        connection = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=_ANSWER_SECONDS_MAX
        )
        try:
            connection.request(request.method, request.target, request.body, request.headers)
            answer = connection.getresponse()
            problem = declarations.problem(request, answer, answer.read())
        except (OSError, http.client.HTTPException) as error:
            problem = f"no answer: {error!r}"
        finally:
            connection.close()
        if problem:
            yield f"{request}\n    {problem}"
