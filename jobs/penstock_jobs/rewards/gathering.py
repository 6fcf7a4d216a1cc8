"""From the lake to a bucket of sessions, as rewards take it."""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.buckets import SessionId, plan_sessions, read_bucket
from penstock.lake.catalog import pinned
from penstock.lake.lake import Lake
from penstock.lake.settings import LakeSettings
from penstock.lake.views import bucket_views
from penstock_jobs.rewards.chains import chains_of
from penstock_jobs.rewards.credit import Place
from penstock_jobs.rewards.errors import SessionUnknown
from penstock_jobs.rewards.registry import Reward
from penstock_jobs.rewards.rows import TABLES, Bucket
from penstock_jobs.rewards.settings import RewardSettings

#: What no view shows; of the others the view `events` would be a copy.
_EVENTS = "type IN ('interrupt', 'session_end', 'test_result', 'vcs_commit')"
_EVERYWHERE = ("session_id", "ts", "seq", "consent")
#: What of each view the rewards that come with Penstock read, and the outcomes.
_READ: dict[str, tuple[str, ...]] = {
    "edits": ("event_id", "checkpoint", "edit_id", "path", "before", "after"),
    "observations": ("event_id", "path", "text", "deleted", "branch_changed"),
    "turns": (
        "turn", "last_ts", "checkpoint", "text", "model_calls", "tool_calls", "edits",
    ),
    "user_messages": (),
    "model_calls": (
        "event_id", "call_id", "checkpoint", "text", "tool_call_count", "completion_tokens",
        "thinking_tokens",
    ),
    "tool_calls": (
        "checkpoint", "tool", "arguments", "ok", "error_class", "output", "result_ts",
    ),
    "feedback": ("positive",),
    "events": ("event_id", "type", "payload"),
}  # fmt: skip

Columns = Mapping[str, Sequence[str]]


def columns_of(rewards: Iterable[Reward]) -> Columns | None:
    """The columns of the views that these rewards read, for `as_bucket`; None for all, which
    rewards that did not come with Penstock may read. Making only these costs half."""
    if all(reward.compute.__module__.startswith("penstock_jobs.") for reward in rewards):
        return {name: (*_EVERYWHERE, *columns) for name, columns in _READ.items()}
    return None


def gather_chain(lake: Lake, session: SessionId, as_of_us: int) -> tuple[Bucket, dict[str, Place]]:
    """A session with the others of its chain, as the segments have them now, and their places in
    it; what only the log holds is not in it. Links are known of sessions that a run has seen.
    Raises SessionUnknown, LakeDamaged, what the store raises."""
    chains, places = chains_of(lake.database, [session])
    with pinned(lake.database, None, lake.settings.room(LakeSettings).reader_lease_seconds) as pin:
        [bucket] = plan_sessions(
            lake, pin, chains, lake.settings.room(RewardSettings).rewards_bucket_bytes_target
        )
        rows = read_bucket(lake, bucket)
    if not pc.any(pc.equal(rows["session_id"], session.session_id)).as_py():
        raise SessionUnknown(session=session.session_id, tenant=session.tenant)
    of_tenant = {one.session_id: place for one, place in places.items()}
    return as_bucket(rows, session.tenant, as_of_us), of_tenant


def as_bucket(rows: pa.Table, tenant: str, as_of_us: int, columns: Columns | None = None) -> Bucket:
    """The sessions of a tenant among these events, as `read_bucket` gives them, up to `as_of_us`:
    what is later may be incomplete, and no reward sees it. Of each view all columns, or these."""
    is_later = _is_later(rows, as_of_us)
    if pc.any(is_later).as_py():
        rows = rows.filter(pc.invert(is_later))
    where = {"events": _EVENTS}
    return Bucket(as_of_us, **bucket_views(rows, tenant, TABLES, columns=columns, where=where))


def later(rows: pa.Table, as_of_us: int) -> dict[SessionId, int]:
    """Of each session with events that `as_bucket` leaves out: the moment of the first of them, at
    which its rewards are to be computed again."""
    rows = rows.filter(_is_later(rows, as_of_us)).select(["tenant", "session_id", "ts"])
    first = rows.group_by(["tenant", "session_id"]).aggregate([("ts", "min")])
    moments = first["ts_min"].cast(pa.int64()).to_pylist()
    sessions = zip(first["tenant"].to_pylist(), first["session_id"].to_pylist(), strict=True)
    return {SessionId(*one): ts for one, ts in zip(sessions, moments, strict=True)}


def _is_later(rows: pa.Table, as_of_us: int) -> pa.ChunkedArray:
    return pc.greater(rows["ts"].cast(pa.int64()), as_of_us)
