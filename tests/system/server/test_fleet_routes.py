"""What replicas have loaded, over HTTP."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key
from penstock.backends.database.engine import Database
from penstock.backends.http.client import HttpAnswer
from penstock.core.settings import load_settings
from tests.support.checkpoint_factory import add, digest_of, promote

PATH = "/v1/channels/production/replicas"


class Fleet:
    """A server with a channel, and the keys of it."""

    def __init__(self, service: Any, database: Database, keys: dict[str, str]) -> None:
        self.service = service
        self.database = database
        self.keys = keys

    def report(
        self, name: str, loaded: str | None, role: str = "serve", **facts: Any
    ) -> HttpAnswer:
        said: dict[str, Any] = {"replica": name, "sidecar": f"of{name}", "state": "loaded"}
        said |= {
            "wanted": "one",
            "version": 1,
            "loaded": loaded,
            "digest": digest_of(loaded) if loaded else None,
        }
        body = json.dumps(said | facts).encode()
        found: HttpAnswer = self.service.post(PATH, body, self.keys[role])
        return found

    def get(self, path: str = PATH, role: str = "serve") -> HttpAnswer:
        with self.service.client(self.keys[role]) as client:
            found: HttpAnswer = client.get(path)
            return found

    def metrics(self) -> list[str]:
        with self.service.client() as client:
            text: str = client.get("/metrics").body.decode()
        return [one for one in text.splitlines() if one.startswith("penstock_")]


@pytest.fixture(scope="module")
def fleet(start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    data: Path = tmp_path_factory.mktemp("fleet")
    with start(data=data, replica_silent_seconds=30) as service:
        database = Database.of(load_settings(data, {}))
        add(database, "one", "two", tenant="acme")
        promote(database, "one", tenant="acme")
        roles = ("serve", "train", "promote")
        keys = {role: create_key(database, role, "acme")[1] for role in roles}
        yield Fleet(service, database, service.keys | keys)
        database.close()


@pytest.fixture(autouse=True)
def _nobody_left(fleet: Fleet) -> Iterator[None]:
    yield
    for one in fleet.get().json()["replicas"]:
        assert fleet.report(one["replica"], None, state="left").status == 200


def test_reports_and_what_they_come_to(fleet: Fleet) -> None:
    [part] = fleet.report("a", "one").json()["parts"]
    assert (part["part"], part["wanted"], part["whole"]) == ("main", "one", True)
    [part] = fleet.report("b", "two").json()["parts"]
    assert (part["mixed"], part["loaded"], part["behind"]) == (True, {"one": 1, "two": 1}, 1)
    found = fleet.get().json()
    assert (found["channel"], found["checkpoint"], found["mixed"]) == ("production", "one", True)
    assert [one["replica"] for one in found["replicas"]] == ["a", "b"]
    assert found["parts"][0]["since"] == found["replicas"][1]["loaded_at"]
    fleet.report("b", None, state="failed", problem="no memory")
    assert fleet.get().json()["replicas"][1]["problem"] == "no memory"


def test_what_is_refused(fleet: Fleet) -> None:
    assert fleet.report("a", "one", state="happy").status == 400
    assert fleet.report("a", "one", other=1).status == 400
    assert fleet.report("a", "one").status == 200
    assert fleet.report("a", "one", sidecar="other").status == 409
    assert fleet.get("/v1/channels/nope/replicas").status == 404
    body = json.dumps({"replica": "a", "state": "loaded", "sidecar": "x"}).encode()
    key = fleet.keys["serve"]
    assert fleet.service.post("/v1/channels/nope/replicas", body, key).status == 404


def test_metrics_tell_of_it_and_forget_who_left(fleet: Fleet) -> None:
    names = 'channel="production",part="main"'
    fleet.report("a", "one")
    fleet.report("b", "two")

    def shown(name: str, value: int, more: str = "") -> bool:
        line = f'penstock_{name}{{{names}{more},tenant="acme"}} {value}.0'
        return line in fleet.metrics()

    fleet.service.wait_for(lambda: shown("fleet_mixed", 1))
    fleet.service.wait_for(lambda: shown("replicas_behind", 1))
    fleet.service.wait_for(lambda: shown("replicas", 2, ',state="loaded"'))
    unnamed = fleet.service.get("/metrics").body
    assert b'penstock_replicas_behind{part="main"} 1.0\n' in unnamed
    assert b'channel="' not in unnamed
    fleet.report("b", None, state="left")
    fleet.service.wait_for(lambda: shown("fleet_mixed", 0))
    fleet.report("a", None, state="left")
    fleet.service.wait_for(lambda: shown("replicas", 0, ',state="loaded"'))
