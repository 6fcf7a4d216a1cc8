"""A bucket as the job gets it: events go into a lake, and come back through its views."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.buckets import plan_buckets, read_bucket
from penstock.lake.catalog import current
from penstock.lake.rows import EVENT_ROWS
from penstock_jobs.rewards.bucket import Bucket, as_bucket
from penstock_jobs.rewards.definition import Definition, Term, all_rewards
from penstock_jobs.rewards.outcomes import rewards_of, score_bucket
from tests.support.lakes import START_US, Event, hand_lake, make_event

DAY_US = 86_400_000_000


def bucket_of(directory: Path, events: Iterable[Event]) -> Bucket:
    return as_bucket(rows_of(directory, events), TENANT_DEFAULT, START_US + DAY_US)


def rows_of(directory: Path, events: Iterable[Event]) -> pa.Table:
    with hand_lake(directory) as lake:
        lake.store(events)
        tables = [
            read_bucket(lake.lake, one)
            for one in plan_buckets(lake.lake, current(lake.lake.database))
        ]
    return pa.concat_tables([EVENT_ROWS.empty_table(), *tables])


def said(number: int, text: str = "go on", session: str = "s") -> Event:
    return make_event(session, number, payload={"text": text})


def answered(number: int, session: str = "s", **payload: Any) -> Event:
    return make_event(session, number, "model_call", payload=payload)


def tool(number: int, name: str, session: str = "s", **payload: Any) -> list[Event]:
    """A call and its result."""
    call = {"id": f"t{number}", "name": name, "arguments": payload.pop("arguments", {})}
    return [
        answered(number, session, tool_calls=[call], **payload.pop("call", {})),
        make_event(
            session,
            number,
            "tool_result",
            event_id=f"r{number}",
            payload={"call_id": f"t{number}", "tool": name, "ok": True, **payload},
        ),
    ]


def edited(number: int, path: str, before: str, after: str, session: str = "s") -> Event:
    payload = {"path": path, "before": before, "after": after}
    return make_event(session, number, "edit", payload=payload)


def compute(bucket: Bucket, definition: Definition | None = None) -> pa.Table:
    """The rewards of a definition and its sum; without a definition all rewards that need no
    settings, with their defaults."""
    if definition is None:
        free = [reward for reward in all_rewards().values() if not reward.only_named]
        return rewards_of(bucket, [Term(reward, reward.parameters()) for reward in free])
    return score_bucket(bucket, definition).rewards
