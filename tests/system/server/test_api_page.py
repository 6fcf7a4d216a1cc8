"""`/docs` shows all of the OpenAPI document, and asks nobody else for anything."""

import html
import re
from typing import Any

import pytest

from penstock.doors.server.app import type_text


@pytest.mark.smoke
def test_every_call_parameter_and_schema_is_on_the_page(service: Any) -> None:
    document = service.get("/openapi.json").json()
    answer = service.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    page = html.unescape(answer.body.decode())
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            form = re.escape(f'data-method="{method.upper()}" data-path="{path}"')
            [shown] = re.findall(rf"<form {form}>(.*?)</form>", page, re.DOTALL)
            for parameter in operation.get("parameters", []):
                assert f'name="{parameter["name"]}" data-place="{parameter["in"]}"' in shown
            assert ("<textarea" in shown) == ("requestBody" in operation)
    for name in document["components"]["schemas"]:
        assert f'id="schema-{name}"' in page
    targets = set(re.findall(r'href="#([^"]*)"', page))
    assert targets <= set(re.findall(r'id="([^"]*)"', page))


def test_the_page_may_fetch_from_this_service_alone(service: Any) -> None:
    answer = service.get("/docs")
    page = answer.body.decode()
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    nonce = policy["script-src"].strip("'").removeprefix("nonce-")
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert re.findall(r'<(?:script|style) nonce="([^"]*)"', page) == [nonce, nonce]
    assert page.count("<script") == page.count("<style") == 1
    assert " style=" not in page
    assert not re.search(r"(?:src|href)=\"(?![#/]|data:,)|https?://|@import|url\(", page)
    assert service.get("/docs").headers["content-security-policy"] != ""
    assert nonce not in service.get("/docs").body.decode()


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$ref": "#/components/schemas/Refused"}, "Refused"),
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"enum": ["a", "b"]}, "a | b"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "object of number"),
        ({"type": "string", "format": "binary"}, "string (binary)"),
        ({}, "anything"),
    ],
)
def test_a_schema_is_told_in_a_line(schema: dict[str, Any], text: str) -> None:
    assert type_text(schema) == text
