"""Lists over HTTP come in pages, whose entries are those of the whole list, each once."""

import json
from typing import Any

import pytest

from penstock.errors import InvalidInput
from penstock.lake.pages import ListQuestion, page_of
from tests.support.service import Service


@pytest.fixture(scope="module", autouse=True)
def filled(service: Service) -> None:
    for number in range(5):
        checkpoint = {
            "name": f"c{number}",
            "uri": f"s3://bucket/{number}",
            "digest": f"sha256:{number:064}",
        }
        reply = service.post("/v1/checkpoints", json.dumps(checkpoint).encode())
        assert reply.status == 200, reply.body
        change = {"checkpoint": f"c{number}", "reason": "first", "override": True}
        body = json.dumps(change).encode()
        assert service.post(f"/v1/channels/ch{number}/promote", body).status == 200


@pytest.mark.smoke
@pytest.mark.parametrize(("name", "least"), [("checkpoints", 5), ("channels", 5), ("keys", 3)])
def test_pages_hold_each_entry_of_the_list_once(service: Any, name: str, least: int) -> None:
    with service.client() as client:
        whole = client.get(f"/v1/{name}").json()
        assert whole["next"] is None
        assert len(whole[name]) >= least
        entries, cursor = [], ""
        while cursor is not None:
            page = client.get(f"/v1/{name}?limit=2{cursor and f'&cursor={cursor}'}").json()
            assert 0 < len(page[name]) <= 2
            entries += page[name]
            cursor = page["next"]
        assert entries == whole[name]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=gone"])
def test_a_page_that_cannot_be_is_refused(service: Any, query: str) -> None:
    with service.client() as client:
        assert client.get(f"/v1/checkpoints?{query}").status == 400


def test_the_last_page_says_that_it_is_the_last() -> None:
    letters = ["a", "b", "c", "d"]
    assert page_of(letters, ListQuestion(limit=4), str) == (letters, None)
    assert page_of(letters, ListQuestion(limit=3), str) == (["a", "b", "c"], "c")
    assert page_of(letters, ListQuestion(cursor="c", limit=3), str) == (["d"], None)
    assert page_of(letters, ListQuestion(cursor="d", limit=1), str) == ([], None)
    assert page_of([], ListQuestion(limit=1), str) == ([], None)
    with pytest.raises(InvalidInput, match="is not in the list now"):
        page_of(letters, ListQuestion(cursor="e"), str)
