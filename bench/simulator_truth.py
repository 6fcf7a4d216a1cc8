"""How well rewards find what the simulator knows. Exit 1 where they do worse than they must.

`make bench` has a short form of it, and how fast the simulator is."""

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain, permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.figures import Figure, Goal, show
from bench.measurement import Measurement, Size
from bench.reward_hacks.simulated import all_worlds, over_worlds, play_policies
from penstock.backends.terminal.output import say
from penstock_jobs.rewards.rates import Values
from penstock_jobs.simulator.journal import SimulatedSession
from penstock_jobs.simulator.policy import POLICIES
from penstock_jobs.simulator.production import Checkpoint, Production
from tests.support.policy_worth import worth_of
from tests.support.simulator.agreement import ALPHA, Covered, Measured, Pair, errors, measure

#: Standard errors below the stated rate that are luck in 999 of 1,000 studies.
_LUCK = 3.09
#: Seeds whose sessions share a lake.
_TOGETHER = 20
_CHECKPOINTS = [Checkpoint(name, policy) for name, policy in POLICIES.items()]
#: Policies whose true worth differs by less may stand in either order.
_APART = 0.05
#: Of the short form: the truth of some 2,000 edits at a horizon.
_FEW = 600
_MEAN_ERROR = Goal(what="persistence: mean error", at_most=0.02)
_LARGE_ERROR = Goal(what="persistence: 99th percentile", at_most=0.1)
_AGREEING = Goal(what="outcomes that agree", at_least=0.99)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulator_truth", description=__doc__)
    parser.add_argument("--sessions", type=int, default=6_000, help="for the agreement")
    parser.add_argument("--worlds", type=int, default=20, help="bent ones, beside the plain one")
    parser.add_argument("--of-a-world", type=int, default=100, help="sessions of each policy")
    parser.add_argument("--seeds", type=int, default=400, help="for the intervals")
    parser.add_argument("--of-a-seed", type=int, default=120, help="sessions of each of them")
    options = parser.parse_args()
    figures = [
        *_agreement(options.sessions),
        *_in_worlds(options.worlds, options.of_a_world),
        *_intervals(options.seeds, options.of_a_seed),
    ]
    sys.exit(0 if show(figures) else 1)


def _measure(size: Size, _here: Path) -> Iterator[Figure]:
    """How fast it makes events, and rewards beside its truth: the study's goals, in seconds."""
    started = time.process_time()
    sessions = size.of(_FEW, 20)
    lived = _lived(sessions)
    cpu_s = time.process_time() - started
    events = sum(len(one.lines) for one in lived)
    yield Figure("events that the simulator makes, per CPU second", f"{events / cpu_s:.0f}")
    yield Figure("  of a session", f"{events / sessions:.1f}")
    yield from _compared(_measured(lived), lived)


MEASUREMENT = Measurement(
    name="simulator",
    title="The simulator and its truth",
    about="""
How fast the simulator makes events, and rewards beside what it knows. `make
simulator-study` does the same over more sessions and seeds.
""",
    goals=(_MEAN_ERROR, _LARGE_ERROR, _AGREEING),
    run=_measure,
)


def _agreement(sessions: int) -> Iterator[Figure]:
    say(f"comparing the rewards of {sessions} sessions with the truth")
    lived = _lived(sessions)
    measured = _measured(lived)
    yield from _compared(measured, lived)
    for checkpoint in _CHECKPOINTS:
        ids = [one.truth.session_id for one in lived if one.truth.checkpoint == checkpoint.name]
        mean = np.mean([measured.worth[one] for one in ids if one in measured.worth])
        what = f"{checkpoint.name}, worth {worth_of(checkpoint.policy):.2f}: mean reward"
        yield Figure(what, f"{mean:.2f}")


def _in_worlds(bent_ones: int, sessions: int) -> Iterator[Figure]:
    """How the default reward goes with the truth, where users say what nobody saw before."""
    say(f"{sessions} sessions of each policy in the plain world and {bent_ones} bent ones")
    work = partial(play_policies, sessions=sessions)
    for world, plays in over_worlds(all_worlds(bent_ones, held_out=True), work):
        pairs = np.array([pair for one in plays.values() for pair in one.sessions], np.float64)
        known = pairs[~np.isnan(pairs[:, 1])]
        means = np.array([(one.worth, one.reward) for one in plays.values()])
        of_sessions = _correlation(known)
        yield Figure(f"{world.name}: correlation over sessions", f"{of_sessions:.2f}")
        yield Figure(f"  over policies, {len(means)}", f"{_correlation(means):.2f}")
        wrong = [
            f"{other} above {one}"
            for (one, (worth, reward)), (other, (lower, more)) in permutations(
                zip(plays, means, strict=True), 2
            )
            if worth - lower >= _APART and more >= reward
        ]
        yield Figure("  in the wrong order", ", ".join(wrong) or "none", "none", not wrong)


def _correlation(pairs: Values) -> float:
    return float(np.asarray(np.corrcoef(pairs.T))[0, 1])


def _lived(sessions: int) -> list[SimulatedSession]:
    return list(chain.from_iterable(Production(1, _CHECKPOINTS).sessions(sessions)))


def _measured(lived: list[SimulatedSession]) -> Measured:
    with TemporaryDirectory() as directory:
        return measure(Path(directory) / "lake", lived)


def _compared(measured: Measured, lived: list[SimulatedSession]) -> Iterator[Figure]:
    wrong = np.abs(errors(measured, lived))
    yield Figure("persistence: edits at a horizon that were compared", f"{wrong.size}")
    yield _MEAN_ERROR.figure(float(wrong.mean()))
    yield _LARGE_ERROR.figure(float(np.quantile(wrong, 0.99)))
    yield Figure("persistence: share that is wrong by more than 0.1", f"{(wrong > 0.1).mean():.4f}")
    agree = [measured.outcomes[one.truth.session_id][0] == one.truth.outcome for one in lived]
    yield _AGREEING.figure(sum(agree) / len(agree))


def _intervals(seeds: int, sessions: int) -> Iterator[Figure]:
    least = 1 - ALPHA - _LUCK * (ALPHA * (1 - ALPHA) / seeds) ** 0.5
    for before, after in (("fair", "fair"), ("weak", "good")):
        say(f"{seeds} times {sessions} sessions of {before} and {after}")
        pair = Pair.of(before, after, 20_000)
        found: list[Covered] = []
        for begin in range(0, seeds, _TOGETHER):
            some = range(begin, min(begin + _TOGETHER, seeds))
            with TemporaryDirectory() as directory:
                found += pair.tried(Path(directory) / "lake", some, sessions)
        for name in Covered._fields:
            share = sum(getattr(one, name) for one in found) / len(found)
            what = f"{after} against {before}, {name}: intervals that hold the truth"
            yield Figure(what, f"{share:.3f}", f"≥ {least:.3f}", share >= least)


if __name__ == "__main__":
    main()
