"""The view `sessions` where a lake has more of them than the memory of a query: merged beforehand,
a piece at a time, into files of the statement's own folder.

What is merged is lists, texts and whole session_starts, which the engine cannot put on disk while
it groups. So a query of all sessions at once ends at the limit of its memory. Pieces have all
columns, whatever is asked of them, and cost several times as much: they are for a query that ended
so.
"""

from pathlib import Path

from penstock.directories import make_directory
from penstock.lake.statements import Preparation
from penstock.lake.view_sources import ViewSources, view_sql

#: Merging takes up to 1 KiB for each, and the engine holds more at the same time.
_BYTES_PER_SESSION = 4096
#: Out of so many names the bounds of the pieces are taken.
_SAMPLED = 10_000
_CUTS = f"""
SET VARIABLE session_cuts = (
    SELECT list(session_id ORDER BY session_id)
    FROM (SELECT session_id FROM session_parts USING SAMPLE {_SAMPLED} ROWS)
)
"""


def pieces_of(parts: int, memory_bytes: int) -> int:
    """Into how many pieces summaries in so many parts are divided."""
    return 1 + parts // max(1, memory_bytes // _BYTES_PER_SESSION)


def create_in_pieces(sources: ViewSources, pieces: int, folder: str) -> None:
    """Create the view `sessions` over `session_parts`."""
    make_directory(Path(folder))
    sources.connection.execute(_CUTS)
    paths = [_merge(sources.connection, piece, pieces, folder) for piece in range(pieces)]
    sources.connection.paths += paths
    sources.connection.execute("SET VARIABLE session_pieces = ?", [paths])
    sources.create_view("sessions", "SELECT * FROM read_parquet(getvariable('session_pieces'))")


def _merge(connection: Preparation, piece: int, pieces: int, folder: str) -> str:
    """Bounds may be equal: the pieces between them are empty."""
    path = str(Path(folder, f"sessions-{piece:04}.parquet"))
    bounds = ["true"]
    bounds += [f"session_id > {_cut(piece, pieces)}"] if piece else []
    bounds += [f"session_id <= {_cut(piece + 1, pieces)}"] if piece + 1 < pieces else []
    rows = f"SELECT * FROM (\n{view_sql('sessions')}\n) WHERE {' AND '.join(bounds)}"
    quoted = path.replace("'", "''")
    connection.execute(f"COPY ({rows}) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)")
    return path


def _cut(number: int, pieces: int) -> str:
    cuts = "getvariable('session_cuts')"
    return f"{cuts}[len({cuts}) * {number} // {pieces} + 1]"
