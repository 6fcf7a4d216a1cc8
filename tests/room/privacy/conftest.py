import uuid
from pathlib import Path

import pytest

from penstock.backends.eventlog.kafka_log import KafkaEventLog
from penstock_jobs.shards.recipe import Recipe, load_recipe
from tests.support.engine_lake import QUERY, RECIPE
from tests.support.servers.broker import Broker
from tests.support.servers.s3 import S3Server


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Of all sessions of an engine's lake."""
    folder = tmp_path / "recipe"
    folder.mkdir()
    (folder / "engine.toml").write_text(RECIPE)
    (folder / "all.sql").write_text(QUERY)
    return load_recipe(folder / "engine.toml")


@pytest.fixture
def in_s3(s3: S3Server, tmp_path: Path) -> None:
    """A lake in `tmp_path` has its objects in a bucket."""
    url = s3.store_url(s3.new_prefix())
    (tmp_path / "penstock.toml").write_text(f'store_url = "{url}"\n')


@pytest.fixture
def in_kafka(
    broker: Broker, in_postgresql: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lake in `tmp_path` has its log in a topic, and its metadata in PostgreSQL beside it."""
    monkeypatch.setattr(KafkaEventLog, "refresh_s", 0)
    url = f"kafka://{broker.address}/{uuid.uuid4().hex}"
    with (tmp_path / "penstock.toml").open("a") as file:
        file.write(f'log_url = "{url}"\nlease_seconds = 30\n')


@pytest.fixture(params=["files", "postgresql", "s3_process", "kafka"])
def each_place(request: pytest.FixtureRequest) -> None:
    """The test runs once for each place in which a lake in `tmp_path` can keep what it has."""
    fixtures = {"postgresql": "in_postgresql", "s3_process": "in_s3", "kafka": "in_kafka"}
    if request.param in fixtures:
        request.getfixturevalue(fixtures[request.param])
