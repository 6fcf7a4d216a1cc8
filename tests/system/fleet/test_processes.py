"""Sidecars as processes: by the database and over HTTP, killed, and told to end."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.access.keys import create_key
from penstock.backends.database.engine import Database
from penstock.backends.database.migrations import upgrade
from penstock.core.settings import Settings
from penstock.doors.cli import main
from penstock_jobs.simulator.demo.server import running_server
from tests.support.checkpoint_factory import rollback
from tests.support.fleet.following import JOURNAL, Fleet, next_event, process
from tests.support.servers.postgres import PostgresServer
from tests.support.waiting import eventually


@pytest.fixture(params=["sqlite", "postgresql"])
def each(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on each kind of database, whose data directory is `tmp_path`."""
    if request.param == "sqlite":
        yield request.getfixturevalue("fleet")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as url:
        database = Database(url)
        upgrade(database)
        (tmp_path / "penstock.toml").write_text(f'database_url = "{url}"\n')
        yield Fleet(database, tmp_path, Settings(data=tmp_path))
        database.close()


def journal(fleet: Fleet) -> list[str]:
    path = fleet.folder / "serving" / "production" / "journal"
    return path.read_text().split() if path.exists() else []


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `penstock channels ARGUMENTS` in this process: its status, output and errors."""

    def run_once(*arguments: str, key: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["penstock", "channels", *arguments])
        monkeypatch.setenv("PENSTOCK_KEY", key)
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return run_once


def test_it_follows_the_database_until_it_is_told_to_end(each: Fleet, run: Run) -> None:
    each.add("one")
    each.add("two")
    each.promote("one")
    with process(each.folder, "--exec", JOURNAL, "--replica", "a") as sidecar:
        assert next_event(sidecar, "loaded")["checkpoint"] == "one"
        each.promote("two")
        assert next_event(sidecar, "loaded")["version"] == 2
        looking = ["fleet", "production", "--json", "--data", str(each.folder)]
        status, out, _ = run(*looking, "--wait", "20")
        found = json.loads(out)
        assert (status, found["whole"]) == (0, True)
        assert [one["loaded"] for one in found["replicas"]] == ["two"]
        for _ in range(2):  # some send it twice
            sidecar.send_signal(signal.SIGTERM)
        assert next_event(sidecar, "ended")
        _, errors = sidecar.communicate()
        assert (sidecar.returncode, errors) == (0, "")
    status, out, _ = run(*looking)
    assert (status, json.loads(out)["replicas"]) == (1, [])
    assert journal(each) == ["one<", "two<one"]


def test_killed_while_it_loads(fleet: Fleet) -> None:
    fleet.add("one")
    fleet.promote("one")
    folder = fleet.folder
    hangs = f"echo $$ > {folder}/pid; {JOURNAL}; sleep 60; echo late >> {folder}/late"
    with process(folder, "--exec", hangs) as sidecar:
        eventually(lambda: journal(fleet) == ["one<"])
        sidecar.kill()
        sidecar.wait()
    pid = (folder / "pid").read_text().strip()
    alone = f"kill -0 {pid} 2>/dev/null && exit 9; {JOURNAL}"
    with process(folder, "--exec", alone, "--assume-loaded") as sidecar:
        assert next_event(sidecar, "loaded", "failed")["event"] == "loaded"
    assert journal(fleet) == ["one<", "one<"]
    assert not (folder / "late").exists()


def test_over_http_with_a_key_that_may_no_more_than_serve(
    fleet: Fleet, tmp_path: Path, run: Run
) -> None:
    fleet.add("base")
    fleet.add("delta", form="delta", parent="base")
    fleet.promote("base")
    keys = {role: create_key(fleet.database, role, "default")[1] for role in ("serve", "read")}
    settings = {"PENSTOCK_REPLICA_SILENT_SECONDS": "3600"}
    with running_server(tmp_path, settings=settings) as server:
        facts = ["--url", server.url, "--into", f"{tmp_path}/into", "--exec", "exit 0"]
        with process(tmp_path / "none", *facts, "--replica", "a", key=keys["serve"]) as sidecar:
            next_event(sidecar, "loaded")
            assert next_event(sidecar, "whole")["replicas"] == 1
            fleet.promote("delta")
            assert next_event(sidecar, "loaded")["checkpoint"] == "delta"
            looking = ["fleet", "production", "--json", "--url", server.url]
            status, out, _ = run(*looking, "--wait", "20", key=keys["read"])
            assert (status, json.loads(out)["parts"][0]["loaded"]) == (0, {"delta": 1})
            rollback(fleet.database)
            next_event(sidecar, "loaded")
            sidecar.send_signal(signal.SIGTERM)
            _, errors = sidecar.communicate()
            assert (sidecar.returncode, errors) == (0, "")
        with process(tmp_path / "none", *facts, "--once", key=keys["read"]) as sidecar:
            refused = next_event(sidecar, "unreported")
            assert "needs the role serve" in refused["text"]
            sidecar.communicate()
            assert sidecar.returncode == 0
        _, out, _ = run(*looking, key=f"{keys['read']}\n")  # as a file of it ends
        assert json.loads(out)["whole"] is False
        status, _, errors = run(*looking, key="ke\ny")
        assert (status, "PENSTOCK_KEY cannot be used" in errors) == (2, True)
        status, _, errors = run(*looking, key="wrong")
        assert (status, "The key is not valid" in errors) == (1, True)


def test_people_read_it_too(fleet: Fleet, run: Run) -> None:
    fleet.add("one")
    fleet.promote("one")
    data = ["--data", str(fleet.folder)]
    status, out, err = run("follow", "production", "--exec", "echo hello", "--once", *data)
    assert (status, err) == (0, "hello\n")
    told = [line.split("  ", 2)[2] for line in out.splitlines()]
    assert told[1:3] == ["loading one", "loaded one"]
    status, out, err = run("fleet", "production", *data)
    assert (status, "loaded" in out) == (0, True)
    assert "the fleet of production is whole: 1 replica has one, since" in err
    status, _, err = run("follow", "production", "--exec", "exit 4", "--once", *data)
    assert (status, "ended with status 4" in err) == (1, True)
    assert run("fleet", "production", *data)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fleet", "nope"], "The channel 'nope' does not exist"),
        (["follow", "nope", "--exec", "true"], "The channel 'nope' does not exist"),
        (["follow", "production", "--exec", "true", "--replica", ""], "The name of a replica"),
        (["follow", "production", "--exec", " "], "--exec cannot be used"),
        (["follow", "production", "--exec", "true", "--check", ""], "--check cannot be used"),
        (["follow", "production", "--exec", "true", "--url", "ftp://x"], "The address ftp://x"),
        (["follow", "production", "--exec", "true", "--url", "http://x:99999"], "http://x:99999"),
        (["follow", "production", "--exec", "true", "--url", "http://[::1"], "http://[::1"),
        (["fleet", "production", "--url", "http://x:80/ä b"], "none a blank"),
        (["fleet", "production", "--url", "http://u@x"], "it holds a login"),
        (
            ["fleet", "production", "--url", "http://x/?key=1"],
            "The address http://x/?key=*** cannot",
        ),
        (["follow", "production", "--exec", "true", "--into", "/proc/none"], "/proc/none"),
    ],
)
def test_what_cannot_be_is_said_at_once(
    fleet: Fleet, run: Run, arguments: list[str], said: str
) -> None:
    fleet.add("one")
    fleet.promote("one")
    # A service or a lake is asked, never both; a sidecar has its folder here in any case.
    asks_service = arguments[0] == "fleet" and "--url" in arguments
    status, _, err = run(*arguments, *([] if asks_service else ["--data", str(fleet.folder)]))
    assert (status, said in err) == (2, True)
