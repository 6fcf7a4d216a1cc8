"""Whether the key of a request may do what the request asks for."""

import asyncio

from penstock.access.errors import KeyRefused
from penstock.access.keys import Grant, KeyRing, Role, may_be_key
from penstock.clock import Clock


class Authorizer:
    def __init__(self, keys: KeyRing, clock: Clock) -> None:
        self.keys = keys
        self._clock = clock
        self._looking = asyncio.Lock()

    async def authorize(self, authorization: str | None, *roles: Role) -> Grant:
        """A key with one of the roles, from the header. Raises KeyRefused, RoleMissing."""
        try:
            grant = self.keys.grant(authorization)
        except KeyRefused:
            if not may_be_key(authorization):
                raise
            await self._look_for_new_keys()
            grant = self.keys.grant(authorization)
        grant.require(*roles)
        return grant

    async def _look_for_new_keys(self) -> None:
        """One look serves all that wait for it: whoever guesses keys waits, and costs little."""
        began_s = self._clock.elapsed_s()
        async with self._looking:
            if not self.keys.refreshed_since(began_s):
                await asyncio.sleep(self.keys.pause_s())
                await asyncio.to_thread(self.keys.refresh)
