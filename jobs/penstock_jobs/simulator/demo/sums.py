"""The work of the demo's users: sums in a file. A quarter of them is never asked in production."""

from collections.abc import Mapping, Sequence

from penstock_jobs.simulator.grammar import Dice

Sum = tuple[int, int]

FILE = "sums.txt"
_ALL = [(left, right) for left in range(10) for right in range(10)]
_HELD_OUT = 25


_dice = Dice("held-out sums")
_SHUFFLED = sorted(_ALL, key=lambda _: _dice.random())

#: Only the suite asks these.
HELD_OUT = tuple(sorted(_SHUFFLED[:_HELD_OUT]))
TRAFFIC = tuple(sorted(_SHUFFLED[_HELD_OUT:]))

#: What phrases of users call things, where the work is sums.
NAMES: Mapping[str, Sequence[str]] = {
    "func": ("add", "total", "sum_up"),
    "plain": ("total", "carry", "result"),
    "key": ("digit", "sum", "carry"),
    "word": ("total", "sum"),
    "type": ("Total", "Sum"),
    "module": ("sums", "totals"),
    "error": ("ValueError",),
    "path": (FILE,),
    "file": (FILE,),
    "line": tuple(map(str, range(1, 9))),
    "num": tuple(map(str, range(2, 30))),
    "hash": ("a1b2c3",),
    "hex": ("a1b2c3d4",),
}


def question(of: Sum) -> str:
    return f"{of[0]} + {of[1]} = ?"


def answered(of: Sum, answer: str) -> str:
    return f"{of[0]} + {of[1]} = {answer}"


def is_right(of: Sum, answer: str) -> bool:
    return answer == str(sum(of))


def is_question(answer: str) -> bool:
    return answer.endswith("?")
