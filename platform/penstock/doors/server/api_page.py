"""`/docs`: the OpenAPI document as a page that fetches nothing from elsewhere, to try calls on."""

import secrets
from collections.abc import Iterator, Mapping
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
#: Deeper schemas are `…`.
_DEPTH_MAX = 4

Document = Mapping[str, Any]


def fields_of(schema: Document) -> Iterator[Document]:
    """The properties of an object, or of the objects in an array, each with its name."""
    if schema.get("type") == "array":
        schema = schema.get("items", {})
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        about = each.get("description", "")
        yield {"name": name, "schema": each, "required": name in required, "description": about}


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
    text = files("penstock.doors.server").joinpath("api_page.html.jinja").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"type_text": type_text, "fields_of": fields_of}
    return environment.from_string(text)


@get("/docs", media_type=MediaType.HTML, include_in_schema=False, sync_to_thread=False)
def get_docs(request: Request[Any, Any, Any]) -> Response[str]:
    document: Document = request.app.openapi_schema.to_schema()
    nonce = secrets.token_urlsafe(16)
    page = _template().render(document=document, nonce=nonce)
    headers = {
        "Content-Security-Policy": _POLICY.format(nonce=nonce),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",  # each answer has a nonce of its own
    }
    return Response(page, media_type=MediaType.HTML, headers=headers)
