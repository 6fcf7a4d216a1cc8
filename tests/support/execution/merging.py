"""What workers do in the tests of merges: `write_on_worker`, with a misfortune."""

import os
import signal
from pathlib import Path

import pyarrow as pa

from penstock.lake.catalog import Segment
from penstock.lake.segments import SegmentFile, SegmentWriter
from penstock.lake.upkeep.merges import MergeFailure, MergeTask, write_on_worker


def begun(data: Path, partition: int) -> list[Path]:
    return list(data.glob(f"begun-{partition}-*"))


def mark(task: MergeTask[Segment, SegmentFile]) -> int:
    """How often this group was begun before."""
    partition = task.group[0].partition
    before = len(begun(task.settings.data, partition))
    (task.settings.data / f"begun-{partition}-{before}").touch()
    return before


def die_amid_the_first(task: MergeTask[Segment, SegmentFile]) -> SegmentFile | MergeFailure:
    """Of partition 0: half of a file is written then."""
    if mark(task) == 0 and task.group[0].partition == 0:
        _die_amid_writing()
    return write_on_worker(task)


def _die_amid_writing() -> None:
    """The process is not used again, so nothing is put back."""
    write = SegmentWriter.write

    def write_and_die(writer: SegmentWriter, rows: pa.Table) -> None:
        write(writer, rows)
        os.kill(os.getpid(), signal.SIGKILL)

    SegmentWriter.write = write_and_die  # type: ignore[assignment, method-assign]
