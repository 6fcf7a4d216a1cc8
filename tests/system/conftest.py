import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key
from penstock.backends.database.engine import Database
from penstock.backends.http.client import HttpAnswer
from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from penstock_jobs.simulator.demo.server import Server, running_server
from tests.room.conftest import lake
from tests.support.service import Service, answer

__all__ = ["lake"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Starts a service whose keys are made already; settings are those of `Settings`."""

    @contextmanager
    def started(*arguments: str, data: Path | None = None, **settings: object) -> Iterator[Service]:
        data = data or tmp_path_factory.mktemp("data")
        with open_or_make(load_settings(data, environment={}, flags=settings)) as lake:
            keys = _keys_of(lake.database, "acme", "bolt")
        named = {f"PENSTOCK_{name.upper()}": str(value) for name, value in settings.items()}
        with running_server(data, *arguments, settings=named) as server:
            yield Service(server, data, keys)

    return started


def _keys_of(database: Database, tenant: str, other: str) -> dict[str, str]:
    keys = {role: create_key(database, role, tenant)[1] for role in ("admin", "ingest", "read")}
    return keys | {"bolt": create_key(database, "admin", other)[1]}


@pytest.fixture(scope="session")
def _everybodys_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    data = tmp_path_factory.mktemp("everybodys") / "data"
    with running_server(data) as server:
        yield server, data


@pytest.fixture(scope="module")
def service(
    _everybodys_service: tuple[Server, Path], request: pytest.FixtureRequest
) -> Iterator[Service]:
    """The one service of this process, with default settings: each file of tests is a tenant of
    its own, beside another one whose admin key is "bolt"."""
    server, data = _everybodys_service
    database = Database.of(load_settings(data, environment={}))
    name = f"{request.path.parent.name}-{request.path.stem}"
    yield Service(server, data, _keys_of(database, name, f"other-{name}"))
    database.close()


@pytest.fixture
def read_answer() -> Callable[[socket.socket], HttpAnswer]:
    return answer
