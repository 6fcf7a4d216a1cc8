"""Messages of users and of the agent."""

from collections.abc import Sequence

from penstock_jobs.simulator.grammar import Dice, Grammar, Names, words
from penstock_jobs.simulator.shapes.follow_ups import DISSATISFIED, SATISFIED
from penstock_jobs.simulator.shapes.reasoning import REASONING
from penstock_jobs.simulator.shapes.requests import REQUEST
from penstock_jobs.simulator.vocabulary import COMPLAINTS, NOUNS, QUALIFIERS, VERBS

LANGUAGES = ("en",) * 16 + ("de", "es", "fr", "pt", "zh", "ja")

_PEOPLE = words("Ana Bilal Chloe Dmitri Esi Farah Goran Hana Ines Jonas Kofi Lena Mateo Noor Olga")
_DAYS = words("Monday Tuesday Wednesday Thursday Friday")

_grammar = Grammar(
    {
        **REQUEST,
        **REASONING,
        "person": _PEOPLE,
        "day": _DAYS,
        "complaint": COMPLAINTS,
        "noun": NOUNS,
        "quality": QUALIFIERS,
        "act": VERBS,
        **{f"good_{language}": shapes for language, shapes in SATISFIED.items()},
        **{
            f"{way}_{language}": shapes
            for way, languages in DISSATISFIED.items()
            for language, shapes in languages.items()
        },
    }
)
_WAYS = tuple(DISSATISFIED)


def request(dice: Dice, names: Names) -> str:
    return _grammar.expand("request", dice, names)


def satisfied(dice: Dice, names: Names, language: str) -> str:
    return _grammar.expand(f"good_{language}", dice, names)


def dissatisfied(dice: Dice, names: Names, language: str) -> str:
    return _grammar.expand(f"{dice.pick(_WAYS)}_{language}", dice, names)


def thinking(dice: Dice, names: Names, sentences: int) -> str:
    return " ".join(_many("thought", dice, names, sentences))


def lead(dice: Dice, names: Names) -> str:
    return _sentence(_grammar.expand("lead", dice, names))


def answer(dice: Dice, names: Names) -> str:
    """The last message of a turn: what was wrong, what changed, what is left."""
    changes = "\n".join(_many("change", dice, names, dice.between(1, 5)))
    verdict = _sentence(_grammar.expand("verdict", dice, names))
    return f"{verdict}\n\n{changes}\n\n{_grammar.expand('closing', dice, names)}"


def recap(dice: Dice, names: Names) -> str:
    """What the agent keeps of a conversation that was compacted."""
    return " ".join([*_many("recap", dice, names, 1), *_many("thought", dice, names, 4)])


def title(dice: Dice, names: Names) -> str:
    """A commit's subject."""
    return _sentence(_grammar.expand("step", dice, names))


def _many(rule: str, dice: Dice, names: Names, count: int) -> Sequence[str]:
    return [_grammar.expand(rule, dice, names) for _ in range(count)]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
