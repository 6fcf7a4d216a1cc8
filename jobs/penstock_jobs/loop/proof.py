"""What a proof says of training: the cycles of loops that made a checkpoint and its parents."""

from typing import Any

from penstock.channels.change import time_text
from penstock.proof.document import ProofSubject
from penstock_jobs.loop.cycles import Cycle, cycles_of
from penstock_jobs.loop.tables import loop_cycle


def show_training(subject: ProofSubject) -> list[dict[str, Any]]:
    """In the order of the lineage. Of a checkpoint that no loop made, a gap."""
    names = [learner.name for learner in subject.ancestry]
    mine = loop_cycle.c.checkpoint.in_(names)
    cycles = cycles_of(subject.lake.database, subject.tenant, None, mine)
    made = {cycle.checkpoint: cycle for cycle in cycles}
    for learner in subject.ancestry:
        if learner.name not in made:
            why = f"no loop trained it: {learner.registered_by} registered what came from elsewhere"
            subject.lacks("training", learner.name, why)
    return [_show_cycle(made[name]) for name in names if name in made]


def _show_cycle(cycle: Cycle) -> dict[str, Any]:
    results = cycle.results
    train = next((stage for stage in cycle.stages if stage.stage == "train"), None)
    facts = {
        "checkpoint": cycle.checkpoint,
        "loop": cycle.loop,
        "cycle": cycle.number,
        "parent": cycle.parent,
        "shard": results.get("shard", {}).get("shard"),
        "digest": results.get("train", {}).get("digest"),
    }
    if train is not None:
        facts |= {"attempt": train.epoch, "inputs": train.inputs_digest}
        facts |= {"started_at": _moment(train.started_at), "ended_at": _moment(train.ended_at)}
    return facts


def _moment(us: int | None) -> str | None:
    return None if us is None else time_text(us)
