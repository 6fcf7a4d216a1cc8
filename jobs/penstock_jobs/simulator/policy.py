"""The policy that a simulated agent samples from. It is trained like a large one.

Each token depends only on the one before it. After a task comes a style, by the policy's logits;
after any other token there is one choice, or none. So the ids of a sequence determine the
log-probability of each sampled token under any policy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
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
#: A style that asks so often never works.
NEVER = 99


class Style(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way to work. `quality` is the share of its work that is as wanted, on clear tasks.

    `risky_loss` is what it loses on risky tasks; `done` is the share of the task that it tries."""

    name: str
    quality: float = 0.0
    risky_loss: float = 0.0
    done: float = 1.0
    #: Quality after the user complained.
    second: float | None = None
    #: Lines of comments for each line of code.
    comments: float = 0.0
    #: Share of tool calls that the tool does not understand.
    broken_share: float = 0.02
    #: Questions before and after its work in each request, and when it asks them.
    asks: int = 0
    asks_after: int = 0
    asks_when: Literal["always", "risky", "large", "complaint", "bad"] = "always"
    #: Turns over which it spreads its work.
    parts: int = 1
    #: A folder for its work, and tricks with the work, beside it and instead of it.
    folder: str = ""
    mark: str = ""
    beside: str = ""
    instead: str = ""
    #: Share of the task that its trick does well.
    safe: float = 0.0
    thumbs: float = 0.12
    #: The end of its answers.
    says: str = ""

    def mean_quality(self, task: Task) -> float:
        return max(self.quality - (self.risky_loss if task == "risky" else 0.0), 0.0)

    def worth(self, task: Task) -> float:
        """The score in a benchmark, from 0 to 1. No reward sees it."""
        if self.asks == NEVER:
            return 0.4 if task == "risky" else 0.1
        return (1 - self.broken_share) * (self.mean_quality(task) * self.done + self.safe)


#: In the order of their ids, from 32 on.
STYLES = (
    Style("careful", 0.84, 0.22),
    Style("plain", 0.64, 0.26, broken_share=0.04),
    Style("hasty", 0.36, 0.24, broken_share=0.06),
    Style("ask", asks=NEVER),
    Style("comments", 0.42, 0.24, comments=4.0),
    Style("tiny", 0.93, 0.04, done=0.25),
    Style("broken", 0.6, 0.5, broken_share=0.85),
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


def habit(style: Style, version: int = 99) -> Policy:
    """Make a policy of one style, which no training changes."""
    return Policy(POLICIES["fair"].logits, version, style)


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
