"""A bucket with only the columns that its rewards read says what one with all says."""

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pytest

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.buckets import plan_buckets, read_bucket
from penstock.lake.catalog import current
from penstock_jobs.rewards.bucket import TABLES, Bucket, EditParameters, as_bucket
from penstock_jobs.rewards.definition import Reward, columns_of, find_definition
from penstock_jobs.rewards.outcomes import score_bucket
from penstock_jobs.simulator.production import Production
from tests.support.lakes import START_US, hand_lake
from tests.support.reward_events import DAY_US

DEFINITION = find_definition()
SHIPPED = [term.reward for term in DEFINITION.terms]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pa.Table]:
    """Simulated sessions."""
    with hand_lake(tmp_path_factory.mktemp("lake")) as lake:
        for lived in chain.from_iterable(Production(3).sessions(12)):
            lake.send(b"\n".join(line for _, _, line in lived.lines))
        lake.writer().drain()
        (bucket,) = plan_buckets(lake.lake, current(lake.lake.database))
        yield read_bucket(lake.lake, bucket)


def test_only_what_is_read_gives_the_same(rows: pa.Table) -> None:
    as_of_us = START_US + 10_000 * DAY_US
    columns = columns_of(SHIPPED)
    whole = as_bucket(rows, TENANT_DEFAULT, as_of_us)
    part = as_bucket(rows, TENANT_DEFAULT, as_of_us, columns)
    assert part.model_calls.num_columns < whole.model_calls.num_columns
    assert {name: getattr(part, name).num_rows for name in TABLES} == {
        name: getattr(whole, name).num_rows for name in TABLES
    }
    one, other = (score_bucket(bucket, DEFINITION) for bucket in (part, whole))
    assert one.rewards.num_rows > 0
    order = [(name, "ascending") for name in ("session_id", "target_kind", "target_id", "name")]
    order.append(("horizon_s", "ascending"))
    assert one.rewards.sort_by(order) == other.rewards.sort_by(order)
    assert one.outcomes == other.outcomes


def test_a_reward_of_ones_own_may_read_all_columns() -> None:
    def compute(bucket: Bucket, _parameters: EditParameters) -> pa.Table:
        return bucket.model_calls

    assert columns_of([*SHIPPED, Reward("own", 1, compute, EditParameters)]) is None
