"""Files of a chain of sessions through the commits of a repository: their names and contents."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penstock_jobs.rewards.history.git_repository import BranchHistory, ChangedFile, Commit


class CommitStep(NamedTuple):
    commit: Commit
    parent: int = 0


class BranchLines:
    """Commits as lines. One way leads from each commit to the tip, through merges of its line.

    Most of each way is the branch itself, so that steps along it are looked up, not walked."""

    def __init__(self, commits: Sequence[Commit], tip: str | None) -> None:
        self._commits = {commit.name: commit for commit in commits}
        self._next: dict[str, CommitStep | None] = {}
        self._branch: list[Commit] = []
        waiting: list[tuple[str | None, CommitStep | None]] = [(tip, None)]
        while waiting:
            name, following = waiting.pop()
            line: list[Commit] = []
            while name in self._commits and name not in self._next:
                self._next[name] = following
                line.append(self._commits[name])
                following = CommitStep(line[-1])
                name = next(iter(line[-1].parents), None)
            self._branch = self._branch or line[::-1]
            # The oldest merge comes first, with all that it merged: so a line that was merged twice
            # belongs to the first merge.
            for commit in line:
                others = enumerate(commit.parents[1:], start=1)
                waiting += [(parent, CommitStep(commit, number)) for number, parent in others]

        self._places = {commit.name: place for place, commit in enumerate(self._branch)}
        #: Places of the commits that change a path, and later names of files, by path.
        self._changing: defaultdict[str, list[int]] = defaultdict(list)
        self._renamed: defaultdict[str, set[str]] = defaultdict(set)
        for commit in commits:
            for file in {file for files in commit.changed for file in files}:
                if file.renamed_from is not None:
                    self._renamed[file.renamed_from].add(file.path)
                if (place := self._places.get(commit.name)) is not None:
                    for path in {file.path, file.renamed_from or file.path}:
                        self._changing[path].append(place)

    def way(
        self, name: str | None = None, paths: Iterable[str] | None = None
    ) -> Iterator[CommitStep]:
        """Walk from a commit to the tip, both included; without a name, along the branch. With
        `paths`, commits of the branch that change none of these files are left out."""
        aside, place = self._to_branch(name)
        yield from aside
        places: Iterable[int] = range(place, len(self._branch))
        if paths is not None:
            changing = (self._changing.get(path, ()) for path in self._names_of(paths))
            places = sorted({own for each in changing for own in each if own >= place})
        yield from (CommitStep(self._branch[own]) for own in places)

    def passes(self, start: str, name: str) -> bool:
        """Whether the way from one commit leads through another."""
        aside, place = self._to_branch(start)
        on_branch = self._places.get(name, -1) >= place
        return on_branch or any(step.commit.name == name for step in aside)

    def _to_branch(self, name: str | None) -> tuple[list[CommitStep], int]:
        """Return steps until the way is on the branch, and the place where it goes on there."""
        aside: list[CommitStep] = []
        if name is None:
            return aside, 0
        step: CommitStep | None = CommitStep(self._commits[name])
        while step is not None and (step.parent or step.commit.name not in self._places):
            aside.append(step)
            step = self._next[step.commit.name]
        return aside, len(self._branch) if step is None else self._places[step.commit.name]

    def _names_of(self, paths: Iterable[str]) -> set[str]:
        """Return all names that files ever get."""
        names: set[str] = set()
        waiting = set(paths)
        while waiting:
            names |= waiting
            waiting = {new for old in waiting for new in self._renamed.get(old, ())} - names
        return names


_MOVED_TO_MAX = 200


class CommittedEdit(NamedTuple):
    ts_us: int
    path: str
    lines: frozenset[str]


@dataclass(eq=False)
class EditedChain:
    #: The session that gets the events.
    session: str
    edits: list[CommittedEdit]
    looks: list[tuple[int, str]] = field(default_factory=list)
    #: Repository paths by session paths.
    matched: Mapping[str, str] = field(default_factory=dict)
    #: The commit that carries each edit, if any.
    carriers: dict[CommittedEdit, Commit] = field(default_factory=dict)


class MovedText(NamedTuple):
    """A file of a commit into which lines moved from `source`, a session path."""

    file: ChangedFile
    source: str
    source_path: str


class FollowedChange(NamedTuple):
    before: str
    after: str
    change: ChangedFile


class ShownCommit(NamedTuple):
    ts_us: int
    commit: str
    files: tuple[ChangedFile, ...]
    followed: tuple[FollowedChange, ...] = ()
    others: Sequence[ChangedFile] = ()


class FollowedFiles:
    def __init__(self, chain: EditedChain, moves: Mapping[str, Sequence[MovedText]]) -> None:
        self._chain = chain
        self._moves = moves
        #: Session paths by current repository paths.
        self._names: dict[str, str] = {}
        #: Current session paths by the paths of edits.
        self._renamed: dict[str, str] = {}
        #: Files that hold moved text, by the paths of edits.
        self._moved_to: defaultdict[str, list[str]] = defaultdict(list)
        #: The newest commit and blob, by session path.
        self.latest: dict[str, tuple[str, str | None]] = {}
        #: Times of edits and the commits that carry them later, by session path.
        self._waits: defaultdict[str, list[tuple[int, Commit]]] = defaultdict(list)
        for edit, commit in chain.carriers.items():
            self._waits[edit.path].append((edit.ts_us, commit))

    def edited(self, path: str) -> None:
        self.latest.pop(path, None)
        if path in self._chain.matched:
            self._names.setdefault(self._chain.matched[path], path)
            self._renamed[path] = path

    def holding(self, path: str) -> list[str]:
        """Return the current path of an edit's file, and files into which its text moved."""
        return [self._renamed.get(path, path), *self._moved_to.get(path, ())]

    def committed(self, step: CommitStep, jumped: bool) -> ShownCommit | None:
        commit, changed = step.commit, step.commit.changed[step.parent]
        if jumped:  # files of the other branch are unknown unless this commit changes them
            self.latest.clear()
        names = self._names
        touched = [file for file in changed if file.path in names or file.renamed_from in names]
        followed: list[FollowedChange] = []
        files: list[ChangedFile] = []
        # Renames first: a new file at the old path is another file.
        for change in sorted(touched, key=lambda change: change.renamed_from is None):
            known = self._names.get(change.path)
            old = change.renamed_from
            if old is not None and old in self._names:
                before = self._names.pop(old)
                name = known or new_name(before, old, change.path)
                self._names[change.path] = name
                self._follow(before, name)
                self.latest[name] = (commit.name, change.blob)
                followed.append(FollowedChange(before, name, change))
                if known is None:
                    files.append(ChangedFile(name, change.blob, before))
                else:
                    files += [ChangedFile(before, None), ChangedFile(name, change.blob)]
            elif known is not None and not self._is_waiting(known, commit):
                self.latest[known] = (commit.name, change.blob)
                followed.append(FollowedChange(known, known, change))
                files.append(ChangedFile(known, change.blob))
        if not files:
            return None
        own = {followed_file.change.path for followed_file in followed}
        others = [file for file in changed if file.blob and file.path not in own]
        earlier: list[ChangedFile] = []
        for file, source, path in self._moves.get(commit.name, ()):
            if file.path not in self._names:
                held = self._names[file.path] = new_name(source, path, file.path)
                self.latest[held] = (commit.name, file.blob)
                # With its earlier content: only new lines can have moved.
                earlier += [ChangedFile(held, file.before)] if file.before else []
                files.append(ChangedFile(held, file.blob))
            held, holding = self._names[file.path], self._moved_to[self._origin(source)]
            holding += [held] if held not in holding else []
        shown = (*earlier, *files), tuple(followed), others[:_MOVED_TO_MAX]
        return ShownCommit(commit.ts_us, commit.name, *shown)

    def _follow(self, before: str, name: str) -> None:
        for path, now in self._renamed.items():
            if now == before:
                self._renamed[path] = name
        for names in self._moved_to.values():
            names[:] = [name if own == before else own for own in names]
        self._waits[name] += self._waits.pop(before, [])
        self.latest.pop(before, None)

    def _origin(self, source: str) -> str:
        named_so = [path for path, now in self._renamed.items() if now == source]
        moved = [path for path, names in self._moved_to.items() if source in names]
        return next(iter([*named_so, *moved]), source)

    def _is_waiting(self, name: str, commit: Commit) -> bool:
        return any(
            ts_us <= commit.ts_us and commit.ts_us < carrier.ts_us and commit is not carrier
            for ts_us, carrier in self._waits.get(name, ())
        )


def path_matcher(
    history: BranchHistory, directory: Path
) -> Callable[[Iterable[str]], dict[str, str]]:
    """Make a function that matches session paths to repository paths.

    A path matches the longest path that it ends with, or the only path that ends with it. If two
    session paths match one file, only the equal spelling counts."""
    first = set(history.before)
    changed = (file for commit in history.commits for files in commit.changed for file in files)
    every = first | {file.path for file in changed}
    root = directory.resolve().as_posix().removesuffix("/") + "/"
    by_name: dict[str, list[str]] = {}
    for path in every:
        by_name.setdefault(path.rpartition("/")[2], []).append(path)

    def repository_path(path: str) -> str | None:
        if path in every:
            return path
        same = by_name.get(path.rpartition("/")[2], [])
        shorter = [candidate for candidate in same if path.endswith("/" + candidate)]
        if shorter:
            return max(shorter, key=len)
        longer = [candidate for candidate in same if candidate.endswith("/" + path)]
        likely = [candidate for candidate in longer if candidate in first] or longer
        return likely[0] if len(likely) == 1 else None

    def match(names: Iterable[str]) -> dict[str, str]:
        spelled = {name: plain(name).removeprefix(root) for name in sorted(names)}
        names_of: dict[str, list[str]] = {}
        for name, path in spelled.items():
            if (known := repository_path(path)) is not None:
                names_of.setdefault(known, []).append(name)
        matched = {}
        for path, own in names_of.items():
            chosen = own if len(own) == 1 else [name for name in own if spelled[name] == path]
            if len(chosen) == 1:
                matched[chosen[0]] = path
        return matched

    return match


def new_name(name: str, old: str, new: str) -> str:
    if plain(name).endswith(old):
        return plain(name).removesuffix(old) + new
    return new.removeprefix(old[: len(old) - len(plain(name))])


def plain(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./")
