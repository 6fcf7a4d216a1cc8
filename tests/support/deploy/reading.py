"""What the files in deploy/ say, as far as the tests compare it with the code."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer
import yaml

from penstock.backends.eventlog.log import EventLogSettings
from penstock.core.settings import Settings, load_settings
from penstock.doors.cli import app
from penstock.doors.server.app import ROUTES
from penstock.ingest.settings import IngestSettings
from penstock.lake import LakeSettings
from penstock.lake.lake_parts import TAILS_BYTES_MAX
from tests.support.repository import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PATHS = {path for route in ROUTES for path in route.paths}
PORT = 8787
MIB = 1024 * 1024
#: What a query holds of the files in S3, beside its own limit: docs/deploy.md.
_READ_AHEAD_BYTES = 32 * MIB
UNITS = {"m": MIB, "g": 1024 * MIB, "Mi": MIB, "Gi": 1024 * MIB}

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<how>[-?])(?P<word>[^}]*))?\}")


@dataclass(frozen=True)
class Part:
    """A container of our image: what it is told, and within which limits."""

    name: str
    command: list[str]
    environment: dict[str, str]
    memory_bytes: int
    grace_s: float
    replicas: int = 1

    @property
    def role(self) -> str | None:
        given = dict(zip(self.command, self.command[1:], strict=False))
        return given.get("--role") if self.command[0] == "serve" else None

    def settings(self, data: Path) -> Settings:
        """Raises SettingInvalid for a name or a value that Penstock would refuse."""
        return load_settings(data, self.environment)

    def parse(self) -> dict[str, Any]:
        """Its options, as the command line understands them; refuses as that does."""
        command: Any = typer.main.get_command(app)
        arguments, name = list(self.command), "penstock"
        while hasattr(command, "commands"):
            context = command.make_context(name, list(arguments))
            name, command, arguments = command.resolve_command(context, arguments)
        parameters: dict[str, Any] = command.make_context(name, arguments).params
        return parameters

    def bounded_bytes(self, data: Path) -> int:
        """What its settings let it hold at most, beside the program itself."""
        settings = self.settings(data)
        query = (
            settings.room(LakeSettings).query_memory_bytes_max
            + settings.room(LakeSettings).known_bytes_max
            + _READ_AHEAD_BYTES
        )
        waiting = (
            settings.room(EventLogSettings).log_partitions
            * settings.room(IngestSettings).flush_bytes_max
        )  # if it is the only writer
        of_role = {
            "gateway": settings.room(IngestSettings).inflight_bytes_max,
            "writer": settings.room(LakeSettings).compaction_memory_bytes_max
            + settings.room(LakeSettings).known_bytes_max
            + waiting,
        }
        queries = settings.room(LakeSettings).queries_max * query + TAILS_BYTES_MAX
        return queries + of_role.get(self.role or "", 0)

    def spilled_bytes(self, data: Path) -> int:
        """What its queries may put on disk: four times their memory."""
        settings = self.settings(data)
        return (
            4
            * settings.room(LakeSettings).queries_max
            * settings.room(LakeSettings).query_memory_bytes_max
        )


def bytes_of(size: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]+)", size).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


def seconds_of(duration: str) -> float:
    return float(duration.removesuffix("s"))


def variables() -> dict[str, str]:
    """What env.example names, empty where a person has to decide."""
    lines = (DEPLOY / "env.example").read_text(encoding="utf-8").splitlines()
    named = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: value for name, _, value in named}


def compose_text() -> str:
    return (DEPLOY / "compose.yaml").read_text(encoding="utf-8")


def services(given: Mapping[str, str]) -> dict[str, Any]:
    """Raises KeyError for a variable that is needed and not given, as compose refuses."""

    def value(found: re.Match[str]) -> str:
        name, how, word = found["name"], found["how"], found["word"]
        return (given.get(name) or word) if how == "-" else given[name]

    found: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(value, compose_text()))["services"]
    return found


def needed_variables() -> set[str]:
    return {found["name"] for found in _VARIABLE.finditer(compose_text()) if found["how"] != "-"}


def compose_parts(given: Mapping[str, str]) -> dict[str, Part]:
    return {
        name: Part(
            name,
            service["command"],
            service["environment"],
            bytes_of(service["mem_limit"]),
            seconds_of(service["stop_grace_period"]),
            service.get("deploy", {}).get("replicas", 1),
        )
        for name, service in services(given).items()
        if service["image"].startswith("penstock:")
    }


@cache
def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def manifests() -> list[dict[str, Any]]:
    """All that is applied, in no order."""
    found = []
    for folder in (KUBERNETES, KUBERNETES / "upgrade"):
        [kustomization] = documents(folder / "kustomization.yaml")
        for name in kustomization["resources"]:
            found += documents(folder / name)
    return found


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [one for one in manifests() if one["kind"] in kinds]


def workloads() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each with the template of its pods."""
    for one in of_kind("Deployment", "Job", "CronJob"):
        spec = one["spec"]["jobTemplate"]["spec"] if one["kind"] == "CronJob" else one["spec"]
        yield one, spec["template"]


def shared_environment() -> dict[str, str]:
    """What each container gets from the settings and the secret."""
    [settings] = of_kind("ConfigMap")
    [secret] = documents(KUBERNETES / "secret.example.yaml")
    both: dict[str, str] = settings["data"] | secret["stringData"]
    return both


def pod_parts() -> dict[str, Part]:
    found = {}
    for workload, template in workloads():
        [container] = template["spec"]["containers"]
        own = {one["name"]: one["value"] for one in container.get("env", [])}
        name = workload["metadata"]["name"]
        found[name] = Part(
            name,
            container["args"],
            shared_environment() | own,
            bytes_of(container["resources"]["limits"]["memory"]),
            template["spec"].get("terminationGracePeriodSeconds", 30),
        )
    return found


def dockerfile() -> list[tuple[str, str]]:
    """Instructions with what follows them."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in lines]


def instruction(name: str) -> str:
    """What follows the last of this kind."""
    return [rest for verb, rest in dockerfile() if verb == name][-1]


def image_environment() -> dict[str, str]:
    return dict(one.split("=", 1) for one in instruction("ENV").split())
