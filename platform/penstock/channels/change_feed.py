"""The changes of a channel as they come: from the database, or from a service."""

import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from penstock.channels.channel import channel_state
from penstock.channels.notices import Notice, notices_after
from penstock.database.engine import Database
from penstock.http.client import ServiceClient, Tell
from penstock.http.errors import ServerUnreachable

#: How often the database is asked.
POLL_SECONDS = 0.02

#: A request for the next change waits so long.
_WAIT_SECONDS = 30.0
#: Pauses before a service that is away is asked again; the last one from then on.
_PAUSES_SECONDS = (0.2, 1.0, 5.0)


def follow(
    database: Database, tenant: str, name: str, after: int, *, poll_s: float = POLL_SECONDS
) -> Iterator[Notice]:
    """Each change after a version, for ever, as it comes. Raises ChannelUnknown,
    DatabaseUnreachable."""
    channel_state(database, tenant, name)
    while True:
        for notice in notices_after(database, tenant, name, after):
            after = notice.version
            yield notice
        time.sleep(poll_s)


def channel_path(name: str) -> str:
    """Below /v1."""
    return f"channels/{quote(name, safe='')}"


def channel_answers(
    service: ServiceClient, name: str, after: int | None, tell: Tell, ended: threading.Event
) -> Iterator[dict[str, Any]]:
    """The answers of a service about a channel: with the changes after a version, whenever there
    are new ones, until `ended`; without a version the first is the channel as it is. Outages are
    told and outlasted. Raises AnswerUnusable."""
    failures = 0
    while not ended.is_set():
        query = f"?after={after}&wait={_WAIT_SECONDS:g}" if after is not None else ""
        try:
            answer = service.ask(channel_path(name) + query, "version")
        except ServerUnreachable as error:
            if ended.is_set():
                return
            pause_s = _PAUSES_SECONDS[min(failures, len(_PAUSES_SECONDS) - 1)]
            tell(f"{error} It is tried again in {pause_s:g} s.")
            ended.wait(pause_s)
            failures += 1
            continue
        failures = 0
        yield answer
        after = answer.get("next", answer["version"])
