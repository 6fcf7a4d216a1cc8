"""What tools print: searches, test runs, builds, logs, listings and failures."""

from collections.abc import Sequence

from penstock_jobs.simulator.code import SourceFile
from penstock_jobs.simulator.grammar import Dice, Grammar, Names
from penstock_jobs.simulator.shapes.tool_outputs import TOOL_OUTPUTS

ERROR_CLASSES = (
    "invalid_arguments",
    "unexpected_environment",
    "provider_error",
    "user_aborted",
    "timeout",
    "unknown",
)

_grammar = Grammar(TOOL_OUTPUTS)


def failure(dice: Dice, names: Names, error_class: str) -> str:
    return _grammar.expand(error_class, dice, names)


def read(dice: Dice, file: SourceFile) -> str:
    """A file with line numbers, or the part of it that was asked for."""
    rows = file.text().split("\n")
    first = dice.between(0, len(rows) // 2) if dice.chance(0.25) else 0
    shown = rows[first : first + dice.between(30, 120)]
    return "\n".join([f"{number:5}\t{row}" for number, row in enumerate(shown, first + 1)])


def search(dice: Dice, files: Sequence[SourceFile], names: Names) -> str:
    """Lines as a search prints them, from the session's files and more from other ones."""
    hits = []
    for file in dice.some(files, dice.between(0, 2)):
        rows = file.text().split("\n")
        at = dice.between(0, max(0, len(rows) - 9))
        hits += [f"{file.path}:{at + i}:{row}" for i, row in enumerate(rows[at : at + 4]) if row]
    hits += _many("hit", dice, names, dice.between(2, 32))
    return "\n".join(hits)


def test_run(dice: Dice, names: Names, passed: int, failed: int) -> str:
    """A test run with a trace and captured log lines for each failure."""
    module = dice.pick(names["module"])
    out = [f"collected {passed + failed} items", f"tests/{module} {'.' * passed}{'F' * failed}"]
    if dice.chance(0.6):  # verbose
        out = _many("case", dice, names, min(passed, 50))
    for _ in range(failed):
        out.append(f"____ test_{dice.pick(names['plain'])}_{dice.pick(names['word'])} ____")
        out += _many("frame", dice, names, dice.between(1, 7))
        out.append(f"E   {dice.pick(names['error'])}: {_grammar.expand('complaint', dice, names)}")
        out += log_lines(dice, names, dice.between(0, 16))
    summary = f"{failed} failed, {passed} passed" if failed else f"{passed} passed"
    out.append(f"==== {summary} in {dice.skewed(1, 90)}.{dice.between(0, 99):02}s ====")
    return "\n".join(out)


def log_lines(dice: Dice, names: Names, count: int) -> list[str]:
    """Log lines with a running clock."""
    milliseconds = dice.between(0, 86_399_000)
    out = []
    for line in _many("log", dice, names, count):
        milliseconds += dice.skewed(1, 4_000)
        seconds = milliseconds // 1000
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        out.append(f"{clock}.{milliseconds % 1000:03} {line}")
    return out


def paste(dice: Dice, names: Names) -> str:
    """What a user copies from a terminal into a message."""
    kind = dice.pick(("log", "check", "frame", "record"))
    return "\n".join(_many(kind, dice, names, dice.between(1, 6)))


_COMMANDS = ("log", "log", "check", "listing", "record", "row", "row", "history", "locked")


def command(dice: Dice, names: Names) -> str:
    """What a build, a linter, a listing, a service's log or a database prints."""
    kind = dice.pick(_COMMANDS)
    count = dice.between(4, 55)
    return "\n".join(
        log_lines(dice, names, count) if kind == "log" else _many(kind, dice, names, count)
    )


def _many(rule: str, dice: Dice, names: Names, count: int) -> list[str]:
    return [_grammar.expand(rule, dice, names) for _ in range(count)]
