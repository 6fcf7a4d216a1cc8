"""From the lake to a bucket of sessions, as rewards take it."""

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SessionUnknown
from penstock.lake.bucket_views import bucket_views
from penstock.lake.buckets import SessionId, bucket_of, read_bucket
from penstock.lake.catalog import pinned
from penstock.lake.lake import Lake
from penstock_jobs.rewards.rows import TABLES, Bucket

_VIEWS = [name for name in TABLES if name != "events"]
#: What no view shows; of the others the view `events` would be a copy.
_EVENT_TYPES = ("interrupt", "session_end", "test_result", "vcs_commit")


def gather_session(lake: Lake, session: SessionId, as_of_us: int) -> Bucket:
    """One session as the segments have it now; what only the log holds is not in it. Raises
    SessionUnknown, LakeDamaged, what the store raises."""
    with pinned(lake.database, None, lake.settings.reader_lease_seconds) as pin:
        rows = read_bucket(lake, bucket_of(lake, pin, session))
    if not rows.num_rows:
        raise SessionUnknown(session=session.session_id, tenant=session.tenant)
    return as_bucket(rows, session.tenant, as_of_us)


def as_bucket(rows: pa.Table, tenant: str, as_of_us: int) -> Bucket:
    """The sessions of a tenant among these events, as `read_bucket` gives them."""
    views = bucket_views(rows, tenant, _VIEWS)
    others = rows.filter(pc.is_in(rows["type"], pa.array(_EVENT_TYPES)))
    return Bucket(as_of_us=as_of_us, **views, **bucket_views(others, tenant, ["events"]))
