"""From the lake to a bucket of sessions, as rewards take it."""

from penstock.errors import SessionUnknown
from penstock.lake.bucket_views import bucket_views
from penstock.lake.buckets import SessionId, bucket_of, read_bucket
from penstock.lake.catalog import pinned
from penstock.lake.lake import Lake
from penstock_jobs.rewards.rows import Bucket

_VIEWS = (
    "edits", "observations", "turns", "user_messages", "model_calls", "tool_calls", "feedback",
    "events",
)  # fmt: skip


def gather_session(lake: Lake, session: SessionId, as_of_us: int) -> Bucket:
    """One session as the segments have it now; what only the log holds is not in it. Raises
    SessionUnknown, LakeDamaged, what the store raises."""
    with pinned(lake.database, None, lake.settings.reader_lease_seconds) as pin:
        rows = read_bucket(lake, bucket_of(lake, pin, session))
    if not rows.num_rows:
        raise SessionUnknown(session=session.session_id, tenant=session.tenant)
    return Bucket(as_of_us=as_of_us, **bucket_views(rows, session.tenant, _VIEWS))
