"""The way past a line that the gateway should not have let through.

A flush is stored as a whole or not at all. Where it cannot be, because of what a line holds,
each line has to show on its own that it can: slow, and done only then.
"""

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from penstock.events.frames import Frame, RejectedLine
from penstock.lake.duplicates import SessionMemory, tell_new
from penstock.lake.rows import Decoded, RowGroupLimits
from penstock.lake.summary import Summariser

#: What such a line may raise, wherever it is noticed. Nothing here comes from a disk or a
#: network: a line is never refused because of an outage. Nor from a slip in the code, mostly.
UNFIT = (
    ArithmeticError,
    RecursionError,
    ValueError,  # msgspec's errors are, too
    duckdb.DataError,
    duckdb.ProgrammingError,
    pa.ArrowException,
)
_ONE_ROW = RowGroupLimits(rows_max=1, bytes_max=1)


@dataclass(frozen=True)
class Sieve:
    summariser: Summariser

    def __call__(self, frame: Frame) -> tuple[Frame, list[RejectedLine]]:
        """The frame without the lines that cannot be stored, and those."""
        fit: list[bytes] = []
        unfit: list[RejectedLine] = []
        for number, line in enumerate(frame.body.split(b"\n"), 1):
            if why := self._why_unfit(Frame(frame.header, line)):
                unfit.append(RejectedLine(line=number, reason=why, raw=line))
            else:
                fit.append(line)
        return Frame(frame.header, b"\n".join(fit)), unfit

    def _why_unfit(self, alone: Frame) -> str | None:
        decoded = Decoded()
        try:
            decoded.add(alone)
            told = tell_new(decoded, {one: SessionMemory() for one in decoded.sessions})
            for rows in decoded.to_tables(told.new, told.consents, _ONE_ROW):
                self.summariser.summarise(rows)
        except UNFIT as error:
            return f"cannot be stored: {error}"
        return None
