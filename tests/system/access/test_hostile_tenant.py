"""Two tenants, one of them hostile: no statement and no route gives it anything of the other."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.access.keys import create_key, list_keys
from penstock.core.endpoint import encode_cursor
from penstock.core.errors import PenstockError
from penstock.core.settings import load_settings
from penstock.lake.lake import Lake, open_lake, open_or_make
from penstock_jobs.benchmarks.mine.proposals import Proposal, add_proposal
from penstock_jobs.simulator.demo.server import Server, running_server
from tests.support.access.hostile_sql import corpus
from tests.support.commands import penstock
from tests.support.lakes import body_of, make_event
from tests.system.access.test_role_matrix import OPEN_TO

#: In whatever the victim has: texts, places, reasons, notes. Names the attacker knows.
MARKER = "zebra-7141"
SUITE_RESULTS = [{"task": f"{MARKER}-{n}", "attempt": 0, "score": 1.0} for n in range(3)]
NAMES = {
    "session_id": "acme-s1", "name": "acme-ckpt", "suite": "acme-suite", "id": "1",
    "task": "acme-task",
}  # fmt: skip
#: What a route of a suite says of one that nobody knows.
NOTHING = (
    b'{"results":[],"advice":null,"settled":[],"next":null}',
    b'{"proposals":[],"next":null}',
)


@dataclass
class Lakes:
    data: Path
    server: Server
    hostile: str
    own: str
    victim_key: str
    shard: str


def victim_events() -> list[dict[str, object]]:
    named = {"user": f"{MARKER}-user", "project": f"{MARKER}-project", "checkpoint": "acme-ckpt"}
    texts = [
        ("session_start", {"repo": MARKER, "consent": "train"}),
        ("user_message", {"text": f"do {MARKER}"}),
        ("model_call", {"call_id": "c1", "model": "m", "text": MARKER}),
        ("edit", {"edit_id": "d1", "path": f"{MARKER}.py", "before": "a", "after": MARKER}),
        ("file_observed", {"path": f"{MARKER}.py", "text": MARKER}),
        ("user_message", {"text": f"this is wrong, {MARKER}"}),
        ("feedback", {"target": "d1", "kind": "comment", "comment": MARKER}),
    ]
    return [
        make_event("acme-s1", number, kind, payload=payload, **named)
        for number, (kind, payload) in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakes]:
    folder = tmp_path_factory.mktemp("hostile")
    data = folder / "data"
    with open_or_make(load_settings(data, environment={})) as lake:
        mined = Proposal("acme-task", "left_out", MARKER, "acme-s1", MARKER, {"source": MARKER})
        add_proposal(lake, "acme", "acme-suite", mined, None)
        victim, victim_secret = create_key(lake.database, "admin", "acme", MARKER)
        _, hostile = create_key(lake.database, "admin", "bolt")
    wrong = f'{{"session_id": "x", "type": "{MARKER}"}}\n'.encode()
    (folder / "acme.jsonl").write_bytes(body_of(victim_events()) + wrong)
    (folder / "bolt.jsonl").write_bytes(body_of([make_event("bolt-s1", 1)]))
    (folder / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in SUITE_RESULTS))
    digest = f"sha256:{hashlib.sha256(b'acme').hexdigest()}"
    suite = ["--suite", "acme-suite", "--checkpoint", "acme-ckpt"]
    for tenant, command in (
        ("acme", ["import", str(folder / "acme.jsonl")]),
        ("bolt", ["import", str(folder / "bolt.jsonl")]),
        ("acme", ["checkpoints", "register", "acme-ckpt", "--uri", f"https://{MARKER}.test/a",
                  "--digest", digest, "--note", MARKER]),
        ("acme", ["bench", "import", str(folder / "results.jsonl"), *suite]),
        ("acme", ["promote", "acme-ckpt", "--channel", "acme-prod", "--reason", MARKER,
                  "--override", "--key", victim_secret]),
    ):  # fmt: skip
        done = penstock(*command, "--tenant", tenant, "--data", str(data))
        assert done.returncode == 0, (command, done.stderr)
    assert penstock("rewards", "run", "--data", str(data)).returncode == 0
    with running_server(data) as server:
        yield Lakes(data, server, hostile, victim_secret, victim.id, "0" * 64)


def statements(lake: Lake, data: Path) -> list[str]:
    [segment, *_] = sorted((data / "lake").rglob("*.parquet"))
    paths = {"segment": str(segment), "data": str(data), "database": str(data / "penstock.db")}
    return list(corpus(paths))


def test_the_victim_sees_what_is_its_own(lakes: Lakes) -> None:
    """Else the tests below would show nothing."""
    with open_lake(lakes.data) as lake:
        for view in ("events", "user_messages", "edits", "checkpoints", "promotions", "rewards"):
            rows = lake.query(f"select * from {view}", tenant="acme").arrow().to_pylist()
            assert rows, view
            assert MARKER in str(rows) or view == "rewards", view


def test_no_statement_gives_anything_of_another_tenant(lakes: Lakes) -> None:
    answered = refused = 0
    with open_lake(lakes.data) as lake:
        tried = statements(lake, lakes.data)
        for sql in tried:
            try:
                text = str(lake.query(sql, tenant="bolt").arrow().to_pylist())
                answered += 1
            except PenstockError as error:
                text, refused = str(error), refused + 1
            assert MARKER not in text, sql
            assert "acme-s1" not in text, sql
    assert len(tried) == len(set(tried)) >= 571
    assert (answered > 150, refused > 200) == (True, True), (answered, refused)


@pytest.mark.parametrize("route", [route for route in OPEN_TO if "{" in route or "v1" in route])
def test_no_route_gives_or_changes_anything_of_another_tenant(lakes: Lakes, route: str) -> None:
    method, template = route.split()
    names = NAMES | {"shard": lakes.shard}
    if "channels" in template:
        names["name"] = "acme-prod"
    elif "keys" in template:
        names["id"] = lakes.victim_key
    path = re.sub(r"{(\w+)}", lambda name: names[name[1]], template)
    bodies: list[dict[str, object]] = [
        {},
        {"id": 1, "ids": [1]},
        {"checkpoint": "acme-ckpt", "reason": "mine", "expect": "acme-ckpt"},
        {"reason": "mine"},
        {"old_until": 4_000_000_000_000_000},
        {"sql": "select * from events", "tenant": "acme"},
        {"tenant": "acme", "source": "by-hand"},
    ]
    with lakes.server.client(lakes.hostile) as client:
        if method == "GET":
            queries = ("", "?tenant=acme", "?channel=acme-prod&key=k&of=acme-ckpt&limit=10")
            replies = [client.get(f"{path}{query}") for query in queries]
        elif method == "DELETE":
            queries = ("", "?force=true&reason=mine", "?tenant=acme")
            replies = [client.delete(f"{path}{query}") for query in queries]
        else:
            replies = [client.post(path, json.dumps(body).encode()) for body in bodies]
    for reply in replies:
        assert MARKER.encode() not in reply.body, (route, reply.body[:200])
        assert reply.status != 500, (route, reply.body[:200])
        if "{" in route:
            assert reply.body in NOTHING or reply.status in (400, 404, 422), (
                route,
                reply.body[:200],
            )
    with lakes.server.client(lakes.own) as client:
        channel = client.get("/v1/channels/acme-prod").json()
        assert (channel["checkpoint"], channel["version"]) == ("acme-ckpt", 1)
    with open_lake(lakes.data) as lake:
        [key] = [key for key in list_keys(lake.database, "acme") if key.id == lakes.victim_key]
        assert (key.revoked_at, key.expires_at) == (None, None)


def test_no_cursor_of_another_tenant_leads_to_its_rows(lakes: Lakes) -> None:
    """A cursor says where a page begins, never whose entries it has."""
    names = ["acme-s1", "acme-ckpt", "acme-prod", "acme-suite", lakes.victim_key, "1", "9"]
    far = 4_000_000_000_000_000
    places: list[tuple[object, ...]] = [(far, "acme"), (far, "acme-s1"), (0, "acme"), (0, "", "")]
    cursors = names + [encode_cursor(*place) for place in places]
    with lakes.server.client(lakes.own) as client:
        for path in ("/v1/audit", "/v1/sessions/acme-s1"):
            cursors.append(client.get(f"{path}?limit=1").json()["next"])
    with lakes.server.client(lakes.hostile) as client:
        for route in OPEN_TO:
            method, template = route.split()
            if method != "GET" or not template.startswith("/v1/"):
                continue
            path = re.sub(r"{(\w+)}", lambda name: (NAMES | {"shard": "0" * 64})[name[1]], template)
            for cursor in cursors:
                reply = client.get(f"{path}?cursor={cursor}&limit=3")
                assert MARKER.encode() not in reply.body, (route, cursor)
                assert reply.status != 500, (route, cursor)


def test_a_snapshot_that_another_tenant_made_shows_the_own_rows(lakes: Lakes) -> None:
    made = penstock("snapshots", "create", "acme-snap", "--data", str(lakes.data))
    assert made.returncode == 0, made.stderr
    with lakes.server.client(lakes.hostile) as client:
        for accept in ("application/json", "application/vnd.apache.arrow.stream"):
            asked = {"sql": "select * from events", "as_of": "acme-snap"}
            reply = client.post("/v1/query", json.dumps(asked).encode(), Accept=accept)
            assert reply.status == 200
            assert b"bolt-s1" in reply.body
            assert MARKER.encode() not in reply.body
            assert b"acme-s1" not in reply.body


def test_what_the_service_counts_names_no_other_tenant(lakes: Lakes) -> None:
    with lakes.server.client(lakes.hostile) as client:
        for path in ("/metrics", "/readyz", "/v1/ledger", "/v1/keys", "/openapi.json"):
            body = client.get(path).body
            assert MARKER.encode() not in body, path
            assert b"acme" not in body, path
