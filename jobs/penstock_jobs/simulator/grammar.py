"""Text from seeded grammars. A rule is a choice of shapes; a shape is text with `<slots>`.

`<name>` and `<name2>` draw twice from `name`; a repeated `<name>` in one shape is one draw.
"""

import random
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from operator import itemgetter
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")

#: Values for slots without a rule.
Names = Mapping[str, Sequence[str]]
Rules = dict[str, tuple[str, ...]]

_SLOT = re.compile(r"<([a-z_]+)([0-9]?)>")
_HERE = files("penstock_jobs.simulator")
_SHAPES = _HERE.joinpath("shapes")
_PHRASES = _HERE.joinpath("phrases")
#: Chosen before any phrase was played, so that nobody chose what is held out.
_SPLIT_SEED = 41


class Dice(random.Random):
    """Draws that depend only on the seed. Unlike `choice` and `shuffle`, `random()` and
    `getrandbits()` are the same in all Python versions."""

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def skewed(self, low: int, high: int) -> int:
        """Draw like `between`, but mostly near `low`: durations and sizes have long tails."""
        draw = self.random()
        return low + int(draw * draw * draw * (high - low + 1))

    def stride(self, options: tuple[T, ...], count: int) -> tuple[T, ...]:
        """Draw `count` different options at even distances, which is cheap."""
        step = self.between(1, max(1, min(7, len(options) // count)))
        return (options * 2)[self.between(0, len(options) - 1) :: step][:count]

    def hex(self, digits: int) -> str:
        return f"{self.getrandbits(4 * digits):0{digits}x}"


class Grammar:
    """Rules of files. `choose` takes a part of the shapes of each rule."""

    def __init__(
        self,
        *files: Traversable,
        choose: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda shapes: shapes,
    ) -> None:
        self._files = files
        self._choose = choose

    @classmethod
    def load(cls, *names: str) -> "Grammar":
        return cls(*(_SHAPES.joinpath(f"{name}.toml") for name in names))

    @cached_property
    def _rules(self) -> dict[str, tuple["_Shape", ...]]:
        rules = {name: WORDS[name] for name in ("noun", "quality", "act", "complaint")}
        for file in self._files:
            rules |= {name: self._choose(shapes) for name, shapes in read_rules(file).items()}
        # Most rules have no slots and need no expansion.
        fixed = {name: rules[name] for name in rules if not any(map(_SLOT.search, rules[name]))}
        return {name: tuple(_compile(shape, fixed) for shape in rules[name]) for name in rules}

    def shapes(self, rule: str) -> list[str]:
        """The templates of a rule."""
        return [template for template, _, _ in self._rules[rule]]

    def expand(self, rule: str, dice: Dice, names: Names) -> str:
        draw, rules = dice.random, self._rules
        shapes = rules[rule]
        template, slots, arrange = shapes[int(draw() * len(shapes))]
        values: list[str] = []
        for name, words in slots:
            if words is not None:
                values.append(words[int(draw() * len(words))])
            elif name in rules:
                values.append(self.expand(name, dice, names))
            else:
                own = names[name]
                values.append(own[int(draw() * len(own))])
        return template % arrange(values)

    def expand_many(self, rule: str, dice: Dice, names: Names, count: int) -> list[str]:
        return [self.expand(rule, dice, names) for _ in range(count)]


def read_rules(file: Traversable) -> Rules:
    """Read the tables `words`, `lines` and `shapes`, split at white space, line ends and `---`."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    split: dict[str, Callable[[str], list[str]]] = {"words": str.split, "lines": str.splitlines}
    split["shapes"] = lambda text: text.strip("\n").split("\n---\n")
    return {
        rule: tuple(split[kind](text))
        for kind, rules in tables.items()
        for rule, text in rules.items()
    }


WORDS = read_rules(_SHAPES.joinpath("words.toml"))
#: The languages of users, English first.
TONGUES = tuple(sorted((file.name[:2] for file in _PHRASES.iterdir()), key=lambda one: one != "en"))


@cache
def phrases(tongue: str, *, held_out: bool = False) -> Grammar:
    """Phrases of users in a language, by act. A third of it is `held_out` from all but studies."""

    def choose(shapes: tuple[str, ...]) -> tuple[str, ...]:
        ranked = sorted(shapes, key=lambda shape: crc32(f"{_SPLIT_SEED}:{shape}".encode()))
        third = len(ranked) // 3
        return tuple(ranked[:third] if held_out else ranked[third:])

    return Grammar(_PHRASES.joinpath(f"{tongue}.toml"), choose=choose)


# A %-template; the name of each different slot, with its words if they are fixed; and a function
# that arranges the slots' values for the template.
_Arrange = Callable[[list[str]], tuple[str, ...]]
_Shape = tuple[str, tuple[tuple[str, Sequence[str] | None], ...], _Arrange]


def _compile(shape: str, fixed: Names) -> _Shape:
    used = _SLOT.findall(shape)
    slots = list(dict.fromkeys(used))
    repeated = len(slots) < len(used)
    arrange: _Arrange = itemgetter(*map(slots.index, used)) if repeated else tuple
    template = _SLOT.sub("%s", shape.replace("%", "%%"))
    return template, tuple((name, fixed.get(name)) for name, _ in slots), arrange
