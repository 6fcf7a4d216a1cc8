"""How fast logs of each format are read, and in how much memory: one file of 100 MB each.

    python -m bench.import_formats [FORMAT…]

The rows of a fixture are repeated until the file is that long, with ids of their own where the
fixture's ids end in digits. Each format has a process of its own, and nothing is stored: what it
costs to store is in `make bench`."""

import re
import resource
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock_jobs.importers.import_run import plan_import
from penstock_jobs.importers.session_import import SessionImporter

FIXTURES = Path(__file__).parents[1] / "tests" / "room" / "importers" / "fixtures"
_BYTES = 100_000_000
_ID = re.compile(rb'("(?:uuid|parentUuid|id|call_id|tool_use_id|responseId)"\s*:\s*"[^"]*?)\d*"')


def logs() -> dict[str, Path]:
    """A fixture of each format that is one file of lines."""
    by_format: dict[str, Path] = {}
    for case in sorted(FIXTURES.glob("*/*")):
        files = [file for file in case.rglob("*") if file.is_file() and file.suffix == ".jsonl"]
        if len(files) == 1 and files[0].read_bytes().count(b"\n") > 1:
            by_format.setdefault(case.parent.name, files[0])
    return by_format


def write_long(fixture: Path, to: Path) -> None:
    head, *rows = fixture.read_bytes().splitlines(keepends=True)
    written = 0
    with to.open("wb") as file:
        file.write(head)
        for number in count():
            for row in rows:
                written += file.write(_ID.sub(rb"\g<1>%d" % number + b'"', row))
            if written >= _BYTES:
                return


def measure(name: str) -> None:
    """Prints megabytes of the file per CPU second, and how much the memory grew by reading it."""
    fixture = logs()[name]
    with TemporaryDirectory() as folder:
        file = Path(folder) / fixture.name
        write_long(fixture, file)
        importer = SessionImporter(None, None)
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        for source, of_format, _size in plan_import([file], name).sources:
            for _ in importer.take(source, of_format):
                pass
        importer.flush()
        spent = time.process_time() - began
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        rate = file.stat().st_size / 1e6 / spent
    print(f"| {name} | {rate:.0f} | {grown / 1024:.0f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(sys.argv[2])
    else:
        print("| format | MB per CPU second | MiB of memory |\n|---|---|---|", flush=True)
        for each in sys.argv[1:] or logs():
            command = [sys.executable, "-m", "bench.import_formats", "--one", each]
            subprocess.run(command, check=False)
