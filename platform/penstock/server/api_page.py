"""`/docs`: the OpenAPI document as a page, on which calls are tried. All of it is in the answer:
nothing is fetched from anywhere but this service."""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from litestar import MediaType, Request, Response, get

_REFERENCE = "#/components/schemas/"
_POLICY = (
    "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
#: Schemas of parameters, fields and bodies are named in one line; deeper than this is `…`.
_DEPTH_MAX = 4

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """A parameter, or a field of a schema."""

    name: str
    #: In one line, such as `list of Refused`.
    type: str
    required: bool
    description: str
    #: `path` or `query`, of a parameter.
    place: str = ""


@dataclass(frozen=True)
class Body:
    media_type: str
    type: str
    fields: list[Field]


@dataclass(frozen=True)
class DeclaredAnswer:
    status: str
    description: str
    #: By media type.
    types: dict[str, str]


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    summary: str
    description: str
    needs_key: bool
    parameters: list[Field]
    bodies: list[Body]
    answers: list[DeclaredAnswer]

    @property
    def anchor(self) -> str:
        return f"{self.method}{self.path}".replace("/", "-").replace("{", "").replace("}", "")


@dataclass(frozen=True)
class NamedSchema:
    name: str
    description: str
    fields: list[Field]


def operations(document: Document) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            yield Operation(
                method=method.upper(),
                path=path,
                summary=operation.get("summary", ""),
                description=operation.get("description", ""),
                needs_key={} not in operation.get("security", [{}]),
                parameters=[_parameter(each) for each in operation.get("parameters", [])],
                bodies=[
                    Body(kind, type_text(each["schema"]), list(_fields(each["schema"])))
                    for kind, each in content.items()
                ],
                answers=[_answer(*each) for each in sorted(operation["responses"].items())],
            )


def schemas(document: Document) -> Iterator[NamedSchema]:
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield NamedSchema(name, schema.get("description", ""), list(_fields(schema)))


def _parameter(parameter: Document) -> Field:
    return Field(
        parameter["name"],
        type_text(parameter["schema"]),
        bool(parameter.get("required")),
        parameter.get("description", ""),
        parameter["in"],
    )


def _answer(status: str, response: Document) -> DeclaredAnswer:
    types = {
        kind: type_text(each.get("schema", {}))
        for kind, each in response.get("content", {}).items()
    }
    return DeclaredAnswer(status, response.get("description", ""), types)


def _fields(schema: Document) -> Iterator[Field]:
    if schema.get("type") == "array":
        schema = schema.get("items", {})
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        yield Field(name, type_text(each), name in required, each.get("description", ""))


def type_text(schema: Document, depth: int = 0) -> str:
    """A schema in one line."""
    if depth > _DEPTH_MAX:
        return "…"
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFERENCE)
    for several in ("oneOf", "anyOf"):
        if several in schema:
            texts = (type_text(each, depth + 1) for each in schema[several])
            return " or ".join(dict.fromkeys(texts))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {type_text(schema.get('items', {}), depth + 1)}"
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"object of {type_text(values, depth + 1)}"
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


@cache
def _template() -> jinja2.Template:
    text = files("penstock.server").joinpath("api_page.html.jinja").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(text)


@get("/docs", media_type=MediaType.HTML, include_in_schema=False, sync_to_thread=False)
def get_docs(request: Request[Any, Any, Any]) -> Response[str]:
    document: Document = request.app.openapi_schema.to_schema()
    nonce = secrets.token_urlsafe(16)
    page = _template().render(
        version=document["info"]["version"],
        operations=list(operations(document)),
        schemas=list(schemas(document)),
        nonce=nonce,
    )
    headers = {
        "Content-Security-Policy": _POLICY.format(nonce=nonce),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",  # each answer has a nonce of its own
    }
    return Response(page, media_type=MediaType.HTML, headers=headers)
