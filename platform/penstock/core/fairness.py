"""Fairness between tenants, as decisions alone: what each holds is bounded, and of those who wait
whoever holds least goes first.

A tenant that holds nothing is not remembered: no decision costs more with the tenants ever seen."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

from penstock.core.errors import Backlogged, TooManyRequests

T = TypeVar("T")

#: Whether work of a request runs beyond the slots, so that its tenant need not wait for others.
crowded: ContextVar[bool] = ContextVar("crowded", default=False)


class Holdings:
    """The part of each tenant in something that all share: slots, places to wait, bytes.

    Where others leave room, whoever holds nothing may take one thing, however large."""

    def __init__(
        self, what: str, total_max: int, own_max: int | None = None, *, retry_after_s: int = 1
    ) -> None:
        """`what` is the end of a refusal, as in: 4 queries wait. By default a tenant has half."""
        self.total = 0
        self._what = what
        self._total_max = total_max
        self._own_max = total_max // 2 if own_max is None else own_max
        self._retry_after_s = retry_after_s
        self._held: Counter[str] = Counter()

    def of(self, tenant: str) -> int:
        return self._held.get(tenant, 0)

    def refusal(self, tenant: str, amount: int = 1) -> Backlogged | None:
        """Say why the tenant may not take so much more: TooManyRequests where it holds too much
        itself, Backlogged where all do. None if it may."""
        own = self.of(tenant)
        if own and own + amount > self._own_max:
            why = f"{own} of its {self._what}"
            return TooManyRequests(why=why, retry_after_s=self._retry_after_s)
        if self.total and self.total + amount > self._total_max:
            why = f"{self.total} {self._what}"
            return Backlogged(why=why, retry_after_s=self._retry_after_s)
        return None

    def take(self, tenant: str, amount: int = 1) -> None:
        """Hold so much more. Raises the refusal."""
        if error := self.refusal(tenant, amount):
            raise error
        self.total += amount
        self._held[tenant] += amount

    def give_back(self, tenant: str, amount: int = 1) -> None:
        self.total -= amount
        self._held[tenant] -= amount
        if not self._held[tenant]:
            del self._held[tenant]

    @contextmanager
    def holding(self, tenant: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes more, until the block ends."""
        held = 0

        def hold(amount: int) -> None:
            nonlocal held
            self.take(tenant, amount)
            held += amount

        try:
            yield hold
        finally:
            self.give_back(tenant, held)


class RecentUse:
    """The use of each tenant in this second and in the one before, as of the last addition."""

    def __init__(self) -> None:
        self._second = 0
        self._now: dict[str, float] = {}
        self._before: dict[str, float] = {}

    def of(self, tenant: str) -> float:
        return self._now.get(tenant, 0.0) + self._before.get(tenant, 0.0)

    def add(self, tenant: str, amount: float, now_s: float) -> None:
        if passed := int(now_s) - self._second:
            self._before = self._now if passed == 1 else {}
            self._second, self._now = int(now_s), {}
        self._now[tenant] = self._now.get(tenant, 0.0) + amount


class TenantQueue(Generic[T]):
    """Things that wait. Whoever holds least is next, then whose last turn is longest ago."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}

    def append(self, tenant: str, item: T) -> None:
        self._waiting.setdefault(tenant, deque()).append(item)

    def next_tenant(self, held: Callable[[str], float]) -> str | None:
        """Choose among those who wait, at a cost that grows with their number alone."""
        return min(self._waiting, key=held, default=None)

    def pop(self, tenant: str) -> T:
        own = self._waiting.pop(tenant)
        item = own.popleft()
        if own:
            self._waiting[tenant] = own  # behind all others
        return item
