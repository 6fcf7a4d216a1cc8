"""Which chosen sessions say nearly the same: signatures are made on workers, compared here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.execution import Executor
from penstock.lake.buckets import Bucket, SessionId, plan_sessions, read_bucket
from penstock.lake.catalog import Pin
from penstock.lake.lake import Lake
from penstock.settings import Settings
from penstock_jobs.rewards.settings import RewardSettings
from penstock_jobs.shards.conversations import read_conversation
from penstock_jobs.shards.exclusions.near_duplicates import near_duplicates, signature
from penstock_jobs.shards.exclusions.reasons import Found
from penstock_jobs.shards.messages import Conversation
from penstock_jobs.shards.session_events import COLUMNS, events_by_session


@dataclass(frozen=True)
class SignTask:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    bucket: Bucket
    seed: int


def sign(task: SignTask) -> dict[str, bytes | None]:
    """On a worker: the signature of what the model wrote in each session of the bucket."""
    with Lake(task.settings) as lake:
        events = events_by_session(read_bucket(lake, task.bucket, COLUMNS))
    found: dict[str, bytes | None] = {}
    for session in events:
        signed = signature(_written(read_conversation(session, events[session])), task.seed)
        found[session] = None if signed is None else signed.tobytes()
    return found


def _written(conversation: Conversation) -> Iterator[str]:
    for context in conversation.contexts:
        for message in context.messages:
            if message.call is not None:
                yield message.content
                yield from (call.arguments for call in message.tool_calls)


def find_near_duplicates(
    lake: Lake,
    executor: Executor,
    pin: Pin,
    sessions: Sequence[SessionId],
    groups: Sequence[str],
    *,
    seed: int,
    similarity_min: float,
) -> Found:
    """`groups` are those of the sessions: what is in one is never compared."""
    target = lake.settings.room(RewardSettings).rewards_bucket_bytes_target
    alone = [(one,) for one in sorted(sessions)]
    tasks = (
        SignTask(lake.settings, bucket, seed) for bucket in plan_sessions(lake, pin, alone, target)
    )
    signed: dict[str, bytes | None] = {}
    for done in executor.run(sign, tasks):
        signed |= done.result
    ids = [one.session_id for one in sessions]
    stored = (signed.get(one) for one in ids)
    signatures = [None if one is None else np.frombuffer(one, np.uint32) for one in stored]
    return near_duplicates(ids, signatures, groups, similarity_min)
