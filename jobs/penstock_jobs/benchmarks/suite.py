"""Suites: folders of tasks (docs/benchmarks.md), read completely and versioned by content."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from penstock.core import toml_document
from penstock.core.errors import InvalidInput
from penstock.core.files import is_relative_name
from penstock.core.settings import GIB, MIB
from penstock.core.toml_document import Positive
from penstock_jobs.benchmarks.environments.environment import Environment
from penstock_jobs.benchmarks.harbor.dockerfile import CannotBeMade
from penstock_jobs.benchmarks.harbor.task import Container, read_task, task_folders
from penstock_jobs.benchmarks.sandbox import network
from penstock_jobs.benchmarks.sandbox.sandbox_files import (
    File,
    FilePrint,
    FolderLimits,
    excess_of,
    prints_in,
    read_folder,
)

Expect = Literal["edit", "no_edit", "any"]

#: Between the names of a suite and of a variant. No suite's own name has it.
VARIANT_MARK = "@"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME_RULE = "a name is at most 128 of the letters A to Z, digits, dots, dashes and underscores"

_TASK_ENTRIES = (
    "task.toml", "prompt.md", "tree", "check", "solution", "solution.json", "environment",
    "README.md",
)  # fmt: skip
#: The highest TaskLimits, in their order.
_LIMITS_MAX = (7 * 86_400, 86_400, 1_048_576, 100_000, 1_048_576)
_ATTEMPTS_MAX = 1_000
#: Harbor's format bounds no processes.
_CONTAINER_PROCESSES = 1_024
#: For the tree, the check or the solution of a task.
_TASK_BYTES_MAX = 256 * MIB
_SUITE_LIMITS = FolderLimits(1_000_000, depth=64, file_bytes=_TASK_BYTES_MAX, bytes=64 * GIB)


@dataclass(frozen=True)
class TaskLimits:
    seconds: Positive = 600
    check_seconds: Positive = 120
    memory_mib: Positive = 2048
    processes: Positive = 128
    disk_mib: Positive = 512

    def __post_init__(self) -> None:
        for (name, limit), most in zip(asdict(self).items(), _LIMITS_MAX, strict=True):
            if limit > most:
                raise ValueError(f"{name} is {limit}; the maximum is {most}")


@dataclass(frozen=True)
class Sources:
    """The origins of tasks. Their sessions must not be trained on."""

    sessions: tuple[str, ...] = ()
    repos: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Network:
    allow: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Check:
    command: tuple[str, ...] = ()
    #: A model judges, at the address that the settings name.
    judged: bool = False


@dataclass(frozen=True)
class _SuiteToml:
    name: str
    format: Literal["penstock", "harbor"] = "penstock"
    title: str | None = None
    attempts: Positive = 1
    limits: TaskLimits = TaskLimits()
    network: _Network = _Network()
    check: _Check = _Check()
    environment: Environment | None = None
    sources: Sources = Sources()

    def __post_init__(self) -> None:
        if self.attempts > _ATTEMPTS_MAX:
            raise ValueError(f"attempts is {self.attempts}; the maximum is {_ATTEMPTS_MAX}")


@dataclass(frozen=True)
class _TaskToml:
    prompt: str | None = None
    tags: tuple[str, ...] = ()
    expect: Expect = "edit"
    limits: TaskLimits = TaskLimits()
    check: _Check = _Check()
    environment: Environment | None = None


@dataclass(frozen=True)
class BenchmarkTask:
    name: str
    prompt: str
    tags: tuple[str, ...]
    expect: Expect
    limits: TaskLimits
    #: None if the only demand is that nothing is edited.
    check: tuple[str, ...] | None
    folder: Path
    check_folder: Path
    #: Its files are added to each check, unless the check has its own.
    shared_check: Path
    #: The solution's report, as JSON.
    solution_report: bytes | None = None
    judged: bool = False
    environment: Environment | None = None
    #: Its files are added to those of the tree that setup reads.
    environment_folder: Path | None = None
    #: If it has no tree, but runs in a file system of its own.
    container: Container | None = None
    #: With a container, the requests that follow each other. Each is a task.
    steps: tuple["BenchmarkTask", ...] = ()
    #: Of all that its result depends on. In two versions of a suite it is the same task.
    digest: str | None = None
    prints: Mapping[Path, FilePrint] = field(default_factory=dict, repr=False)

    def check_command(self, files: "TaskFiles", folder: str) -> list[str]:
        """The command in which the first word that names a file of the check means that file, not
        one of the tree."""
        words, paths = list(self.check or ()), {file.path for file in files.check}
        at = next((at for at, word in enumerate(words) if word in paths), None)
        return words if at is None else [*words[:at], f"{folder}/{words[at]}", *words[at + 1 :]]


@dataclass(frozen=True)
class TaskFiles:
    tree: list[File]
    check: list[File]
    #: What setup of the environment reads.
    setup: list[File] = field(default_factory=list)
    steps: list["TaskFiles"] = field(default_factory=list)
    #: The tree as it is solved, or what solves it in a container; None if nobody wrote it.
    solution: list[File] | None = None

    @property
    def parts(self) -> list["TaskFiles"]:
        """The files of each step, or of the only one."""
        return self.steps or [self]


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    version: str
    attempts: int
    #: HOST:PORT that agents may reach besides the serving address.
    allow: tuple[str, ...]
    tasks: tuple[BenchmarkTask, ...]
    folder: Path
    sources: Sources = Sources()
    #: Why the other tasks in its folder are not used.
    left_out: Mapping[str, str] = field(default_factory=dict)

    def task(self, name: str) -> BenchmarkTask:
        for task in self.tasks:
            if task.name == name:
                return task
        why = f"task {name!r}: {toml_document.unknown(name, [task.name for task in self.tasks])}"
        raise _unfit(self.name, why)


def is_suite(folder: Path) -> bool:
    return (folder / "suite.toml").is_file() or (folder.is_dir() and bool(task_folders(folder)))


def read_suite(folder: Path) -> Suite:
    path = folder / "suite.toml"
    if not is_suite(folder):
        raise _unfit(folder, "there is no suite.toml in it, and no task of Harbor")
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name)
    document = _document(path) or {"name": plain, "format": "harbor"}
    reasons = toml_document.table(document, "left_out", str(path))
    left_out = {name: toml_document.text(reasons, name, f"left_out in {path}") for name in reasons}
    document.pop("left_out", None)
    settings = toml_document.read_section(_SuiteToml, document, str(path))
    _plain_name(settings.name, str(path))
    network.plan(settings.network.allow)
    try:
        if excess := excess_of(str(folder), _SUITE_LIMITS):
            raise _unfit(folder, excess)
        if settings.format == "harbor":
            version, tasks, left_out = _read_harbor(folder.resolve(), left_out)
        else:
            version, tasks = _read_folder(folder, settings, left_out)
    except OSError as error:
        raise _unfit(folder, str(error)) from error
    _refuse_alike(folder, tasks)
    return Suite(
        name=settings.name,
        title=settings.title or settings.name,
        version=version,
        attempts=settings.attempts,
        allow=settings.network.allow,
        tasks=tasks,
        folder=folder.resolve(),
        sources=settings.sources,
        left_out=left_out,
    )


def _read_folder(
    folder: Path, settings: _SuiteToml, left_out: Mapping[str, str]
) -> tuple[str, tuple[BenchmarkTask, ...]]:
    prints = {folder / path: file for path, file in prints_in(str(folder)).items()}
    _check_files(folder, prints)
    _refuse_entries(folder, ("suite.toml", "tasks", "check", "environment", "README.md"))
    by_folder: dict[Path, dict[Path, FilePrint]] = defaultdict(dict)
    for file, facts in prints.items():
        parts = file.relative_to(folder).parts
        by_folder[folder.joinpath(*parts[: 2 if parts[0] == "tasks" else 1])][file] = facts
    entries = sorted((folder / "tasks").iterdir()) if (folder / "tasks").is_dir() else []
    for entry in entries:
        if not entry.is_dir() and entry.name not in ("README.md", ".DS_Store"):
            raise _unfit(folder, f"{entry.name!r} in its folder tasks is not a folder")
    folders = {entry.name: entry for entry in filter(Path.is_dir, entries)}
    toml_document.refuse_unknown(left_out, folders, f"left_out in {folder / 'suite.toml'}")
    tasks = tuple(
        _read_task(task, folder, settings, by_folder)
        for name, task in folders.items()
        if name not in left_out
    )
    if not tasks:
        raise _unfit(folder, "its folder tasks has no task")
    return _version(prints, folder), tasks


def _read_harbor(
    folder: Path, given: Mapping[str, str]
) -> tuple[str, tuple[BenchmarkTask, ...], dict[str, str]]:
    """Read a folder of Harbor's tasks. What cannot be run on this machine is left out."""
    tasks: dict[str, BenchmarkTask] = {}
    left_out: dict[str, str] = {}
    for place in task_folders(folder):
        name = ".".join(place.relative_to(folder).parts) or folder.name
        try:
            if name in given:
                raise CannotBeMade(why=given[name])
            tasks[name] = _read_harbor_task(place, _plain_name(name, str(folder)))
        except (CannotBeMade, InvalidInput) as error:
            left_out[name] = str(error.facts["why"])
    toml_document.refuse_unknown(given, [*tasks, *left_out], f"left_out in {folder}")
    versions = [f"{task.name} {task.digest}\n" for task in tasks.values()]
    version = f"sha256:{sha256(''.join(versions).encode()).hexdigest()}"
    return version, tuple(tasks.values()), left_out


def _read_harbor_task(folder: Path, name: str) -> BenchmarkTask:
    prints = {folder / path: file for path, file in prints_in(str(folder)).items()}
    _check_files(folder, prints)
    read = read_task(folder)
    space = read.memory_mib, _CONTAINER_PROCESSES, read.disk_mib
    steps = tuple(
        BenchmarkTask(
            name=name,
            prompt=step.prompt,
            tags=read.tags,
            expect="any",
            limits=TaskLimits(step.seconds, step.check_seconds, *space),
            check=("/tests/test.sh",),
            folder=folder,
            check_folder=step.place / "tests",
            shared_check=folder / "tests",
            environment=read.environment,
            environment_folder=folder / "environment",
            container=step,
            digest=_version(prints, folder),
            prints=prints,
        )
        for step in read.steps
    )
    if any(not step.prompt.strip() for step in steps):
        raise CannotBeMade(why="its instruction is empty")
    return replace(steps[0], prompt="\n\n".join(step.prompt for step in steps), steps=steps)


def variant_of(suite: Suite, variant: str | None) -> Suite:
    """The same tasks as a suite of its own, for another way to use checkpoints. Raises
    InvalidInput."""
    if variant is None:
        return suite
    return replace(suite, name=f"{suite.name}{VARIANT_MARK}{_plain_name(variant, '--variant')}")


def leave_out(suite: Suite, reasons: Mapping[str, str]) -> None:
    """Add tasks to those that suite.toml leaves out."""
    path, head = suite.folder / "suite.toml", "[left_out]\n"
    text = (
        path.read_text("utf-8") if path.exists() else f'name = "{suite.name}"\nformat = "harbor"\n'
    )
    pairs = [(f'"{name}"', json.dumps(why, ensure_ascii=False)) for name, why in reasons.items()]
    lines = "".join(f"{name} = {why}\n" for name, why in pairs)
    if lines:
        text = text if head in text else f"{text.rstrip()}\n\n{head}"
        path.write_text(text.replace(head, head + lines), "utf-8")


def load_files(task: BenchmarkTask, bytes_max: int = _TASK_BYTES_MAX) -> TaskFiles:
    """Read a task's files. Raises InvalidInput if they changed since the suite was read."""
    check_folders = () if task.check is None else (task.shared_check, task.check_folder)
    tree = _load(task, bytes_max, task.folder / "tree")
    setup: dict[str, File] = {}
    if task.environment is not None:
        given = _load(task, bytes_max, task.environment_folder) if task.environment_folder else []
        setup = {file.path: file for file in (*task.environment.chosen(tree), *given)}
    check = _load(task, bytes_max, *check_folders)
    solved = (task.container.place if task.container else task.folder) / "solution"
    known = solved.is_dir() or task.solution_report is not None
    solution = _load(task, bytes_max, task.folder / "tree", solved) if known else None
    steps = [load_files(step, bytes_max) for step in task.steps]
    return TaskFiles(tree, check, list(setup.values()), steps, solution)


def _load(task: BenchmarkTask, bytes_max: int, *folders: Path) -> list[File]:
    """Read the files of folders. Files of later folders replace earlier ones."""
    by_path: dict[str, File] = {}
    for folder in filter(Path.is_dir, folders):
        known = {path: file for path, file in task.prints.items() if path.is_relative_to(folder)}
        size = sum(file.size for file in known.values())
        if size > bytes_max:
            raise _unfit(task.folder, f"{folder} has {size} bytes, over the limit of {bytes_max}")
        files = read_folder(str(folder))
        if known != {folder / file.path: FilePrint.of(file) for file in files}:
            raise _unfit(task.folder, f"{folder} changed since the suite was read; start again")
        by_path |= {file.path: file for file in files}
    return list(by_path.values())


def _unfit(suite: object, why: str) -> InvalidInput:
    return InvalidInput(what=f"The suite {suite}", why=why)


def _document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return toml_document.parse_toml(toml_document.read_text(path), str(path))


def _refuse_entries(folder: Path, known: tuple[str, ...]) -> None:
    """Refuse unknown names: a misnamed folder could silently drop a task or its check."""
    names = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    toml_document.refuse_unknown(names, (*known, "__pycache__"), str(folder))


def _read_task(
    folder: Path,
    suite: Path,
    defaults: _SuiteToml,
    by_folder: Mapping[Path, Mapping[Path, FilePrint]],
) -> BenchmarkTask:
    name = _plain_name(folder.name, str(suite))
    _refuse_entries(folder, _TASK_ENTRIES)
    document = _document(folder / "task.toml")
    settings = toml_document.read_section(_TaskToml, document, str(folder / "task.toml"))
    if not (folder / "tree").is_dir():
        raise _unfit(suite, f"task {name}: there is no folder tree")
    shared = suite / "check"
    check_folder = folder / "check" if (folder / "check").is_dir() else shared
    check = settings.check.command or defaults.check.command or ("python", "check.py")
    if not check_folder.is_dir() and settings.expect != "no_edit":
        raise _unfit(suite, f"task {name}: neither it nor the suite has a folder check")
    environment = folder / "environment"
    if not environment.is_dir():
        environment = suite / "environment"
    prompt_file, report = folder / "prompt.md", folder / "solution.json"
    if (settings.prompt is not None) == prompt_file.is_file():
        raise _unfit(folder, "the prompt must be either in task.toml or in prompt.md")
    prompt = settings.prompt or toml_document.read_text(prompt_file)
    if not prompt.strip():
        raise _unfit(folder, "its prompt is empty")
    limits = {key: getattr(settings.limits, key) for key in document.get("limits", {})}
    prints = {
        path: file
        for place in (shared, suite / "environment", folder)
        for path, file in by_folder.get(place, {}).items()
    }
    facts = _version(prints, suite), defaults.limits, check, defaults.environment, defaults.network
    return BenchmarkTask(
        name=name,
        prompt=prompt,
        tags=settings.tags,
        expect=settings.expect,
        limits=replace(defaults.limits, **limits),
        check=check if check_folder.is_dir() else None,
        folder=folder,
        check_folder=check_folder,
        shared_check=shared,
        solution_report=report.read_bytes() if report.is_file() else None,
        judged=settings.check.judged or defaults.check.judged,
        environment=settings.environment or defaults.environment,
        environment_folder=environment if environment.is_dir() else None,
        digest=f"sha256:{sha256(repr(facts).encode()).hexdigest()}",
        prints=prints,
    )


def _plain_name(name: str, where: str) -> str:
    if not _NAME.fullmatch(name):
        raise _unfit(where, f"the name {name!r} cannot be used: {_NAME_RULE}")
    return name


def _refuse_alike(folder: Path, tasks: tuple[BenchmarkTask, ...]) -> None:
    """Refuse equal tasks, and names that differ only in case, which some machines cannot keep."""
    names: dict[str, str] = {}
    contents: dict[str, str] = {}
    for task in tasks:
        if (other := names.setdefault(task.name.lower(), task.name)) != task.name:
            why = f"the names of the tasks {other} and {task.name} differ only in case"
            raise _unfit(folder, why)
        tree = task.folder / ("environment" if task.container else "tree")
        files = {path: file for path, file in task.prints.items() if path.is_relative_to(tree)}
        content = f"{task.prompt.strip()}\0{_version(files, tree)}"
        if (other := contents.setdefault(content, task.name)) != task.name:
            why = f"the tasks {other} and {task.name} have the same prompt and tree"
            raise _unfit(folder, why)


def _check_files(folder: Path, prints: Mapping[Path, FilePrint]) -> None:
    for path, file in prints.items():
        if file.kind == "special":
            raise _unfit(folder, f"{path} is neither a file nor a link")
        if file.kind == "link" and _leads_out(path, folder):
            raise _unfit(folder, f"the link {path} leads out of its folder")
        if not is_relative_name(path.relative_to(folder).as_posix()):
            why = f"{path.name!r} is too long, or holds a backslash or a control character"
            raise _unfit(folder, why)


def _leads_out(link: Path, folder: Path) -> bool:
    """Whether a link leads out of its tree, check or solution, which are separated later."""
    parts = link.relative_to(folder).parts
    depth = 3 if parts[0] == "tasks" else 1  # tasks/NAME/tree
    target = PurePosixPath(*parts[depth:-1], link.readlink())
    return target.is_absolute() or PurePosixPath(normpath(target)).parts[:1] == ("..",)


def _version(prints: Mapping[Path, FilePrint], root: Path) -> str:
    lines = (
        f"{path.relative_to(root).as_posix()}\0{file.kind}\0{file.size}\0{file.digest}\n"
        for path, file in prints.items()
    )
    content = b"".join(sorted(line.encode(errors="surrogateescape") for line in lines))
    return f"sha256:{sha256(content).hexdigest()}"
