"""Look at what was promoted for a while, and take it back where live metrics say so."""

from penstock_jobs.canary.settings import CanarySettings
from penstock_jobs.loop.keeping import database_now
from penstock_jobs.loop.live import look, state_of, why_gone
from penstock_jobs.loop.loopfile import LoopFile
from penstock_jobs.loop.stage import Answer, Done, Facts, NotYet, Over, Work

NAME = "watch"
_SECOND_US = 1_000_000


def wanted(loop: LoopFile) -> bool:
    return loop.watch_s is not None


def inputs(work: Work) -> Facts:
    before = work.results.get("canary", work.results["promote"])
    return {"checkpoint": work.candidate, "version": before["version"], "for_s": work.loop.watch_s}


def run(work: Work, inputs: Facts) -> Answer:
    found = look(work) if state_of(work).checkpoint == work.candidate else None
    state = state_of(work)
    if state.checkpoint != work.candidate:
        return Over("rolled_back", why_gone(work, inputs["version"]))
    began = work.cycle.stage(NAME).started_at or work.held.at
    left_s = inputs["for_s"] - (database_now(work.lake.database) - began) / _SECOND_US
    why = found.why if found is not None else ""
    if left_s <= 0:
        return Done({"version": state.version, "last": why}, told=why)
    told = f"{work.candidate} is watched for {left_s:.0f} s more: {why}"
    return NotYet(told, min(left_s, work.lake.settings.room(CanarySettings).canary_look_seconds))
