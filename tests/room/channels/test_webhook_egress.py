"""Webhooks reach the internet and what the operator allows, and tell nothing of the rest."""

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.backends.database.engine import Database
from penstock.core.settings import Settings, load_settings
from penstock.registry.channels.webhooks import add_webhook
from tests.support.channels.watching_watchers import change_times, deliver_now, standing
from tests.support.checkpoint_factory import TENANT
from tests.support.servers.scripted_server import Answer
from tests.support.webhook_receiver import Receiver, receiving

#: This machine, as addresses may spell it.
LOOPBACK = ("127.0.0.1", "localhost", "2130706433", "0.0.0.0", "[::ffff:7f00:1]")


@pytest.fixture
def strict(tmp_path: Path) -> Settings:
    """As the service is installed."""
    return load_settings(tmp_path, {})


def problem_of(database: Database, settings: Settings, url: str) -> str:
    """Of telling this webhook a change."""
    add_webhook(database, settings, TENANT, url)
    change_times(database, 1)
    assert deliver_now(database, settings) == 1
    return standing(database, settings).problem or ""


@pytest.mark.parametrize("host", LOOPBACK)
def test_neighbours_are_not_told(
    host: str, embedded: Database, strict: Settings, receiver: Receiver
) -> None:
    port = urlsplit(receiver.url).port
    problem = problem_of(embedded, strict, f"http://{host}:{port}/hook")
    assert receiver.asked == []
    assert "is not dialled: it is unknown, or not on the internet" in problem
    assert "PENSTOCK_EGRESS_NETWORKS" in problem


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_whether_something_listens_is_not_told(
    scheme: str, embedded: Database, strict: Settings
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        heard = problem_of(embedded, strict, f"{scheme}://127.0.0.1:{port}/")
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.accept()
    deliver_now(embedded, strict)
    assert standing(embedded, strict).problem == heard


def test_a_redirect_leads_nowhere(
    embedded: Database, settings: Settings, receiver: Receiver
) -> None:
    with receiving() as inside:
        receiver.script = lambda _asked: Answer(307, "", {"Location": inside.url})
        assert "it answered 307" in problem_of(embedded, settings, receiver.url)
        assert inside.asked == []


def test_an_operator_allows_a_network(
    embedded: Database, settings: Settings, receiver: Receiver
) -> None:
    url = receiver.url.replace("127.0.0.1", "localhost")
    add_webhook(embedded, settings, TENANT, url)
    change_times(embedded, 1)
    assert deliver_now(embedded, settings) == 0
    assert receiver.versions() == [1]
