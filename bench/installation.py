"""What an install of the wheel brings and takes, and what its commands cost to start.

`python -m bench.installation` prints the largest packages as well."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.figures import Figure, Goal, show
from bench.measurement import WHOLE, Measurement, Size

_ROOT = Path(__file__).parents[1]
_MIB = 1024 * 1024
_ON_DISK = Goal(what="  on disk", at_most=550, unit=" MiB")
_HELP = Goal(what="penstock --help, CPU", at_most=150, unit=" ms")
_STARTS = 7
_COMMANDS = ("--help", "--version", "query --help", "ledger --help", "rewards run --help")
_LARGEST = 12


def _measure(_size: Size, here: Path) -> Iterator[Figure]:
    wheel = _build(here / "dist")
    yield Figure("the wheel", f"{wheel.stat().st_size / _MIB:.1f} MiB")
    began_s = time.perf_counter()
    programs = _install(wheel, here / "environment")
    yield Figure("the base install, with nothing cached", f"{time.perf_counter() - began_s:.0f} s")
    size = sum(_sizes(here / "environment").values())
    yield _ON_DISK.figure(size / _MIB)
    for arguments in _COMMANDS:
        cpu_ms = 1000 * _cpu_to_run([programs / "penstock", *arguments.split()])
        if arguments == "--help":
            yield _HELP.figure(cpu_ms)
        else:
            yield Figure(f"penstock {arguments}, CPU", f"{cpu_ms:.0f} ms")


def _build(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=_ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def _install(wheel: Path, environment: Path) -> Path:
    """Where its programs are."""
    uv = shutil.which("uv")
    venv.EnvBuilder(with_pip=not uv).create(environment)
    programs = environment / "bin"
    if uv:
        install = [uv, "pip", "install", "--python", str(programs / "python"), "--no-cache"]
    else:
        install = [str(programs / "python"), "-m", "pip", "install", "--no-cache-dir"]
    subprocess.run([*install, "--quiet", str(wheel)], check=True)
    return programs


def _sizes(environment: Path) -> dict[str, int]:
    """Bytes by package folder, or file, of its own."""
    [packages] = environment.glob("lib/python*/site-packages")
    return {
        entry.name: sum(
            file.stat().st_size for file in (entry, *entry.rglob("*")) if file.is_file()
        )
        for entry in packages.iterdir()
    }


def _cpu_to_run(command: list[str | Path]) -> float:
    taken = []
    subprocess.run(command, check=True, capture_output=True)  # the first start compiles
    for _ in range(_STARTS):
        before = os.times()
        subprocess.run(command, check=True, capture_output=True)
        after = os.times()
        taken.append(
            after.children_user + after.children_system
            - before.children_user - before.children_system
        )  # fmt: skip
    return median(taken)


MEASUREMENT = Measurement(
    name="installation",
    title="Installing and starting",
    about="""
The wheel in a fresh environment with nothing cached, and the median CPU time of seven starts of a
command.
""",
    goals=(_ON_DISK, _HELP),
    run=_measure,
    quick=False,
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        here = Path(directory)
        show(_measure(WHOLE, here))
        sizes = sorted(_sizes(here / "environment").items(), key=lambda item: -item[1])
        show(Figure(name, f"{size / _MIB:.0f} MiB") for name, size in sizes[:_LARGEST])


if __name__ == "__main__":
    main()
