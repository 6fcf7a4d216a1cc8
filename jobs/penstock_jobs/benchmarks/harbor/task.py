"""A Harbor task as values: its container, its steps, and what of it cannot be run here."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from penstock.core import toml_document
from penstock.core.errors import InvalidInput
from penstock_jobs.benchmarks.environments.environment import PACKAGES, Environment
from penstock_jobs.benchmarks.harbor.dockerfile import CannotBeMade, read_dockerfile, stand_in
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, read_folder

TESTS, SOLUTION, REWARDS = "/tests", "/solution", "/logs/verifier"
#: Where the format has no limit.
_SECONDS, _MEMORY_MB, _STORAGE_MB = 3_600.0, 8_192, 10_240

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([GM])")
_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)
#: A host of a URL with the usual port: a listener at another could be in a task's way.
_HOST = re.compile(rb"\b(https?)://([A-Za-z0-9.-]+\.[A-Za-z]{2,})\b(?!:)")
_HOSTS_MAX = 200
#: Calls of a library that goes to hosts of its own.
_HUB = re.compile(rb"\b(?:hf_hub_download|snapshot_download|load_dataset)\b")
_HUB_HOSTS = ("huggingface.co:443", "cas-bridge.xethub.hf.co:443")
#: A command that fetches, and no other that runs if it fails.
_FETCH = re.compile(rb"(?m)^(?!\s*#)(?!.*\|\|).*\b(?:curl|wget|clone)\b.*$")
#: Marks of provenance, which agents do not see.
_CANARY = re.compile(r"(\s*(<!--.*canary.*-->|#.*canary.*)(\n|\Z))*\s*", re.IGNORECASE)

_Mode = Literal["no-network", "public", "allowlist"]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]


class _Role(msgspec.Struct):
    network_mode: _Mode | None = None
    allowed_hosts: list[str] = []
    timeout_sec: _Seconds | None = None
    env: dict[str, str] = {}


class _Environment(_Role):
    allow_internet: bool | None = None
    build_timeout_sec: _Seconds = 600.0
    os: str = "linux"
    memory_mb: int | None = None
    memory: str = ""
    storage_mb: int | None = None
    storage: str = ""
    workdir: str | None = None


class _Step(msgspec.Struct):
    name: str = ""
    agent: _Role = msgspec.field(default_factory=_Role)
    verifier: _Role = msgspec.field(default_factory=_Role)
    min_reward: float | dict[str, float] | None = None


class _TaskToml(_Step):
    metadata: dict[str, Any] = {}
    environment: _Environment = msgspec.field(default_factory=_Environment)
    solution: _Role = msgspec.field(default_factory=_Role)
    multi_step_reward_strategy: Literal["mean", "final"] = "mean"
    steps: list[_Step] = []


#: Keys that ask for something that no container has here, in any section but the metadata.
_NEEDS = {
    "gpus": "a GPU",
    "tpu": "a TPU",
    "mcp_servers": "MCP servers",
    "healthcheck": "a service that is started before the agent",
    "environment": "a container of their own for tests",
    "collect": "a verifier that collects",
}


@dataclass(frozen=True)
class Network:
    mode: _Mode = "public"
    hosts: tuple[str, ...] = ()

    def addresses(self, *folders: Iterable[File]) -> tuple[str, ...]:
        """The addresses that may be reached. A public network has those that the files name."""
        if self.mode == "public":
            contents = [file.content for folder in folders for file in folder]
            named = {address for content in contents for address in _named(content)}
            return (PACKAGES, *sorted(named)[:_HOSTS_MAX])
        return tuple(f"{host}:{port}" for host in self.hosts for port in (80, 443))


def _named(content: bytes) -> Iterator[str]:
    for kind, host in _HOST.findall(content):
        yield f"{host.decode()}:{80 if kind == b'http' else 443}"
    if _HUB.search(content):
        yield from _HUB_HOSTS


def needed(files: Iterable[File]) -> Iterator[str]:
    """The addresses that commands and scripts in files cannot do without."""
    for file in files:
        is_shell = file.path.endswith(("Dockerfile", ".sh"))
        lines = (_FETCH if is_shell else _HUB).findall(file.content.replace(b"\\\n", b""))
        yield from _named(b"\n".join(lines))


@dataclass(frozen=True)
class Container:
    """A step of a task that runs in a file system of its own, in which all may be written."""

    prompt: str
    workdir: str
    seconds: int
    check_seconds: int
    agent: Network
    verifier: Network
    verifier_variables: tuple[str, ...]
    solution_variables: tuple[str, ...]
    #: Less than this reward ends the task.
    least: float
    #: How the rewards of steps make the task's.
    strategy: Literal["mean", "final"]
    #: Its folder, with tests and solution.
    place: Path

    def score(self, rewards: Sequence[float]) -> float:
        return rewards[-1] if self.strategy == "final" else math.fsum(rewards) / len(rewards)


class HarborTask(NamedTuple):
    tags: tuple[str, ...]
    environment: Environment
    memory_mib: int
    disk_mib: int
    steps: list[Container]


def task_folders(folder: Path) -> list[Path]:
    """The folders of Harbor tasks below a folder, but none within a task."""
    found: list[Path] = []
    for path in sorted(folder.rglob("task.toml")):
        place = path.parent
        is_task = (place / "instruction.md").is_file() or (place / "steps").is_dir()
        if is_task and not (found and place.is_relative_to(found[-1])):
            found.append(place)
    return found


def read_task(folder: Path) -> HarborTask:
    """Raises CannotBeMade, InvalidInput."""
    path = folder / "task.toml"
    document = toml_document.parse_toml(toml_document.read_text(path), str(path))
    try:
        task = msgspec.convert(document, _TaskToml)
    except msgspec.ValidationError as error:
        raise InvalidInput(what=str(path), why=str(error)) from error
    made, place = task.environment, folder / "environment"
    if made.allow_internet is False and made.network_mode is None:
        made.network_mode = "no-network"
    for section in (document, *document.get("steps", ())):
        for role in ("environment", "agent", "verifier"):
            _refuse(
                section if role == "environment" and "name" in section else section.get(role, {})
            )
    if made.os.lower() != "linux":
        raise CannotBeMade(why=f"its system is {made.os}")
    for name in ("docker-compose.yaml", "docker-compose.yml", ".dockerignore"):
        if (place / name).is_file():
            raise CannotBeMade(why=f"it has a {name}")
    if not (place / "Dockerfile").is_file():
        raise CannotBeMade(why="it is an image without a Dockerfile")
    build = read_dockerfile(toml_document.read_text(place / "Dockerfile"))
    commands, variables = stand_in(build.image)
    workdir = made.workdir or build.workdir
    variables |= build.variables | _resolved(made.env)
    environment = Environment(
        setup=(*commands, *build.commands, f"mkdir -p '{workdir}'"),
        network=Network().addresses(read_folder(str(place))),
        variables=_pairs(variables),
        seconds=math.ceil(made.build_timeout_sec),
    )
    tags = tuple(map(str, task.metadata.get("tags", ())))
    memory_mib = made.memory_mb or _megabytes(made.memory) or _MEMORY_MB
    disk_mib = made.storage_mb or _megabytes(made.storage) or _STORAGE_MB
    steps = [_read_step(folder, task, step, workdir) for step in task.steps or [_Step()]]
    return HarborTask(tags, environment, memory_mib, disk_mib, steps)


def _refuse(section: Mapping[str, Any]) -> None:
    needs = [text for key, text in _NEEDS.items() if section.get(key)]
    if section.get("environment_mode") == "separate":
        needs.append(_NEEDS["environment"])
    if (user := section.get("user") or "root") != "root":
        needs.append(f"the user {user}")
    if any("*" in host or "/" in host for host in section.get("allowed_hosts") or ()):
        needs.append("hosts by pattern")
    if needs:
        raise CannotBeMade(why=f"it needs {', '.join(needs)}")


def _read_step(folder: Path, task: _TaskToml, step: _Step, workdir: str) -> Container:
    place = folder / "steps" / step.name if step.name else folder
    if not any((each / "tests" / "test.sh").is_file() for each in (folder, place)):
        raise CannotBeMade(why="it has no tests/test.sh")
    if (place / "workdir").is_dir() or isinstance(step.min_reward, dict):
        raise CannotBeMade(why="its step has files or several rewards of its own")
    return Container(
        prompt=_CANARY.sub("", toml_document.read_text(place / "instruction.md"), count=1),
        workdir=workdir,
        seconds=math.ceil(step.agent.timeout_sec or task.agent.timeout_sec or _SECONDS),
        check_seconds=math.ceil(step.verifier.timeout_sec or task.verifier.timeout_sec or 600.0),
        agent=_network(step.agent, task.agent, task.environment),
        verifier=_network(step.verifier, task.verifier, task.environment),
        verifier_variables=_pairs(_resolved(task.verifier.env | step.verifier.env)),
        solution_variables=_pairs(_resolved(task.solution.env)),
        least=step.min_reward or 0.0,
        strategy=task.multi_step_reward_strategy,
        place=place,
    )


def _network(*roles: _Role) -> Network:
    """The network of the first role that says one, else a public one."""
    role = next((role for role in roles if role.network_mode), _Role())
    return Network(role.network_mode or "public", tuple(role.allowed_hosts))


def _resolved(variables: Mapping[str, str]) -> dict[str, str]:
    """Fill in what a task takes from its caller: only its own defaults are known here."""
    known = {}
    for name, value in variables.items():
        found = _TEMPLATE.fullmatch(value)
        if found and found[2] is None:
            raise CannotBeMade(why=f"it needs your variable {found[1]}")
        known[name] = found[2] if found else value
    return known


def _pairs(variables: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in variables.items())


def _megabytes(size: str) -> int:
    found = _SIZE.fullmatch(size.strip().upper())
    return int(float(found[1]) * (1024 if found[2] == "G" else 1)) if found else 0


def read_reward(as_json: bytes | None, as_text: bytes | None) -> float:
    """Read a verifier's reward. Raises ValueError."""
    if as_json is not None:
        rewards = json.loads(as_json)
        many = rewards if isinstance(rewards, dict) else {"reward": rewards}
        if "reward" not in many and len(many) != 1:
            raise ValueError(f"several rewards, and none is named reward: {', '.join(many)}")
        reward = many.get("reward", next(iter(many.values())))
    elif as_text is not None:
        reward = float(as_text.decode())
    else:
        raise ValueError("the tests wrote no reward")
    if not isinstance(reward, int | float) or not 0 <= reward <= 1:
        raise ValueError(f"the reward is {reward!r}, not between 0 and 1")
    return float(reward)
