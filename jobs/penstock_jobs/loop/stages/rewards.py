"""Compute the rewards of what came in, and begin the cycle once there is enough of it.

Until then it is asked again and again; each time computes only what changed or matured. When the
cycle begins, a snapshot fixes what it is about.
"""

from penstock.channels.channel import channel_state
from penstock.lake.catalog import content_snap, name_snap, pinned
from penstock.lake.settings import LakeSettings
from penstock_jobs.loop.fresh import Fresh, count_fresh
from penstock_jobs.loop.keeping import database_now, newest_begun, newest_made
from penstock_jobs.loop.loopfile import LoopFile, Start
from penstock_jobs.loop.stage import Answer, Done, Facts, NotYet, Work
from penstock_jobs.rewards import running

NAME = "rewards"
_SECOND_US = 1_000_000


def wanted(_loop: LoopFile) -> bool:
    return True


def inputs(work: Work) -> Facts:
    database, place, number = work.lake.database, work.held.place, work.cycle.number
    begun = newest_begun(database, place, number)
    made = newest_made(database, place, number)
    start = work.loop.start
    return {
        "channel": work.loop.channel,
        "definition": work.loop.load_definition().version,
        "start": {"tokens": start.tokens, "every_s": start.every_s},
        "scored_after_us": made.results()[NAME]["scored_at_us"] if made else 0,
        "began_before_us": begun.began_at if begun else None,
    }


def run(work: Work, inputs: Facts) -> Answer:
    lake = work.lake
    definition = work.loop.load_definition()
    with work.executor() as executor:
        report = running.run(lake, executor, running.Work(definition))
    # The channel first: what it is at now may have sessions by the snap, never the other way round.
    state = channel_state(lake.database, work.tenant, work.loop.channel)
    if state.checkpoint is None:
        return NotYet(f"nothing is promoted to {work.loop.channel} yet")
    snap = content_snap(lake.database)
    with pinned(
        lake.database, snap, lake.settings.room(LakeSettings).reader_lease_seconds, renewed=True
    ):
        fresh = count_fresh(
            lake,
            snap,
            tenant=work.tenant,
            checkpoint=state.checkpoint,
            version=definition.version,
            after_us=inputs["scored_after_us"],
        )
        waits = why_not(
            work.loop.start,
            fresh,
            state.checkpoint,
            began_before_us=inputs["began_before_us"],
            now_us=database_now(lake.database),
        )
        if waits is not None:
            return NotYet(waits)
        name = f"loop-{work.label}-{work.cycle.number:04d}"
        note = f"what cycle {work.cycle.number} of the loop {work.loop.name} is about"
        snapshot = name_snap(lake.database, name, name, snap, note)
    return Done(
        {
            "snapshot": snapshot,
            "scored_at_us": report.as_of_us,
            "sessions": fresh.sessions,
            "tokens": fresh.tokens,
            "computed": report.sessions,
        },
        {"parent": state.checkpoint, "began_at": work.held.at},
        f"{fresh.tokens} fresh scored tokens of {fresh.sessions} sessions from {state.checkpoint}",
    )


def why_not(
    start: Start, fresh: Fresh, checkpoint: str, *, began_before_us: int | None, now_us: int
) -> str | None:
    """What a cycle waits for; None where it begins."""
    reasons = []
    if start.tokens is not None:
        if fresh.tokens >= start.tokens:
            return None
        reasons.append(
            f"{fresh.tokens} of {start.tokens} fresh scored tokens from {checkpoint} are there"
        )
    if start.every_s is not None:
        left_s = 0.0
        if began_before_us is not None:
            left_s = start.every_s - (now_us - began_before_us) / _SECOND_US
        if left_s <= 0:
            return None
        reasons.append(f"{left_s:.0f} s are left of the schedule")
    return ", or ".join(reasons)
