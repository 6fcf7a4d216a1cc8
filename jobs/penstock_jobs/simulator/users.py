"""Users: their habits, what they say, and how they react to the agent's work."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from penstock_jobs.rewards.followups.judge import Label
from penstock_jobs.simulator.grammar import TONGUES, Dice, Names, phrases

Kind = Literal["code", "tests", "docs", "deletion", "question", "terminal"]
Deed = Literal["kept", "fixed", "partly_reverted", "reverted", "commented_out"]

USERS = 150
_KINDS: dict[Kind, float] = {
    "code": 0.6, "tests": 0.1, "docs": 0.1, "deletion": 0.06, "question": 0.08, "terminal": 0.06,
}  # fmt: skip
#: Cumulative shares of users who act within ten minutes, an hour, a day, with the times.
_WHEN_S = ((0.6, (20, 480)), (0.85, (660, 3_000)), (1.0, (3_900, 70_000)))
#: What an act of speech is by the labels of judges; all others want something new.
_LABELS: Mapping[str, Label] = {
    "accept": "accepts", "refine": "refines", "incomplete": "incomplete", "correct": "corrects",
    "failure": "reports_failure", "revert": "reverts", "complain": "complains", "ask": "asks",
    "small_talk": "accepts", "answer": "accepts", "give_up": "abandons", "detail": "refines",
}  # fmt: skip
#: The habits of bent worlds lie between these, at the least and at the most.
_BENT: Mapping[str, tuple[float, float]] = {
    "foreign": (0.0, 0.9), "silent": (0.0, 0.6), "small_talk": (0.0, 0.5), "by_hand": (0.1, 0.9),
    "next_by_hand": (0.0, 0.5), "formatted": (0.0, 0.7), "observed": (0.3, 1.0),
    "unseen": (0.0, 0.4), "before": (0.0, 1.0), "glances": (0.0, 1.0), "walks_away": (0.0, 0.25),
    "comments_out": (0.0, 0.8), "in_pieces": (0.0, 0.6), "strictness": (0.7, 1.3),
    "patience": (0.2, 0.7), "annoyed": (0.0, 0.4),
}  # fmt: skip


@dataclass(frozen=True)
class World:
    """The habits of users, as shares of users and as chances. The first world is the plain one."""

    name: str = "plain"
    #: Users who write no English, say nothing of the work, and whose files nobody looks at.
    foreign: float = 0.0
    silent: float = 0.1
    unseen: float = 0.0
    small_talk: float = 0.05
    #: They do what is missing, and their next task, by hand.
    by_hand: float = 0.6
    next_by_hand: float = 0.05
    #: A formatter runs after an edit.
    formatted: float = 0.15
    #: Somebody looks at the horizons, before an edit, and at any other time.
    observed: float = 1.0
    before: float = 0.3
    glances: float = 0.2
    walks_away: float = 0.03
    comments_out: float = 0.1
    in_pieces: float = 0.1
    strictness: float = 1.0
    #: They let the agent try again, and dislike questions about a task that is clear.
    patience: float = 0.5
    annoyed: float = 0.25
    kinds: Mapping[Kind, float] = field(default_factory=_KINDS.copy)
    #: They speak with the third of the phrases that nobody saw.
    held_out: bool = False

    def kind(self, dice: Dice) -> Kind:
        draw = dice.random() * sum(self.kinds.values())
        for kind, share in self.kinds.items():
            draw -= share
            if draw < 0:
                return kind
        return "code"


#: Nobody in it speaks another language or has unseen files.
PLAIN = World()


def bent(seed: int, *, held_out: bool = False) -> World:
    """A world whose every habit is bent, by a seed."""
    dice = Dice(f"world:{seed}")
    habits = {name: low + dice.random() * (high - low) for name, (low, high) in _BENT.items()}
    kinds = {kind: share * (0.3 + 2 * dice.random()) for kind, share in _KINDS.items()}
    return World(f"bent {seed}", kinds=kinds, held_out=held_out, **habits)


class Words(NamedTuple):
    """A message of a user, and the label that a judge should give it."""

    text: str
    label: Label
    #: The model calls whose work it is about.
    about: tuple[str, ...] = ()

    def before(self, text: str) -> "Words":
        """Say them in one message with what is wanted next."""
        is_bad = self.label not in ("accepts", "abandons", "asks")
        label = self.label if is_bad else "moves_on"
        return self._replace(text=f"{self.text} {text}", label=label)


class Reaction(NamedTuple):
    """A user's reaction to work on a request. `says` is an act of speech; None for nothing."""

    dissatisfied: bool
    deed: Deed
    #: Does what is missing by hand.
    finishes: bool
    says: str | None
    #: Wants the agent to try again, or to do more.
    again: bool
    stops: bool


@dataclass(frozen=True)
class User:
    name: str
    world: World
    strictness: float
    tongue: str
    silent: bool
    unseen: bool

    @classmethod
    def pick(cls, dice: Dice, world: World) -> "User":
        number = dice.skewed(1, USERS)
        own = Dice(f"user:{number}")
        strictness = world.strictness * (0.8 + 0.4 * own.random())
        tongue = own.pick(TONGUES[1:])
        if not own.chance(world.foreign):
            tongue = "en"
        habits = own.chance(world.silent), own.chance(world.unseen)
        return cls(f"u-{number:04}", world, strictness, tongue, *habits)

    def say(self, act: str, dice: Dice, names: Names) -> Words:
        text = phrases(self.tongue, held_out=self.world.held_out).expand(act, dice, names)
        return Words(text, _LABELS.get(act, "moves_on"))

    def react(
        self, dice: Dice, right: float, tried: float, wrong: float, *, unread: float, tries: int
    ) -> Reaction:
        """React to work: `right` of what is wanted is right, `tried` of it was tried, and `wrong`
        of what stands is wrong.

        Nobody reads comments: `unread` is their share. All draws are made each time, so that users
        are in the same mood whatever the agent does."""
        mood, deed, how, hand, talk, tone, more, stop = (dice.random() for _ in range(8))
        bad = min(wrong * self.strictness, 1.0) * (1 - unread)
        missing = max(1.0 - tried, 0.0)
        chance = min(0.85 * self.strictness * max(1 - right, 0.0) ** 1.5, 0.95)
        dissatisfied = mood < chance
        rejects = deed < (0.7 * bad if dissatisfied else 0.1 * bad * bad)
        done: Deed = "kept"
        if rejects:
            done = "commented_out" if how < self.world.comments_out else "reverted"
        elif deed < bad:
            done = "partly_reverted" if how < 0.3 else "fixed"
        speaks = not self.silent and talk < (0.85 if dissatisfied else 0.6)
        again = dissatisfied and tries < 4 and more < self.world.patience * (1 - 0.7 * self.silent)
        # Who says nothing about what is missing seldom does without it.
        finishes = not again and hand < max(self.world.by_hand, 0.0 if speaks else 0.8)
        says: str | None = None
        if again or (dissatisfied and speaks):
            says = self._complaint(tone, done, missing >= bad, finishes=finishes)
        elif speaks and not dissatisfied:
            again = tone < 0.15 and tries < 4 and done == "kept"
            says = "refine" if again else "accept"
        return Reaction(dissatisfied, done, finishes, says, again, dissatisfied and stop < 0.08)

    def _complaint(self, tone: float, deed: Deed, is_missing: bool, *, finishes: bool) -> str:
        if is_missing and tone < 0.75:
            return "incomplete"
        if deed in ("reverted", "commented_out"):
            return "revert" if tone < 0.5 else "correct" if tone < 0.8 else "complain"
        if deed == "fixed" or finishes:
            return "correct" if tone < 0.6 else "complain"
        return "failure" if tone < 0.5 else "correct" if tone < 0.8 else "complain"


def seconds_until_acting(dice: Dice) -> int:
    draw = dice.random()
    low, high = next(span for reach, span in _WHEN_S if draw < reach)
    return dice.skewed(low, high)
