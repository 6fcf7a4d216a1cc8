"""Commands asked of a service say what they say on the machine of the lake, and are refused as its
routes are."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from penstock.access import ROLES
from penstock.access.keys import create_key
from penstock.events.event import TENANT_DEFAULT
from penstock.http.login import login_path
from penstock.lake.desk import Call, all_calls
from penstock.lake.lake import open_or_make
from penstock.settings import load_settings
from penstock_jobs.demo.server import Server, running_server
from tests.support.commands import penstock
from tests.support.lakes import body_of, make_event

#: Commands that change nothing.
READING: dict[str, list[str]] = {
    "query": ["query", "select session_id, type, ts from events order by all"],
    "query --as-of": ["query", "select count(*) as n from events", "--as-of", "2026-01-01T00:00Z"],
    "query wrong": ["query", "select nonsense from events"],
    "query csv": ["query", "select * from sessions order by all", "--format", "csv"],
}


@dataclass
class World:
    """A lake, a service over it, and a key of each role."""

    data: Path
    server: Server
    keys: dict[str, str]

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
    events = folder / "events.jsonl"
    events.write_bytes(body_of(make_event(f"s-{n % 2}", n) for n in range(5)))
    assert penstock("import", str(events), "--data", str(data)).returncode == 0
    with running_server(data) as server:
        yield World(data, server, keys)


@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("name", READING)
def test_the_answer_is_the_same_here_and_from_afar(
    world: World, name: str, json: list[str]
) -> None:
    arguments = READING[name] + json
    here, afar = world.here(*arguments), world.afar(*arguments)
    assert (afar.returncode, afar.stdout) == (here.returncode, here.stdout)
    assert afar.stderr == here.stderr
    assert here.stdout or here.returncode


def _ids(call: object) -> str:
    return f"{call.method} {call.path}" if isinstance(call, Call) else str(call)


@pytest.mark.parametrize("call", all_calls(), ids=_ids)
def test_a_route_is_open_to_the_roles_of_its_call(world: World, call: Call) -> None:  # type: ignore[type-arg]
    path = call.path.replace("{", "no-").replace("}", "")
    for role in ROLES:
        with world.server.client(world.keys[role]) as client:
            reply = client.get(path) if call.method == "GET" else client.post(path, b"{")
        assert (reply.status == 403) == (role not in (*call.roles, "admin")), role
        if reply.status == 403:
            assert reply.json()["error"] == "RoleMissing"
    with world.server.client("no") as client:
        assert client.post("/v1/query", b"{}").status == 401


def test_a_role_that_may_not_is_refused_by_the_command_as_by_the_route(world: World) -> None:
    done = world.afar("query", "select 1", key="ingest")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "penstock: The key is known, but this needs the role read.\n"


@pytest.mark.parametrize("key", ["pk_read_" + "a" * 32, "nonsense"])
def test_a_wrong_key_is_refused_as_one(world: World, key: str) -> None:
    done = world.afar("query", "select 1", key=key)
    assert (done.returncode, done.stdout) == (1, "")
    assert "The key is not valid" in done.stderr
    assert key not in done.stderr


def test_without_a_key_it_is_said_how_to_name_one(world: World) -> None:
    done = world.afar("query", "select 1", key=None)
    assert done.returncode == 1
    assert "There is no key" in done.stderr
    assert "penstock login" in done.stderr


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
    done = penstock("db", "check", "--data", str(tmp_path / "none"))
    assert "There is no lake at" in done.stderr


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
    assert (
        "There is no key" in penstock(*sql, "--url", url.replace("127.0.0.1", "localhost")).stderr
    )
    assert "There is no lake" in penstock(*sql, "--data", str(tmp_path / "none")).stderr
    assert penstock("logout", "--json").stdout.split() == ["{", '"forgotten":', "true", "}"]
    assert not login_path().exists()
    assert "There was no login" in penstock("logout").stderr
    assert os.environ.get("PENSTOCK_URL") is None
