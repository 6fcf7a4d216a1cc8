"""What users and the agent say, and what tools print."""

from penstock_jobs.simulator.files import SourceFile
from penstock_jobs.simulator.grammar import Dice, Grammar, Names

_grammar = Grammar.load("conversation")


def line(rule: str, dice: Dice, names: Names) -> str:
    return _grammar.expand(rule, dice, names)


def thinking(dice: Dice, names: Names, sentences: int) -> str:
    return " ".join(_grammar.expand_many("thought", dice, names, sentences))


def lead(dice: Dice, names: Names) -> str:
    return _sentence(line("lead", dice, names))


def answer(dice: Dice, names: Names) -> str:
    """The last message of a turn: what was wrong, what changed, what is left."""
    changes = "\n".join(_grammar.expand_many("change", dice, names, dice.between(1, 5)))
    cause = _sentence(line("verdict", dice, names))
    return f"{cause}\n\n{changes}\n\n{line('closing', dice, names)}"


def file_listing(dice: Dice, file: SourceFile) -> str:
    """A file with line numbers, or a part of it."""
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
