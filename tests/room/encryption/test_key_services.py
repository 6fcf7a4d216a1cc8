"""What every key service does. A new twin joins as a parameter of `service`."""

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.encryption.errors import (
    KeyServiceRefused,
    KeyServiceUnreachable,
    MasterKeysUnfit,
)
from penstock.encryption.key_service import (
    FileKeyService,
    KeyService,
    TransitKeyService,
    UnwrapFailed,
    open_key_service,
)
from penstock.errors import SettingInvalid
from penstock.settings import load_settings
from tests.support.servers.scripted_server import Answer, Server
from tests.support.servers.transit import TOKEN, transit_server

KEY = bytes(range(32))


def write_private(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


def new_master() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode() + "\n"


@pytest.fixture
def transit() -> Iterator[Server]:
    with transit_server() as server:
        yield server


@pytest.fixture(params=["file", "kms"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> KeyService:
    if request.param == "file":
        return FileKeyService(write_private(tmp_path / "masters", new_master()))
    server: Server = request.getfixturevalue("transit")
    return TransitKeyService(server.url, write_private(tmp_path / "token", TOKEN), None)


def test_a_key_comes_back_for_its_owner_alone(service: KeyService) -> None:
    wrapped = service.wrap(KEY, "t-acme")
    assert service.unwrap(wrapped, "t-acme") == KEY
    assert wrapped != service.wrap(KEY, "t-acme")
    assert base64.b64encode(KEY).decode() not in wrapped
    with pytest.raises(UnwrapFailed):
        service.unwrap(wrapped, "t-other")


def test_a_key_of_another_service_does_not_open(service: KeyService, tmp_path: Path) -> None:
    other = FileKeyService(write_private(tmp_path / "others", new_master()))
    with pytest.raises(UnwrapFailed):
        service.unwrap(other.wrap(KEY, "t-acme"), "t-acme")


def test_a_new_master_key_stands_above_the_old_one(tmp_path: Path) -> None:
    file = write_private(tmp_path / "masters", new_master())
    wrapped = FileKeyService(file).wrap(KEY, "t-acme")
    file.write_text(new_master() + file.read_text())
    assert FileKeyService(file).unwrap(wrapped, "t-acme") == KEY
    assert FileKeyService(file).wrap(KEY, "t-acme").split(":")[1] != wrapped.split(":")[1]


@pytest.mark.parametrize(
    ("text", "modes"), [("", 0o600), ("c2hvcnQ=\n", 0o600), ("%%\n", 0o600), ("", 0o644)]
)
def test_master_keys_that_cannot_be_used_are_named(text: str, modes: int, tmp_path: Path) -> None:
    file = write_private(tmp_path / "masters", text or (new_master() if modes != 0o600 else ""))
    file.chmod(modes)
    with pytest.raises(MasterKeysUnfit, match="masters"):
        FileKeyService(file).wrap(KEY, "t-acme")
    with pytest.raises(MasterKeysUnfit, match="No such file"):
        FileKeyService(tmp_path / "absent").wrap(KEY, "t-acme")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(503, "{}"), KeyServiceUnreachable),
        (None, KeyServiceUnreachable),
        (Answer(403, '{"errors": ["permission denied"]}'), KeyServiceRefused),
        (Answer(200, "no JSON"), KeyServiceRefused),
        (Answer(200, '{"data": {}}'), KeyServiceRefused),
    ],
)
def test_a_service_that_is_away_or_refuses_is_named(
    answer: Answer | None, error: type[Exception], transit: Server, tmp_path: Path
) -> None:
    transit.script = lambda _asked: answer
    service = TransitKeyService(transit.url, write_private(tmp_path / "token", TOKEN), None)
    for call in (lambda: service.wrap(KEY, "t-a"), lambda: service.unwrap("vault:v1:x", "t-a")):
        with pytest.raises(error, match="key service"):
            call()


def test_what_an_operator_has_to_set_is_said(tmp_path: Path) -> None:
    for kind, missing in (("file", "encryption_key_file"), ("kms", "kms_url")):
        settings = load_settings(tmp_path, {}, {"encryption": kind})
        with pytest.raises(SettingInvalid, match=missing):
            open_key_service(settings)
    assert open_key_service(load_settings(tmp_path, {}, {})) is None
