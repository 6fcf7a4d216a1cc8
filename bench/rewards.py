"""What it costs to compute all rewards of a definition, from segments to rows."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.ceiling import measure_ceiling
from bench.figures import Figure, Goal
from bench.measurement import Measurement, Size
from bench.traffic import make_traffic
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.buckets import plan_buckets, read_bucket
from penstock.lake.catalog import current
from penstock.lake.lake import open_existing
from penstock_jobs.rewards.bucket import as_bucket
from penstock_jobs.rewards.definition import columns_of, find_definition
from penstock_jobs.rewards.followups.local_judge import LocalJudge
from penstock_jobs.rewards.outcomes import score_bucket
from penstock_jobs.rewards.runs import without_garbage_collection
from tests.support.labelled_messages import HELD_OUT, TRAINING, labelled_messages
from tests.support.lakes import hand_lake

_EVENTS = 20_000
_COMMAND_EVENTS = 32_000
_MIB = 1024 * 1024
#: 1.5 times as quick as the code of 28 November (1f654011), which took 4.5 in turns.
_AGAINST_CEILING = Goal(
    what="  for each, against the ceiling of taking it in", at_most=3, unit=" ×"
)
_PEAK = Goal(what="its peak memory", at_most=300, unit=" MiB")
_TRIES = 3
#: They load what any lake needs.
_FIRST_EVENTS = 200
#: Long after the traffic: nothing is pending.
_AS_OF_US = 2_000_000_000_000_000


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    """Rewards, outcomes and tallies of the default definition, in one process."""
    traffic = make_traffic(size.of(_EVENTS, 200))
    lakes = here / "first", here / "lake"
    _take_in(lakes[0], make_traffic(_FIRST_EVENTS, seed=7).plain)
    _take_in(lakes[1], traffic.plain)
    command = [sys.executable, "-c", _MEASURED, *map(str, lakes)]
    tries = [subprocess.run(command, capture_output=True, check=True) for _ in range(_TRIES)]
    cpu_s = min(float(done.stdout) for done in tries)
    what = "events whose rewards are computed, per CPU second"
    yield Figure(what, f"{traffic.events / cpu_s:,.0f}")
    ceiling_s = min(measure_ceiling(traffic.plain).cpu_s for _ in range(_TRIES))
    yield _AGAINST_CEILING.figure(cpu_s / ceiling_s)
    yield from _command(here / "command", size.of(_COMMAND_EVENTS, 200))
    yield from _judge_speed()


#: The command, which ends its process, and then what the process used.
_MEASURED_COMMAND = """
import os, sys
from bench.measure import usage_of
from penstock.__main__ import main
sys.argv = ["penstock", "rewards", "run", "--json", "--data", sys.argv[1]]
try:
    main()
except SystemExit as ended:
    assert not ended.code
used = usage_of(os.getpid())
print(used.cpu_s, used.peak_bytes, file=sys.stderr)
"""


def _command(data: Path, events: int) -> Iterator[Figure]:
    """The whole command in a process of its own: imports, plan, files and commits are in it."""
    traffic = make_traffic(events)
    _take_in(data, traffic.plain)
    command = [sys.executable, "-c", _MEASURED_COMMAND, str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cpu_s, peak_bytes = done.stderr.splitlines()[-1].split()
    what = "the same by `penstock rewards run`, started for it"
    yield Figure(what, f"{traffic.events / float(cpu_s):,.0f}")
    yield _PEAK.figure(int(peak_bytes) / _MIB)


def _judge_speed() -> Iterator[Figure]:
    """The local judge on the labelled messages, which are in twenty languages."""
    messages = [
        example.message for name in (*TRAINING, HELD_OUT) for example in labelled_messages(name)
    ]
    judge = LocalJudge()
    judge.judge(messages[:1])  # loads the words
    started = time.process_time()
    judge.judge(messages)
    cpu_s = time.process_time() - started
    what = "messages that the local judge reads, per CPU second"
    yield Figure(what, f"{len(messages) / cpu_s:.0f}")


#: Answers about a message and changes of a text are kept: a second try would find them.
_MEASURED = """
import sys, time
from pathlib import Path
from bench.rewards import compute
compute(Path(sys.argv[1]))
started = time.process_time()
compute(Path(sys.argv[2]))
print(time.process_time() - started)
"""


def compute(data: Path) -> None:
    definition = find_definition()
    columns = columns_of(term.reward for term in definition.terms)
    with open_existing(data) as lake, without_garbage_collection():
        for bucket in plan_buckets(lake, current(lake.database)):
            rows = read_bucket(lake, bucket)
            score_bucket(as_bucket(rows, TENANT_DEFAULT, _AS_OF_US, columns), definition)


def _take_in(data: Path, bodies: Sequence[bytes]) -> None:
    with hand_lake(data) as lake:
        for body in bodies:
            lake.send(body)
        lake.writer().drain()


MEASUREMENT = Measurement(
    name="rewards",
    title="Rewards",
    about="""
All rewards, outcomes and tallies of the default definition, from segments to rows,
in one process; one event in ten is an edit of a file of 6 KB. The best of three processes, each of
which sees the events for the first time. Beside it the command as a person runs it once, over a
lake of 32,000 such events.
""",
    goals=(_AGAINST_CEILING, _PEAK),
    run=_measure,
)
