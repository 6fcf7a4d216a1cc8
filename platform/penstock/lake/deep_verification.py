"""The promise itself, proved from the files: every event is there once, where it belongs.

A heavy job over buckets of sessions, since no machine holds all identities at once.
"""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.events.identity import session_key
from penstock.execution import Executor
from penstock.lake.bucket_jobs import Job, Parameters, read_results, run_job
from penstock.lake.buckets import (
    Bucket,
    Extent,
    SessionId,
    extents_of,
    open_events,
    read_groups,
)
from penstock.lake.errors import LakeDamaged
from penstock.lake.filters import may_hold, prefixes, read_filter
from penstock.lake.lake import Lake
from penstock.lake.rows import EVENT_ROWS, SORTED_BY
from penstock.lake.tables import segment
from penstock.lake.verification import Finding

_COLUMNS = [*SORTED_BY, "event_id", "key"]
_EMPTY = EVENT_ROWS.empty_table().select(_COLUMNS)
_EVENT = ["tenant", "session_id", "key"]
_ORDER = [(name, "ascending") for name in SORTED_BY]
#: More findings of one bucket are counted, not listed.
_FINDINGS_MAX = 100


def verify_deep(lake: Lake, executor: Executor) -> list[Finding]:
    """Look at every event of the lake as it is now. A run of the same snap that was cut off is
    taken up again. Raises what the executor raises."""
    job = Job(check_bucket, version="1")
    try:
        report = run_job(lake, executor, job, as_of="latest", again=True)
    except LakeDamaged as error:
        return [_damage(error)]
    except OSError as error:  # of a file of sessions, which the text names
        return [Finding("sessions", f"cannot be read: {error}")]
    findings, events = [], 0
    for result in read_results(lake, report.id):
        events += result["events"]
        findings += [Finding(**one) for one in result["findings"]]
        if more := result["more"]:
            findings.append(Finding("events", f"{more} more findings of the same bucket"))
    if events != report.events:
        problem = f"{events} are in the buckets, the database says {report.events}"
        findings.append(Finding("events", problem))
    return list(dict.fromkeys(findings))


def check_bucket(lake: Lake, bucket: Bucket, _parameters: Parameters) -> dict[str, object]:
    """Whether each event of the bucket is there once, and each row where it belongs."""
    findings: list[Finding] = []
    parts = [_EMPTY.append_column("segment", pa.nulls(0, pa.string()))]
    for name in bucket.segments:
        try:
            rows, in_order = _read_unsorted(lake, bucket, name)
        except LakeDamaged as error:
            findings.append(_damage(error))
            continue
        except OSError as error:
            findings.append(Finding(name, f"cannot be read: {error}"))
            continue
        if not in_order:
            findings.append(Finding(name, "its rows are not in the order of a segment"))
        findings += _missing_in_filter(lake, name, rows)
        parts.append(rows.append_column("segment", pa.repeat(name, rows.num_rows)))
    rows = pa.concat_tables(parts)
    findings += _twice(rows)
    listed = [asdict(one) for one in findings[:_FINDINGS_MAX]]
    return {
        "events": rows.num_rows,
        "findings": listed,
        "more": len(findings) - len(listed),
    }


def _damage(error: LakeDamaged) -> Finding:
    return Finding(str(error.facts["path"]), str(error.facts["why"]))


def _read_unsorted(lake: Lake, bucket: Bucket, name: str) -> tuple[pa.Table, bool]:
    """The bucket's rows in a segment, each looked at, and whether they are in order: in each
    group those before the bucket, then its own, sorted, then those behind it."""
    with open_events(lake, name) as file:
        extents = [one for one in extents_of(name, file.metadata) if one is not None]
    in_order = all(a.last <= b.first or _several(a, b) for a, b in pairwise(extents))
    parts = [_EMPTY]
    for group in read_groups(lake, bucket, name, _COLUMNS):
        places = _places(bucket, group)
        mine = group.filter(pa.array(places == 0))
        order = np.asarray(pc.sort_indices(mine, sort_keys=_ORDER)).astype(np.int64)
        in_order = in_order and bool((np.diff(places) >= 0).all() and (np.diff(order) > 0).all())
        parts.append(mine.cast(_EMPTY.schema))
    return pa.concat_tables(parts), in_order


def _several(one: Extent, next_one: Extent) -> bool:
    """Of groups with several tenants the foot tells the tenants alone."""
    wide = any(each.first.tenant != each.last.tenant for each in (one, next_one))
    return wide and one.first.tenant <= next_one.first.tenant


def _places(bucket: Bucket, rows: pa.Table) -> npt.NDArray[np.int8]:
    """-1 before the bucket, 0 in it, 1 behind it: for each row."""
    places = np.zeros(rows.num_rows, np.int8)
    if bucket.low is not None:
        places[_before(rows, bucket.low)] = -1
    if bucket.high is not None:
        places[~_before(rows, bucket.high)] = 1
    return places


def _before(rows: pa.Table, bound: SessionId) -> npt.NDArray[np.bool_]:
    tenant, session = rows["tenant"], rows["session_id"]
    same = pc.and_(pc.equal(tenant, bound.tenant), pc.less(session, bound.session_id))
    return np.asarray(pc.or_(pc.less(tenant, bound.tenant), same))


def _missing_in_filter(lake: Lake, name: str, rows: pa.Table) -> Iterator[Finding]:
    """Who looks for a session asks the filter first: one that it does not name is lost."""
    query = sa.select(segment.c.session_filter).where(segment.c.name == name)
    with lake.database.read() as connection:
        filter_ = read_filter(connection.execute(query).scalar_one())
    found = rows.group_by(["tenant", "session_id"]).aggregate([])
    pairs = list(zip(found["tenant"].to_pylist(), found["session_id"].to_pylist(), strict=True))
    hits = may_hold(filter_, prefixes(session_key(*pair) for pair in pairs))
    for at in (~hits).nonzero()[0]:
        tenant, session = pairs[at]
        yield Finding(name, f"its filter does not name session {session} of {tenant}")


def _twice(rows: pa.Table) -> Iterator[Finding]:
    counts = rows.group_by(_EVENT).aggregate([([], "count_all")])
    repeated = counts.filter(pc.greater(counts["count_all"], 1)).sort_by(
        [(name, "ascending") for name in _EVENT]
    )
    for number, one in enumerate(repeated.to_pylist()):
        found = rows.filter(pc.equal(rows["key"], one["key"])) if number < _FINDINGS_MAX else rows
        event = found["event_id"][0].as_py() or one["key"].hex()
        where = ", ".join(sorted(set(found["segment"].to_pylist())))
        yield Finding(
            f"session {one['session_id']} of {one['tenant']}",
            f"its event {event} is there {one['count_all']} times: {where}",
        )
