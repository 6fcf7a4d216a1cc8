"""The gate's whole way: what the channel demands, what is known, and what follows."""

from penstock.database.engine import Database
from penstock.gate.deciding import decide
from penstock.gate.evidence import gather
from penstock.gate.verdicts import Verdict


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
    `at_us`. `full` asks for all of the traffic: where the policy demands live metrics a canary
    has to have shown them. So does a `share` over the last of the policy's steps. Changes nothing.
    Raises CheckpointUnknown."""
    evidence = gather(database, tenant, channel, checkpoint, full=full, share=share, at_us=at_us)
    return decide(evidence)
