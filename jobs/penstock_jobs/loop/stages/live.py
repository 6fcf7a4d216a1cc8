"""The stages that look at live metrics: canary, watch. One runner at a time does."""

from collections.abc import Iterator

from penstock.channels.errors import ChannelPinned, PromotionConflict
from penstock.channels.history import channel_changes
from penstock.channels.rollback import Rollback, roll_back
from penstock.checkpoints.errors import StateRefused
from penstock.database.leases import leased
from penstock.errors import InvalidInput, one_line
from penstock.gate.errors import GateRefused
from penstock.lake.settings import LakeSettings
from penstock_jobs.canary.live_metrics import COLUMNS
from penstock_jobs.canary.settings import CanarySettings
from penstock_jobs.canary.watch import WatchRound, lease_of, step_once, watch_once
from penstock_jobs.loop.loop_file import LoopFile
from penstock_jobs.loop.stages.stage import (
    CycleOver,
    Stage,
    StageAnswer,
    StageContext,
    StageDone,
    StageFacts,
    StageWaits,
)
from penstock_jobs.rewards import runs
from penstock_jobs.rewards.definition import (
    DEFAULT,
    Definition,
    find_definition,
    parse_definition,
    shipped,
)
from penstock_jobs.rewards.due_sessions import definition_known_as

_NOT_NOW = (ChannelPinned, GateRefused, PromotionConflict, StateRefused)
_REASON_CHARS_MAX = 1_000
_OWNER_CHARS_MAX = 64


class CanaryStage(Stage):
    """Gives the canary more traffic, step by step, until it has all, or was taken back."""

    name = "canary"

    def is_part_of(self, loop: LoopFile) -> bool:
        return loop.canary is not None

    def inputs(self, context: StageContext) -> StageFacts:
        return {
            "checkpoint": context.candidate,
            "parent": context.parent,
            "version": context.results["promote"]["version"],
        }

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        if (end := _canary_end(context, inputs)) is not None:
            return end
        step = _look(context)
        if step.did == "looked":
            channel, actor = context.loop.channel, context.actor
            try:
                step = step_once(context.lake, context.tenant, channel, actor=actor)
            except _NOT_NOW as error:
                step = WatchRound("refused", one_line(error))
        if (end := _canary_end(context, inputs)) is not None:
            return end
        limit_s = context.loop.canary.limit_s if context.loop.canary is not None else None
        if limit_s is not None and context.seconds_in_stage() >= limit_s:
            return _take_back(context, inputs, step.why)
        return StageWaits(step.why, _look_seconds(context))


def _canary_end(context: StageContext, inputs: StageFacts) -> StageAnswer | None:
    """None while the candidate is the canary."""
    state = context.channel()
    if state.checkpoint == context.candidate:
        summary = f"{context.candidate} has all traffic"
        return StageDone({"version": state.version}, summary=summary)
    if state.canary == context.candidate:
        return None
    return CycleOver("rolled_back", _why_gone(context, inputs["version"]))


def _take_back(context: StageContext, inputs: StageFacts, why: str) -> StageAnswer:
    reason = f"the canary {context.candidate} was not decided in time: {why}"
    request = Rollback(
        tenant=context.tenant,
        channel=context.loop.channel,
        reason=reason[:_REASON_CHARS_MAX],
        actor=context.actor,
        expect_version=context.channel().version,
    )
    try:
        roll_back(context.lake.database, request)
    except PromotionConflict as error:
        return StageWaits(one_line(error))
    return _canary_end(context, inputs) or StageWaits(why)


class WatchStage(Stage):
    """Looks at what was promoted for a while, and takes it back where live metrics say so."""

    name = "watch"

    def is_part_of(self, loop: LoopFile) -> bool:
        return loop.watch_s is not None

    def inputs(self, context: StageContext) -> StageFacts:
        before = context.results.get("canary", context.results["promote"])
        return {
            "checkpoint": context.candidate,
            "version": before["version"],
            "for_s": context.loop.watch_s,
        }

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        why = ""
        if context.channel().checkpoint == context.candidate:
            why = _look(context).why
        state = context.channel()
        if state.checkpoint != context.candidate:
            return CycleOver("rolled_back", _why_gone(context, inputs["version"]))
        left_s = inputs["for_s"] - context.seconds_in_stage()
        if left_s <= 0:
            return StageDone({"version": state.version, "last": why}, summary=why)
        waits = f"{context.candidate} is watched for {left_s:.0f} s more: {why}"
        return StageWaits(waits, min(left_s, _look_seconds(context)))


def _look_seconds(context: StageContext) -> float:
    return context.lake.settings.room(CanarySettings).canary_look_seconds


def _look(context: StageContext) -> WatchRound:
    """A round of the watcher, which rolls back a checkpoint that is worse.

    Does nothing while a watcher beside the loop looks. First computes the rewards that the metrics
    need: nobody else may compute them. Raises PromotionConflict, DatabaseUnreachable, and what
    computing rewards raises.
    """
    lake, channel = context.lake, context.loop.channel
    name = lease_of(context.tenant, channel)
    owner = f"{context.actor}-{context.claim.epoch}"[:_OWNER_CHARS_MAX]
    with leased(lake.database, name, owner, lake.settings.room(LakeSettings).lease_seconds) as mine:
        if not mine:
            return WatchRound("nothing", "another watcher is looking at this moment")
        if definitions := list(_definitions(context)):
            with context.executor() as executor:
                for definition in definitions:
                    runs.run(lake, executor, runs.RunRequest(definition))
        return watch_once(lake, context.tenant, channel)


def _definitions(context: StageContext) -> Iterator[Definition]:
    """Each definition that a live metric of the policy needs, once. The look complains of unknown
    ones."""
    policy = context.policy()
    names = [
        metric.definition or DEFAULT
        for metric in (policy.live if policy is not None else ())
        if metric.definition or metric.metric not in COLUMNS
    ]
    mine = context.loop.load_definition()
    for name in dict.fromkeys(names):
        if name in (mine.name, mine.version):
            yield mine
            continue
        try:
            known = definition_known_as(context.lake.database, name)
        except InvalidInput:
            if name in shipped():
                yield find_definition(name)
        else:
            yield parse_definition(known.text, known.name)


def _why_gone(context: StageContext, version: int) -> str:
    """Why a channel is no longer at what the loop promoted, by the first change that took it."""
    database, channel = context.lake.database, context.loop.channel
    for change in channel_changes(database, context.tenant, channel, after=version):
        if context.candidate not in (change.checkpoint, change.canary):
            return f"{change.action} by {change.actor}: {change.reason}"
    return "nobody said why"
