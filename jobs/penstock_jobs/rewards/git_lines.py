"""Lines of development: through which branches a commit came into the branch that is followed.

The branch along its first parents is a line. A merge of it takes in another line, which is what was
reachable by the merge and not before, along first parents; and so on. From each commit one way
leads to the tip: along its line, then through the merge that took the line in.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock_jobs.rewards.git_repository import Commit


class CommitStep(NamedTuple):
    """A commit on a way, and by which of its parents the way comes."""

    commit: Commit
    parent: int = 0


class _BranchLine(NamedTuple):
    #: The oldest first.
    commits: list[str]
    #: The merge that took the line in, and as which of its parents.
    merge: str | None
    parent: int


class BranchLines:
    """Of the commits from a moment on."""

    def __init__(self, commits: Sequence[Commit], tip: str | None) -> None:
        self._commits: Mapping[str, Commit] = {commit.name: commit for commit in commits}
        self._lines: list[_BranchLine] = []
        #: Commit → its line, and where in it.
        self._places: dict[str, tuple[int, int]] = {}
        waiting: list[tuple[str | None, str | None, int]] = [(tip, None, 0)]
        while waiting:
            line = self._line(*waiting.pop())
            # The oldest merge is looked at first, with all that it took in: so a line that came in
            # twice came in by the first.
            for name in reversed(line.commits):
                others = enumerate(self._commits[name].parents[1:], start=1)
                waiting += [(parent, name, number) for number, parent in others]

    def _line(self, name: str | None, merge: str | None, parent: int) -> _BranchLine:
        own: list[str] = []
        while name is not None and name in self._commits and name not in self._places:
            own.append(name)
            self._places[name] = (len(self._lines), 0)
            name = next(iter(self._commits[name].parents), None)
        line = _BranchLine(own[::-1], merge, parent)
        if own:
            self._places |= {name: (len(self._lines), at) for at, name in enumerate(line.commits)}
            self._lines.append(line)
        return line

    def way(self, name: str | None = None) -> Iterator[CommitStep]:
        """From a commit to the tip, both included; without a name all of the branch itself."""
        if not self._lines:
            return
        number, at = self._places[name] if name is not None else (0, 0)
        parent = 0
        while True:
            line = self._lines[number]
            yield CommitStep(self._commits[line.commits[at]], parent)
            for commit in line.commits[at + 1 :]:
                yield CommitStep(self._commits[commit])
            if line.merge is None:
                return
            parent = line.parent
            number, at = self._places[line.merge]
