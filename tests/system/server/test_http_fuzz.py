"""Whatever is sent, each route answers as the OpenAPI document says, and never with a fault."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.access.keys import create_key
from penstock.lake.lake import open_existing
from tests.support.server.http_fuzz import findings


@pytest.fixture(scope="module")
def service(start: Callable[..., Any]) -> Iterator[Any]:
    with start(request_log="none", query_seconds_max=5) as running:
        with open_existing(running.data) as lake:
            for role in ("serve", "promote"):
                running.keys[role] = create_key(lake.database, role, "acme")[1]
        for name, digit in (("base", "a"), ("better", "b")):
            checkpoint = {"name": name, "uri": f"s3://bucket/{name}", "digest": digit * 64}
            _post(running, "/v1/checkpoints", checkpoint | {"digest": f"sha256:{digit * 64}"})
        change = {"checkpoint": "base", "reason": "first", "override": True}
        _post(running, "/v1/channels/production/promote", change)
        yield running


def _post(service: Any, path: str, document: dict[str, Any]) -> None:
    answer = service.post(path, json.dumps(document).encode())
    assert answer.status == 200, answer.body


def test_every_answer_is_one_that_the_document_declares(service: Any) -> None:
    document = service.get("/openapi.json").json()
    found = list(findings(service.server.url, document, service.keys, seed=1, each=50))
    assert not found, f"{len(found)} findings\n" + "\n".join(found[:20])
    assert service.get("/readyz").status == 200
