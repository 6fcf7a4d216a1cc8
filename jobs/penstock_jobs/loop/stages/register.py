"""Register what the trainer made. Where its files can be read they have to have its digest."""

from penstock.checkpoints.registration import register
from penstock_jobs.loop.loopfile import LoopFile
from penstock_jobs.loop.stage import Answer, Done, Facts, Work

NAME = "register"


def wanted(_loop: LoopFile) -> bool:
    return True


def inputs(work: Work) -> Facts:
    return {
        **work.results["train"],
        "name": work.candidate,
        "parent": work.parent,
        "shard": work.results["shard"]["shard"],
    }


def run(work: Work, inputs: Facts) -> Answer:
    made = register(
        work.lake.database,
        work.lake.settings,
        tenant=work.tenant,
        name=inputs["name"],
        uri=inputs["uri"],
        digest=inputs["digest"],
        actor=work.actor,
        parent=inputs["parent"],
        form=inputs["form"],
        shards=[inputs["shard"]],
        note=inputs["note"] or f"cycle {work.cycle.number} of the loop {work.loop.name}",
    )
    result = {"checkpoint": made.name, "digest": made.digest, "checked": made.checked}
    return Done(result, {"checkpoint": made.name}, f"{made.name}, {made.checked}")
