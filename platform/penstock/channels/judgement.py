"""What the gate says of a checkpoint for a channel, from what the database knows now."""

from dataclasses import dataclass

from sqlalchemy import Connection

from penstock.channels.history import first_version_since, newest_change
from penstock.database.engine import Database
from penstock.gate.decision import decide
from penstock.gate.evidence import Evidence, GatedChannel, gather_evidence
from penstock.gate.verdict import Verdict


def channel_evidence(
    database: Database,
    tenant: str,
    channel: str,
    checkpoint: str,
    *,
    full: bool = True,
    share: float | None = None,
    at_us: int | None = None,
) -> Evidence:
    """All that a verdict rests on, as it was at one moment. `full` asks for all of the traffic:
    where the policy demands live metrics, a canary has to have shown them. So does a `share` over
    the last of the policy's steps. Raises CheckpointUnknown."""
    with database.read() as connection:
        gated = _gated_channel(connection, tenant, channel)
        return gather_evidence(connection, gated, checkpoint, full=full, share=share, at_us=at_us)


def judge(
    database: Database,
    tenant: str,
    channel: str,
    checkpoint: str,
    *,
    full: bool = True,
    share: float | None = None,
    at_us: int | None = None,
) -> Verdict:
    """What the gate says of a checkpoint (name or digest) that a channel is to point at, now or
    `at_us`. The other arguments are those of `channel_evidence`. Changes nothing. Raises
    CheckpointUnknown."""
    return decide(
        channel_evidence(database, tenant, channel, checkpoint, full=full, share=share, at_us=at_us)
    )


@dataclass(frozen=True)
class GateJudge:
    """Judges for one tenant: what `promote` asks. Without a `share` all traffic is asked for."""

    database: Database
    tenant: str
    share: float | None = None

    def __call__(self, channel: str, checkpoint: str) -> Verdict:
        full = self.share is None
        return judge(self.database, self.tenant, channel, checkpoint, full=full, share=self.share)


def _gated_channel(connection: Connection, tenant: str, name: str) -> GatedChannel:
    change = newest_change(connection, tenant, name)
    if change is None:
        return GatedChannel(tenant=tenant, name=name)
    canary_since = 0
    if change.canary is not None:
        canary_since = first_version_since(connection, change, "canary", "checkpoint")
    return GatedChannel(
        tenant=tenant,
        name=name,
        version=change.version,
        checkpoint=change.checkpoint,
        policy=change.policy,
        canary=change.canary,
        canary_since=canary_since,
    )
