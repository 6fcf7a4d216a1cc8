"""The files that sessions work on, with the author of each line, and texts about them.

Grammars write source text in four languages and documentation, and what the agent says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from penstock_jobs.simulator.grammar import WORDS, Dice, Grammar, Names

#: Files of code. A repository has one of tests and one of documentation too, in this order.
CODE_FILES = 5


#: Lines alone do not end a block, or what follows them would be dead.
_EXITS = ("return", "raise", "throw", "continue", "break")


class Language(msgspec.Struct, frozen=True):
    name: str
    extension: str
    root: str
    comment: str
    grammar: Grammar
    #: Spells an identifier such as `merge_pending_order`.
    spell: Callable[[str], str]
    exports: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SourceFile:
    path: str
    language: Language
    names: Names
    text: str


def write_file(dice: Dice, language: Language, blocks: int, root: str = "") -> SourceFile:
    names = _names(dice, language)
    stem = dice.pick(names["plain"])
    folder = f"{root or language.root}/{dice.pick(WORDS['module'])}"
    if dice.chance(0.4):
        folder = f"{folder}/{dice.pick(WORDS['noun'])}"
    grammar, text = language.grammar, []
    head = grammar.expand("head", dice, names) + "\n\n"
    for _ in range(blocks):
        pieces = dice.between(2, 6)
        if dice.chance(0.15):
            text.append(grammar.expand("record", dice, names) + "\n")
            continue
        inner = grammar.expand_many("step", dice, names, pieces)
        opening, closing = grammar.expand("open", dice, names), grammar.expand("close", dice, names)
        text.append("\n".join([opening, *inner, closing, ""]))
    path = f"{folder}/{stem}{language.extension}"
    return SourceFile(path, language, names, head + "\n".join(text))


def _names(dice: Dice, language: Language) -> Names:
    plain = [_identifier(dice) for _ in range(18)]
    functions = [_function(dice) for _ in range(11)]
    names: dict[str, list[str] | tuple[str, ...]] = {
        "plain": plain,
        "table": [f"{name}s" for name in plain[:7]],
        "name": list(map(language.spell, plain)),
        "func": list(map(language.spell, functions)),
        "type": [_pascal(_identifier(dice)) + dice.pick(WORDS["type_suffix"]) for _ in range(6)],
        "key": dice.stride(WORDS["noun"], 40),
        "word": dice.stride(WORDS["noun"], 40),
        "qualifier": dice.stride(WORDS["quality"], 24),
        "hash": [dice.hex(6) for _ in range(6)],
        "module": dice.stride(WORDS["module"], 6),
        "num": dice.stride(WORDS["number"], 30),
        "error": dice.stride(WORDS["exception"], 4),
        "base": dice.stride(WORDS["route"], 2),
    }
    if language.exports:
        names["public"] = list(map(_pascal, functions))
        names["field"] = list(map(_pascal, plain[8:]))
    return names


def _identifier(dice: Dice) -> str:
    nouns, qualities = WORDS["noun"], WORDS["quality"]
    draw = dice.random()
    noun = dice.pick(nouns)
    if draw < 0.3:
        return noun
    if draw < 0.55:
        return f"{dice.pick(qualities)}_{noun}"
    if draw < 0.85:
        return f"{noun}_{dice.pick(nouns)}"
    return f"{dice.pick(qualities)}_{noun}_{dice.pick(nouns)}"


def _function(dice: Dice) -> str:
    short = dice.chance(0.3)
    return f"{dice.pick(WORDS['act'])}_{dice.pick(WORDS['noun']) if short else _identifier(dice)}"


def _camel(identifier: str) -> str:
    first, _, rest = identifier.partition("_")
    return first + _pascal(rest)


def _pascal(identifier: str) -> str:
    return identifier.title().replace("_", "")


LANGUAGES = (
    Language("python", ".py", "src", "#", Grammar.load("code", "python"), str),
    Language("typescript", ".ts", "web/src", "//", Grammar.load("code", "typescript"), _camel),
    Language("go", ".go", "internal", "//", Grammar.load("code", "go"), _camel, exports=True),
    Language("sql", ".sql", "db/queries", "--", Grammar.load("code", "sql"), str),
)
_DOCS = Language("markdown", ".md", "docs", "", Grammar.load("code", "markdown"), str)


@dataclass(slots=True, eq=False)
class CodeLine:
    """A line of code. `written` counts its author's characters without white space, `left` the ones
    that were not replaced."""

    text: str
    written: int
    left: int
    comment: bool = False
    reworked: bool = False

    #: Whether it is not as the user wanted.
    wrong: bool = False

    @classmethod
    def of(cls, text: str, *, comment: bool = False) -> "CodeLine":
        size = ink_of(text)
        return cls(text, size, size, comment)

    @property
    def is_right(self) -> bool:
        return not self.wrong and 2 * self.left > self.written


@dataclass(slots=True, eq=False)
class WorkingFile:
    source: SourceFile
    lines: list[CodeLine]

    @property
    def path(self) -> str:
        return self.source.path

    def text(self) -> str:
        return "".join(f"{line.text}\n" for line in self.lines)

    def reformat(self, dice: Dice) -> None:
        """Change nothing but white space."""
        if dice.chance(0.5):
            self.lines.insert(dice.between(0, len(self.lines)), CodeLine.of(""))
            return
        for line in self.lines:
            line.text = f"  {line.text}"

    def new_lines(self, dice: Dice, count: int) -> list[CodeLine]:
        known = {line.text for line in self.lines}
        grammar, names = self.source.language.grammar, self.source.names
        lines: list[CodeLine] = []
        while len(lines) < count:
            for text in grammar.expand("step", dice, names).splitlines():
                if text.strip() and text not in known and not text.lstrip().startswith(_EXITS):
                    known.add(text)
                    lines.append(CodeLine.of(text))
        return lines[:count]


@dataclass(slots=True, eq=False)
class FileChange:
    edit_id: str
    file: WorkingFile
    took: list[CodeLine]
    wrote: list[CodeLine]
    anchor: CodeLine | None = None
    #: Lines that it changed in place, with their old texts.
    texts: Sequence[tuple[CodeLine, str]] = ()

    def survival(self) -> tuple[float, float] | None:
        """The shares of its characters and lines that are in the file now.

        Lines that the agent replaced itself do not count; None if none are left. For a pure
        deletion: the shares that have not come back."""
        if not _ink(self.wrote or self.took):
            return None
        present = set(self.file.lines)
        if not self.wrote:
            gone = [line for line in self.took if line not in present]
            return _ink(gone) / _ink(self.took), len(gone) / len(self.took)
        stayed = [line for line in self.wrote if line in present]
        judged = [line for line in self.wrote if line in present or not line.reworked]
        if not judged:
            return None
        left = sum(line.left for line in stayed)
        whole = sum(line.left == line.written for line in stayed)
        others_took = sum(line.written - line.left for line in self.wrote if line not in judged)
        return left / (_ink(judged) + others_took), whole / len(judged)

    def stretch(self) -> list[CodeLine]:
        written = set(self.wrote)
        return [line for line in self.file.lines if line in written]

    def revert(self) -> None:
        """Undo the edit. Other changes of the file stay."""
        for line, text in self.texts:
            line.text = text
        self.bring_back(self.took)
        written = set(self.wrote)
        self.file.lines[:] = [line for line in self.file.lines if line not in written]

    def comment_out(self, dice: Dice) -> None:
        mark, lines = self.file.source.language.comment, self.stretch()
        if not mark:
            self.revert()
            return
        if mark == "#" and dice.chance(0.3):
            at = self.file.lines.index(lines[0]) if lines else 0
            self.file.lines.insert(at, CodeLine.of("    if False:"))
            mark = "    "
        for line in lines:
            line.text, line.left = f"{mark} {line.text}", 0

    def bring_back(self, taken: list[CodeLine]) -> None:
        lines, present, written = self.file.lines, set(self.file.lines), set(self.wrote)
        places = [at for at, line in enumerate(lines) if line in written]
        behind = [at + 1 for at, line in enumerate(lines) if line is self.anchor]
        at = (places or behind or [0])[0]
        lines[at:at] = [line for line in taken if line not in present]


def replace_lines(file: WorkingFile, old: Sequence[CodeLine], new: Sequence[CodeLine]) -> None:
    lines, gone = file.lines, set(old)
    at = next((at for at, line in enumerate(lines) if line in gone), None)
    if at is not None:
        lines[at:at] = new
        lines[:] = [line for line in lines if line not in gone]


def check_out(repository: int) -> list[WorkingFile]:
    return [
        WorkingFile(source, list(map(CodeLine.of, source.text.splitlines())))
        for source in _sources(repository)
    ]


def ink_of(text: str) -> int:
    return sum(map(len, text.split()))


def _ink(lines: list[CodeLine]) -> int:
    return sum(line.written for line in lines)


@lru_cache(maxsize=64)
def _sources(repository: int) -> tuple[SourceFile, ...]:
    dice = Dice(f"repository:{repository}")
    language = dice.pick(LANGUAGES)
    sources: dict[str, SourceFile] = {}
    while len(sources) < CODE_FILES:
        source = write_file(dice, language if len(sources) < CODE_FILES - 1 else LANGUAGES[0], 4)
        sources.setdefault(source.path, source)
    tests, docs = write_file(dice, language, 4, "tests"), write_file(dice, _DOCS, 4)
    return (*sources.values(), tests, docs)


_conversation = Grammar.load("conversation")


def spoken(rule: str, dice: Dice, names: Names) -> str:
    return _conversation.expand(rule, dice, names)


def thinking(dice: Dice, names: Names, sentences: int) -> str:
    return " ".join(_conversation.expand_many("thought", dice, names, sentences))


def lead_in(dice: Dice, names: Names) -> str:
    return _sentence(spoken("lead", dice, names))


def closing_answer(dice: Dice, names: Names) -> str:
    changes = "\n".join(_conversation.expand_many("change", dice, names, dice.between(1, 5)))
    cause = _sentence(spoken("verdict", dice, names))
    return f"{cause}\n\n{changes}\n\n{spoken('closing', dice, names)}"


def file_listing(dice: Dice, file: SourceFile) -> str:
    rows = file.text.split("\n")
    first = dice.between(0, len(rows) // 2) if dice.chance(0.25) else 0
    shown = rows[first : first + dice.between(30, 120)]
    return "\n".join([f"{number:5}\t{row}" for number, row in enumerate(shown, first + 1)])


def names_of(dice: Dice, file: SourceFile, files: list[SourceFile]) -> Names:
    digits = dice.hex(8 * 120)
    return {
        **file.names,
        "path": [file.path, *(other.path for other in files)],
        "file": [other.path.rpartition("/")[2] for other in files],
        "line": [str(dice.skewed(3, 900)) for _ in range(60)],
        "hex": [digits[at : at + 8] for at in range(0, len(digits), 8)],
    }


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
