"""Files line by line, each line the work of somebody: what is left of an edit is known by
construction, without comparing any texts."""

from dataclasses import dataclass
from functools import lru_cache

from penstock_jobs.simulator.code import LANGUAGES, SourceFile, write_file
from penstock_jobs.simulator.grammar import Dice

_FILES = 5
_COMMENT = {"python": "#", "typescript": "//", "go": "//", "sql": "--"}


@dataclass(slots=True, eq=False)
class CodeLine:
    """`written` are the characters of its author, white space aside; `left` those that nobody
    replaced."""

    text: str
    written: int
    left: int
    comment: bool = False
    #: The agent itself took it away.
    reworked: bool = False

    @classmethod
    def of(cls, text: str, *, comment: bool = False) -> "Line":
        size = ink_of(text)
        return cls(text, size, size, comment)


@dataclass(slots=True, eq=False)
class WorkingFile:
    """A file of a session, as it is now."""

    source: SourceFile
    lines: list[CodeLine]

    @property
    def path(self) -> str:
        return self.source.path

    def text(self) -> str:
        return "".join(f"{line.text}\n" for line in self.lines)

    def new_lines(self, dice: Dice, count: int) -> list[CodeLine]:
        """So many lines of code that this file has not yet."""
        known = {line.text for line in self.lines}
        found: list[CodeLine] = []
        while len(found) < count:
            for text in self.source.new_piece(dice).splitlines():
                if text.strip() and text not in known:
                    known.add(text)
                    found.append(CodeLine.of(text))
        return found[:count]

    def comment_line(self, sentence: str) -> CodeLine:
        return CodeLine.of(f"    {_COMMENT[self.source.language.name]} {sentence}", comment=True)


@dataclass(slots=True, eq=False)
class FileChange:
    """What an edit did to a file: the lines that it wrote, in the place of those that it took."""

    edit_id: str
    file: WorkingFile
    took: list[CodeLine]
    wrote: list[CodeLine]
    #: The line before it.
    anchor: CodeLine | None = None

    def survival(self) -> tuple[float, float] | None:
        """The share of its characters and of its lines that are there now; None where the agent
        itself replaced all of it: what it replaced is left out on both sides, and what somebody
        else had taken before that is not. Of an edit that only took away: of what it took, the
        share that has not come back."""
        there = {id(line) for line in self.file.lines}
        if not self.wrote:
            gone = [line for line in self.took if id(line) not in there]
            return _ink(gone) / _ink(self.took), len(gone) / len(self.took)
        stayed = [line for line in self.wrote if id(line) in there]
        judged = [line for line in self.wrote if id(line) in there or not line.reworked]
        if not judged:
            return None
        left = sum(line.left for line in stayed)
        whole = sum(line.left == line.written for line in stayed)
        others_took = sum(line.written - line.left for line in self.wrote if line not in judged)
        return left / (_ink(judged) + others_took), whole / len(judged)

    def stretch(self) -> list[CodeLine]:
        """Those of its lines that are there, in order."""
        mine = {id(line) for line in self.wrote}
        return [line for line in self.file.lines if id(line) in mine]

    def revert(self) -> None:
        """The file is as before the edit, what others changed beside it aside."""
        self.bring_back(self.took)
        mine = {id(line) for line in self.wrote}
        self.file.lines[:] = [line for line in self.file.lines if id(line) not in mine]

    def bring_back(self, some: list[CodeLine]) -> None:
        """Put what it took to its old place, where it is not there already."""
        lines, there = self.file.lines, {id(line) for line in self.file.lines}
        mine = {id(line) for line in self.wrote}
        places = [at for at, line in enumerate(lines) if id(line) in mine]
        behind = [at + 1 for at, line in enumerate(lines) if line is self.anchor]
        at = (places or behind or [0])[0]
        lines[at:at] = [line for line in some if id(line) not in there]


def ink_of(text: str) -> int:
    """Characters, white space aside."""
    return sum(map(len, text.split()))


def _ink(lines: list[CodeLine]) -> int:
    return sum(line.written for line in lines)


@lru_cache(maxsize=64)
def _sources(repository: int) -> tuple[tuple[SourceFile, tuple[str, ...]], ...]:
    dice = Dice(f"repository:{repository}")
    language = dice.pick(LANGUAGES)
    found: dict[str, tuple[SourceFile, tuple[str, ...]]] = {}
    while len(found) < _FILES:
        source = write_file(dice, language if len(found) < _FILES - 1 else LANGUAGES[0], 4)
        found.setdefault(source.path, (source, tuple(source.text().splitlines())))
    return tuple(found.values())


def check_out(repository: int) -> list[WorkingFile]:
    """The files of a repository, the same for everybody, to be worked on."""
    return [
        WorkingFile(source, list(map(CodeLine.of, texts))) for source, texts in _sources(repository)
    ]
