"""A repository's history, read for tasks: its commits, their trees, and what they changed."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from penstock.core.errors import InvalidInput
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from penstock_jobs.rewards.history.git_repository import GitFailed, Repository, git, read_objects
from penstock_jobs.rewards.history.session_commits import repository_name

_KINDS = {"100644": "file", "100664": "file", "100755": "program", "120000": "link"}
_LOG = ("log", "--first-parent", "--format=%H%x00%P%x00%B%x01", "--end-of-options")
_DIFF = ("-c", "core.quotePath=false", "diff", "--no-color", "--no-ext-diff", "--no-textconv",
         "--no-renames")  # fmt: skip
#: Neighbouring commits share most of their files.
_BLOBS_KEPT = 20_000


class TreeFile(NamedTuple):
    kind: str
    blob: str


class HistoryCommit(NamedTuple):
    name: str
    parents: tuple[str, ...]
    message: str


class FileDiff(NamedTuple):
    path: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class ProjectHistory:
    repository: Repository
    #: The oldest commit, which clones and forks share.
    root: str
    #: The address of its origin; else None.
    origin: str | None
    name: str
    _blobs: dict[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, directory: Path) -> Self:
        """Open a work tree or a Git directory. Raises InvalidInput."""
        repository = Repository(directory)
        what = f"The repository {directory}"
        if not directory.is_dir():
            raise InvalidInput(what=what, why="there is no such folder")
        if git(repository, "rev-parse", "--is-shallow-repository").strip() == b"true":
            why = "its history is shallow; fetch the rest with: git fetch --unshallow"
            raise InvalidInput(what=what, why=why)
        try:
            roots = git(repository, "rev-list", "--max-parents=0", "HEAD").decode().split()
        except GitFailed:
            raise InvalidInput(what=what, why="it has no commit yet") from None
        origin = git(repository, "config", "--get", "remote.origin.url", none_found=1)
        address = origin.decode().strip() or None
        name = re.sub(r"[^\w.-]", "-", repository_name(repository))
        return cls(repository, min(roots), address, name)

    def commits(self, span: str = "HEAD") -> list[HistoryCommit]:
        """Read the commits of a range along the branch, the newest first. Raises InvalidInput."""
        printed = git(self.repository, *_LOG, span, "--").decode(errors="replace")
        records = (record.strip("\n").split("\0", 2) for record in printed.split("\x01"))
        return [
            HistoryCommit(record[0], tuple(record[1].split()), record[2].strip())
            for record in records
            if len(record) == 3
        ]

    def full_name(self, commit: str) -> str | None:
        """Find a commit by its name or an abbreviation."""
        asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
        try:
            return git(self.repository, *asked).decode().strip()
        except GitFailed:
            return None

    def is_ancestor(self, older: str, newer: str) -> bool:
        base = git(self.repository, "merge-base", older, newer, none_found=1)
        return base.decode().strip() == older

    def tree(self, commit: str) -> dict[str, TreeFile]:
        """List the files of a commit by path, without submodules. Raises InvalidInput."""
        listed = git(self.repository, "ls-tree", "-r", "-z", "--full-tree", commit)
        found = {}
        for line in filter(None, listed.split(b"\0")):
            facts, _, path = line.partition(b"\t")
            mode, _, blob = facts.decode().split(" ")
            if mode in _KINDS:
                found[os.fsdecode(path)] = TreeFile(_KINDS[mode], blob)
        return found

    def files(self, tree: Mapping[str, TreeFile]) -> list[File]:
        """Read files. Raises InvalidInput."""
        if len(self._blobs) > _BLOBS_KEPT:
            self._blobs.clear()
        names = sorted({entry.blob for entry in tree.values()} - self._blobs.keys())
        for name, kind, content in read_objects(self.repository, names) if names else ():
            if kind != b"blob":
                why = f"the object {name} is missing; a partial clone has not all files"
                raise InvalidInput(what=f"The repository {self.repository.directory}", why=why)
            self._blobs[name] = content
        return [File(path, self._blobs[blob], kind) for path, (kind, blob) in tree.items()]

    def diff(self, before: str, after: str) -> list[FileDiff]:
        return parse_diff(git(self.repository, *_DIFF, before, after).decode(errors="replace"))


def parse_diff(text: str) -> list[FileDiff]:
    """Read a unified diff of text files."""
    diffs = []
    for part in re.split(r"(?m)^(?=diff --git )", text):
        head, _, body = part.partition("\n@@ ")
        if paths := re.findall(r"(?m)^(?:---|\+\+\+) [ab]/(.*?)\t?$", head):
            lines = body.split("\n")[1:]
            added = tuple(line[1:] for line in lines if line.startswith("+"))
            removed = tuple(line[1:] for line in lines if line.startswith("-"))
            diffs.append(FileDiff(paths[-1], added, removed, part))
    return diffs
