"""Approvals: people say that a checkpoint may serve on a channel whose policy asks for them."""

import sqlalchemy as sa

from penstock.audit.chain import append
from penstock.audit.entry import Deed
from penstock.checkpoints.checkpoint import check_channel_name, check_name, check_reason
from penstock.checkpoints.registration import find_in
from penstock.database.engine import Database, clock_us
from penstock.gate.evidence import GivenApproval
from penstock.gate.tables import approval


def approve(
    database: Database, *, tenant: str, channel: str, checkpoint: str, actor: str, reason: str
) -> GivenApproval:
    """Of a checkpoint, by its name or digest. Said again, it is as new as the last time. Raises
    CheckpointUnknown, InvalidInput."""
    check_channel_name(channel)
    actor, reason = check_name("Who does it", actor), check_reason(reason)
    with database.write() as connection:
        name = find_in(connection, tenant, checkpoint).name
        place = {"tenant": tenant, "channel": channel, "checkpoint": name, "actor": actor}
        own = sa.and_(*(approval.c[column] == value for column, value in place.items()))
        given = GivenApproval(actor, reason, clock_us(connection))
        connection.execute(sa.delete(approval).where(own))
        connection.execute(sa.insert(approval).values(**place, reason=reason, at=given.at))
        facts = {"channel": channel}
        append(
            connection,
            Deed(tenant=tenant, actor=actor, action="approve", subject=name, facts=facts),
        )
    return given
