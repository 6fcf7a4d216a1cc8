from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key
from penstock.backends.database.engine import Database
from penstock.backends.database.migrations import upgrade
from penstock.core.settings import load_settings
from tests.support.server.registering import Registry
from tests.support.servers.postgres import PostgresServer


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
    # The receivers of webhooks are on this machine.
    settings |= {"channel_waiters_max": 120, "egress_networks": "127.0.0.0/8"}
    with start(data=data, **settings) as service:
        database = Database.of(load_settings(data, {}, settings))
        roles = ("serve", "train", "promote")
        keys = {role: create_key(database, role, "acme")[1] for role in roles}
        yield Registry(service, database, service.keys | keys)
        database.close()
