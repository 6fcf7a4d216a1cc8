"""Suites: a folder with tasks, read whole and named by its content.

The format is in docs/benchmarks.md. A suite that cannot be meant as it is written is refused when
it is read; what can only be seen by running its checks is for `lint`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from penstock import toml_document
from penstock.errors import InvalidInput
from penstock_jobs.benchmarks.sandbox import network as addresses
from penstock_jobs.benchmarks.sandbox.folder_files import File, FilePrint, prints_in, read_folder

Expect = Literal["edit", "no_edit", "any"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME_MEANS = "a name is at most 128 of the letters A to Z, digits, dots, dashes and underscores"

_SUITE_KEYS = ("name", "title", "attempts", "limits", "network", "check", "sources")
_TASK_KEYS = ("prompt", "tags", "expect", "limits", "check")
_LIMIT_KEYS = ("seconds", "check_seconds", "memory_mib", "processes", "disk_mib")
_SOURCE_KEYS = ("sessions", "repos", "commits")
_SUITE_ENTRIES = ("suite.toml", "tasks", "check", "README.md")
_TASK_ENTRIES = (
    "task.toml", "prompt.md", "tree", "check", "solution", "solution.json", "README.md",
)  # fmt: skip

_LIMITS_MAX = {
    "seconds": 7 * 86_400,
    "check_seconds": 86_400,
    "memory_mib": 1_048_576,
    "processes": 100_000,
    "disk_mib": 1_048_576,
}
_ATTEMPTS_MAX = 1_000
#: The tree, the check or the solution of a task.
TASK_BYTES_MAX = 256 * 1024 * 1024
CHECK_DEFAULT = ("python", "check.py")


@dataclass(frozen=True)
class TaskLimits:
    seconds: int = 600
    check_seconds: int = 120
    memory_mib: int = 2048
    processes: int = 128
    disk_mib: int = 512


@dataclass(frozen=True)
class Sources:
    """Where tasks were taken from: sessions that hold them are not to be trained on."""

    sessions: tuple[str, ...] = ()
    repos: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class BenchmarkTask:
    name: str
    prompt: str
    tags: tuple[str, ...]
    expect: Expect
    limits: TaskLimits
    #: None where nothing is to be checked but that nothing was edited.
    check: tuple[str, ...] | None
    folder: Path
    check_folder: Path
    #: What lies beneath each check of the suite, if there is anything.
    shared_check: Path
    #: The report that belongs to the solution, as JSON.
    solution_report: bytes | None = None
    #: Of each file in its folder and in that of its check.
    prints: Mapping[Path, FilePrint] = field(default_factory=dict, repr=False)

    @property
    def has_solution(self) -> bool:
        return (self.folder / "solution").is_dir() or self.solution_report is not None


@dataclass(frozen=True)
class TaskFiles:
    """What of a task goes into rooms."""

    tree: list[File]
    check: list[File]


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    #: The digest of all its files.
    version: str
    attempts: int
    #: HOST:PORT that agents may reach besides the serving address.
    allow: tuple[str, ...]
    tasks: tuple[BenchmarkTask, ...]
    folder: Path
    sources: Sources = Sources()

    def task(self, name: str) -> BenchmarkTask:
        """Raises InvalidInput."""
        for task in self.tasks:
            if task.name == name:
                return task
        why = f"task {name!r}: {toml_document.unknown(name, [task.name for task in self.tasks])}"
        raise _unfit(self.name, why)


def read_suite(folder: Path) -> Suite:
    """Raises InvalidInput."""
    where = folder / "suite.toml"
    if not where.is_file():
        raise _unfit(folder, "there is no suite.toml in it")
    _refuse_entries(folder, _SUITE_ENTRIES)
    document = toml_document.parse_toml(toml_document.read_text(where), str(where))
    toml_document.refuse_unknown(document, _SUITE_KEYS, str(where))
    name = _named(toml_document.text(document, "name", str(where)), str(where))
    files = _files_of(folder)
    limits = _limits(document, TaskLimits(), str(where))
    command = _command(document, CHECK_DEFAULT, str(where))
    tasks = tuple(
        _read_task(path, folder, limits, command, files)
        for path in sorted(_folders(folder / "tasks"), key=lambda path: path.name)
    )
    if not tasks:
        raise _unfit(folder, "there is no task in it: none in its folder tasks")
    _refuse_alike(folder, tasks)
    return Suite(
        name=name,
        title=toml_document.text_or_none(document, "title", str(where)) or name,
        version=_version(files, folder),
        attempts=_whole(document, "attempts", 1, _ATTEMPTS_MAX, str(where)),
        allow=_allow(document, str(where)),
        tasks=tasks,
        folder=folder.resolve(),
        sources=_sources(document, str(where)),
    )


def _unfit(suite: object, why: str) -> InvalidInput:
    return InvalidInput(what=f"The suite {suite}", why=why)


def load_files(task: BenchmarkTask, bytes_max: int) -> TaskFiles:
    """Raises InvalidInput where they are not as they were when the suite was read."""
    tree = _load(task, task.folder / "tree", bytes_max)
    if task.check is None:
        return TaskFiles(tree, [])
    check = {file.path: file for file in _load(task, task.shared_check, bytes_max)}
    check |= {file.path: file for file in _load(task, task.check_folder, bytes_max)}
    return TaskFiles(tree, list(check.values()))


def load_solution(task: BenchmarkTask, bytes_max: int) -> list[File]:
    """The tree as it should be in the end."""
    tree = {file.path: file for file in _load(task, task.folder / "tree", bytes_max)}
    over = _load(task, task.folder / "solution", bytes_max)
    return list((tree | {file.path: file for file in over}).values())


def _load(task: BenchmarkTask, folder: Path, bytes_max: int) -> list[File]:
    if not folder.is_dir():
        return []
    size = sum(one.size for path, one in task.prints.items() if path.is_relative_to(folder))
    if size > bytes_max:
        why = f"{folder} has {size} bytes, over the limit of {bytes_max}"
        raise _unfit(task.folder, why)
    files = read_folder(str(folder))
    known = {path for path in task.prints if path.is_relative_to(folder)}
    if known != {folder / file.path for file in files} or any(
        task.prints[folder / file.path] != FilePrint.of(file) for file in files
    ):
        raise _unfit(task.folder, f"{folder} was changed since the suite was read; start again")
    return files


def _folders(tasks: Path) -> list[Path]:
    if not tasks.is_dir():
        return []
    for one in tasks.iterdir():
        if not one.is_dir() and one.name not in ("README.md", ".DS_Store"):
            why = f"{one.name!r} in its folder tasks is no folder; each task has its own"
            raise _unfit(tasks.parent, why)
    return [one for one in tasks.iterdir() if one.is_dir()]


def _read_task(
    folder: Path,
    suite: Path,
    limits: TaskLimits,
    command: tuple[str, ...],
    files: Mapping[Path, FilePrint],
) -> BenchmarkTask:
    name = _named(folder.name, str(suite))
    where = folder / "task.toml"
    _refuse_entries(folder, _TASK_ENTRIES)
    document: dict[str, Any] = {}
    if where.is_file():
        document = toml_document.parse_toml(toml_document.read_text(where), str(where))
    toml_document.refuse_unknown(document, _TASK_KEYS, str(where))
    if not (folder / "tree").is_dir():
        raise _unfit(suite, f"task {name}: there is no folder tree")
    expect: Expect = toml_document.choice(
        document, "expect", ("edit", "no_edit", "any"), "edit", str(where)
    )
    shared = suite / "check"
    check_folder = folder / "check" if (folder / "check").is_dir() else shared
    check: tuple[str, ...] | None = None
    if check_folder.is_dir():
        check = _command(document, command, str(where))
    elif expect != "no_edit":
        raise _unfit(suite, f"task {name}: there is no folder check, neither here nor in the suite")
    report = folder / "solution.json"
    return BenchmarkTask(
        name=name,
        prompt=_prompt(document, folder, str(where)),
        tags=toml_document.texts(document, "tags", str(where)),
        expect=expect,
        limits=_limits(document, limits, str(where)),
        check=check,
        folder=folder,
        check_folder=check_folder,
        shared_check=shared,
        solution_report=report.read_bytes() if report.is_file() else None,
        prints={
            path: one
            for path, one in files.items()
            if path.is_relative_to(folder) or path.is_relative_to(shared)
        },
    )


def _prompt(document: Mapping[str, Any], folder: Path, where: str) -> str:
    beside = folder / "prompt.md"
    if ("prompt" in document) == beside.is_file():
        raise _unfit(folder, "the prompt stands either in task.toml or in prompt.md beside it")
    in_toml = "prompt" in document
    prompt = (
        toml_document.text(document, "prompt", where)
        if in_toml
        else toml_document.read_text(beside)
    )
    if not prompt.strip():
        raise _unfit(folder, "its prompt is empty")
    return prompt


def _limits(document: Mapping[str, Any], default: TaskLimits, where: str) -> TaskLimits:
    limits = toml_document.table(document, "limits", where)
    toml_document.refuse_unknown(limits, _LIMIT_KEYS, f"[limits] of {where}")
    named = {
        key: _whole(limits, key, getattr(default, key), _LIMITS_MAX[key], f"[limits] of {where}")
        for key in limits
    }
    return replace(default, **named)


def _whole(document: Mapping[str, Any], key: str, default: int, most: int, where: str) -> int:
    value = toml_document.whole(document, key, default, where, least=1)
    if value > most:
        raise _unfit(where, f"{key} is {value}, and can be at most {most}")
    return value


def _command(document: Mapping[str, Any], default: tuple[str, ...], where: str) -> tuple[str, ...]:
    check = toml_document.table(document, "check", where)
    toml_document.refuse_unknown(check, ("command",), f"[check] of {where}")
    return toml_document.texts(check, "command", f"[check] of {where}") or default


def _allow(document: Mapping[str, Any], where: str) -> tuple[str, ...]:
    network = toml_document.table(document, "network", where)
    toml_document.refuse_unknown(network, ("allow",), f"[network] of {where}")
    allow = toml_document.texts(network, "allow", f"[network] of {where}")
    addresses.plan(allow)
    return allow


def _sources(document: Mapping[str, Any], where: str) -> Sources:
    sources = toml_document.table(document, "sources", where)
    where = f"[sources] of {where}"
    toml_document.refuse_unknown(sources, _SOURCE_KEYS, where)
    return Sources(**{key: toml_document.texts(sources, key, where) for key in _SOURCE_KEYS})


def _named(name: str, where: str) -> str:
    if not _NAME.fullmatch(name):
        raise _unfit(where, f"the name {name!r} cannot be used: {_NAME_MEANS}")
    return name


def _refuse_entries(folder: Path, known: tuple[str, ...]) -> None:
    """A folder under a wrong name would be a task without a check, or a check without a task."""
    hidden = [one.name for one in folder.iterdir() if one.name.startswith(".")]
    there = [one.name for one in folder.iterdir() if one.name not in hidden]
    toml_document.refuse_unknown(there, (*known, "__pycache__"), str(folder))


def _refuse_alike(folder: Path, tasks: tuple[BenchmarkTask, ...]) -> None:
    """On some machines names that differ in case alone are one; and a task that is there twice
    counts twice."""
    names: dict[str, str] = {}
    contents: dict[str, str] = {}
    for task in tasks:
        if other := names.get(task.name.lower()):
            why = f"the tasks {other} and {task.name} differ in the case of letters alone"
            raise _unfit(folder, why)
        names[task.name.lower()] = task.name
        tree = task.folder / "tree"
        content = _version(
            {path: one for path, one in task.prints.items() if path.is_relative_to(tree)}, tree
        )
        key = f"{task.prompt.strip()}\0{content}"
        if other := contents.get(key):
            why = f"the tasks {other} and {task.name} are the same: one prompt, one tree"
            raise _unfit(folder, why)
        contents[key] = task.name


def _files_of(folder: Path) -> dict[Path, FilePrint]:
    try:
        files = {folder / path: one for path, one in prints_in(str(folder)).items()}
    except OSError as error:
        raise _unfit(folder, str(error)) from error
    for path, one in files.items():
        if one.kind == "special":
            raise _unfit(folder, f"{path} is neither a file nor a link")
        if one.kind == "link" and _leads_out(path, folder):
            raise _unfit(folder, f"the link {path} leads out of its folder")
    return files


def _leads_out(link: Path, folder: Path) -> bool:
    """Out of the tree, check or solution that it is in: it will not stand beside the others."""
    target = PurePosixPath(link.readlink())
    parts = link.relative_to(folder).parts
    depth = 3 if parts[0] == "tasks" else 1  # tasks/NAME/tree
    below = len(parts) - 1 - depth
    for part in target.parts:
        below += -1 if part == ".." else 1
        if below < 0:
            return True
    return target.is_absolute()


def _version(files: Mapping[Path, FilePrint], root: Path) -> str:
    """By paths, kinds and bytes."""
    lines = sorted(
        f"{path.relative_to(root).as_posix()}\0{one.kind}\0{one.size}\0{one.digest}\n".encode(
            errors="surrogateescape"
        )
        for path, one in files.items()
    )
    return f"sha256:{sha256(b''.join(lines)).hexdigest()}"
