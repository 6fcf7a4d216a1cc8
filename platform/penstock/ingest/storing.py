"""Waiting until the lake has what the log holds, where another process stores it."""

import time

from penstock.lake.catalog import read_next_offsets
from penstock.lake.fresh_events import start_of
from penstock.lake.lake import Lake

_LOOK_SECONDS = 0.05


def wait_until_stored(lake: Lake, patience_s: float) -> bool:
    """All that the log holds by now. False once that got nowhere for so long."""
    ends = lake.log.ends()
    left, until_s = _unstored(lake, ends), time.monotonic() + patience_s
    while any(left) and time.monotonic() < until_s:
        time.sleep(_LOOK_SECONDS)
        before, left = left, _unstored(lake, ends)
        if left != before:
            until_s = time.monotonic() + patience_s
    return not any(left)


def _unstored(lake: Lake, ends: list[int]) -> list[int]:
    """By partition, how far the lake is from there."""
    with lake.database.read() as connection:
        covered = read_next_offsets(connection)
    return [max(end - start_of(lake.log, at, covered), 0) for at, end in enumerate(ends)]
