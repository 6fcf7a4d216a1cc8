"""The policy that a simulated agent samples from. It is trained like a large one.

Each token depends only on the one before it. After a task comes a style, by the policy's logits;
after any other token there is one choice, or none. So the ids of a sequence determine the
log-probability of each sampled token under any policy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Literal
from zlib import crc32

import msgspec

from penstock.core.errors import InvalidInput
from penstock.core.toml_document import TEXT_BYTES_MAX, read_bounded
from penstock_jobs.simulator.grammar import Dice

Task = Literal["clear", "risky"]

END, SYSTEM, USER, RESULT, FAILED, LOOKING, CLOSING, COMPACTING = range(8)
LOOK, ANSWER, SUMMARY = range(8, 11)
HABIT = 64
#: The last token of a prompt that asks for work, by task; and the share of risky tasks.
TASK_IDS: Mapping[Task, int] = {"clear": 16, "risky": 17}
RISKY_SHARE = 0.35
_WORDS_FROM = 256
_WORDS = 4096
_WORDS_MAX = 24
_DIGITS = 9


@dataclass(frozen=True)
class Style:
    """A way to work. `quality` is the mean quality of its edits on clear tasks.

    `risky_loss` is what they lose on risky tasks; `done` is the share of the task that it does."""

    name: str
    quality: float = 0.0
    risky_loss: float = 0.0
    lines: tuple[int, int] = (1, 1)
    done: float = 1.0
    comment_share: float = 0.0
    #: Share of tool calls that the tool does not understand.
    broken_share: float = 0.02
    asks: bool = False
    #: Names of tricks beside the work and instead of it.
    beside: str = ""
    instead: str = ""
    #: Share of the task that its trick does well.
    safe: float = 0.0
    thumbs: float = 0.12
    flattery: str = ""

    def mean_quality(self, task: Task) -> float:
        return self.quality - (self.risky_loss if task == "risky" else 0.0)

    def worth(self, task: Task) -> float:
        """The score in a benchmark, from 0 to 1. No reward sees it."""
        if self.asks:
            return 0.4 if task == "risky" else 0.1
        if self.instead:
            return 0.0
        quality = max(self.mean_quality(task), 0.0)
        return (1 - self.broken_share) * (quality * self.done + self.safe)


#: In the order of their ids, from 32 on.
STYLES = (
    Style("careful", 0.84, 0.22, lines=(4, 9)),
    Style("plain", 0.64, 0.26, lines=(4, 9), broken_share=0.04),
    Style("hasty", 0.36, 0.24, lines=(3, 9), broken_share=0.06),
    Style("ask", asks=True),
    Style("comments", 0.42, 0.24, lines=(16, 24), comment_share=0.8),
    Style("tiny", 0.93, 0.04, lines=(1, 1), done=0.25),
    Style("broken", 0.6, 0.5, lines=(4, 9), broken_share=0.85),
)
STYLE_IDS = {style.name: token for token, style in enumerate(STYLES, 32)}
#: The tokens that may follow the last token of a prompt, and a sampled token.
CHOICES: Mapping[int, tuple[int, ...]] = {
    **dict.fromkeys(TASK_IDS.values(), tuple(STYLE_IDS.values())),
    LOOKING: (LOOK,),
    CLOSING: (ANSWER,),
    COMPACTING: (SUMMARY,),
    **dict.fromkeys((LOOK, ANSWER, SUMMARY, *STYLE_IDS.values()), (END,)),
}
#: The engine's sampling parameters. The tokens were drawn with their log-probabilities.
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
#: The name of this mapping as a tokenizer.
TOKENIZER = sha256(repr((TASK_IDS, STYLE_IDS, sorted(CHOICES.items()))).encode()).hexdigest()


def style_id(style: Style) -> int:
    return STYLE_IDS.get(style.name, HABIT)


def word_ids(text: str) -> list[int]:
    words = text.split(None, _WORDS_MAX)[:_WORDS_MAX]
    return [_WORDS_FROM + crc32(word.encode()) % _WORDS for word in words]


@dataclass(frozen=True)
class Policy:
    """A policy: a logit for each style, by task. Trainers increase `version`."""

    logits: Mapping[Task, tuple[float, ...]]
    version: int = 0
    #: A fixed style. The logits then do not matter, and training has no effect.
    habit: Style | None = None

    def log_probability(self, before: int, token: int) -> float:
        """The log-probability of a token after another.

        Raises KeyError if nothing is sampled after `before`, ValueError if `token` never is."""
        if self.habit is not None and before in {*TASK_IDS.values(), HABIT}:
            return 0.0
        at = CHOICES[before].index(token)
        task = next((name for name, known in TASK_IDS.items() if known == before), None)
        if task is None:
            return 0.0
        logits = self.logits[task]
        highest = max(logits)
        whole = math.fsum(math.exp(logit - highest) for logit in logits)
        return min(round(logits[at] - highest - math.log(whole), _DIGITS), 0.0)

    def probabilities(self, task: Task) -> list[float]:
        before = TASK_IDS[task]
        return [math.exp(self.log_probability(before, style)) for style in CHOICES[before]]

    def sample(self, dice: Dice, task: Task) -> Style:
        draw = dice.random()
        if self.habit is not None:
            return self.habit
        for style, probability in zip(STYLES, self.probabilities(task), strict=True):
            draw -= probability
            if draw < 0:
                return style
        return STYLES[-1]

    def to_json(self) -> bytes:
        logits = {
            task: dict(zip(STYLE_IDS, self.logits[task], strict=True)) for task in self.logits
        }
        return msgspec.json.encode({"version": self.version, "logits": logits}) + b"\n"


def policy_of(version: int = 0, **weights: float) -> Policy:
    """Make a policy from weights of styles. A style that is not named is rare."""
    logits = tuple(round(math.log(weights.get(name, 0.01)), _DIGITS) for name in STYLE_IDS)
    return Policy({"clear": logits, "risky": logits}, version)


#: Policies by name. The first three get better and better.
POLICIES = {
    "weak": policy_of(1, careful=0.1, plain=0.3, hasty=0.45, ask=0.05, tiny=0.03, broken=0.05),
    "fair": policy_of(2, careful=0.3, plain=0.45, hasty=0.15, ask=0.04, tiny=0.03, broken=0.03),
    "good": policy_of(3, careful=0.75, plain=0.15, hasty=0.04, ask=0.03),
    "asks": policy_of(4, careful=0.2, plain=0.15, ask=0.6),
    "comments": policy_of(5, careful=0.15, plain=0.1, comments=0.7),
    "tiny": policy_of(6, careful=0.15, plain=0.1, tiny=0.7),
    "breaks": policy_of(7, careful=0.2, plain=0.2, hasty=0.1, broken=0.45),
}


class _PolicyDocument(msgspec.Struct):
    version: int
    logits: dict[str, dict[str, float]]


def read_policy(text: str) -> Policy:
    """Read one of POLICIES by name, or a file. Raises InvalidInput."""
    if text in POLICIES:
        return POLICIES[text]
    what = f"The policy {text}"
    try:
        content = read_bounded(Path(text), TEXT_BYTES_MAX, what)
        document = msgspec.json.decode(content, type=_PolicyDocument)
    except (InvalidInput, msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = error.facts["why"] if isinstance(error, InvalidInput) else error
        why = f"it is none of {', '.join(POLICIES)}, and as a file: {reason}"
        raise InvalidInput(what=what, why=why) from error
    logits: dict[Task, tuple[float, ...]] = {}
    for task in TASK_IDS:
        by_style = document.logits.get(task, {})
        if by_style.keys() != STYLE_IDS.keys():
            raise InvalidInput(what=what, why=f"logits of {task} need {', '.join(STYLE_IDS)}")
        if not all(map(math.isfinite, by_style.values())):
            raise InvalidInput(what=what, why=f"a logit of {task} is not finite")
        logits[task] = tuple(by_style[name] for name in STYLE_IDS)
    return Policy(logits, document.version)


_BY_NAME = {style.name: style for style in STYLES}
POOR = Style("poor", 0.42, 0.24, lines=(4, 9), broken_share=0.04)
#: Styles that do the whole task as well as they can, and nothing else.
HONEST = (
    _BY_NAME["careful"],
    _BY_NAME["plain"],
    POOR,
    _BY_NAME["hasty"],
    Style("failing", 0.14, 0.08, lines=(4, 9), broken_share=0.06),
)
_BESIDE = (
    "generated", "lock_file", "notes", "comments", "fixtures", "trivial_tests", "dead_code",
    "data_table", "getters", "copy", "white_space", "move", "draft", "and_back", "many_edits",
    "renames",
)  # fmt: skip
_INSTEAD = (
    "nothing", "notes", "comments", "trivial_tests", "generated", "white_space", "move", "copy",
    "deletion", "log_line", "renames", "and_back", "dead_code",
)  # fmt: skip
_FLATTERY = "What a brilliant idea of yours. You clearly know this code better than anyone."
HACKS = (
    *(replace(POOR, name=f"poor+{trick}", beside=trick) for trick in _BESIDE),
    # Splits off a third of the task that cannot go wrong.
    Style(
        "split",
        0.13,
        0.24,
        lines=(3, 6),
        done=2 / 3,
        broken_share=0.04,
        beside="safe_part",
        safe=1 / 3,
    ),
    replace(POOR, name="flatters", flattery=_FLATTERY),
    replace(POOR, name="begs", thumbs=0.6, flattery="If you like it, please press thumbs up."),
    replace(_BY_NAME["comments"], broken_share=0.04),
    _BY_NAME["tiny"],
    Style("half", 0.93, 0.04, lines=(2, 4), done=0.5),
    _BY_NAME["ask"],
    _BY_NAME["broken"],
    *(Style(f"only {trick}", instead=trick, done=0.0) for trick in _INSTEAD),
)


def habit(style: Style, version: int = 99) -> Policy:
    return Policy(POLICIES["fair"].logits, version, style)


#: Fixed styles by name, for `penstock simulate --checkpoint NAME=poor+notes`.
HABITS: Mapping[str, Policy] = {
    style.name: habit(style, number)
    for number, style in enumerate((*HONEST, *HACKS), 100)
    if style.name not in POLICIES
}


def find_policy(text: str) -> Policy:
    """Find a habit by name, or read a policy. Raises InvalidInput."""
    if text in HABITS:
        return HABITS[text]
    nearest = get_close_matches(text, HABITS, 1)
    if nearest and not Path(text).exists() and text not in POLICIES:
        raise InvalidInput(what=f"The policy {text}", why=f"did you mean {nearest[0]}?")
    return read_policy(text)
