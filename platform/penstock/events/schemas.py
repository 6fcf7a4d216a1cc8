"""The JSON Schemas of events, made from the types that validation uses."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import InvalidInput
from penstock.events.event import CUSTOM_PREFIX, PAYLOADS, SCHEMA_VERSION, EventFields

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_IDENTITY = f"urn:penstock:event:{SCHEMA_VERSION}"
CUSTOM = "x_…"


def event_schema(kind: str | None = None) -> dict[str, Any]:
    """Of events of this type, or of all; `$id` has the version. Raises InvalidInput."""
    if kind is not None and kind not in PAYLOADS and kind != CUSTOM:
        known = ", ".join([*PAYLOADS, CUSTOM])
        raise InvalidInput(
            what=f"The type {kind!r}", why=f"there is no such schema; known: {known}"
        )
    definitions = _definitions()
    head = {"$schema": _DIALECT, "$id": _IDENTITY if kind is None else f"{_IDENTITY}:{kind}"}
    if kind is not None:
        return head | {"title": kind} | _event(kind) | {"$defs": definitions}
    kinds = [_event(name) for name in [*PAYLOADS, CUSTOM]]
    return head | {"title": "event", "oneOf": kinds, "$defs": definitions}


def inlined(schema: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """The schema with each of its definitions where it is used."""
    if isinstance(schema, dict):
        known = schema.get("$defs", definitions or {})
        if "$ref" in schema:
            return inlined(known[schema["$ref"].rpartition("/")[2]], known)
        return {name: inlined(part, known) for name, part in schema.items() if name != "$defs"}
    return [inlined(part, definitions) for part in schema] if isinstance(schema, list) else schema


def _definitions() -> dict[str, Any]:
    types = [EventFields, *PAYLOADS.values()]
    _, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    seen: Any = definitions["FileObserved"]
    seen["anyOf"] = [
        {"required": ["text"], "properties": {"text": {"type": "string"}}},
        {"required": ["deleted"], "properties": {"deleted": {"const": True}}},
    ]
    return dict(definitions)


def _event(kind: str) -> dict[str, Any]:
    fields: dict[str, Any] = dict(_definitions()["EventFields"])
    payload: dict[str, Any] = {"type": "object"}
    name: dict[str, Any] = {"type": "string", "pattern": f"^{CUSTOM_PREFIX}"}
    if kind != CUSTOM:
        payload = {"$ref": f"#/$defs/{PAYLOADS[kind].__name__}"}
        name = {"const": kind}
    return {
        "type": "object",
        "required": [*fields["required"], "type", "payload"],
        "properties": fields["properties"] | {"type": name, "payload": payload},
    }
