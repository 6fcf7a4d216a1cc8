"""The verdict of the gate on a checkpoint for a channel, from the facts in the database."""

from functools import partial
from typing import TypedDict, Unpack

from penstock.channels.change import unused_channel
from penstock.channels.history import first_version_since, last_rollback_at, newest_change
from penstock.channels.promotion import Judge
from penstock.database.engine import Database
from penstock.gate.decision import decide
from penstock.gate.evidence import Evidence, GatedChannel, gather_evidence
from penstock.gate.verdict import Verdict


class GateQuestion(TypedDict, total=False):
    """`full` asks for all of the traffic, which is the default: where the policy demands live
    metrics, a canary has to have shown them. So does a `share` over the last of the policy's steps.
    The verdict is that of now, or of `at_us`."""

    full: bool
    share: float | None
    at_us: int | None


def channel_evidence(
    database: Database, tenant: str, channel: str, checkpoint: str, **question: Unpack[GateQuestion]
) -> Evidence:
    """The facts that a verdict rests on, at one moment. Raises CheckpointUnknown."""
    with database.read() as connection:
        change = newest_change(connection, tenant, channel) or unused_channel(tenant, channel)
        since = 0
        if change.canary is not None:
            since = first_version_since(connection, change, "canary", "checkpoint")
        gated = GatedChannel(
            tenant=tenant,
            name=channel,
            version=change.version,
            checkpoint=change.checkpoint,
            policy=change.policy,
            canary=change.canary,
            canary_since=since,
            rolled_back_at=last_rollback_at(connection, tenant, channel),
        )
        return gather_evidence(connection, gated, checkpoint, **question)


def judge(
    database: Database, tenant: str, channel: str, checkpoint: str, **question: Unpack[GateQuestion]
) -> Verdict:
    """The verdict on a checkpoint (name or digest) that a channel is to point at. Changes nothing.
    Raises CheckpointUnknown."""
    return decide(channel_evidence(database, tenant, channel, checkpoint, **question))


def gate_judge(database: Database, tenant: str, share: float | None = None) -> Judge:
    """Judges for a tenant, as `promote` asks it. Without a `share` all traffic is asked for."""
    return partial(judge, database, tenant, full=share is None, share=share)
