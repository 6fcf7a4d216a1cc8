"""Many sessions, from a seed: each is the same whatever comes before or after it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256

from penstock.clock import SECOND_US
from penstock_jobs.simulator.files import check_out
from penstock_jobs.simulator.grammar import WORDS, Dice
from penstock_jobs.simulator.policy import POLICIES, Policy
from penstock_jobs.simulator.session import SessionSimulation
from penstock_jobs.simulator.truth import Journal, SessionTruth, User

START_US = int(datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp()) * 1_000_000
REPOSITORIES = 12
#: One session begins about this long after the one before.
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
class SimulatedSession:
    """What the client of a session sends, in order, and the truth about the session."""

    truth: SessionTruth
    #: Of each event the time that it bears, its type, and its line of JSON.
    lines: list[tuple[int, str, bytes]]


@dataclass(frozen=True)
class Production:
    """Two productions that differ have different session ids and fit into one lake."""

    seed: int
    checkpoints: Sequence[Checkpoint] = CHECKPOINTS
    start_us: int = START_US
    #: How much faster time passes in events than in the lives of users.
    compression: int = 1
    #: Between the beginnings of two sessions, in the lives of users.
    spacing_s: float = SPACING_S
    #: Replaces the start in session ids, so that they do not depend on the time of day.
    name: str | None = None
    #: The checkpoint that serves a user. By default each session draws one.
    serve: Callable[[str], Checkpoint] | None = None

    @cached_property
    def _digest(self) -> str:
        facts = [
            (checkpoint.name, checkpoint.policy.version, sorted(checkpoint.policy.logits.items()))
            for checkpoint in self.checkpoints
        ]
        name, pace = self.name or self.start_us, (self.compression, self.spacing_s)
        identity = (name, facts) if pace == (1, SPACING_S) else (name, facts, pace)
        return sha256(repr(identity).encode()).hexdigest()[:8]

    def begins_us(self, index: int) -> int:
        """No event of a session with this number or a higher one is earlier."""
        return self.event_time_us(self._user_time_us(index))

    def event_time_us(self, user_time_us: int) -> int:
        """When an event happened by its `ts`, from the time in the lives of users."""
        return self.start_us + (user_time_us - self.start_us) // self.compression

    def _user_time_us(self, index: int) -> int:
        return self.start_us + round(index * self.spacing_s * SECOND_US)

    def sessions(self, count: int, first: int = 0) -> Iterator[list[SimulatedSession]]:
        return map(self.session, range(first, first + count))

    def session(self, index: int) -> list[SimulatedSession]:
        """A session, and that of its subagent if it has one."""
        key = f"{self.seed}:{index}"
        dice = Dice(f"simulation:{key}")
        begin_us = self._user_time_us(index) + dice.between(0, 50_000) * 1_000
        checkpoint = dice.pick(self.checkpoints)
        user, repository = User.pick(dice), dice.skewed(0, REPOSITORIES - 1)
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
        journal = Journal(begin_us, self.event_time_us, truth)
        files = check_out(repository)
        session = SessionSimulation(dice, journal, truth, checkpoint.policy, user, files, key)
        session.run(start)
        sessions = [SimulatedSession(truth, journal.lines)]
        if dice.chance(0.05):
            # A subagent runs an errand. Its outcome is that of its parent: they share the work.
            parent = truth.session_id
            errand = replace(truth, session_id=f"{parent}-errand", parent_session=parent)
            errand.turns, errand.edits = [], []
            journal = Journal(begin_us + SECOND_US, self.event_time_us, errand)
            subagent = SessionSimulation(dice, journal, errand, checkpoint.policy, user, files)
            subagent.run_errand(start | {"parent_session": parent, "link": "subagent"})
            sessions.append(SimulatedSession(errand, journal.lines))
        return sessions


def _project(number: int) -> str:
    organisations, modules, nouns = (WORDS[name] for name in ("organisation", "module", "noun"))
    organisation = organisations[number * 7 % len(organisations)]
    return f"{organisation}/{modules[number * 11 % len(modules)]}-{nouns[number * 5 % len(nouns)]}"
