"""Whether somebody may go past the gate."""

from penstock.access.errors import KeyRefused, RoleMissing
from penstock.access.keys import KeyRing, list_keys
from penstock.channels.errors import OverrideRefused
from penstock.clock import SystemClock
from penstock.database.engine import Database
from penstock.lake.desk import Caller


def check_override(database: Database, caller: Caller) -> None:
    """An override takes an admin key of the tenant, also on the machine of the lake. While there is
    no key at all, whoever has the database is the admin. Raises RoleMissing, OverrideRefused."""
    if not caller.is_admin:
        raise RoleMissing(role="admin")
    if not caller.at_the_lake or not list_keys(database):
        return
    if not caller.key:
        raise OverrideRefused(why="name one with --key or PENSTOCK_KEY")
    ring = KeyRing(database, SystemClock())
    ring.refresh()
    try:
        grant = ring.grant(f"Bearer {caller.key}")
    except KeyRefused as error:
        raise OverrideRefused(why="the key is not known here, or was revoked") from error
    if grant.role != "admin" or grant.tenant != caller.tenant:
        raise OverrideRefused(why=f"the key is {grant.role} of the tenant {grant.tenant}")
