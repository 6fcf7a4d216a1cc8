"""Source files in four languages: written by grammars, read, edited and changed block by block."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock_jobs.simulator.grammar import Dice, Grammar, Names
from penstock_jobs.simulator.shapes.go import GO
from penstock_jobs.simulator.shapes.python import PYTHON
from penstock_jobs.simulator.shapes.sql import SQL
from penstock_jobs.simulator.shapes.typescript import TYPESCRIPT
from penstock_jobs.simulator.vocabulary import (
    EXCEPTIONS,
    MODULES,
    NOUNS,
    NUMBERS,
    QUALIFIERS,
    ROUTES,
    TYPES,
    camel,
    pascal,
    snake,
    snake_function,
)

# A block is a list of pieces: the first opens a function or a type, the last closes it.
Block = list[str]


@dataclass(frozen=True, slots=True)
class Language:
    name: str
    extension: str
    root: str
    grammar: Grammar
    spell: Callable[[str], str]
    #: A capital letter makes a name public.
    exports: bool = False


@dataclass(slots=True, eq=False)
class SourceFile:
    """A file of the simulated workspace, as it is now."""

    path: str
    language: Language
    names: Names
    head: str
    blocks: list[Block]

    def text(self) -> str:
        return self.head + "\n".join(map("".join, self.blocks))

    def region(self, block: int) -> str:
        """The text of one block; it occurs in `text()` as it stands here."""
        return "".join(self.blocks[block])

    def new_piece(self, dice: Dice) -> str:
        return self.language.grammar.expand("step", dice, self.names) + "\n"

    def new_block(self, dice: Dice, pieces: int) -> Block:
        expand, names = self.language.grammar.expand, self.names
        if dice.chance(0.15):
            return [expand("record", dice, names) + "\n"]
        inner = [self.new_piece(dice) for _ in range(pieces)]
        opening, closing = expand("open", dice, names), expand("close", dice, names)
        return [opening + "\n", *inner, closing + "\n"]

    def rework(self, dice: Dice, block: int, pieces: int) -> tuple[str, str]:
        """Replace, add or drop some pieces of a block; return what went and what came."""
        body = self.blocks[block]
        if len(body) == 1:
            self.blocks[block] = [self.language.grammar.expand("record", dice, self.names) + "\n"]
            return body[0], self.blocks[block][0]
        at = dice.between(1, max(1, len(body) - 2))
        end = at + dice.between(0, min(pieces, len(body) - 1 - at))
        dropped = end > at and dice.chance(0.1)
        came = [] if dropped else [self.new_piece(dice) for _ in range(pieces)]
        self.blocks[block] = [*body[:at], *came, *body[end:]]
        return "".join(body[at:end]), "".join(came)


def write_file(dice: Dice, language: Language, blocks: int) -> SourceFile:
    names = _names(dice, language)
    stem = dice.pick(names["plain"])
    folder = f"{language.root}/{dice.pick(MODULES)}"
    if dice.chance(0.4):
        folder = f"{folder}/{dice.pick(NOUNS)}"
    head = language.grammar.expand("head", dice, names) + "\n\n"
    file = SourceFile(f"{folder}/{stem}{language.extension}", language, names, head, [])
    file.blocks = [file.new_block(dice, dice.between(2, 6)) for _ in range(blocks)]
    return file


def _names(dice: Dice, language: Language) -> dict[str, Sequence[str]]:
    """The few identifiers that one file uses again and again, in its language's spelling."""
    plain = [snake(dice) for _ in range(18)]
    functions = [snake_function(dice) for _ in range(11)]
    names: dict[str, Sequence[str]] = {
        "plain": plain,
        "table": [f"{name}s" for name in plain[:7]],
        "name": list(map(language.spell, plain)),
        "func": list(map(language.spell, functions)),
        "type": [pascal(snake(dice)) + dice.pick(TYPES) for _ in range(6)],
        "key": dice.stride(NOUNS, 40),
        "word": dice.stride(NOUNS, 40),
        "qualifier": dice.stride(QUALIFIERS, 24),
        "hash": [dice.hex(6) for _ in range(6)],
        "module": dice.stride(MODULES, 6),
        "num": dice.stride(NUMBERS, 30),
        "error": dice.stride(EXCEPTIONS, 4),
        "base": dice.stride(ROUTES, 2),
    }
    if language.exports:
        names["public"] = list(map(pascal, functions))
        names["field"] = list(map(pascal, plain[8:]))
    return names


def _as_is(identifier: str) -> str:
    return identifier


LANGUAGES = (
    Language("python", ".py", "src", Grammar(PYTHON), _as_is),
    Language("typescript", ".ts", "web/src", Grammar(TYPESCRIPT), camel),
    Language("go", ".go", "internal", Grammar(GO), camel, exports=True),
    Language("sql", ".sql", "db/queries", Grammar(SQL), _as_is),
)
