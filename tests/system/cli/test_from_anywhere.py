"""Commands asked of a service say what they say on the machine of the lake, and are refused as its
routes are."""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import sqlalchemy as sa

import penstock as penstock_api
from penstock.access import ROLES
from penstock.access.keys import create_key
from penstock.backends.http.login import login_path
from penstock.core.errors import PenstockError
from penstock.core.settings import load_settings
from penstock.events.event import TENANT_DEFAULT
from penstock.lake import QueryFailed
from penstock.lake.lake import open_or_make
from penstock.shards.reader import ReadingOptions
from penstock.shards.shard import ShardUnknown
from penstock_jobs.loop.tables import loop_cycle, loop_stage
from penstock_jobs.simulator.demo.server import Server, running_server
from tests.support.checkpoint_factory import add_scores
from tests.support.commands import penstock
from tests.support.lakes import START_US, body_of, make_event
from tests.support.repository import ROOT
from tests.support.waiting import eventually

_IMPORT = ["bench", "import", "--suite", "core"]
#: Commands that change nothing.
READING: dict[str, list[str]] = {
    "query": ["query", "select session_id, type, ts from events order by all"],
    "query --as-of": ["query", "select count(*) as n from events", "--as-of", "2026-01-01T00:00Z"],
    "query wrong": ["query", "select nonsense from events"],
    "sessions list": ["sessions", "list", "--limit", "1"],
    "sessions list wrong": ["sessions", "list", "--since", "long ago"],
    "sessions show": ["sessions", "show", "s-0"],
    "sessions show nobody": ["sessions", "show", "nobody"],
    "query csv": ["query", "select * from sessions order by all", "--format", "csv"],
    "shards list": ["shards", "list"],
    "shards show": ["shards", "show", "sft-persistent"],
    "shards show none": ["shards", "show", "none"],
    "checkpoints list": ["checkpoints", "list", "--state", "serving"],
    "checkpoints show": ["checkpoints", "show", "a"],
    "checkpoints show none": ["checkpoints", "show", "none"],
    "checkpoints lineage": ["checkpoints", "lineage", "b"],
    "channels list": ["channels", "list"],
    "channels show": ["channels", "show", "production"],
    "channels show none": ["channels", "show", "none"],
    "channels history": ["channels", "history", "production"],
    "channels history --last": ["channels", "history", "production", "--last", "1"],
    "channels policy": ["channels", "policy", "production"],
    "channels watch": ["channels", "watch", "production", "--after", "0", "--changes", "2"],
    "channels fleet": ["channels", "fleet", "production"],
    "gate check": ["gate", "check", "a"],
    "gate check not passed": ["gate", "check", "b"],
    "gate check none": ["gate", "check", "none"],
    "gate plan": ["gate", "plan", "core", "--policy", "POLICY", "--tasks", "30"],
    "gate plan wrong": ["gate", "plan", "nothing", "--policy", "POLICY"],
    "ledger": ["ledger"],
    "ledger --since": ["ledger", "--since", "2026-01-01T00:00Z"],
    "rejected list": ["rejected", "list", "--limit", "5"],
    "rejected show": ["rejected", "show", "1"],
    "rejected show none": ["rejected", "show", "99"],
    "rejected fuses": ["rejected", "fuses"],
    "bench show": ["bench", "show", "core"],
    "bench show --checkpoint": ["bench", "show", "core", "--checkpoint", "a"],
    "bench show none": ["bench", "show", "none"],
    "bench compare": ["bench", "compare", "a", "b", "--suite", "core"],
    "bench compare none": ["bench", "compare", "a", "none", "--suite", "core"],
    "bench import --dry-run": [*_IMPORT, "RESULTS", "--checkpoint", "a", "--dry-run"],
    "bench import wrong": [*_IMPORT, "POLICY", "--checkpoint", "a"],
    "loop status": ["loop", "status"],
    "loop history": ["loop", "history", "--limit", "5"],
}
POLICY = """
[[require]]
suite = "core"
minimum = 0.5
margin = 0.5
min_tasks = 30
"""


@dataclass
class World:
    """A lake, a service over it, and a key of each role."""

    data: Path
    server: Server
    keys: dict[str, str]

    def arguments(self, name: str) -> list[str]:
        folder = self.data.parent
        files = {"POLICY": str(folder / "policy.toml"), "RESULTS": str(folder / "results.jsonl")}
        return [files.get(text, text) for text in READING[name]]

    def waiting_events(self) -> int:
        ledger = json.loads(self.afar("ledger", "--json").stdout)
        return int(ledger["totals"]["waiting"])

    def here(self, *arguments: str) -> CompletedProcess[str]:
        return penstock(*arguments, "--data", str(self.data))

    def afar(self, *arguments: str, key: str | None = "admin") -> CompletedProcess[str]:
        with pytest.MonkeyPatch.context() as patch:
            if key is not None:
                patch.setenv("PENSTOCK_KEY", self.keys.get(key, key))
            return penstock(*arguments, "--url", self.server.url)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    data = folder / "data"
    with open_or_make(load_settings(data, environment={})) as lake:
        keys: dict[str, str] = {
            role: create_key(lake.database, role, TENANT_DEFAULT)[1] for role in ROLES
        }
    recipe = ROOT / "examples" / "recipes" / "sft-persistent.toml"
    for command in (
        ["import", str(ROOT / "examples" / "sessions")],
        ["rewards", "run"],
        ["shards", "build", str(recipe)],
    ):
        done = penstock(*command, "--data", str(data))
        assert done.returncode == 0, done.stderr
    wrong = b'{"session_id": "s", "type": "edti"}\n'
    (folder / "lines.jsonl").write_bytes(body_of([make_event("s", 1)]) + wrong)
    (folder / "policy.toml").write_text(POLICY)
    results = [{"task": f"t-{at:03}", "attempt": 0, "score": 1.0} for at in range(3)]
    results += [{"task": "t-003", "error": "timeout: 30 s"}, {"task": "other", "score": 0.0}]
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in results))
    for command in (
        ["import", str(folder / "lines.jsonl")],
        *(["checkpoints", "register", *named(name)] for name in ("a", "b", "c")),
        ["channels", "policy", "production", "--set", str(folder / "policy.toml")],
    ):
        assert penstock(*command, "--data", str(data)).returncode == 0, command
    scored(data, {"a": 0.8, "b": 0.2, "c": 0.9})
    add_cycle(data)
    promoted = ["promote", "a", "--reason", "the first", "--by", "ann"]
    assert penstock(*promoted, "--data", str(data)).returncode == 0
    with running_server(data) as server:
        yield World(data, server, keys)


def named(name: str) -> list[str]:
    digest = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
    return [name, "--uri", f"https://models.test/{name}", "--digest", digest]


def scored(data: Path, means: dict[str, float]) -> None:
    with open_or_make(load_settings(data, environment={})) as lake:
        add_scores(lake.database, means)


def add_cycle(data: Path) -> None:
    """One that has ended: what is under way takes longer each time that it is asked for."""
    cycle = {"tenant": TENANT_DEFAULT, "loop": "core", "number": 1, "channel": "production"}
    cycle |= {"file_digest": "sha256:00", "budget_s": 60, "outcome": "refused", "why": "FAIL"}
    times = {"opened_at": START_US, "began_at": START_US + 5, "ended_at": START_US + 9_000_000}
    stage = {"tenant": TENANT_DEFAULT, "loop": "core", "cycle": 1, "stage": "rewards"}
    stage |= {"position": 0, "state": "done", "result": '{"sessions": 3}', "epoch": 1}
    stage |= {"started_at": START_US + 7, "ended_at": START_US + 2_000_000}
    settings = load_settings(data, environment={})
    with open_or_make(settings) as lake, lake.database.write() as connection:
        connection.execute(sa.insert(loop_cycle).values(cycle | times))
        connection.execute(sa.insert(loop_stage).values(stage))


#: A verdict is of the moment at which it was asked for, and is named by its digest.
_OF_THE_MOMENT = re.compile(
    r'verdict +sha256:\w+|(?<="id": ")sha256:\w+|at +\S+ \S+ UTC|(?<="at": )\d+|\d s ago'
)


def timeless(text: str) -> str:
    return _OF_THE_MOMENT.sub("0", text)


def documents(text: str) -> list[object]:
    """One, or one a line. An error from afar names its request, too."""
    try:
        found = [json.loads(timeless(text))] if text else []
    except ValueError:
        found = [json.loads(line) for line in timeless(text).splitlines()]
    for document in found:
        if isinstance(document, dict):
            document.pop("request_id", None)
    return found


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("name", READING)
def test_the_answer_is_the_same_here_and_from_afar(
    world: World, name: str, form: list[str]
) -> None:
    arguments = world.arguments(name) + form
    if name.startswith("ledger"):  # other tests send events, which are stored a little later
        eventually(lambda: not world.waiting_events())
    here, afar = world.here(*arguments), world.afar(*arguments)
    if form:  # the fields of an object may come in another order
        assert documents(afar.stdout) == documents(here.stdout)
    else:
        assert timeless(afar.stdout) == timeless(here.stdout)
    assert afar.stderr == here.stderr
    assert afar.returncode == here.returncode
    assert here.stdout or here.stderr


@pytest.mark.parametrize("name", sorted(READING))
def test_a_command_is_refused_to_the_roles_that_its_route_refuses(world: World, name: str) -> None:
    done = world.afar(*world.arguments(name), key="serve")
    open_to_serve = {"channels show", "channels show none", "channels watch", "channels fleet"}
    # What is wrong with a file or a word is said before anybody is asked.
    wrong = {"bench import wrong", "gate plan wrong"}
    if name in open_to_serve:
        assert "needs the role" not in done.stderr
    elif name not in wrong:
        assert (done.returncode, done.stdout) == (1, "")
        assert "penstock: The key is valid, but this needs the role " in done.stderr


# What changes something


@pytest.mark.smoke
def test_a_promotion_from_afar_goes_through_the_gate_and_names_the_key(world: World) -> None:
    channel = ["--channel", "afar", "--reason", "better"]
    policy = str(world.data.parent / "policy.toml")
    set_policy = ["channels", "policy", "afar", "--set", policy]
    refused = world.afar(*set_policy, key="promote")
    assert (refused.returncode, "needs the role" in refused.stderr) == (1, True)
    assert "afar version 1: policy" in world.afar(*set_policy).stderr
    stopped = world.afar("promote", "b", *channel, key="promote")
    assert stopped.returncode == 1
    assert stopped.stdout.startswith("FAIL: b for afar, as its first checkpoint")
    assert "The gate's verdict on b for afar is FAIL" in stopped.stderr
    first = world.afar("promote", "a", *channel, key="promote")
    assert (first.returncode, first.stderr) == (0, "afar version 2: a is the first checkpoint\n")
    conflict = world.afar("promote", "c", *channel, "--expect", "b", key="promote")
    assert conflict.returncode == 1
    assert "The channel afar was expected at b, but is at a (version 2" in conflict.stderr
    second = world.afar("promote", "c", *channel, "--expect", "a", "--json", key="promote")
    change = json.loads(second.stdout)
    assert (change["version"], change["previous"]) == (3, "a")
    assert change["actor"].startswith("key ")
    back = world.afar("rollback", *channel, key="promote")
    assert back.stderr.startswith("afar version 4: c → back to a\nafar is pinned")
    assert "is pinned since key" in world.afar("promote", "c", *channel).stderr
    release = ["channels", "release", "afar", "--reason", "known"]
    assert world.afar(*release, key="promote").stderr == "afar version 5: released, at a\n"
    for key, why in (("promote", "needs the role admin"), ("admin", "afar version 6: a → b")):
        assert why in world.afar("promote", "b", *channel, "--override", key=key).stderr
    history = world.here("channels", "history", "afar")
    assert (history.returncode, "OVERRIDDEN" in history.stdout) == (0, True)


def test_a_checkpoint_is_registered_and_withdrawn_from_afar(world: World, tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("weights")
    register = ["checkpoints", "register", "d", "--uri", str(tmp_path)]
    here = world.here("checkpoints", "digest", str(tmp_path)).stdout.strip()
    done = world.afar(*register, key="train")
    assert done.stderr.startswith(f"d is {here}, registered\n")
    withdraw = ["checkpoints", "withdraw", "d", "--reason", "no use"]
    assert "needs the role promote" in world.afar(*withdraw, key="train").stderr
    assert world.afar(*withdraw, key="promote").stderr == "d was withdrawn\n"
    assert "withdrawn" in world.here("checkpoints", "show", "d").stdout


def test_results_are_imported_from_afar_once(world: World) -> None:
    results = str(world.data.parent / "results.jsonl")
    order = ["bench", "import", results, "--suite", "fresh", "--checkpoint", "c", "--json"]
    assert "needs the role promote" in world.afar(*order, key="train").stderr
    first, again = (json.loads(world.afar(*order, key="promote").stdout) for _ in range(2))
    assert (first["new"], first["scored"], first["errors"]) == (5, 4, 1)
    assert again == first | {"new": 0}
    assert world.here(*order).stdout == world.afar(*order).stdout
    shown = world.here("bench", "show", "fresh", "--json").stdout
    assert [result["checkpoint"] for result in json.loads(shown)] == ["c"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"attempts": [{"task": "t", "attempt": 0, "score": 2.0}]}, "scores lie between 0 and 1"),
        ({"attempts": [{"task": "t", "attempt": 0, "score": 1.0}] * 2}, "it occurs twice"),
        ({"places": []}, "exactly one place per attempt"),
        ({"format": "mine"}, "mine"),
        ({"attempts": []}, "exactly one place per attempt"),
    ],
)
def test_results_that_no_importer_reads_are_refused(
    world: World, fields: dict[str, object], why: str
) -> None:
    attempts = [{"task": "t", "attempt": 0, "score": 1.0}]
    count = 2 if why == "it occurs twice" else 1
    body: dict[str, object] = {"checkpoint": "a", "format": "penstock", "source": "x"}
    body |= {"attempts": attempts, "places": ["x"] * count} | fields
    with world.server.client(world.keys["promote"]) as client:
        reply = client.post("/v1/suites/core/results", json.dumps(body).encode())
    assert (reply.status, why in reply.json()["detail"]) == (400, True), reply.body


@pytest.mark.smoke
def test_files_are_imported_from_afar(world: World, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(
        body_of(make_event("from-afar", number) for number in range(30)) + b"nothing\n"
    )
    (tmp_path / "array.json").write_text(json.dumps([make_event("from-afar", 30)]))
    for attempt in range(2):
        done = world.afar("import", str(tmp_path), "--json", key="ingest")
        summary = json.loads(done.stdout)
        counts = {"accepted": 31, "rejected": 1, "files": 2}
        assert summary | counts == summary, attempt
        sql = "select count(*) as n from events where session_id = 'from-afar'"
        assert json.loads(world.afar("query", sql, "--json").stdout) == [{"n": 31}]
    refused = world.afar("import", str(tmp_path), key="read")
    assert (refused.returncode, "needs the role ingest" in refused.stderr) == (1, True)
    wrong = world.afar("import", str(tmp_path), key="nonsense")
    assert (wrong.returncode, "The key is not valid" in wrong.stderr) == (1, True)
    (tmp_path / "array.json").write_text("[{]")
    broken = world.afar("import", str(tmp_path / "array.json"), key="ingest")
    assert broken.returncode == world.here("import", str(tmp_path / "array.json")).returncode


def test_rejected_lines_are_replayed_and_fuses_released_from_afar(world: World) -> None:
    assert "needs the role admin" in world.afar("rejected", "replay", "1", key="ingest").stderr
    replayed = world.afar("rejected", "replay", "1")
    assert (replayed.returncode, "1 rejected again" in replayed.stderr) == (1, True)
    for tenant, why in ((TENANT_DEFAULT, "it has not tripped"), ("acme", "belongs to another one")):
        done = world.afar("rejected", "release", tenant, "by-hand")
        assert (done.returncode, why in done.stderr) == (2, True)
    gap = world.afar("ledger", "--accept-gap", "1", "--reason", "known")
    assert (gap.returncode, "on the lake's machine" in gap.stderr) == (2, True)


def test_keys_are_made_and_revoked_from_afar_for_the_own_tenant(world: World) -> None:
    create = ["keys", "create", "--role", "read", "--note", "afar", "--json"]
    assert "needs the role admin" in world.afar(*create, key="promote").stderr
    assert world.afar(*create, "--tenant", "acme").returncode == 2
    made = json.loads(world.afar(*create).stdout)
    assert (made["tenant"], made["role"], made["expires_at"]) == (TENANT_DEFAULT, "read", None)
    assert world.afar("query", "select 1", key=made["secret"]).returncode == 0
    with open_or_make(load_settings(world.data, environment={})) as lake:
        stranger = create_key(lake.database, "admin", "stranger")
    refused = world.afar("keys", "revoke", made["id"], key=stranger[1])
    assert (refused.returncode, "does not exist" in refused.stderr) == (2, True)
    listed = json.loads(world.afar("keys", "list", "--json", key=stranger[1]).stdout)
    assert [key["id"] for key in listed] == [stranger[0].id]
    assert world.afar("keys", "revoke", made["id"]).returncode == 0
    keys = json.loads(world.here("keys", "list", "--json").stdout)
    own = [key for key in keys if key["tenant"] == TENANT_DEFAULT]
    assert json.loads(world.afar("keys", "list", "--json").stdout) == own
    assert [key["id"] for key in keys if key["revoked_at"]] == [made["id"]]
    assert world.here("keys", "revoke", stranger[0].id).returncode == 0


def test_a_key_makes_none_that_outlives_it(world: World) -> None:
    soon, later = "2090-01-01T00:00Z", "2090-01-02T00:00Z"
    create = ["keys", "create", "--role", "admin", "--json"]
    made = json.loads(world.afar(*create, "--expires", soon).stdout)
    for terms in ([], ["--expires", later]):
        refused = world.afar(*create, *terms, key=made["secret"])
        assert refused.returncode == 2
        assert "expires at 2090-01-01 00:00 UTC" in refused.stderr
    child = json.loads(world.afar(*create, "--expires", soon, key=made["secret"]).stdout)
    assert child["expires_at"] == made["expires_at"]
    eternal = json.loads(world.afar(*create).stdout)
    for id_ in (eternal["id"], made["id"]):
        refused = world.afar("keys", "rotate", id_, "--old-works", "1h", key=made["secret"])
        assert (refused.returncode, "expires at 2090-01-01" in refused.stderr) == (2, True)


def test_python_reads_the_lake_of_a_service(world: World, tmp_path: Path) -> None:
    sql = "select type, count(*) as n from events where session_id <> 'from-afar' group by all"
    digest = json.loads(world.here("shards", "show", "sft-persistent", "--json").stdout)["shard"]
    with (
        penstock_api.open(world.data) as here,
        penstock_api.open(world.server.url, key=world.keys["read"]) as afar,
    ):
        order = f"{sql} order by all"
        assert afar.query(order).arrow() == here.query(order).arrow()
        with pytest.raises(QueryFailed, match="nonsense"):
            afar.query("select nonsense from events").arrow()
        assert afar.checkpoint("a") == here.checkpoint(here.checkpoint("a").digest)
        assert afar.checkpoints() == here.checkpoints()
        channels = [lake.channel("production") for lake in (here, afar)]
        assert penstock_api.assign(channels[0], "u") == penstock_api.assign(channels[1], "u")
        options: ReadingOptions = {"batch_samples": 2, "seed": 7, "columns": ["sample_id"]}
        copied: ReadingOptions = {**options, "cache": tmp_path}
        readers = [
            here.read_shard("sft-persistent", **options),
            penstock_api.read_shard(world.data, digest[:30], **options),
            afar.read_shard("sft-persistent", **copied),
        ]
        told = [[list(batch["sample_id"]) for batch in reader] for reader in readers]
        assert told[0] == told[1] == told[2]
        assert sum(map(len, told[0])) == 4
        for reader in readers:
            reader.close()
        with pytest.raises(ShardUnknown):
            afar.read_shard("nothing", cache=tmp_path)
    wrong = penstock_api.open(world.server.url, key="nonsense")
    with wrong, pytest.raises(PenstockError, match="The key is not valid"):
        wrong.checkpoints()


def test_an_export_from_afar_has_the_same_bytes(world: World, tmp_path: Path) -> None:
    def export(place: str, form: str) -> list[str]:
        return ["shards", "export", "sft-persistent", "--to", form, "--out", str(tmp_path / place)]

    here = world.here(*export("here", "messages-jsonl"))
    afar = world.afar(*export("afar", "messages-jsonl"), key="train")
    assert (here.returncode, afar.returncode, afar.stderr) == (0, 0, here.stderr)
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "afar").iterdir())
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "afar" / name).read_bytes()
    for place in (world.here, world.afar):
        done = place(*export("none", "trl-sfd"))
        assert (done.returncode, "did you mean trl-sft" in done.stderr) == (2, True)
        done = place(*export("empty", "prime-rl"))
        assert (done.returncode, "no_logprobs 4" in done.stderr) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["afar", "here"]


@pytest.mark.parametrize("name", ["nothing", "..%2Fmanifest.json", "part-00000.parquet%00"])
def test_only_files_of_the_shard_are_given_out(world: World, name: str) -> None:
    with world.server.client(world.keys["read"]) as client:
        reply = client.get(f"/v1/shards/sft-persistent/files/{name}")
    assert reply.status in (400, 404)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("pk_read_" + "a" * 32, "The key is not valid"),
        ("nonsense", "The key is not valid"),
        (None, "needs a key"),
    ],
    ids=["strange", "nonsense", "none"],
)
def test_without_a_valid_key_it_is_refused(world: World, key: str | None, why: str) -> None:
    done = world.afar("query", "select 1", key=key)
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr
    assert key is None or key not in done.stderr


def test_a_service_that_is_not_there_is_named() -> None:
    done = penstock("query", "select 1", "--url", "http://127.0.0.1:1")
    assert done.returncode == 3
    assert "http://127.0.0.1:1" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--data", "d"], ["--tenant", "t"]], ids=["both places", "another tenant"]
)
def test_what_a_url_rules_out_is_refused(arguments: list[str]) -> None:
    done = penstock("query", "select 1", "--url", "http://127.0.0.1:1", *arguments)
    assert done.returncode == 2
    assert arguments[0] in done.stderr


def test_what_needs_the_files_says_so_where_a_service_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "http://127.0.0.1:1")
    for command in (["rewards", "run"], ["shards", "build", "r.toml"], ["db", "check"], ["serve"]):
        done = penstock(*command)
        assert done.returncode == 2, command
        assert "works on the files of a lake" in done.stderr
    monkeypatch.delenv("PENSTOCK_URL")
    done = penstock("rewards", "run", "--url", "http://127.0.0.1:1")
    assert (done.returncode, "on the lake's machine" in done.stderr) == (2, True)
    done = penstock("db", "check", "--data", str(tmp_path / "none"))
    assert "holds no lake yet" in done.stderr


def test_a_login_is_kept_for_its_owner_alone_until_the_logout(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    url = world.server.url
    monkeypatch.setenv("PENSTOCK_KEY", "pk_read_" + "b" * 32)
    assert "The key is not valid" in penstock("login", url).stderr
    assert not login_path().exists()
    monkeypatch.setenv("PENSTOCK_KEY", world.keys["read"])
    done = penstock("login", url)
    assert (done.returncode, world.keys["read"] in done.stderr) == (0, False)
    assert stat.S_IMODE(login_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(login_path().parent.stat().st_mode) == 0o700
    monkeypatch.delenv("PENSTOCK_KEY")
    sql = ("query", "select count(*) as n from events")
    asked = penstock(*sql)
    assert (asked.returncode, asked.stdout) == (0, world.here(*sql).stdout)
    # The key goes to its own service alone, and a directory that is named comes first.
    assert "needs a key" in penstock(*sql, "--url", url.replace("127.0.0.1", "localhost")).stderr
    assert "holds no lake yet" in penstock(*sql, "--data", str(tmp_path / "none")).stderr
    assert penstock("logout", "--json").stdout.split() == ["{", '"forgotten":', "true", "}"]
    assert not login_path().exists()
    assert "There was no login" in penstock("logout").stderr
    assert os.environ.get("PENSTOCK_URL") is None
