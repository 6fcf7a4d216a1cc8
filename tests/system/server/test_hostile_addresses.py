"""What a tenant names over HTTP leads where its operator said: a running server, two tenants."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.database.engine import Database
from penstock.core.settings import load_settings
from penstock.registry.channels.webhooks import add_webhook
from penstock.registry.checkpoints.digests import digest_files
from tests.support.checkpoint_factory import digest_of, promote
from tests.support.commands import penstock
from tests.support.server.registering import Registry, problem
from tests.support.servers.scripted_server import Server, serving
from tests.support.waiting import eventually
from tests.support.webhook_receiver import receiving


@dataclass
class Scene:
    """A service with a root for each tenant, `acme` being the hostile one. An admin key of a tenant
    is no key of the operator."""

    registry: Registry
    models: Path
    data: Path
    #: It listens on this machine, and nobody is to ask it anything.
    inside: Server
    #: A digest is registered once.
    guessed: set[str]

    def register(self, uri: str, digest: str, key: str = "admin") -> dict[str, Any]:
        """What is told, but for the name and the digest, which are new."""
        name = f"c-{os.urandom(8).hex()}"
        facts = {"name": name, "uri": uri, "digest": digest}
        reply = self.registry.post("/v1/checkpoints", facts, key)
        said: dict[str, Any] = {"status": reply.status} | reply.json()
        for varies in ("name", "digest", "registered_at"):
            said.pop(varies, None)
        return said


@pytest.fixture(scope="module")
def scene(start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    models, data = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("data")
    for tenant in ("acme", "bolt"):
        (models / tenant / "run").mkdir(parents=True)
        (models / tenant / "run" / "weights").write_text(f"weights of {tenant}")
    mine = models / "acme"
    (mine / "file").symlink_to("/etc/passwd")
    (mine / "folder").symlink_to("/etc")
    (mine / "theirs").symlink_to("../bolt/run/weights")
    (mine / "nothing").symlink_to("../bolt/run/nothing")
    (mine / "mixed").mkdir()
    (mine / "mixed" / "weights").symlink_to("/proc/self/environ")
    os.mkfifo(mine / "pipe")
    roots = f"{models}/{{tenant}}, s3://models/{{tenant}}"
    with serving() as inside, start(data=data, artifact_roots=roots) as service:
        database = Database.of(load_settings(data, {}))
        yield Scene(Registry(service, database, service.keys), models, data, inside, set())
        database.close()


#: Files that are there, and beside each of them one that is not.
ELSEWHERE = (
    ("/proc/self/environ", "/proc/self/nothing"),
    ("file:///etc/passwd", "file:///etc/nothing"),
    ("/etc", "/nothing"),
    ("{data}/penstock.db", "{data}/nothing.db"),
    ("{models}/acme/../bolt/run/weights", "{models}/acme/../bolt/run/nothing"),
    ("file://{models}/acme/%2e%2e/bolt/run", "file://{models}/acme/%2e%2e/bolt/nothing"),
    ("{models}", "{models}-nothing"),
    ("{inside}", "http://127.0.0.1:1/"),
    ("http://169.254.169.254/latest/meta-data/", "http://169.254.169.254/nothing"),
    ("s3://models/acme/x?endpoint={inside}", "s3://models/acme/x?endpoint=http://127.0.0.1:1"),
)


@pytest.mark.parametrize(("there", "absent"), ELSEWHERE)
def test_what_lies_elsewhere_is_not_looked_at(scene: Scene, there: str, absent: str) -> None:
    """No answer differs: not for what is there, not for its digest, not for what is not there."""
    place = {"models": scene.models, "data": scene.data}
    place["inside"] = scene.inside.url.removesuffix("/train")  # type: ignore[assignment]
    uri, nothing = there.format(**place), absent.format(**place)
    digests = [digest_of(os.urandom(8).hex()), digest_of(os.urandom(8).hex())]
    path = Path(uri.removeprefix("file://"))
    if path.is_file() and path.stat().st_size:
        right = str(digest_files(str(path), load_settings(scene.data, {})).digest)
        digests += {right} - scene.guessed
        scene.guessed.add(right)
    said = [scene.register(uri, digest) for digest in digests]
    other = scene.register(nothing, digest_of(os.urandom(8).hex())) | {"uri": uri}
    assert [*said, other] == [other] * (len(digests) + 1)
    assert (other["status"], other["checked"], other["bytes"]) == (200, "not_looked", None)
    assert scene.inside.asked == []


@pytest.mark.parametrize("name", ["file", "folder/passwd", "folder", "theirs", "mixed"])
def test_links_lead_nowhere(scene: Scene, name: str) -> None:
    mine = scene.models / "acme"
    said = scene.register(str(mine / name), digest_of(os.urandom(8).hex()))
    absent = scene.register(str(mine / "nothing"), digest_of(os.urandom(8).hex()))
    assert said == absent | {"uri": str(mine / name)}
    assert said["checked"] == "unreachable"


def test_pipes_are_not_opened(scene: Scene) -> None:
    said = scene.register(f"{scene.models}/acme/pipe", digest_of("pipe"))
    assert (said["status"], "not a regular file" in said["detail"]) == (400, True)


@pytest.mark.parametrize("tenant", ["acme", "bolt"])
def test_own_files_are_looked_at(scene: Scene, tenant: str) -> None:
    key = {"acme": "admin", "bolt": "bolt"}[tenant]
    path, content = scene.models / tenant / "own", f"own of {tenant}"
    path.write_text(content)
    uri, digest = str(path), digest_of(content)
    assert scene.register(uri, digest_of("no"), key)["status"] == 422
    assert scene.register(uri, digest, key)["checked"] == "verified"
    theirs = scene.registry.get("/v1/checkpoints", {"acme": "bolt", "bolt": "admin"}[tenant])
    assert digest not in theirs.body.decode()


def test_webhooks_do_not_reach_this_machine(scene: Scene) -> None:
    """Nor does the answer to everybody, `/readyz`, tell a tenant's addresses."""
    registry = scene.registry
    with receiving() as receiver:
        for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"):
            url = receiver.url.replace("127.0.0.1", host)
            add_webhook(registry.database, load_settings(scene.data, {}), "acme", url)
        registry.add("hooked")
        promote(registry.database, "hooked", tenant="acme", channel="hooked")

        def warnings() -> list[str]:
            listed: list[str] = registry.get("/readyz").json()["warnings"]
            return [warning for warning in listed if "are undelivered to webhook:" in warning]

        eventually(lambda: len(warnings()) == 4)
        assert receiver.asked == []
        assert all(warning.endswith("see `penstock webhooks list`") for warning in warnings())


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PENSTOCK_ARTIFACT_ROOTS", "models"), ("PENSTOCK_EGRESS_NETWORKS", "inside")],
)
def test_settings_that_are_none_are_refused_at_the_start(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    ended = penstock("serve", "--port", "0", "--data", str(tmp_path))
    assert (ended.returncode, value in ended.stderr) == (2, True)


def test_bad_addresses_tell_no_more(scene: Scene) -> None:
    for uri in ("file://elsewhere/etc/passwd", "etc/passwd", "file:///etc/passwd%00", "http://["):
        facts = {"name": "bad", "uri": uri, "digest": digest_of("bad")}
        problem(scene.registry.post("/v1/checkpoints", facts, "admin"), 400)
