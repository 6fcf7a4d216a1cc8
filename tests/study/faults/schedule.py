"""Which fault comes when: a pure function of the seed and the time, so that a run can be had again.

Faults are dealt from a deck that is shuffled each time it is empty: a short run sees many kinds,
and a long one all of them equally often. When a deck is empty everything is left in peace for a
moment.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

#: Faults that go on at the same time. What a fault leaves behind, such as a broker that starts,
#: goes on for longer.
_AT_ONCE_MAX = 3
_GAP_SECONDS = (0.2, 2.0)
_PEACE_SECONDS = 3.0
_REST_SECONDS = 0.5
#: When partitions are added, as parts of the time; the second only in a run of some length.
_GROWTH = ((0.25, 0.45), (0.55, 0.75))
_SECOND_GROWTH_SECONDS = 60

BROKER, DATABASE, TOPIC = "broker", "database", "topic"
BROKER_NETWORK, DATABASE_NETWORK = "broker's network", "database's network"


@dataclass(frozen=True)
class Card:
    """A fault that may happen to any of these, for so many seconds, so often in a deck."""

    kind: str
    targets: Sequence[str]
    seconds: tuple[float, float]
    times: int = 1


@dataclass(frozen=True, order=True)
class Fault:
    at_s: float
    target: str
    kind: str
    for_s: float

    def __str__(self) -> str:
        return f"{self.at_s:7.2f} s  {self.target}: {self.kind} for {self.for_s:.2f} s"


def cards(gateways: Sequence[str], writers: Sequence[str], lease_s: float) -> list[Card]:
    """`pause` is SIGSTOP and SIGCONT, `stop` is SIGTERM, `kill` is SIGKILL; all start again."""
    networks = [BROKER_NETWORK, DATABASE_NETWORK]
    return [
        Card("kill", gateways, (0.0, 1.0), 2),
        Card("stop", gateways, (0.0, 1.0)),
        Card("pause", gateways, (0.2, 2.0)),
        Card("kill", writers, (0.0, 1.0), 3),
        Card("stop", writers, (0.0, 1.0), 2),
        Card("pause", writers, (1.2 * lease_s, 2.5 * lease_s), 3),  # the zombie
        *(
            card
            for server in (BROKER, DATABASE)
            for card in (
                Card("kill", [server], (0.0, 1.0)),
                Card("stop", [server], (0.0, 1.0)),
                Card("pause", [server], (0.5, 3.0)),
            )
        ),
        Card("cut", networks, (0.0, 0.0), 3),
        Card("stall", networks, (0.3, 2.0), 2),
        Card("lose replies", networks, (0.1, 1.0), 4),  # a commit may or may not have happened
    ]


def schedule(seed: int, seconds: float, deck: Sequence[Card]) -> list[Fault]:
    """Faults by their time. They all end before the time is over."""
    dice = random.Random(seed)
    faults = _growth(dice, seconds)
    now_s = dice.uniform(*_GAP_SECONDS)
    while now_s < seconds:
        hand = [card for card in deck for _ in range(card.times)]
        dice.shuffle(hand)
        for card in hand:
            target, for_s = dice.choice(card.targets), round(dice.uniform(*card.seconds), 2)
            now_s = _next_moment(faults, target, now_s)
            if now_s + for_s < seconds:
                faults.append(Fault(round(now_s, 2), target, card.kind, for_s))
            now_s += dice.uniform(*_GAP_SECONDS)
        now_s += _PEACE_SECONDS
    return sorted(faults)


def _growth(dice: random.Random, seconds: float) -> list[Fault]:
    parts = _GROWTH[: 2 if seconds >= _SECOND_GROWTH_SECONDS else 1]
    moments = [round(seconds * dice.uniform(*part), 2) for part in parts]
    return [Fault(at_s, TOPIC, "add a partition", 0.0) for at_s in moments]


def _next_moment(faults: Sequence[Fault], target: str, from_s: float) -> float:
    """The first moment from there when the target has had a rest and not too much is going on."""
    others = [fault for fault in faults if fault.target != TOPIC]
    ends = sorted((fault.at_s + fault.for_s for fault in others), reverse=True)
    own = [fault.at_s + fault.for_s + _REST_SECONDS for fault in others if fault.target == target]
    return max([from_s, *own, *ends[_AT_ONCE_MAX - 1 : _AT_ONCE_MAX]])
