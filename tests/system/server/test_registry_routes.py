"""Checkpoints and channels over HTTP, of a real server on each kind of database."""

from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.registry.channels import promotion
from tests.support.checkpoint_factory import digest_of
from tests.support.server.registering import Registry, problem

POLICY = """
[[require]]
suite = "core"
metric = "score"
minimum = 0.5
margin = 0.5
min_tasks = 20
"""


# Checkpoints


@pytest.mark.parametrize("role", ["train", "promote", "admin"])
def test_checkpoints_are_registered_and_read(registry: Registry, role: str) -> None:
    name = f"registered-by-{role}"
    facts = {"name": name, "uri": f"https://models.test/{name}", "digest": digest_of(name)}
    made = registry.post("/v1/checkpoints", facts | {"note": "the first"}, role).json()
    assert made | facts == made
    assert (made["state"], made["checked"], made["note"]) == (
        "registered",
        "not_looked",
        "the first",
    )
    assert made["registered_by"].startswith("key ")
    assert registry.post("/v1/checkpoints", facts, role).json() == made
    assert registry.get(f"/v1/checkpoints/{name}").json() == made
    assert registry.get(f"/v1/checkpoints/{digest_of(name)}").json() == made
    assert made in registry.get("/v1/checkpoints").json()["checkpoints"]
    other = facts | {"digest": digest_of("other")}
    assert "registered" in problem(registry.post("/v1/checkpoints", other, role), 409)["detail"]


def test_without_roots_nothing_is_looked_at(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("weights")
    for number, name in enumerate(("weights", "nothing")):
        digest = digest_of(f"wrong {number}")
        facts = {"name": f"no-roots-{number}", "uri": f"{tmp_path}/{name}", "digest": digest}
        for key in ("train", "admin"):
            reply = registry.post("/v1/checkpoints", facts, key)
            assert (reply.status, reply.json()["checked"]) == (200, "not_looked")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"name": "x", "uri": "u", "digest": "d", "nope": 1}', b"\xff"]
)
def test_what_is_no_registration_is_400(registry: Registry, body: bytes) -> None:
    problem(registry.post("/v1/checkpoints", body), 400)


def test_unknown_ones_are_404(registry: Registry) -> None:
    problem(registry.get("/v1/checkpoints/nope"), 404)
    for path in ("", "/history", "/assign?key=u", "?after=0&wait=30"):
        problem(registry.get(f"/v1/channels/nope{path}"), 404)
    problem(registry.post("/v1/channels/nope/rollback", {"reason": "x"}), 404)
    problem(registry.post("/v1/channels/nope/promote", {"checkpoint": "no", "reason": "x"}), 404)


def test_a_conflict_names_expected_and_found(registry: Registry) -> None:
    registry.add("c-one", "c-two", "c-three")
    registry.promote("conflict", "c-one")
    registry.promote("conflict", "c-two")
    for path, more in (("promote", {"checkpoint": "c-three"}), ("rollback", {})):
        asked: dict[str, Any] = {"reason": "x", "expect": "c-one"} | more
        found = problem(registry.post(f"/v1/channels/conflict/{path}", asked), 409)
        assert (found["expected"], found["found"], found["version"]) == ("c-one", "c-two", 2)
    asked = {"checkpoint": "c-three", "reason": "x", "expect": None}
    found = problem(registry.post("/v1/channels/conflict/promote", asked), 409)
    assert (found["expected"], found["found"]) == (None, "c-two")


def test_history_comes_in_pieces(registry: Registry) -> None:
    for number in range(103):
        text = f"# {number}\n{POLICY}"
        told = {"text": text, "reason": "agreed", "actor": "carol"}
        promotion.set_policy(registry.database, tenant="acme", channel="long", **told)
    first = registry.get("/v1/channels/long/history").json()
    assert [one["version"] for one in first["changes"]] == list(range(1, 101))
    assert first["next"] == 100
    rest = registry.get("/v1/channels/long/history?after=100").json()
    assert [one["version"] for one in rest["changes"]] == [101, 102, 103]
    assert rest["next"] is None
    assert rest["changes"][0]["previous_hash"] == first["changes"][-1]["hash"]


# Assigning


def test_assignment_is_that_of_the_library(registry: Registry) -> None:
    registry.add("x-one", "x-two")
    registry.promote("split", "x-one")
    registry.promote("split", "x-two", share=0.5)
    channel = registry.get("/v1/channels/split").json()
    arms = set()
    for number in range(30):
        answer = registry.get(f"/v1/channels/split/assign?key=user-{number}").json()
        chosen = penstock.assign(channel, f"user-{number}")
        arms.add(chosen.arm)
        assert (answer["checkpoint"], answer["arm"]) == (chosen.checkpoint, chosen.arm)
        assert answer["uri"] == f"https://models.test/{chosen.checkpoint}"
        assert answer["digest"] == digest_of(chosen.checkpoint)
        assert (answer["channel"], answer["version"]) == ("split", 2)
    assert arms == {"current", "canary"}
    problem(registry.get("/v1/channels/split/assign"), 400)
    problem(registry.get(f"/v1/channels/split/assign?key={'x' * 1025}"), 400)
