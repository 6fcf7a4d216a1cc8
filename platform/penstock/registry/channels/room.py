"""The channels room."""

from functools import partial

from penstock.core.room import Room, items, load

ROOM = Room(
    package="penstock.registry.channels",
    summaries={
        "Measure, promote, roll back": {
            "promote": "Point a channel at a checkpoint that passes the gate.",
            "rollback": "Roll a channel back to the last good checkpoint, and pin it there.",
            "channels": "Channels of the serving fleet: each points at one checkpoint.",
            "webhooks": "Addresses that receive the changes of channels.",
        }
    },
    commands={
        "checkpoints.lineage": "penstock.registry.channels.promotion_cli:lineage",
        "gate.check": "penstock.registry.channels.promotion_cli:check",
        "gate.approve": "penstock.registry.channels.promotion_cli:approve",
        "promote": "penstock.registry.channels.promotion_cli:promote",
        "rollback": "penstock.registry.channels.promotion_cli:rollback",
        "channels": "penstock.registry.channels.cli:app",
        "webhooks": "penstock.registry.channels.cli:webhooks_app",
    },
    tables=items("penstock.registry.channels.tables"),
    settings=items("penstock.registry.channels:ChannelSettings"),
    endpoints=items(
        "penstock.registry.channels.endpoints:ENDPOINTS",
        "penstock.registry.channels.promotion_endpoints:ENDPOINTS",
    ),
    views=("promotions",),
    bind_views=partial(load, "penstock.registry.channels.history:bind_views"),
    shard_uses=items("penstock.registry.channels.history:shard_uses"),
    checks=items("penstock.registry.channels.history:find_alterations"),
)
