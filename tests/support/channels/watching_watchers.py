"""Deliverers of the tests, and where their webhooks stand."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.backends.database.engine import Database
from penstock.core.metrics import Metrics
from penstock.core.settings import Settings
from penstock.registry.channels.notice_delivery import Deliverer, TargetStatus, target_statuses
from tests.support.checkpoint_factory import TENANT, set_policy


@contextmanager
def deliverer(
    database: Database, settings: Settings, metrics: Metrics | None = None
) -> Iterator[Deliverer]:
    made = Deliverer(database, settings, metrics or Metrics())
    try:
        yield made
    finally:
        assert made.stop()


def deliver_now(database: Database, settings: Settings) -> int:
    """Try everything once; how many changes are left."""
    with deliverer(database, settings) as made:
        return sum(one.count for one in made.deliver_now())


def standing(database: Database, settings: Settings) -> TargetStatus:
    [found] = target_statuses(database, settings, TENANT)
    return found


def change_times(database: Database, times: int, channel: str = "production") -> None:
    for number in range(times):
        set_policy(database, f"# {number}\n[[require]]\nsuite = 'core'\nmargin = 0.02\n", channel)
