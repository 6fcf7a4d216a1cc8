"""Build the shard, from the snapshot that the cycle is about."""

from dataclasses import replace

from penstock_jobs.loop.loopfile import LoopFile
from penstock_jobs.loop.stage import Answer, Done, Facts, Over, Work
from penstock_jobs.shards.build import build_shard

NAME = "shard"


def wanted(_loop: LoopFile) -> bool:
    return True


def inputs(work: Work) -> Facts:
    recipe = work.loop.load_recipe()
    return {
        "recipe": recipe.canonical,
        "query": recipe.query,
        "snapshot": work.results["rewards"]["snapshot"],
        "parent": work.parent,
    }


def run(work: Work, inputs: Facts) -> Answer:
    recipe = replace(work.loop.load_recipe(), as_of=inputs["snapshot"])
    with work.executor() as executor:
        built = build_shard(work.lake, executor, recipe, tenant=work.tenant)
    counted, counts = built.manifest.counted_from, built.manifest.counts
    if work.loop.counted == "channel" and counted != work.parent:
        why = (
            f"as of the snapshot {work.loop.channel} was at {counted}, and is at {work.parent}"
            " since: the sessions are not the ones that this cycle is about"
        )
        return Over("refused", why)
    return Done(
        {
            "shard": built.manifest.id,
            "samples": counts.samples,
            "tokens": counts.tokens,
            "trainable": counts.trainable,
            "excluded": dict(counts.excluded),
            "counted_from": counted,
        },
        told=f"{built.manifest.id} with {counts.samples} samples, {counts.trainable} tokens to"
        " train on",
    )
