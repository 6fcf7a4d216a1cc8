"""The gate policy that a loop file names."""

from penstock.channels.promotion import set_policy
from penstock_jobs.loop.stage import Work


def apply_policy(work: Work) -> None:
    """Give it to the channel; the same one again is no change. Where the loop file names none the
    channel has its own."""
    if work.loop.policy is not None:
        set_policy(
            work.lake.database,
            tenant=work.tenant,
            channel=work.loop.channel,
            text=work.loop.policy,
            reason=f"the policy of the loop {work.loop.name}",
            actor=work.actor,
        )
