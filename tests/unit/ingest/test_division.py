"""Writers that see the same facts divide the partitions fairly, and leave none out."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.ingest.writer import divide

WRITERS = st.sets(st.sampled_from("abcdefgh"), min_size=1)


@given(
    WRITERS, st.integers(1, 40), st.dictionaries(st.integers(0, 40), st.sampled_from("abcdefghz"))
)
def test_rounds_of_claims_and_releases_end_in_fair_shares(
    writers: set[str], partitions: int, owners: dict[int, str]
) -> None:
    """Whoever is gone (`z`, or not among the writers) has lost its leases."""
    held = {p: owner for p, owner in owners.items() if owner in writers and p < partitions}
    for _ in range(2 * len(writers)):
        for writer in sorted(writers):
            claim, release = divide(sorted(writers), held, writer, partitions)
            assert all(held[p] == writer for p in release)
            assert not claim & held.keys()
            held = {p: owner for p, owner in held.items() if p not in release}
            held |= dict.fromkeys(claim, writer)
    shares = [list(held.values()).count(writer) for writer in writers]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= 1


@given(WRITERS, st.integers(1, 40))
def test_nothing_moves_once_it_is_fair(writers: set[str], partitions: int) -> None:
    held: dict[int, str] = {}
    for writer in sorted(writers):
        held |= dict.fromkeys(divide(sorted(writers), held, writer, partitions)[0], writer)
    for writer in writers:
        assert divide(sorted(writers), held, writer, partitions) == (set(), set())
