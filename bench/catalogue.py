"""All that `make bench` measures, in the order of the loop."""

from bench import (
    console,
    cycle,
    demonstration,
    erasure,
    gate_decision,
    ingest,
    installation,
    kafka,
    loader,
    promotion_notice,
    proxy,
    queries,
    query_processes,
    recorder,
    redaction,
    reward_increments,
    rewards,
    session_import,
    shard_build,
    shard_plan,
    short_sessions,
    simulator_truth,
    telemetry,
    tenants,
)
from bench.measurement import Measurement
from bench.rivals import ingest_contest, record_contest, sample_contest

MEASUREMENTS: dict[str, Measurement] = {
    module.MEASUREMENT.name: module.MEASUREMENT
    for module in (
        cycle, ingest, redaction, telemetry, recorder, session_import, rewards, reward_increments,
        simulator_truth, short_sessions, shard_plan, shard_build, loader, gate_decision,
        promotion_notice, queries, query_processes, kafka, tenants, proxy, erasure, console,
        installation, demonstration, record_contest, sample_contest,
        ingest_contest,
    )
}  # fmt: skip
