"""Checkpoints and channels over HTTP, of a real server on each kind of database."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.access.keys import create_key
from penstock.cli import main
from penstock.database.engine import Database
from penstock.database.upgrade import upgrade
from penstock.registry import promotion
from penstock.registry.attempts import Attempt, Place, record
from penstock.registry.suites import SuiteTask, SuiteVersion, add_suite
from penstock.registry.webhooks import add_webhook, remove_webhook
from penstock.settings import load_settings
from penstock.testing.client import Reply
from penstock.testing.waiting import eventually
from tests.registry.promoting import add, digest_of, promote, rollback
from tests.registry.receiver import receiving
from tests.servers.postgres import PostgresServer

POLICY = """
[[require]]
suite = "core"
metric = "score"
minimum = 0.5
margin = 0.5
min_tasks = 20
"""


@dataclass
class Registry:
    """A server, its keys by role, and the database behind it. Each test takes a channel and
    checkpoints of its own."""

    service: Any
    database: Database
    keys: dict[str, str]

    def get(self, path: str, key: str = "read", **headers: str) -> Reply:
        with self.service.client(self.keys.get(key, key)) as client:
            client._headers.update({name.replace("_", "-"): text for name, text in headers.items()})
            found: Reply = client.get(path)
            return found

    def post(self, path: str, document: object, key: str = "promote") -> Reply:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        found: Reply = self.service.post(path, body, self.keys.get(key, key))
        return found

    def add(self, *names: str) -> None:
        add(self.database, *names, tenant="acme")

    def promote(self, channel: str, name: str, **facts: Any) -> None:
        promote(self.database, name, tenant="acme", channel=channel, **facts)

    def waiting(self) -> float:
        found: float = self.service.metric("channel_waiters")
        return found


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def registry(
    request: pytest.FixtureRequest,
    start: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Registry]:
    if request.param == "sqlite":
        yield from _registry(start, tmp_path_factory.mktemp("sqlite"))
        return
    postgres: PostgresServer = request.getfixturevalue("postgres")
    with postgres.database() as url:
        database = Database(url)
        upgrade(database)
        database.close()
        yield from _registry(start, tmp_path_factory.mktemp("postgresql"), database_url=url)


def _registry(start: Callable[..., Any], data: Path, **settings: Any) -> Iterator[Registry]:
    with start(data=data, channel_waiters_max=60, **settings) as service:
        database = Database.of(load_settings(data, {}, settings))
        roles = ("serve", "train", "promote")
        keys = {role: create_key(database, role, "acme")[1] for role in roles}
        yield Registry(service, database, service.keys | keys)
        database.close()


def problem(reply: Reply, status: int) -> dict[str, Any]:
    assert reply.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = reply.json()
    assert (reply.status, body["status"]) == (status, status), body
    return body


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


def test_files_of_the_server_are_looked_at_for_an_admin_alone(
    registry: Registry, tmp_path: Path
) -> None:
    """A digest tells what a file holds."""
    path = tmp_path / "weights.bin"
    path.write_bytes(b"weights")
    facts = {"name": "looked-at", "uri": f"file://{path}", "digest": digest_of("not these")}
    refused = problem(registry.post("/v1/checkpoints", facts, "admin"), 422)
    assert digest_of("weights") in refused["detail"]
    for at, scheme in enumerate(("file", "FILE")):
        told = {"name": f"not-looked-{at}", "uri": f"{scheme}://{path}"}
        told["digest"] = digest_of(told["name"])
        made = registry.post("/v1/checkpoints", told, "train").json()
        assert made["checked"] == "not_looked"


def test_a_service_that_an_address_names_is_called_for_an_admin_alone(registry: Registry) -> None:
    """It would be called with the server's rights."""
    uri = "s3://models/a?endpoint=http://127.0.0.1:9"
    facts = {"name": "elsewhere", "uri": uri, "digest": digest_of("elsewhere")}
    assert registry.post("/v1/checkpoints", facts, "train").json()["checked"] == "not_looked"
    facts |= {"uri": "http://[", "name": "nowhere", "digest": digest_of("nowhere")}
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
        ("GET", "/v1/checkpoints", {"read", "admin"}),
        ("GET", "/v1/checkpoints/nope", {"read", "serve", "admin"}),
        ("GET", "/v1/channels", {"read", "admin"}),
        ("GET", "/v1/channels/nope", {"read", "serve", "admin"}),
        ("GET", "/v1/channels/nope/history", {"read", "admin"}),
        ("GET", "/v1/channels/nope/assign?key=u", {"read", "serve", "admin"}),
        ("GET", "/v1/channels/nope/replicas", {"read", "serve", "admin"}),
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
    assert registry.get("/v1/channels", "bolt").json() == {"channels": []}


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
    place = Place("acme", "core", "v1", "proven")
    with registry.database.write() as connection:
        results = [
            Attempt(task=one.name, attempt=attempt, score=1.0)
            for one in tasks
            for attempt in range(2)
        ]
        record(connection, place, "run-1", results)
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


# Watching


def test_a_channel_as_it_is(registry: Registry) -> None:
    registry.add("a-one", "a-two")
    registry.promote("as-it-is", "a-one")
    registry.promote("as-it-is", "a-two", share=0.25)
    reply = registry.get("/v1/channels/as-it-is")
    found = reply.json()
    since = found.pop("since")
    assert found.pop("changed_at") > since
    assert found == {
        "channel": "as-it-is", "version": 2, "checkpoint": "a-one", "digest": digest_of("a-one"),
        "uri": "https://models.test/a-one", "previous": None, "canary": "a-two",
        "canary_digest": digest_of("a-two"), "canary_uri": "https://models.test/a-two",
        "canary_share": 0.25, "pinned": False, "policy": None, "hash": found["hash"],
    }  # fmt: skip
    assert found["channel"] in [
        one["channel"] for one in registry.get("/v1/channels").json()["channels"]
    ]


def test_what_is_known_already_is_304(registry: Registry) -> None:
    registry.add("e-one", "e-two")
    registry.promote("tagged", "e-one")
    tag = registry.get("/v1/channels/tagged").headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        same = registry.get("/v1/channels/tagged", If_None_Match=known)
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
    assert registry.get("/v1/channels/tagged", If_None_Match='"other"').status == 200
    waited = registry.get("/v1/channels/tagged?after=1&wait=0.05", If_None_Match=tag)
    assert waited.status == 304
    registry.promote("tagged", "e-two")
    changed = registry.get("/v1/channels/tagged", If_None_Match=tag)
    assert (changed.status, changed.json()["checkpoint"]) == (200, "e-two")
    assert registry.get("/v1/channels/tagged?after=1", If_None_Match=tag).status == 200


def test_waiting_ends_with_a_change(registry: Registry) -> None:
    registry.add("w-one", "w-two")
    registry.promote("waited", "w-one")
    with ThreadPoolExecutor(10) as threads:
        path = "/v1/channels/waited?after=1&wait=30"
        asked = [threads.submit(registry.get, path) for _ in range(10)]
        eventually(lambda: registry.waiting() == 10)
        registry.promote("waited", "w-two")
        for one in asked:
            answer = one.result().json()
            assert (answer["version"], answer["checkpoint"], answer["next"]) == (2, "w-two", 2)
            [change] = answer["changes"]
            assert (change["action"], change["version"]) == ("promote", 2)
    assert registry.waiting() == 0


def test_each_change_is_in_the_answer(registry: Registry) -> None:
    registry.add("m-one", "m-two")
    registry.promote("missed", "m-one")
    registry.promote("missed", "m-two")
    rollback(registry.database, tenant="acme", channel="missed")
    answer = registry.get("/v1/channels/missed?after=1&wait=30").json()
    assert [one["action"] for one in answer["changes"]] == ["promote", "rollback"]
    assert (answer["version"], answer["next"]) == (3, 3)


def test_waiting_ends_in_time_without_a_change(registry: Registry) -> None:
    registry.add("t-one")
    registry.promote("still", "t-one")
    answer = registry.get("/v1/channels/still?after=1&wait=0.05").json()
    assert (answer["version"], answer["changes"], answer["next"]) == (1, [], 1)


@pytest.mark.parametrize(
    "query",
    [
        "wait=3",
        "after=-1",
        "after=x",
        "after=9223372036854775808",
        "after=1&wait=-1",
        "after=1&wait=nan",
    ],
)
def test_what_cannot_be_waited_for_is_400(registry: Registry, query: str) -> None:
    problem(registry.get(f"/v1/channels/any?{query}"), 400)


def test_waiters_are_bounded_and_those_who_left_are_forgotten(registry: Registry) -> None:
    registry.add("b-one")
    registry.promote("bounded", "b-one")
    clients = [registry.service.client(registry.keys["read"]) for _ in range(60)]
    try:
        for one in clients:
            one._connection.request(
                "GET", "/v1/channels/bounded?after=1&wait=30", None, one._headers
            )
        eventually(lambda: registry.waiting() == 60)
        refused = registry.get("/v1/channels/bounded?after=1&wait=30")
        assert "60 requests wait" in problem(refused, 429)["detail"]
        assert int(refused.headers["retry-after"]) >= 1
        assert registry.get("/v1/channels/bounded").status == 200
    finally:
        for one in clients:
            one.close()
    eventually(lambda: registry.waiting() == 0)


def test_a_server_that_stops_answers_its_waiters(start: Callable[..., Any]) -> None:
    # Long enough that an end which only waits for them would not be in time.
    with start(channel_wait_seconds_max=3600, shutdown_seconds_max=60) as service:
        database = Database.of(load_settings(service.data, {}))
        add(database, "s-one", tenant="acme")
        promote(database, "s-one", tenant="acme")
        database.close()
        with ThreadPoolExecutor(5) as threads:
            path = "/v1/channels/production?after=1&wait=3600"
            asked = [threads.submit(lambda: service.client("read").get(path)) for _ in range(5)]
            eventually(lambda: service.metric("channel_waiters") == 5)
            assert service.server.stop() == 0
            for one in asked:
                answer = one.result().json()
                assert (answer["version"], answer["changes"]) == (1, [])


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


# What runs beside it


def test_a_server_tells_webhooks(registry: Registry) -> None:
    with receiving() as receiver:
        made, _ = add_webhook(registry.database, "acme", receiver.url, "told")
        registry.add("h-one", "h-two")
        registry.promote("told", "h-one")
        registry.promote("told", "h-two")
        rollback(registry.database, tenant="acme", channel="told")
        eventually(lambda: receiver.versions("told") == [1, 2, 3])
        remove_webhook(registry.database, "acme", made.id)


Watch = Callable[..., tuple[int, str, str]]


@pytest.fixture
def watch(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Watch:
    """Runs `penstock channels watch ARGUMENTS` with a key; exit status, output and messages."""

    def run(key: str, *arguments: str) -> tuple[int, str, str]:
        address = registry.service.server.url
        monkeypatch.setenv("PENSTOCK_KEY", registry.keys.get(key, key))
        command = ["penstock", "channels", "watch", *arguments, "--url", address]
        monkeypatch.setattr("sys.argv", command)
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def test_watch_over_http(registry: Registry, watch: Watch) -> None:
    registry.add("n-one", "n-two", "n-three")
    registry.promote("followed", "n-one")
    registry.promote("followed", "n-two")
    status, out, _ = watch("read", "followed", "--json", "--changes", "1")
    assert (status, json.loads(out)["checkpoint"]) == (0, "n-two")
    with ThreadPoolExecutor(1) as thread:
        later = thread.submit(_promote_when_somebody_waits, registry, "followed", "n-three")
        _, out, _ = watch("read", "followed", "--json", "--after", "0", "--changes", "3")
        later.result()
    told = [json.loads(line) for line in out.splitlines()]
    assert [one["checkpoint"] for one in told] == ["n-one", "n-two", "n-three"]


def _promote_when_somebody_waits(registry: Registry, channel: str, name: str) -> None:
    eventually(lambda: registry.waiting() == 1)
    registry.promote(channel, name)


def test_watch_over_http_for_people(registry: Registry, watch: Watch) -> None:
    registry.add("p-one")
    registry.promote("people", "p-one", reason="the first\nof all")
    status, out, _ = watch("read", "people", "--changes", "1")
    assert status == 0
    assert out.count("\n") == 1
    assert "people 1" in out
    assert "p-one" in out
    assert "(ann: the first of all)" in out


@pytest.mark.parametrize("key", ["pk_read_nope", "", "ingest"])
def test_watch_over_http_says_what_is_wrong(watch: Watch, key: str) -> None:
    status, _, said = watch(key, "nope")
    assert status == 1
    assert "answered 40" in said


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
