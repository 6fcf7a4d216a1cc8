"""The view `sessions`, merged in pieces: the same rows."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.settings import GIB
from penstock.lake.query import lake_query as session_pieces
from penstock.lake.query.lake_query import pieces_of
from tests.support.lakes import body_of, hand_lake, make_event

ALL = "select * from sessions order by session_id"


@pytest.mark.parametrize("sessions", [0, 1, 7, 30])
def test_pieces_are_the_whole(
    tmp_path: Path, sessions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sessions in one file or two, and of those that no file has yet."""
    assert [pieces_of(parts, 2 * GIB) for parts in (0, 500_000, 10_000_000)] == [1, 1, 20]
    with hand_lake(tmp_path) as lake:
        for part in range(3):
            for number in range(part, sessions):
                name = f"it's {number}"
                event = make_event(name, part, "user_message", payload={"text": "Go on."})
                lake.send(body_of([event]))
            if part < 2:
                lake.writer().drain()
        query = lake.lake.query(ALL)
        whole = query.arrow()
        assert whole.num_rows == sessions
        monkeypatch.setattr(session_pieces, "_BYTES_PER_SESSION", GIB)
        assert replace(query, in_pieces=True).arrow() == whole
        few = "select count(*) as n from sessions where session_id = 'it''s 3'"
        counted = replace(lake.lake.query(few), in_pieces=True).arrow()
        assert counted["n"].to_pylist() == [int(sessions > 3)]
