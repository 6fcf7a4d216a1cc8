import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key
from penstock.http.client import HttpAnswer
from penstock.lake.lake import open_or_make
from penstock.settings import load_settings
from penstock_jobs.demo.server import running_server
from tests.support.service import Service, answer


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Starts a service whose keys are made already; settings are those of `Settings`."""

    @contextmanager
    def started(*arguments: str, data: Path | None = None, **settings: object) -> Iterator[Service]:
        data = data or tmp_path_factory.mktemp("data")
        with open_or_make(load_settings(data, environment={}, flags=settings)) as lake:
            roles = ("admin", "ingest", "read")
            keys = {role: create_key(lake.database, role, "acme")[1] for role in roles}
            keys["bolt"] = create_key(lake.database, "admin", "bolt")[1]
        named = {f"PENSTOCK_{name.upper()}": str(value) for name, value in settings.items()}
        with running_server(data, *arguments, settings=named) as server:
            yield Service(server, data, keys)

    return started


@pytest.fixture
def read_answer() -> Callable[[socket.socket], HttpAnswer]:
    return answer
