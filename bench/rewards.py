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
from penstock.lake.buckets import Bucket, plan_buckets, read_bucket
from penstock.lake.catalog import current
from penstock.lake.lake import Lake
from penstock_jobs.rewards.bucket import as_bucket
from penstock_jobs.rewards.definition import Definition, columns_of, find_definition
from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.local_judge import LocalJudge
from penstock_jobs.rewards.outcomes import score_bucket
from penstock_jobs.rewards.runs import without_garbage_collection
from tests.support.labelled_messages import HELD_OUT, TRAINING, labelled_messages
from tests.support.lakes import hand_lake

_EVENTS = 20_000
_COMMAND_EVENTS = 32_000
_MIB = 1024 * 1024
_SPEED = Goal(what="events whose rewards are computed, per CPU second", at_least=25_000)
_COMMAND = Goal(what="the same by `penstock rewards run`, started for it", at_least=15_000)
_PEAK = Goal(what="its peak memory", at_most=300, unit=" MiB")
_TRIES = 5
#: Long after the traffic: nothing is pending.
_AS_OF_US = 2_000_000_000_000_000


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    """Rewards, outcomes and tallies of the default definition, in one process."""
    definition = find_definition()
    traffic = make_traffic(size.of(_EVENTS, 200))
    with hand_lake(here / "lake") as lake:
        for body in traffic.plain:
            lake.send(body)
        lake.writer().drain()
        buckets = plan_buckets(lake.lake, current(lake.lake.database))
        # The first try imports and reads what the next ones have.
        tries = [_cpu_seconds(lake.lake, buckets, definition) for _ in range(_TRIES + 1)][1:]
    cpu_s = min(tries)
    ceiling_s = measure_ceiling(traffic.plain).cpu_s
    yield _SPEED.figure(traffic.events / cpu_s)
    what = "rewards of an event against the ceiling of taking it in"
    yield Figure(what, f"{cpu_s / ceiling_s:.2f}")
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
    with hand_lake(data) as lake:
        for body in traffic.plain:
            lake.send(body)
        lake.writer().drain()
    command = [sys.executable, "-c", _MEASURED_COMMAND, str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cpu_s, peak_bytes = done.stderr.splitlines()[-1].split()
    yield _COMMAND.figure(traffic.events / float(cpu_s))
    yield _PEAK.figure(int(peak_bytes) / _MIB)


def _judge_speed() -> Iterator[Figure]:
    """The local judge on the labelled messages, which are in twenty languages."""
    messages = [
        example.message for name in (*TRAINING, HELD_OUT) for example in labelled_messages(name)
    ]
    judge = LocalJudge()
    judge.judge(messages)
    cpu_s = min(_judge_seconds(judge, messages) for _ in range(_TRIES))
    what = "messages that the local judge reads, per CPU second"
    yield Figure(what, f"{len(messages) / cpu_s:.0f}")


def _judge_seconds(judge: LocalJudge, messages: Sequence[Message]) -> float:
    started = time.process_time()
    judge.judge(messages)
    return time.process_time() - started


def _cpu_seconds(lake: Lake, buckets: list[Bucket], definition: Definition) -> float:
    columns = columns_of(term.reward for term in definition.terms)
    started = time.process_time()
    with without_garbage_collection():
        for bucket in buckets:
            rows = read_bucket(lake, bucket)
            score_bucket(as_bucket(rows, TENANT_DEFAULT, _AS_OF_US, columns), definition)
    return time.process_time() - started


MEASUREMENT = Measurement(
    name="rewards",
    title="Rewards",
    about="""
All rewards, outcomes and tallies of the default definition, from segments to rows,
in one process; one event in ten is an edit of a file of 6 KB. The best of five. Beside it the
command as a person runs it once, over a lake of 32,000 such events. The goals were set on a
faster machine, as 1.39 times what the code did before it was made quicker: [by how much it is
quicker](speed.md#what-the-goal-means-on-another-machine) was measured in turns on one.
""",
    goals=(_SPEED, _COMMAND, _PEAK),
    run=_measure,
)
