"""Sessions made from a seed. Each is the same, whatever comes before or after it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256

from penstock.core.clock import SECOND_US
from penstock_jobs.simulator.agent import Tricks
from penstock_jobs.simulator.conversation import SimulatedConversation
from penstock_jobs.simulator.files import check_out
from penstock_jobs.simulator.grammar import WORDS, Dice
from penstock_jobs.simulator.journal import SimulatedSession
from penstock_jobs.simulator.policy import POLICIES, Policy
from penstock_jobs.simulator.truth import SessionTruth
from penstock_jobs.simulator.users import PLAIN, User, World

START_US = int(datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp()) * 1_000_000
REPOSITORIES = 12
#: Seconds between the starts of sessions.
SPACING_S = 60.0


@dataclass(frozen=True)
class Checkpoint:
    name: str
    policy: Policy


CHECKPOINTS = tuple(
    Checkpoint(f"ckpt-{number:04}", POLICIES[name])
    for number, name in enumerate(("weak", "fair", "good"), 11)
)


@dataclass(frozen=True)
class Production:
    """A source of sessions. Different productions have different session ids."""

    seed: int
    checkpoints: Sequence[Checkpoint] = CHECKPOINTS
    start_us: int = START_US
    #: Factor by which events are faster than users.
    compression: int = 1
    #: Between the starts of two sessions, in the users' time.
    spacing_s: float = SPACING_S
    #: Replaces the start in session ids, which then do not depend on the time of day.
    name: str | None = None
    serve: Callable[[str], Checkpoint] | None = None
    world: World = PLAIN
    tricks: Tricks = field(default_factory=dict)

    @cached_property
    def _digest(self) -> str:
        facts = [
            (checkpoint.name, checkpoint.policy.version, sorted(checkpoint.policy.logits.items()))
            for checkpoint in self.checkpoints
        ]
        name, pace = self.name or self.start_us, (self.compression, self.spacing_s)
        identity = (name, facts, pace, self.world.name, self.world.held_out)
        return sha256(repr(identity).encode()).hexdigest()[:8]

    def begins_us(self, index: int) -> int:
        """The earliest time of an event of this or a later session."""
        return self.event_time_us(self._user_time_us(index))

    def event_time_us(self, user_time_us: int) -> int:
        return self.start_us + (user_time_us - self.start_us) // self.compression

    def _user_time_us(self, index: int) -> int:
        return self.start_us + round(index * self.spacing_s * SECOND_US)

    def sessions(self, count: int, first: int = 0) -> Iterator[list[SimulatedSession]]:
        return map(self.session, range(first, first + count))

    def session(self, index: int) -> list[SimulatedSession]:
        """Make a session, and its subagent's session if it has one."""
        key = f"{self.seed}:{index}"
        dice = Dice(f"simulation:{key}")
        begin_us = self._user_time_us(index) + dice.between(0, 50_000) * 1_000
        checkpoint = dice.pick(self.checkpoints)
        user, repository = User.pick(dice, self.world), dice.skewed(0, REPOSITORIES - 1)
        if self.serve is not None:
            checkpoint = self.serve(user.name)
        truth = SessionTruth(
            session_id=f"sim-{self.seed}-{index:06}-{self._digest}",
            user=user.name,
            project=_project(repository),
            checkpoint=checkpoint.name,
            policy_version=checkpoint.policy.version,
            consent=dice.pick(("train",) * 17 + ("no_train", "no_train", "unknown")),
        )
        start = {
            "client": "harbor-editor",
            "client_version": dice.pick(("4.11.2", "4.12.0")),
            "repo": f"git@git.example.org:{truth.project}.git",
            "branch": f"{dice.pick(WORDS['act'])}-{dice.pick(WORDS['noun'])}",
            "commit": dice.hex(40),
            "consent": truth.consent,
        }
        session = SimulatedSession(begin_us, self.event_time_us, truth)
        policy = checkpoint.policy
        files = check_out(repository)
        SimulatedConversation(key, session, policy, user, files, tricks=self.tricks).run(start)
        sessions = [session]
        if dice.chance(0.05):
            # A subagent runs an errand. It shares its parent's work and outcome.
            parent = truth.session_id
            errand = replace(truth, session_id=f"{parent}-errand", parent_session=parent)
            errand.messages, errand.about, errand.requests, errand.edits = [], [], [], []
            beside = SimulatedSession(begin_us + SECOND_US, self.event_time_us, errand)
            start |= {"parent_session": parent, "link": "subagent"}
            files = check_out(repository)
            key = f"{key}:errand"
            SimulatedConversation(key, beside, policy, user, files, tricks={}).run_errand(start)
            sessions.append(beside)
        return sessions


def _project(number: int) -> str:
    organisations, modules, nouns = (WORDS[name] for name in ("organisation", "module", "noun"))
    organisation = organisations[number * 7 % len(organisations)]
    return f"{organisation}/{modules[number * 11 % len(modules)]}-{nouns[number * 5 % len(nouns)]}"
