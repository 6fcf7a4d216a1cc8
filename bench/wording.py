"""Checks the English of docstrings, as `make lint` does: how they begin, and words of this house.

python -m bench.wording [PATH …]
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOTS = ("platform", "jobs")
#: A docstring begins with a verb or with the noun that the thing is.
_FIRST_WORDS = re.compile(
    r"(As|By|For|From|How|In|Its|None|Nothing|Of|Than|That|There|These|They|Those|What|When|Where"
    r"|Which|Who|Whose|Why|With|Within|Without)\b"
)
_RIDDLES = re.compile(r"\b(of which|that of|those of|of before|(is|are) told of)\b", re.IGNORECASE)
_SENTENCE_WORDS_MAX = 30
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def main() -> None:
    places = [Path(each) for each in sys.argv[1:] or _ROOTS]
    files = [file for place in places for file in ([place] if place.is_file() else _below(place))]
    found = [line for file in files for line in _problems(file)]
    print(*found, sep="\n")
    if found:
        sys.exit(f"{len(found)} docstrings are not plain English")


def _below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _problems(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            where = f"{file}:{getattr(node, 'lineno', 1)}"
            if first := _FIRST_WORDS.match(text):
                yield f"{where}: begins with {first[0]!r}: {text.splitlines()[0]}"
            if riddle := _RIDDLES.search(text):
                yield f"{where}: says {riddle[0]!r}"
            for sentence in re.split(r"(?<=[.:;?!])\s+|\n\n", text):
                if (words := len(sentence.split())) > _SENTENCE_WORDS_MAX:
                    yield f"{where}: a sentence of {words} words: {sentence.split(chr(10))[0]} …"


if __name__ == "__main__":
    main()
