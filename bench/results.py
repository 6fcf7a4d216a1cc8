"""What was measured, when and where: `results.json` beside this file."""

import os
import platform
import sysconfig
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.catalogue import MEASUREMENTS
from bench.figures import Figure

_FILE = Path(__file__).with_name("results.json")
_GIB = 1024**3
#: Of the machine's cores, used by others: more than this disturbs a measurement.
_OTHERS_QUIET_MAX = 0.05


class Machine(msgspec.Struct, frozen=True):
    date: str
    cores: int
    memory_gib: int
    #: The share of its cores that other programs used meanwhile; None where nobody looked.
    others: float | None
    python: str = ""

    def __str__(self) -> str:
        facts = (self.date, f"{self.cores} cores", f"{self.memory_gib} GiB", self.python)
        machine = ", ".join(filter(None, facts))
        if self.others is None:
            return machine
        state = "busy" if self.others > _OTHERS_QUIET_MAX else "quiet"
        return f"{machine}, on a {state} machine: others used {self.others:.0%} of it"


class MachineWatch:
    """Tells after a measurement how much of the machine other programs used meanwhile."""

    def __init__(self) -> None:
        self._cores = os.cpu_count() or 1
        self._started = time.perf_counter(), self._busy_s(), self._own_s()

    def seen(self) -> Machine:
        wall_s, busy_s, own_s = (
            now - then
            for now, then in zip(
                (time.perf_counter(), self._busy_s(), self._own_s()), self._started, strict=True
            )
        )
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Machine(
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            cores=self._cores,
            memory_gib=round(memory / _GIB),
            python=_python_build(),
            others=round(max(0.0, (busy_s - own_s) / (wall_s * self._cores)), 2),
        )

    @staticmethod
    def _busy_s() -> float:
        """Of all cores: user, nice, system, interrupts, and what a host took away."""
        first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
        ticks = [int(value) for value in first[1:9]]
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _own_s() -> float:
        """Of this process and of those that it started and that have ended."""
        return sum(os.times()[:4])


def _python_build() -> str:
    """Name the interpreter: without profile-guided optimisation it is about a tenth slower."""
    optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    build = "" if optimized else " without profile-guided optimisation"
    return f"{platform.python_implementation()} {platform.python_version()}{build}"


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    size: str
    machine: Machine
    figures: tuple[Figure, ...]
    #: What a reader has to know about these figures alone.
    remark: str = ""


def read_results(path: Path = _FILE) -> dict[str, Result]:
    results = msgspec.json.decode(path.read_bytes(), type=list[Result])
    return {result.name: result for result in results}


def write_results(results: Mapping[str, Result], path: Path = _FILE) -> None:
    """In the catalogue's order."""
    ordered = [results[name] for name in MEASUREMENTS if name in results]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")
