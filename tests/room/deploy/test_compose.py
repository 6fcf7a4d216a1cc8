"""The compose file says nothing that the code does not take."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from penstock.backends.database import DatabaseSettings
from penstock.doors.settings import ServerSettings
from penstock.lake import LakeSettings
from tests.support.deploy.reading import (
    DEPLOY,
    PATHS,
    PORT,
    PROJECT,
    Part,
    bytes_of,
    compose_parts,
    compose_text,
    needed_variables,
    seconds_of,
    services,
    variables,
)

GIVEN = {name: value or "given" for name, value in variables().items()}
SERVICES = services(GIVEN)
PARTS = compose_parts(GIVEN)
ROLES = {part.role: part for part in PARTS.values() if part.role}
BALANCER = (DEPLOY / "balancer.cfg").read_text(encoding="utf-8")
_VARIABLES = re.compile(r"\$\{[^}]+\}")
_ADDRESSES = ("PENSTOCK_LOG_URL", "PENSTOCK_DATABASE_URL", "PENSTOCK_STORE_URL")


def test_each_part_of_the_service_is_there_and_those_that_scale_are_two() -> None:
    assert {name: part.replicas for name, part in ROLES.items()} == {
        "gateway": 2,
        "writer": 2,
        "console": 1,
    }


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_settings_and_commands_are_what_penstock_takes(part: Part, tmp_path: Path) -> None:
    settings = part.settings(tmp_path)
    assert not {"local", "file", "sqlite"} & {
        urlsplit(getattr(settings, name.removeprefix("PENSTOCK_").lower())).scheme
        for name in _ADDRESSES
    }
    options = part.parse()
    if part.role:
        assert options["host"] == "0.0.0.0"
        assert part.settings(tmp_path).room(ServerSettings).port == PORT


@pytest.mark.parametrize("part", ROLES.values(), ids=ROLES)
def test_limits_outside_are_wider_than_limits_inside(part: Part, tmp_path: Path) -> None:
    assert part.bounded_bytes(tmp_path) + bytes_of("256m") < part.memory_bytes
    assert part.grace_s > 3 * part.settings(tmp_path).shutdown_seconds_max


def test_all_parts_have_the_keys_of_the_lake() -> None:
    secrets = yaml.safe_load(_VARIABLES.sub("given", compose_text()))["secrets"]
    for name, part in PARTS.items():
        mounted = {f"/run/secrets/{secret}" for secret in SERVICES[name]["secrets"]}
        named = {file for key, file in part.environment.items() if key.endswith("_KEY_FILE")}
        assert mounted == named == {f"/run/secrets/{secret}" for secret in secrets}


def test_roles_differ_in_nothing_but_queries() -> None:
    shared, *others = [set(part.environment.items()) for part in ROLES.values()]
    different = {name for other in others for name, _ in shared ^ other}
    assert different == {"PENSTOCK_QUERIES_MAX", "PENSTOCK_QUERY_MEMORY_BYTES_MAX"}


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].rpartition(":")
    assert re.match(r"v?\d+\.\d+", tag)
    if image == "penstock":
        assert tag == PROJECT["project"]["version"]


def test_the_image_is_built_once() -> None:
    assert [name for name, one in SERVICES.items() if "build" in one] == ["gateway"]
    build = SERVICES["gateway"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).exists()


def test_secrets_come_from_a_person_alone() -> None:
    empty = {name for name, value in variables().items() if not value}
    assert empty == needed_variables()
    secret = re.compile(
        r"^\s+(?!\w+_FILE:)\w*(?:PASSWORD|SECRET|ACCESS_KEY)\w*: (.*)$", re.MULTILINE
    )
    for value in secret.findall(compose_text()):
        assert re.fullmatch(r"\$\{\w+:\?[^}]+\}", value)
    for password in re.findall(r"://\w+:(.*?)@", compose_text()):
        assert re.fullmatch(r"\$\{\w+:\?[^}]+\}", password)


@pytest.mark.parametrize("name", sorted(needed_variables()))
def test_nothing_starts_without_them(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        services({one: value for one, value in GIVEN.items() if one != name})


@pytest.mark.parametrize("name", SERVICES)
def test_who_waits_for_whom_can_come_true(name: str) -> None:
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        service = SERVICES[other]
        if wait["condition"] == "service_healthy":
            assert service.get("healthcheck") or PARTS[other].role
        else:
            assert wait["condition"] == "service_completed_successfully"
            assert service["restart"] == "no"


def test_addresses_name_services_and_the_ports_on_which_these_listen() -> None:
    environment = ROLES["gateway"].environment
    log, database, store = (urlsplit(environment[name]) for name in _ADDRESSES)
    assert (
        f"CLIENTS://{log.netloc}" == SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    )
    postgres = SERVICES["postgres"]["environment"]
    assert (database.hostname, database.port) == ("postgres", 5432)
    assert database.username == postgres["POSTGRES_USER"]
    assert database.password == postgres["POSTGRES_PASSWORD"]
    assert database.path == f"/{postgres['POSTGRES_DB']}"
    endpoint = urlsplit(re.findall(r"endpoint=([^&]+)", store.query)[0])
    objects = SERVICES["objects"]
    assert endpoint.hostname == "objects"
    assert f":{endpoint.port}" in objects["command"]
    # A folder in the server's own is a bucket, and the volume is mounted as one.
    assert objects["volumes"] == [f"objects:{objects['command'][-1]}/{store.netloc}"]
    assert objects["environment"]["ROOT_ACCESS_KEY_ID"] == environment["AWS_ACCESS_KEY_ID"]
    assert objects["environment"]["ROOT_SECRET_ACCESS_KEY"] == environment["AWS_SECRET_ACCESS_KEY"]


def test_the_database_has_a_connection_for_everybody(tmp_path: Path) -> None:
    [most] = re.findall(r"max_connections=(\d+)", " ".join(SERVICES["postgres"]["command"]))
    each = ROLES["gateway"].settings(tmp_path).room(DatabaseSettings).database_connections_max
    processes = sum(part.replicas for part in PARTS.values())
    assert 2 * processes * each < int(most)


def test_only_the_balancer_is_reached_from_outside_and_from_this_machine_alone() -> None:
    published: dict[str, Any] = {n: s["ports"] for n, s in SERVICES.items() if "ports" in s}
    assert published == {"balancer": [f"127.0.0.1:{PORT}:{PORT}"]}


def test_the_balancer_knows_routes_services_and_ports() -> None:
    assert set(re.findall(r"{ path (\S+) }|GET (\S+)", BALANCER)) <= {
        *((path, "") for path in PATHS),
        *(("", path) for path in PATHS),
    }
    assert f"bind :{PORT}\n" in BALANCER
    targets = dict(re.findall(rf"server-template \S+ (\d+) (\w+):{PORT}", BALANCER))
    assert set(targets.values()) == {"gateway", "console"}
    for most, name in targets.items():
        assert int(most) >= 2 * ROLES[name].replicas


def test_the_balancer_is_more_patient_than_what_stands_behind_it(tmp_path: Path) -> None:
    waits = dict(re.findall(r"timeout (client|server) (\d+)s", BALANCER))
    settings = ROLES["console"].settings(tmp_path)
    assert all(int(wait) > settings.room(LakeSettings).query_seconds_max for wait in waits.values())
    [hard] = re.findall(r"hard-stop-after (\d+)s", BALANCER)
    assert int(hard) < seconds_of(SERVICES["balancer"]["stop_grace_period"])


def test_kafka_keeps_what_one_broker_acknowledges() -> None:
    """With a single replica nothing but its disk stands behind a 200."""
    settings = SERVICES["kafka"]["environment"]
    assert settings["KAFKA_LOG_FLUSH_INTERVAL_MESSAGES"] == "1"
    assert settings["KAFKA_LOG_DIRS"] in SERVICES["kafka"]["volumes"][0]
