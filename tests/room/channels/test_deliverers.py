"""Several deliverers, killed ones and the commands: each change is told, and in order."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.backends.database.leases import leased
from penstock.backends.database.tables import lease
from penstock.core.settings import Settings, load_settings
from penstock.doors.cli import main
from penstock.registry.channels import notice_delivery
from penstock.registry.channels.webhooks import add_webhook
from tests.support.channels.watching_watchers import change_times, deliver_now, deliverer, standing
from tests.support.checkpoint_factory import TENANT, set_policy
from tests.support.registry_fixtures import OpenDatabase
from tests.support.servers.scripted_server import Answer
from tests.support.waiting import eventually
from tests.support.webhook_receiver import TAKEN, Receiver, answers, is_signed

# Several deliverers


def test_one_deliverer_at_a_time(
    open_database: OpenDatabase, settings: Settings, receiver: Receiver
) -> None:
    database = open_database()
    made, _ = add_webhook(database, settings, TENANT, receiver.url)
    change_times(database, 1)
    with leased(database, f"tell:{made.target}", "another", 30) as mine:
        assert mine
        assert deliver_now(open_database(), settings) == 1
        assert receiver.asked == []
    assert deliver_now(open_database(), settings) == 0


def test_many_deliverers_tell_each_change_once(
    open_database: OpenDatabase,
    settings: Settings,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = open_database()
    add_webhook(database, settings, TENANT, receiver.url)
    monkeypatch.setattr(notice_delivery, "LEASE_SECONDS", 2)
    with (
        deliverer(open_database(), settings) as first,
        deliverer(open_database(), settings) as second,
    ):
        first.start()
        second.start()
        for number in range(10):
            change_times(database, 1, f"channel-{number % 3}")
            set_policy(database, channel=f"channel-{number % 3}")
        eventually(lambda: len(receiver.asked) >= 20)
        eventually(lambda: standing(database, settings).waiting == 0)
    for number in range(3):
        versions = receiver.versions(f"channel-{number}")
        assert versions == list(range(1, len(versions) + 1))


def test_who_hung_past_the_lease_takes_nothing_back(
    open_database: OpenDatabase, settings: Settings, receiver: Receiver
) -> None:
    database = open_database()
    add_webhook(database, settings, TENANT, receiver.url)
    change_times(database, 3)
    once = threading.Event()

    def hang_once(_got: object) -> Answer:
        if not once.is_set():
            once.set()
            with database.write() as connection:
                connection.execute(sa.update(lease).values(until=0))
            assert deliver_now(open_database(), settings) == 0
        return TAKEN

    receiver.script = hang_once
    assert deliver_now(open_database(), settings) == 0
    assert receiver.versions() == [1, 1, 2, 3]


#: `penstock` with a lease that a test can wait for.
_QUICK_TAKEOVER = """
from penstock.registry.channels import notice_delivery
from penstock.doors.cli import main
notice_delivery.LEASE_SECONDS = 0.3
main()
"""


@contextmanager
def running_command(data: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", _QUICK_TAKEOVER, "webhooks", "deliver", "--data", str(data)]
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.system
def test_killed_between_sending_and_noting(
    database_url: str, database: Database, tmp_path: Path, receiver: Receiver
) -> None:
    (tmp_path / "penstock.toml").write_text(
        f'database_url = "{database_url}"\negress_networks = "127.0.0.0/8"\n'
    )
    add_webhook(database, Settings(data=tmp_path), TENANT, receiver.url)
    change_times(database, 4)
    victims: list[subprocess.Popen[bytes]] = []

    def kill_on_second(got: Any) -> Answer:
        if got.document["version"] == 2 and len(receiver.asked) == 2:
            eventually(lambda: victims)
            victims[0].send_signal(signal.SIGKILL)
            victims[0].wait()
        return TAKEN

    receiver.script = kill_on_second
    with running_command(tmp_path) as first:
        victims.append(first)
        eventually(lambda: first.poll() is not None)
    assert receiver.versions() == [1, 2]
    with running_command(tmp_path) as second:
        eventually(lambda: len(receiver.asked) == 5)
        eventually(lambda: standing(database, load_settings(tmp_path, {})).waiting == 0)
        second.send_signal(signal.SIGTERM)
        assert second.wait() == 0
    assert receiver.versions() == [1, 2, 2, 3, 4]
    assert len({one.headers["webhook-id"] for one in receiver.asked[1:3]}) == 1


# The commands


Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def run(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs `penstock webhooks ARGUMENTS`; its exit status and what it said."""
    (tmp_path / "penstock.toml").write_text(
        f'database_url = "{database_url}"\negress_networks = "127.0.0.0/8"\n'
    )
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))

    def run_once(*arguments: str) -> tuple[int, Any]:
        monkeypatch.setattr("sys.argv", ["penstock", "webhooks", *arguments, "--json"])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), json.loads(out) if out else err

    return run_once


def test_commands(run: Run, database: Database, receiver: Receiver) -> None:
    status, made = run("add", receiver.url, "--channel", "production")
    assert status == 0
    change_times(database, 2)
    receiver.script = answers(500)
    status, told = run("deliver", "--once")
    assert (status, told["delivered"], told["waiting"]) == (1, 0, 2)
    status, [listed] = run("list")
    assert (status, listed["id"], listed["waiting"]) == (0, made["id"], 2)
    assert listed["problem"] == "it answered 500"
    assert "secret" not in listed
    status, told = run("deliver", "--once")
    assert (status, told) == (0, {"delivered": 2, "waiting": 0, "problems": []})
    assert is_signed(
        made["secret"], receiver.asked[-1].headers, receiver.asked[-1].body, now_s=time.time()
    )
    assert run("remove", made["id"]) == (0, {"removed": made["id"]})
    status, said = run("remove", made["id"])
    assert status == 2
    assert "The webhook" in said["detail"]


@pytest.mark.parametrize("host", ["169.254.169.254", "[::1]", "167772161"])
def test_addresses_that_are_never_told_are_not_added(run: Run, host: str) -> None:
    status, said = run("add", f"http://{host}/latest/meta-data")
    assert status == 2
    assert f"{host.strip('[]')} is not dialled" in str(said)
    assert run("list") == (0, [])
