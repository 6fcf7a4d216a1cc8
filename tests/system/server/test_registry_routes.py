"""Checkpoints and channels over HTTP, of a real server on each kind of database."""

from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.channels import promotion
from penstock.checkpoints.attempts import Attempt, AttemptScope, record_attempts
from penstock.checkpoints.suites import SuiteTask, SuiteVersion, add_suite
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


@pytest.mark.parametrize("uri", ["http://[", "file:///models/a%00b"])
def test_what_is_no_address_is_400(registry: Registry, uri: str) -> None:
    facts = {"name": "nowhere", "uri": uri, "digest": digest_of("nowhere")}
    problem(registry.post("/v1/checkpoints", facts, "train"), 400)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"name": "x", "uri": "u", "digest": "d", "nope": 1}',
        b"\xff",
        b"[" * 9999,
    ],
)
def test_what_is_no_registration_is_400(registry: Registry, body: bytes) -> None:
    problem(registry.post("/v1/checkpoints", body), 400)


def test_unknown_ones_are_404(registry: Registry) -> None:
    problem(registry.get("/v1/checkpoints/nope"), 404)
    for path in ("", "/history", "/assign?key=u", "?after=0&wait=30"):
        problem(registry.get(f"/v1/channels/nope{path}"), 404)
    problem(registry.post("/v1/channels/nope/rollback", {"reason": "x"}), 404)
    problem(registry.post("/v1/channels/nope/promote", {"checkpoint": "no", "reason": "x"}), 404)


# Who may do what


@pytest.mark.parametrize(
    ("method", "path", "roles"),
    [
        ("GET", "/v1/checkpoints", {"read", "promote", "admin"}),
        ("GET", "/v1/checkpoints/nope", {"read", "serve", "promote", "admin"}),
        ("GET", "/v1/channels", {"read", "promote", "admin"}),
        ("GET", "/v1/channels/nope", {"read", "serve", "promote", "admin"}),
        ("GET", "/v1/channels/nope/history", {"read", "promote", "admin"}),
        ("GET", "/v1/channels/nope/assign?key=u", {"read", "serve", "admin"}),
        ("GET", "/v1/channels/nope/replicas", {"read", "serve", "promote", "admin"}),
        ("POST", "/v1/checkpoints", {"train", "promote", "admin"}),
        ("POST", "/v1/channels/nope/replicas", {"serve", "admin"}),
        ("POST", "/v1/channels/nope/promote", {"promote", "admin"}),
        ("POST", "/v1/channels/nope/rollback", {"promote", "admin"}),
        ("POST", "/v1/channels/nope/release", {"promote", "admin"}),
    ],
)
def test_roles(registry: Registry, method: str, path: str, roles: set[str]) -> None:
    for role in ("ingest", "read", "serve", "train", "promote", "admin"):
        reply = registry.get(path, role) if method == "GET" else registry.post(path, b"{", role)
        assert (reply.status == 403) == (role not in roles), role
    reply = registry.get(path, "no") if method == "GET" else registry.post(path, b"{", "no")
    problem(reply, 401)


def test_tenants_see_their_own(registry: Registry) -> None:
    registry.add("of-acme")
    registry.promote("of-acme", "of-acme")
    assert registry.get("/v1/channels/of-acme").status == 200
    problem(registry.get("/v1/channels/of-acme", "bolt"), 404)
    problem(registry.get("/v1/checkpoints/of-acme", "bolt"), 404)
    assert registry.get("/v1/channels", "bolt").json()["channels"] == []


# Promotion


def test_the_gate_refuses_and_an_admin_overrides(registry: Registry) -> None:
    registry.add("unproven")
    path = "/v1/channels/gated/promote"
    asked = {"checkpoint": "unproven", "reason": "trust me"}
    refused = problem(registry.post(path, asked), 422)
    assert refused["outcome"] != "PASS"
    assert refused["verdict"]
    assert refused["verdict_id"].startswith("sha256:")
    assert "penstock gate check" in refused["detail"]
    problem(registry.post(path, asked | {"override": True}), 403)
    problem(registry.get("/v1/channels/gated"), 404)
    made = registry.post(path, asked | {"override": True}, "admin").json()
    assert (made["action"], made["version"], made["overridden"]) == ("promote", 1, True)
    assert made["verdict"] == refused["verdict_id"] or made["verdict"].startswith("sha256:")
    assert made["actor"].startswith("key ")


def test_what_passed_is_promoted(registry: Registry) -> None:
    registry.add("proven")
    tasks = tuple(SuiteTask(f"t-{number}") for number in range(30))
    add_suite(registry.database, "acme", SuiteVersion("core", "v1", tasks))
    place = AttemptScope("acme", "core", "v1", "proven")
    with registry.database.write() as connection:
        results = [
            Attempt(task=one.name, attempt=attempt, score=1.0)
            for one in tasks
            for attempt in range(2)
        ]
        record_attempts(connection, place, "run-1", results)
    told = {"reason": "agreed", "actor": "carol"}
    promotion.set_policy(registry.database, tenant="acme", channel="open", text=POLICY, **told)
    asked = {"checkpoint": "proven", "reason": "it passed", "expect": None, "expect_version": 1}
    reply = registry.post("/v1/channels/open/promote", asked)
    assert reply.status == 200, reply.body
    made = reply.json()
    assert (made["version"], made["checkpoint"], made["overridden"]) == (2, "proven", False)
    assert made["uri"] == "https://models.test/proven"


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


def test_rollback_pins_until_a_release(registry: Registry) -> None:
    registry.add("r-one", "r-two")
    registry.promote("rolled", "r-one")
    registry.promote("rolled", "r-two")
    made = registry.post("/v1/channels/rolled/rollback", {"reason": "slow"}).json()
    assert (made["action"], made["checkpoint"], made["pinned"]) == ("rollback", "r-one", True)
    asked = {"checkpoint": "r-two", "reason": "again"}
    assert "slow" in problem(registry.post("/v1/channels/rolled/promote", asked), 409)["detail"]
    released = registry.post("/v1/channels/rolled/release", {"reason": "mended"}).json()
    assert (released["action"], released["pinned"], released["version"]) == ("release", False, 4)
    problem(registry.post("/v1/channels/rolled/release", {"reason": "mended"}), 409)
    back = registry.post("/v1/channels/rolled/rollback", {"reason": "x", "to": "nope"})
    problem(back, 404)


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


def test_openapi_names_what_is_taken_and_refused(registry: Registry) -> None:
    document = registry.get("/openapi.json").json()
    paths = document["paths"]
    promote = paths["/v1/channels/{name}/promote"]["post"]
    schema = promote["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["checkpoint", "reason"]
    assert set(schema["properties"]) == {
        "checkpoint", "reason", "expect", "expect_version", "share", "override",
    }  # fmt: skip
    for status, fields in (("409", {"expected", "found"}), ("422", {"verdict", "outcome"})):
        answer = promote["responses"][status]["content"]["application/problem+json"]["schema"]
        name = answer["$ref"].rpartition("/")[2]
        assert fields < set(document["components"]["schemas"][name]["properties"])
    watched = paths["/v1/channels/{name}"]["get"]
    assert {one["name"] for one in watched["parameters"]} == {"name", "after", "wait"}
    assert {"304", "429"} < set(watched["responses"])
