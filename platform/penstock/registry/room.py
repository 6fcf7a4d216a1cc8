"""The rooms of the registry, from checkpoints up to proofs."""

from functools import partial

from penstock.core.room import Room, items, load, parts

CHECKPOINTS = Room(
    package="penstock.registry.checkpoints",
    summaries={"Train": {"checkpoints": "Model versions: their digests, locations and lineage."}},
    commands={"checkpoints": "penstock.registry.checkpoints.cli:app"},
    tables=items("penstock.registry.checkpoints.tables"),
    settings=items("penstock.registry.checkpoints.artifact_roots:CheckpointSettings"),
    endpoints=items("penstock.registry.checkpoints.endpoints:ENDPOINTS"),
    views=("checkpoints", "benchmark_scores"),
    bind_views=partial(load, "penstock.registry.checkpoints.tables:bind_views"),
    retention=parts({"attempts": "penstock.registry.checkpoints.attempts:ATTEMPTS"}),
)

GATE = Room(
    package="penstock.registry.gate",
    summaries={
        "Measure, promote, roll back": {
            "gate": "Decide whether a channel may point at a checkpoint."
        }
    },
    commands={"gate": "penstock.registry.gate.cli:app"},
    tables=items("penstock.registry.gate.tables"),
    endpoints=items("penstock.registry.gate.power:ENDPOINTS"),
)

CHANNELS = Room(
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

FLEET = Room(
    package="penstock.registry.fleet",
    commands={
        "channels.follow": "penstock.registry.fleet.cli:follow",
        "channels.fleet": "penstock.registry.fleet.cli:fleet",
    },
    settings=items("penstock.registry.fleet:FleetSettings"),
    endpoints=items("penstock.registry.fleet.replicas:ENDPOINTS"),
)

PROOF = Room(
    package="penstock.registry.proof",
    summaries={
        "Measure, promote, roll back": {
            "prove": "Prove what a checkpoint went through, with a document that anyone can verify."
        }
    },
    commands={"prove": "penstock.registry.proof.cli:prove"},
    endpoints=items("penstock.registry.proof.cli:ENDPOINTS"),
)
