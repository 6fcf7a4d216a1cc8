"""clients/typescript/src/vocabulary.ts, from the schemas of events."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.events.event import CUSTOM_PREFIX, DROPPED_TYPE, PAYLOADS, event_schema

PAGE = Path(__file__).parents[1] / "clients" / "typescript" / "src" / "vocabulary.ts"
_HEAD = (
    "/** Events and their payloads. `make docs` writes this file from the schemas that a service\n"
    " * validates by; docs/events.md says what each field means. */\n\n"
)
_NUMBERS = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean"}
#: An error of a session is no JavaScript Error.
_NAMES = {"Error": "AgentError"}


def vocabulary() -> str:
    definitions: dict[str, Any] = event_schema()["$defs"]
    parts = [_HEAD]
    for name, schema in definitions.items():
        parts.append("\n".join(_interface(name, schema)) + "\n\n")
    parts.append(
        "/** Event type to the structure of its payload. */\nexport interface Payloads {\n"
    )
    parts += [f"  {kind}: {_named(of.__name__)};\n" for kind, of in PAYLOADS.items()]
    parts.append("}\n\n/** A type of your own, with any payload. */\n")
    parts.append(f"export type CustomType = `{CUSTOM_PREFIX}${{string}}`;\n\n")
    parts.append("/** Says how many events of its session a recorder had no room for. */\n")
    parts.append(f"export const DROPPED_TYPE = {json.dumps(DROPPED_TYPE)};\n")
    return "".join(parts)


def _interface(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if description := schema.get("description"):
        yield f"/** {description} */"
    yield f"export interface {_named(name)} {{"
    for key, field in schema["properties"].items():
        optional = "" if key in schema["required"] else "?"
        yield f"  {key}{optional}: {_type(field)};"
    yield "}"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _named(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return " | ".join(_type({**schema, "type": kind}) for kind in kinds)
    if kinds == "array":
        return _array(schema)
    if kinds == "object":
        return "{ [name: string]: unknown }"
    return "null" if kinds == "null" else _NUMBERS.get(kinds or "", "unknown")


def _array(schema: Mapping[str, Any]) -> str:
    if "prefixItems" in schema:
        return f"readonly [{', '.join(map(_type, schema['prefixItems']))}]"
    items = _type(schema.get("items") or {})
    return f"readonly {items}[]" if re.fullmatch(r"\w+", items) else f"readonly ({items})[]"


def _named(name: str) -> str:
    return _NAMES.get(name, name)


if __name__ == "__main__":
    PAGE.write_text(vocabulary(), encoding="utf-8")
