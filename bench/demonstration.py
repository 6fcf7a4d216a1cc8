"""What `penstock demo` costs whoever tries it: time, and the memory of all of its processes."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.figures import Figure, Goal
from bench.measure import usage_of
from bench.measurement import Measurement, Size

_MIB = 1024 * 1024
_LOOK_SECONDS = 0.2
_TIME = Goal(what="`penstock demo`, from the command to its end", at_most=240, unit=" s")


def _measure(_size: Size, directory: Path) -> Iterator[Figure]:
    command = [sys.executable, "-m", "penstock", "demo", "--json", "--data", str(directory / "d")]
    begun, highest = time.perf_counter(), 0
    with (directory / "said").open("wb") as said, (directory / "story").open("wb") as story:
        process = subprocess.Popen(command, stdout=story, stderr=said)
        while process.poll() is None:
            highest = max(highest, _resident_bytes(process.pid))
            time.sleep(_LOOK_SECONDS)
    seconds = time.perf_counter() - begun
    if process.returncode != 0:
        raise RuntimeError((directory / "said").read_text(encoding="utf-8")[-2_000:])
    told = msgspec.json.decode((directory / "story").read_bytes())
    as_meant = sum(one["outcome"] == one["act"]["meant"] for one in told["chapters"])
    yield _TIME.figure(seconds)
    yield Figure("  cycles that end as they are meant to", f"{as_meant} of {len(told['chapters'])}")
    yield Figure("  memory of all its processes, at most", f"{highest / _MIB:.0f} MiB")


def _resident_bytes(pid: int) -> int:
    """Of a process and all that it started. Who has ended meanwhile has none."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        mine = usage_of(pid).resident_bytes
    except (OSError, KeyError):
        return 0
    return mine + sum(_resident_bytes(int(child)) for child in children)


MEASUREMENT = Measurement(
    name="demonstration",
    title="The demonstration",
    about="""
`penstock demo`: time, and the memory of all of its processes.
""",
    goals=(_TIME,),
    run=_measure,
    quick=False,
)
