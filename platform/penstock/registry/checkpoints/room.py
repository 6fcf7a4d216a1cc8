"""The checkpoints room."""

from functools import partial

from penstock.core.room import Room, items, load, parts

ROOM = Room(
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
