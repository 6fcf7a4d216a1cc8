"""A Harbor task as values: its container, its steps, and what of it cannot be run here."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from penstock.core import toml_document
from penstock.core.errors import InvalidInput
from penstock_jobs.benchmarks.environments.environment import Environment
from penstock_jobs.benchmarks.harbor.bases import stand_in
from penstock_jobs.benchmarks.harbor.dockerfile import CannotBeMade, read_dockerfile
from penstock_jobs.benchmarks.sandbox.sandbox_files import File

TESTS, SOLUTION, REWARDS = "/tests", "/solution", "/logs/verifier"
#: Where the format has no limit.
_SECONDS, _MEMORY_MB, _STORAGE_MB = 3_600.0, 8_192, 10_240

_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)
#: A host of a URL with the usual port: a listener at another could be in a task's way.
_HOST = re.compile(rb"\b(https?)://([A-Za-z0-9.-]+\.[A-Za-z]{2,})\b(?!:)")
_HOSTS_MAX = 200
#: Where packages come from. With a public network they are reached, and hosts that a task names.
PACKAGES = (
    "deb.debian.org:80", "security.debian.org:80", "archive.ubuntu.com:80",
    "security.ubuntu.com:80", "pypi.org:443", "files.pythonhosted.org:443",
    "registry.npmjs.org:443", "proxy.golang.org:443", "sum.golang.org:443",
    "index.crates.io:443", "static.crates.io:443",
)  # fmt: skip
#: Marks of provenance, which agents do not see.
_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)

_Mode = Literal["no-network", "public", "allowlist"]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]


class _Role(msgspec.Struct):
    network_mode: _Mode | None = None
    allowed_hosts: list[str] = []
    timeout_sec: _Seconds | None = None
    user: str | int | None = None
    env: dict[str, str] = {}
    #: Of the verifier.
    environment_mode: str | None = None
    environment: Any = None
    collect: list[Any] = []


class _Environment(msgspec.Struct):
    network_mode: _Mode | None = None
    allowed_hosts: list[str] = []
    allow_internet: bool | None = None
    build_timeout_sec: _Seconds = 600.0
    docker_image: str | None = None
    os: str = "linux"
    memory_mb: int | None = None
    memory: str | None = None
    storage_mb: int | None = None
    storage: str | None = None
    gpus: int | None = None
    tpu: Any = None
    mcp_servers: list[Any] = []
    env: dict[str, str] = {}
    healthcheck: Any = None
    workdir: str | None = None


class _Step(msgspec.Struct):
    name: str
    agent: _Role = msgspec.field(default_factory=_Role)
    verifier: _Role = msgspec.field(default_factory=_Role)
    min_reward: float | dict[str, float] | None = None
    healthcheck: Any = None


class _Solution(msgspec.Struct):
    env: dict[str, str] = {}


class _Metadata(msgspec.Struct):
    tags: list[str] = []


class _TaskToml(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agent: _Role = msgspec.field(default_factory=_Role)
    verifier: _Role = msgspec.field(default_factory=_Role)
    environment: _Environment = msgspec.field(default_factory=_Environment)
    solution: _Solution = msgspec.field(default_factory=_Solution)
    multi_step_reward_strategy: Literal["mean", "final"] = "mean"
    steps: list[_Step] | None = None


@dataclass(frozen=True)
class Network:
    mode: _Mode = "public"
    hosts: tuple[str, ...] = ()

    def addresses(self, *folders: Iterable[File]) -> tuple[str, ...]:
        """The addresses that may be reached. A public network has those that the files name."""
        if self.mode == "public":
            named = {
                f"{host.decode()}:{80 if kind == b'http' else 443}"
                for folder in folders
                for file in folder
                for kind, host in _HOST.findall(file.content)
            }
            return (*PACKAGES, *sorted(named - set(PACKAGES))[:_HOSTS_MAX])
        return tuple(f"{host}:{port}" for host in self.hosts for port in (80, 443))


@dataclass(frozen=True)
class Container:
    """A task that runs in a file system of its own, in which all may be written."""

    workdir: str
    agent: Network
    verifier: Network
    verifier_variables: tuple[str, ...] = ()
    solution_variables: tuple[str, ...] = ()
    #: A step with less ends the task.
    least: float | None = None
    #: How the rewards of steps make the task's.
    strategy: Literal["mean", "final"] = "mean"

    def score(self, rewards: Sequence[float]) -> float:
        return rewards[-1] if self.strategy == "final" else math.fsum(rewards) / len(rewards)


@dataclass(frozen=True)
class HarborStep:
    prompt: str
    container: Container
    seconds: int
    check_seconds: int
    #: Later folders lie over earlier ones.
    tests: tuple[Path, ...]
    solution: Path


@dataclass(frozen=True)
class HarborTask:
    tags: tuple[str, ...]
    environment: Environment
    memory_mib: int
    disk_mib: int
    steps: tuple[HarborStep, ...]


def task_folders(folder: Path) -> list[Path]:
    """The folders of Harbor tasks below a folder, but none within a task."""
    found: list[Path] = []
    for path in sorted(folder.rglob("task.toml")):
        place = path.parent
        is_task = (place / "instruction.md").is_file() or (place / "steps").is_dir()
        if is_task and not any(place.is_relative_to(other) for other in found):
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
    made = task.environment
    _refuse(folder, task)
    build = read_dockerfile(toml_document.read_text(folder / "environment" / "Dockerfile"))
    commands, variables = stand_in(build.image)
    workdir = made.workdir or build.workdir
    variables |= build.variables | _resolved(made.env)
    environment = Environment(
        setup=(*commands, *build.commands, f"mkdir -p '{workdir}'"),
        network=Network().addresses(_texts(folder / "environment")),
        variables=_pairs(variables),
        seconds=math.ceil(made.build_timeout_sec),
    )
    steps = task.steps or [_Step("")]
    return HarborTask(
        tags=tuple(task.metadata.tags),
        environment=environment,
        memory_mib=made.memory_mb or _megabytes(made.memory) or _MEMORY_MB,
        disk_mib=made.storage_mb or _megabytes(made.storage) or _STORAGE_MB,
        steps=tuple(_read_step(folder, task, step, workdir) for step in steps),
    )


def _refuse(folder: Path, task: _TaskToml) -> None:
    made = task.environment
    place = folder / "environment"
    roles = [task.agent, task.verifier]
    for step in task.steps or ():
        roles += [step.agent, step.verifier]
    hosts = [*made.allowed_hosts, *(host for role in roles for host in role.allowed_hosts)]
    problems = {
        f"its system is {made.os}": made.os.lower() != "linux",
        "it needs a GPU": bool(made.gpus or made.tpu),
        "it has MCP servers": bool(made.mcp_servers),
        "it waits for a service": any(
            [made.healthcheck, *(s.healthcheck for s in task.steps or ())]
        ),
        "its docker-compose.yaml has services": any(place.glob("*compose.y*ml")),
        "its tests run in a container of their own": any(
            role.environment_mode == "separate" or role.environment for role in roles
        ),
        "its verifier collects": any(role.collect for role in roles),
        "it runs as another user than root": any(
            role.user not in (None, "root", 0) for role in roles
        ),
        "its allowed hosts are patterns": any("*" in host or "/" in host for host in hosts),
        f"it is the image {made.docker_image}": not (place / "Dockerfile").is_file(),
        "its .dockerignore leaves files out": (place / ".dockerignore").is_file(),
    }
    if problem := next((problem for problem, found in problems.items() if found), None):
        raise CannotBeMade(why=problem)


def _read_step(folder: Path, task: _TaskToml, step: _Step, workdir: str) -> HarborStep:
    place = folder / "steps" / step.name if step.name else folder
    tests = (folder / "tests", place / "tests") if step.name else (folder / "tests",)
    if not any((place / "test.sh").is_file() for place in tests):
        raise CannotBeMade(why="it has no tests/test.sh")
    if (place / "workdir").is_dir():
        raise CannotBeMade(why="its step brings files of its own")
    if isinstance(step.min_reward, dict) and set(step.min_reward) != {"reward"}:
        raise CannotBeMade(why="its step needs several rewards")
    least = step.min_reward["reward"] if isinstance(step.min_reward, dict) else step.min_reward
    public = task.environment.allow_internet is not False
    base = Network(
        task.environment.network_mode or ("public" if public else "no-network"),
        tuple(task.environment.allowed_hosts),
    )
    container = Container(
        workdir,
        _network(base, step.agent, task.agent),
        _network(base, step.verifier, task.verifier),
        verifier_variables=_pairs(_resolved(task.verifier.env | step.verifier.env)),
        solution_variables=_pairs(_resolved(task.solution.env)),
        least=least,
        strategy=task.multi_step_reward_strategy,
    )
    text = toml_document.read_text(place / "instruction.md")
    return HarborStep(
        prompt=_without_canary(text),
        container=container,
        seconds=math.ceil(step.agent.timeout_sec or task.agent.timeout_sec or _SECONDS),
        check_seconds=math.ceil(step.verifier.timeout_sec or task.verifier.timeout_sec or 600.0),
        tests=tests,
        solution=place / "solution",
    )


def _network(base: Network, *roles: _Role) -> Network:
    """The network of the first role that has one."""
    for role in roles:
        if role.network_mode is not None:
            return Network(role.network_mode, tuple(role.allowed_hosts))
    return base


def _without_canary(text: str) -> str:
    lines = text.splitlines(keepends=True)
    while lines and (_CANARY.fullmatch(lines[0].strip()) or not lines[0].strip()):
        del lines[0]
    return "".join(lines)


def _texts(folder: Path) -> Iterable[File]:
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size < toml_document.TEXT_BYTES_MAX:
            yield File(path.name, path.read_bytes())


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


def _megabytes(size: str | None) -> int | None:
    if size is None:
        return None
    factor = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}.get(size.strip()[-1:].upper(), 0.0)
    try:
        return int(float(size.strip()[:-1]) * factor) or None
    except ValueError:
        return None


def read_reward(as_json: bytes | None, as_text: bytes | None) -> float:
    """Read a verifier's reward. Raises ValueError."""
    if as_json is None and as_text is None:
        raise ValueError("the tests wrote no reward")
    if as_json is None:
        reward: object = float((as_text or b"").decode())
    else:
        rewards = json.loads(as_json)
        many = rewards if isinstance(rewards, dict) else {"reward": rewards}
        if "reward" not in many and len(many) != 1:
            raise ValueError(f"several rewards, and none is named reward: {', '.join(many)}")
        reward = many.get("reward", next(iter(many.values())))
    if not isinstance(reward, int | float) or not 0 <= reward <= 1:
        raise ValueError(f"the reward is {reward!r}, not between 0 and 1")
    return float(reward)
