"""Who may take more, and who is next: bounds and turns of tenants."""

import pickle
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import Backlogged, TooManyRequests
from penstock.core.fairness import Holdings, RecentUse, TenantQueue

requests = st.lists(
    st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 60), max_size=4), st.booleans())
)


@given(requests)
def test_what_is_held_never_leaks_and_never_passes_a_bound(
    some: list[tuple[str, list[int], bool]],
) -> None:
    """However blocks overlap, are refused, or fail: in the end nothing is held."""
    holdings = Holdings("bytes", 100, 70)

    def nest(rest: list[tuple[str, list[int], bool]]) -> None:
        if not rest:
            return
        (tenant, sizes, fails), *others = rest
        before = holdings.total
        with suppress(Backlogged, ZeroDivisionError), holdings.holding(tenant) as hold:
            for size in sizes:
                hold(size)
                assert holdings.total <= 100
                assert holdings.of(tenant) <= 70
            nest(others)
            if fails:
                raise ZeroDivisionError
        assert holdings.total == before

    nest(some)
    assert holdings.total == 0
    holdings.take("a", 70)


def test_each_tenant_has_half_and_always_one() -> None:
    holdings = Holdings("places are taken", 10)
    holdings.take("a", 5)
    with pytest.raises(TooManyRequests, match="5 of its places are taken"):
        holdings.take("a")
    holdings.take("b", 5)
    with pytest.raises(Backlogged, match="room for more now: 10 places are taken") as full:
        holdings.take("c")
    assert not isinstance(full.value, TooManyRequests), "it is not this key that has too much"
    holdings.give_back("a", 5)
    holdings.give_back("b", 5)
    holdings.take("c", 90)
    assert holdings.total == 90, "what is larger than all may be, where nothing else is"


def test_whoever_holds_least_is_next_and_equals_take_turns() -> None:
    queue, held = TenantQueue[str](), Counter(a=1)
    for item in ("a1", "a2", "b1", "b2", "c1"):
        queue.append(item[0], item)
    order = []
    while (tenant := queue.next_tenant(held.__getitem__)) is not None:
        order.append(queue.pop(tenant))
    assert order == ["b1", "c1", "b2", "a1", "a2"]


def test_use_is_forgotten_after_the_next_second() -> None:
    use = RecentUse()
    use.add("a", 0.25, 10.9)
    use.add("a", 0.5, 11.0)
    assert use.of("a") == 0.75
    use.add("b", 0.1, 12.9)
    assert (use.of("a"), use.of("b")) == (0.5, 0.1)
    use.add("b", 0.1, 19.0)
    assert (use.of("a"), use.of("b")) == (0.0, 0.1)


def _remembered(tenants_seen: int) -> bytes:
    holdings, use, queue = Holdings("slots", 10), RecentUse(), TenantQueue[int]()
    for number in range(tenants_seen):
        tenant = f"tenant-{number}"
        with holdings.holding(tenant) as hold:
            hold(1)
        use.add(tenant, 0.001, number)
        queue.append(tenant, number)
        queue.pop(tenant)
    use.add("the last", 0.001, 1_000_000)
    return pickle.dumps((holdings, use, queue))


def test_nothing_is_remembered_of_the_tenants_ever_seen() -> None:
    """So no decision can cost more with them."""
    assert _remembered(10) == _remembered(10_000)
