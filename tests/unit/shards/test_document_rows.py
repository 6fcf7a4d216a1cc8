"""Tokens of files, cut into rows of one length; and the side that a file is on."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.shards.rows.documents import Document, cut_rows, side_of
from penstock_jobs.shards.selection.session_facts import SessionProfile

SIZES = st.lists(st.integers(1, 40), max_size=12)


@given(sizes=SIZES, length=st.integers(1, 30))
def test_rows_are_full_and_hold_each_token_once(sizes: list[int], length: int) -> None:
    tokens = np.arange(sum(sizes), dtype=np.int32)
    ends = np.cumsum(sizes)
    files = [
        (Document(SessionProfile("s"), f"{number}", "MIT", 1), tokens[end - size : end])
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]
    rows = list(cut_rows(files, length))
    counts = [sum(len(ids) for _, ids in row) for row in rows]
    assert all(count == length for count in counts[:-1])
    assert all(0 < count <= length for count in counts)
    pieces = [piece for row in rows for piece in row]
    assert all(len(ids) for _, ids in pieces)
    held = np.concatenate([tokens[:0], *(ids for _, ids in pieces)])
    assert held.tolist() == tokens.tolist()
    for document, ids in files:
        own = [part for other, part in pieces if other is document]
        assert np.concatenate(own).tolist() == ids.tolist()


def test_a_larger_share_holds_out_what_a_smaller_one_does() -> None:
    digests = [f"{number:064x}" for number in range(2000)]
    held_out = {
        share: {digest for digest in digests if side_of(digest, share) == "eval"}
        for share in (0.0, 0.1, 0.5, 1.0)
    }
    assert not held_out[0.0]
    assert len(held_out[1.0]) == len(digests)
    assert held_out[0.1] < held_out[0.5]
    assert 150 < len(held_out[0.1]) < 250
