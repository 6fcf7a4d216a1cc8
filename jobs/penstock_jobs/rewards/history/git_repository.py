"""A Git repository: its commits with changes, texts of files, and how current the clone is.

A missing object, as in a shallow or partial clone, costs only its file.
"""

import os
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from penstock.core.clock import SECOND_US
from penstock.core.errors import InvalidInput

_REGULAR = ("100644", "100755", "100664")
#: In place of the blob of a link or a submodule.
_NO_TEXT = ""
_NO_BLOB = "0" * 40
_REV_LIST = ("rev-list", "--topo-order", "--reverse", "--parents", "--timestamp")
_DIFF_TREE = ("diff-tree", "--stdin", "--root", "-r", "-z", "--raw", "--no-abbrev")
#: Renames among up to 1,000 files of a commit; among more, only equal files.
_RENAMES = ("-M", "-l1000")
#: Needs no content of files.
_EQUAL_RENAMES = ("-M100%",)
_NAMES = "--batch-check=%(objectname)"
#: The most runs of git to find readable objects of an incomplete repository.
_ATTEMPTS_MAX = 200
#: The machine's configuration must not change the answers.
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    # Nothing is fetched. Git before 2.44 only heeds that no protocol is allowed.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
ItemT = TypeVar("ItemT")


class GitFailed(InvalidInput, exit_status=2, http_status=400):
    """{what} cannot be used: {why}."""


@dataclass(frozen=True)
class Repository:
    """A branch of a Git repository. With `first_parent`, a merge is one change."""

    directory: Path
    branch: str = "HEAD"
    first_parent: bool = False
    seconds_max: float = 300.0


class BranchHead(NamedTuple):
    commit: str
    branch: str | None


class ChangedFile(NamedTuple):
    """A file as a commit left it. It was deleted if there is no `blob`."""

    path: str
    blob: str | None
    renamed_from: str | None = None
    before: str | None = None


class Commit(NamedTuple):
    name: str
    parents: tuple[str, ...]
    #: The time in microseconds since 1970, never before the parents.
    ts_us: int
    #: Changes against each parent; once for a commit without parents.
    changed: tuple[Sequence[ChangedFile], ...] = ()


class BranchHistory(msgspec.Struct, frozen=True):
    """Commits since a moment, oldest first. `before` lists the files at that moment."""

    commits: Sequence[Commit] = ()
    before: Sequence[str] = ()
    tip: str | None = None
    #: The newest moment of the clone's knowledge; None in the repository of the branch itself.
    known_until_us: int | None = None
    #: Commits whose changes cannot be read for missing objects.
    unreadable: int = 0


class BlobTexts(msgspec.Struct, frozen=True):
    """Texts by blob, without binary files."""

    texts: dict[str, str] = msgspec.field(default_factory=dict)
    missing: set[str] = msgspec.field(default_factory=set)


def read_branch(repository: Repository, since_us: int) -> BranchHistory:
    along = ["--first-parent"] if repository.first_parent else []
    branch = ("--end-of-options", repository.branch, "--")
    listed = git(repository, *_REV_LIST, *along, *branch).decode().splitlines()
    moments: dict[str, int] = {}
    later = []
    for line in listed:
        seconds, name, *parents = line.split()
        moment = max([int(seconds) * SECOND_US, *(moments.get(parent, 0) for parent in parents)])
        moments[name] = moment
        if moment >= since_us:
            later.append(Commit(name, tuple(parents), moment))
    tip = listed[-1].split()[1] if listed else None
    known_until_us = _known_until_us(repository, moments[tip]) if tip is not None else None
    later.sort(key=lambda commit: commit.ts_us)
    base = tip if not later else next(iter(later[0].parents), None)
    before: list[str] = []
    if base is not None:
        with suppress(GitFailed):
            listing = git(repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", base)
            before = [os.fsdecode(name) for name in listing.split(b"\0") if name]
    commits, unreadable = _with_changes(repository, later) if later else ([], 0)
    return BranchHistory(commits, before, tip, known_until_us, unreadable)


def read_texts(repository: Repository, blobs: Iterable[str]) -> BlobTexts:
    answer = BlobTexts()

    def read(names: Sequence[str]) -> None:
        for blob, kind, content in read_objects(repository, names):
            if kind == b"missing":
                answer.missing.add(blob)
            elif kind == b"blob" and b"\0" not in content:
                with suppress(UnicodeDecodeError):
                    answer.texts[blob] = content.decode()

    names = sorted(blobs)
    if names:
        try:
            read(names)
        except GitFailed:
            # Git does not say which objects are missing.
            listed = git(repository, "cat-file", "--batch-all-objects", "--unordered", _NAMES)
            there = set(listed.decode().split())
            unread = _readable(read, [name for name in names if name in there])
            answer.missing.update(unread, (name for name in names if name not in there))
    return answer


def read_objects(
    repository: Repository, names: Sequence[str]
) -> Iterator[tuple[str, bytes, bytes]]:
    """Read objects by name, each with its kind: `missing` where a partial clone has it not."""
    stdin = "".join(f"{name}\n" for name in names).encode()
    printed, at = git(repository, "cat-file", "--batch", stdin=stdin), 0
    for name in names:
        end = printed.index(b"\n", at)
        _, kind, *size = printed[at:end].split(b" ")
        content = printed[end + 1 : end + 1 + int(size[0])] if size else b""
        at = end + 1 + (len(content) + 1 if size else 0)
        yield name, kind, content


def files_at(repository: Repository) -> tuple[str, list[tuple[str, str, int]]]:
    """Return the branch's commit, and path, blob and size of its files. Raises InvalidInput."""
    name = f"{repository.branch}^{{commit}}"
    commit = git(repository, "rev-parse", "--verify", "--end-of-options", name).decode().strip()
    files = []
    for line in git(repository, "ls-tree", "-r", "-l", "-z", "--full-tree", commit).split(b"\0"):
        facts, _, path = line.decode(errors="replace").partition("\t")
        if facts.startswith(_REGULAR) and (size := facts.split()[3]).isdigit():
            files.append((path, facts.split()[2], int(size)))
    return commit, files


def branch_head(repository: Repository) -> BranchHead | None:
    """Return commit and branch of HEAD; None before the first commit. Raises InvalidInput."""
    try:
        name = git(repository, "rev-parse", "--verify", "--quiet", "HEAD").decode().strip()
    except GitFailed:
        return None
    branch = None
    with suppress(GitFailed):  # HEAD is detached
        branch = git(repository, "symbolic-ref", "--short", "--quiet", "HEAD").decode().strip()
    return BranchHead(name, branch)


def ignored_paths(repository: Repository, paths: Sequence[str]) -> set[str]:
    """Return paths that Git ignores or cannot judge. Paths are absolute. Raises InvalidInput."""
    ignored: set[str] = set()

    def read(some: Sequence[str]) -> None:
        stdin = b"".join(os.fsencode(path) + b"\0" for path in some)
        printed = git(repository, "check-ignore", "-z", "--stdin", stdin=stdin, none_found=1)
        ignored.update(os.fsdecode(path) for path in printed.split(b"\0") if path)

    ignored.update(_readable(read, list(paths)))
    return ignored


def tracked_paths(repository: Repository, paths: Iterable[str]) -> set[str]:
    """Return paths that HEAD has. Paths are absolute. Raises InvalidInput."""
    root = repository.directory.resolve()
    tracked: set[str] = set()
    with suppress(GitFailed):  # there is no commit yet
        listed = git(repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD")
        tracked = {os.fsdecode(name) for name in listed.split(b"\0") if name}
    return {path for path in paths if os.path.relpath(path, root) in tracked}


def _known_until_us(repository: Repository, tip_us: int) -> int | None:
    """Return the time of the last fetch or clone; None without remotes."""
    if not git(repository, "remote").strip():
        return None
    directories = git(repository, "rev-parse", "--git-dir", "--git-common-dir").decode()
    known = [tip_us]
    for line in dict.fromkeys(directories.splitlines()):
        directory = repository.directory / line
        for name in ("FETCH_HEAD", "description"):  # the second is as old as the clone
            with suppress(OSError):
                known.append(round((directory / name).stat().st_mtime * SECOND_US))
    known_us = max(known)
    # A fetched branch that was not merged is as old as before.
    with suppress(GitFailed):
        upstream = f"{repository.branch}@{{upstream}}"
        missed = ("rev-list", "--timestamp", "--end-of-options", upstream, f"^{repository.branch}")
        moments = [int(line.split()[0]) for line in git(repository, *missed, "--").splitlines()]
        known_us = min([known_us, *(moment * SECOND_US for moment in moments)])
    return known_us


def _with_changes(repository: Repository, commits: Sequence[Commit]) -> tuple[list[Commit], int]:
    """Add changes against each parent to commits. Returns also the number of unreadable ones."""
    most = max(len(commit.parents) for commit in commits)
    changes: list[dict[str, list[ChangedFile]]] = []
    unreadable: set[str] = set()
    for number in range(max(most, 1)):
        pairs = {
            commit.name: " ".join((commit.name, *commit.parents[number : number + 1]))
            for commit in commits
            if number < len(commit.parents) or not number
        }
        found: dict[str, list[ChangedFile]] = {}
        read = partial(_read_changes, repository, pairs, found)
        unread = _readable(partial(read, _RENAMES), list(pairs))
        unreadable.update(_readable(partial(read, _EQUAL_RENAMES), unread))
        changes.append(found)
    told = []
    for commit in commits:
        own = (found.get(commit.name, ()) for found in changes[: max(len(commit.parents), 1)])
        told.append(commit._replace(changed=tuple(own)))
    return told, len(unreadable)


def _read_changes(
    repository: Repository,
    pairs: Mapping[str, str],
    found: dict[str, list[ChangedFile]],
    renames: Sequence[str],
    names: Sequence[str],
) -> None:
    stdin = "".join(f"{pairs[name]}\n" for name in names).encode()
    found |= _parse_changes(git(repository, *_DIFF_TREE, *renames, stdin=stdin), pairs)


def _parse_changes(raw: bytes, names: Collection[str]) -> dict[str, list[ChangedFile]]:
    by_commit: dict[str, list[ChangedFile]] = {}
    fields = iter(raw.split(b"\0"))
    changed: list[ChangedFile] = []
    for part in fields:
        if not part.startswith(b":"):
            name = part.decode("ascii", "replace").strip()
            if name in names:
                changed = by_commit.setdefault(name, [])
            continue
        old_mode, mode, old_blob, blob, status = part[1:].decode().split(" ")
        path, old = os.fsdecode(next(fields)), None
        if status[0] in "RC":
            path, old = os.fsdecode(next(fields)), path if status[0] == "R" else None
        text = blob if mode in _REGULAR else _NO_TEXT
        was_there = status[0] not in "AC" and old_mode in _REGULAR
        before = old_blob if was_there and old_blob != _NO_BLOB else None
        changed.append(ChangedFile(path, None if status[0] == "D" else text, old, before))
    return by_commit


def _readable(read: Callable[[Sequence[ItemT]], None], items: Sequence[ItemT]) -> list[ItemT]:
    """Read all items, or halves of them on failure. Returns items that cannot be read."""
    failed: list[ItemT] = []
    waiting = [items] if items else []
    attempts = 0
    while waiting:
        some = waiting.pop()
        attempts += 1
        try:
            if attempts <= _ATTEMPTS_MAX:
                read(some)
                continue
        except GitFailed:
            if middle := len(some) // 2:
                waiting += [some[middle:], some[:middle]]
                continue
        failed += some
    return failed


def git(repository: Repository, *arguments: str, stdin: bytes = b"", none_found: int = 0) -> bytes:
    """Run git and return its output. Status `none_found` is no failure. Raises InvalidInput."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    what = f"the repository {repository.directory}"
    try:
        done = subprocess.run(
            ["git", "-C", str(repository.directory), *arguments],
            input=stdin,
            capture_output=True,
            env=environment | _ENVIRONMENT,
            timeout=repository.seconds_max,
            check=False,
        )
    except (FileNotFoundError, PermissionError) as error:
        why = f"the program git could not be started: {error.strerror}. Install it"
        raise InvalidInput(what=what, why=why) from error
    except subprocess.TimeoutExpired as error:
        why = f"git {arguments[0]} did not end within {repository.seconds_max:g} seconds"
        raise InvalidInput(what=what, why=why) from error
    if done.returncode not in (0, none_found):
        message = done.stderr.decode(errors="replace").strip().replace("\n", " ")
        why = f"git {arguments[0]} said: {message or f'exit status {done.returncode}'}"
        raise GitFailed(what=what, why=why.rstrip("."))
    return done.stdout
