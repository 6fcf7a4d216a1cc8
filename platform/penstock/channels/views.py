"""The view `promotions`: the history of channels, as of the moment of a query."""

import sqlalchemy as sa

from penstock.channels.tables import channel_change
from penstock.lake.view_sources import ViewSources


def bind_views(sources: ViewSources, _views: frozenset[str]) -> None:
    """It reads a table of the metadata database."""
    changes = channel_change.c
    sources.bind_query(
        "promotion_list",
        sa.select(channel_change)
        .where(changes.tenant == sources.tenant, sources.known(changes.at))
        .order_by(changes.channel, changes.version),
    )
