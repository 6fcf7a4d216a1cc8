"""The parts of the OpenAPI document that types of routes do not give: bodies, errors, keys."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, is_dataclass
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import (
    Components,
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Parameter,
    RequestBody,
    Schema,
    SecurityScheme,
)
from msgspec.inspect import is_struct_type

from penstock.backends.http.problems import PROBLEM, Problem

SECURITY_SCHEMES = Components(
    security_schemes={
        "bearer": SecurityScheme(
            type="http", scheme="bearer", description="A key from `penstock keys create`."
        )
    }
)
KEY_NEEDED: list[dict[str, list[str]]] = [{"bearer": []}]

TEXT = Schema(type=OpenAPIType.STRING)
_REFUSALS = {
    400: "The request cannot be used; the detail says why. Nothing was changed.",
    401: "The key is missing or unknown.",
    403: "The role of the key does not allow it.",
    404: "The name is unknown.",
    408: "No more of the body came. Nothing was accepted.",
    409: "The present state does not allow it; the detail says why. Nothing was changed.",
    410: "The lake as it was then can no longer be read.",
    413: "The body is too large, as sent or decompressed. Nothing was accepted.",
    415: "A content encoding other than gzip and zstd. Nothing was accepted.",
    422: "The query reached its limit of time, memory or answer.",
    429: "This key has too much under way: send it again after `Retry-After` seconds.",
    503: "No room now, or an outage: send it again after `Retry-After` seconds.",
}
_RETRY_AFTER = OpenAPIHeader(schema=Schema(type=OpenAPIType.INTEGER), description="Seconds.")


def refusals(
    *statuses: int,
    said: Mapping[int, str | None] = MappingProxyType({}),
    kinds: Mapping[int, type[Problem]] | None = None,
) -> dict[int, ResponseSpec]:
    """Describe refusals with these statuses. `said` replaces texts, `kinds` adds fields."""
    texts = _REFUSALS | {status: text for status, text in said.items() if text is not None}
    types = dict(kinds or {})
    return {
        status: ResponseSpec(
            types.get(status, Problem),
            description=texts[status],
            media_type=PROBLEM,
            generate_examples=False,
        )
        for status in statuses
    }


@dataclass
class RefusableOperation(Operation):
    def __post_init__(self) -> None:
        for status in ("429", "503"):
            answer = (self.responses or {}).get(status)
            if isinstance(answer, OpenAPIResponse):
                answer.headers = {"Retry-After": _RETRY_AFTER}


def operation_taking(
    document: type[msgspec.Struct],
    in_path: Collection[str] = (),
    *,
    has_body: bool = True,
    **properties: Schema,
) -> type[Operation]:
    """Make an operation from the fields of a document. Those that the path does not name are the
    JSON body or the query. `properties` are schemas that say more than the types."""

    class TakingOperation(RefusableOperation):
        def __post_init__(self) -> None:
            super().__post_init__()
            fields = msgspec.structs.fields(document)
            schemas = {field.name: _schema(field.type) for field in fields} | properties
            required = {field.name for field in fields if field.required}
            body = {name: schemas[name] for name in schemas if has_body and name not in in_path}
            parameters = [
                Parameter(
                    name=name,
                    param_in="path" if name in in_path else "query",
                    required=name in required,
                    schema=schemas[name],
                )
                for name in schemas
                if name not in body
            ]
            if parameters:
                self.parameters = [*parameters]
            if has_body:
                needed = [name for name in body if name in required]
                schema = Schema(type=OpenAPIType.OBJECT, required=needed, properties={**body})
                content = {"application/json": OpenAPIMediaType(schema=schema)}
                self.request_body = RequestBody(required=True, content=content)

    return TakingOperation


_TYPES = {
    str: OpenAPIType.STRING,
    int: OpenAPIType.INTEGER,
    float: OpenAPIType.NUMBER,
    bool: OpenAPIType.BOOLEAN,
}


def _schema(kind: Any) -> Schema:
    """Make the schema of a field. One that may be left out may be null only if both mean the
    same."""
    if kind in _TYPES:
        return Schema(type=_TYPES[kind])
    if is_struct_type(kind) or is_dataclass(kind) or get_origin(kind) is dict:
        return Schema(type=OpenAPIType.OBJECT)
    arguments = get_args(kind)
    if get_origin(kind) is Annotated:
        schema = _schema(arguments[0])
        for bounds in (part for part in arguments[1:] if isinstance(part, msgspec.Meta)):
            schema.minimum, schema.maximum = bounds.ge, bounds.le
            schema.description = bounds.description
            more = bounds.extra_json_schema or {}
            schema.exclusive_minimum = more.get("exclusiveMinimum")
            schema.exclusive_maximum = more.get("exclusiveMaximum")
        return schema
    if get_origin(kind) is Literal:
        return Schema(type=OpenAPIType.STRING, enum=list(arguments))
    if get_origin(kind) is list:
        return Schema(type=OpenAPIType.ARRAY, items=_schema(arguments[0]))
    [value] = [one for one in arguments if one not in (NoneType, msgspec.UnsetType)]
    if msgspec.UnsetType in arguments:
        return Schema(type=[_TYPES[value], OpenAPIType.NULL])
    return _schema(value)


_KEYWORDS = {
    "type": "type", "title": "title", "description": "description", "format": "format",
    "required": "required", "enum": "enum", "const": "const", "pattern": "pattern",
    "minimum": "minimum", "maximum": "maximum", "minLength": "min_length",
    "maxLength": "max_length", "minItems": "min_items", "maxItems": "max_items",
}  # fmt: skip
_INNER = {"anyOf": "any_of", "oneOf": "one_of", "prefixItems": "prefix_items"}


def schema_of(document: Mapping[str, Any]) -> Schema:
    """Convert a JSON Schema without references to a part of the OpenAPI document."""
    fields: dict[str, Any] = {
        ours: document[name] for name, ours in _KEYWORDS.items() if name in document
    }
    for name, ours in _INNER.items():
        if name in document:
            fields[ours] = [schema_of(part) for part in document[name]]
    if "properties" in document:
        parts = document["properties"]
        fields["properties"] = {name: schema_of(part) for name, part in parts.items()}
    if isinstance(items := document.get("items"), Mapping):
        fields["items"] = schema_of(items)
    return Schema(**fields)
