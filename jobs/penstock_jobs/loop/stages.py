"""Stages of a cycle, and those that make a candidate: rewards, shard, train, register.

A stage can be killed anywhere and run again, on any machine, with the same inputs. Work that it had
finished is not repeated."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from penstock.backends.database.engine import Database
from penstock.backends.execution import open_executor
from penstock.backends.http.address import EgressPolicy, HttpAddress
from penstock.core.clock import SECOND_US
from penstock.core.settings import without_secrets
from penstock.lake.catalog import name_snap, pinned
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.channel import channel_state, policy_of
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.checkpoints.registration import find, register
from penstock.registry.gate.policy import Policy, parse
from penstock.shards.shard import shard_folder
from penstock_jobs.loop import LoopSettings
from penstock_jobs.loop.cycles import Cycle, CycleOutcome, StageClaim, database_now, encoded_inputs
from penstock_jobs.loop.loop_file import CycleStart, LoopFile, label_of, token_of
from penstock_jobs.loop.tables import loop_cycle
from penstock_jobs.loop.trainers import (
    CommandTrainer,
    HttpTrainer,
    Trainer,
    TrainerFolders,
    TrainingTask,
)
from penstock_jobs.rewards import runs
from penstock_jobs.shards.build import build_shard
from penstock_jobs.shards.selection.session_facts import latest_snap

#: Values that JSON can hold.
StageFacts = Mapping[str, Any]


class StageDone(msgspec.Struct, frozen=True):
    result: StageFacts
    #: Columns of the cycle that this stage fills in.
    columns: StageFacts = msgspec.field(default_factory=dict)
    summary: str = ""


class StageWaits(msgspec.Struct, frozen=True):
    """The stage has to wait and runs again after the pause, by default the poll interval."""

    why: str
    pause_s: float | None = None


class CycleOver(msgspec.Struct, frozen=True):
    """The cycle ends here. Later stages are not run."""

    outcome: CycleOutcome
    why: str
    result: StageFacts = msgspec.field(default_factory=dict)


StageAnswer = StageDone | StageWaits | CycleOver


class StageContext(msgspec.Struct, frozen=True):
    lake: Lake
    loop: LoopFile
    tenant: str
    #: The cycle when this stage was claimed.
    cycle: Cycle
    claim: StageClaim

    @property
    def database(self) -> Database:
        return self.lake.database

    @property
    def parent(self) -> str:
        assert self.cycle.parent is not None
        return self.cycle.parent

    @property
    def candidate(self) -> str:
        return f"{self.loop.name}-{self.cycle.number:04d}"

    @property
    def actor(self) -> str:
        return f"loop-{self.loop.name}"

    @property
    def requester(self) -> dict[str, Any]:
        return {"tenant": self.tenant, "channel": self.loop.channel, "actor": self.actor}

    @property
    def occasion(self) -> str:
        return f"cycle {self.cycle.number} of the loop {self.loop.name}"

    def channel(self) -> ChannelState:
        return channel_state(self.database, self.tenant, self.loop.channel)

    def policy(self) -> Policy | None:
        text = policy_of(self.database, self.channel())
        where = f"the policy of {self.loop.channel}"
        return None if text is None else parse(text, where)

    def seconds_in_stage(self) -> float:
        began = self.cycle.stage(self.claim.stage).started_at or self.claim.at
        return (database_now(self.database) - began) / SECOND_US


class Stage(ABC):
    #: The name in the database.
    name: ClassVar[str]

    @abstractmethod
    def inputs(self, context: StageContext) -> StageFacts:
        """Collect all facts that the result depends on. Raises what `run` raises."""

    @abstractmethod
    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        """Do the work. Raises PenstockError; the runner tries again if that can help."""


class RewardsStage(Stage):
    """Computes rewards of new sessions until there are enough tokens.

    Then the cycle begins, and a snapshot fixes its sessions."""

    name = "rewards"

    def inputs(self, context: StageContext) -> StageFacts:
        cycles, columns = context.claim.cycles, loop_cycle.c
        is_earlier = columns.number < context.cycle.number
        begun = cycles.newest(is_earlier, columns.began_at.is_not(None))
        # The newest cycle that made a checkpoint, promoted or not.
        trained = cycles.newest(is_earlier, columns.checkpoint.is_not(None))
        return {
            "channel": context.loop.channel,
            "definition": context.loop.load_definition().version,
            "start": asdict(context.loop.start),
            "scored_after_us": trained.results[self.name]["scored_at_us"] if trained else 0,
            "began_before_us": begun.began_at if begun else None,
        }

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        lake, loop, database = context.lake, context.loop, context.database
        definition = loop.load_definition()
        with open_executor(lake.settings) as executor:
            report = runs.run(lake, executor, runs.RunRequest(definition))
        # Read the channel first: then the snap lacks no session of the channel's checkpoint.
        checkpoint = context.channel().checkpoint
        if checkpoint is None:
            return StageWaits(f"nothing is promoted to {loop.channel} yet")
        snap = latest_snap(lake, context.tenant, loop.channel)
        with pinned(database, snap, renewed=True):
            after_us = inputs["scored_after_us"]
            facts = {"checkpoint": checkpoint, "version": definition.version, "after_us": after_us}
            sql = files("penstock_jobs.loop").joinpath("fresh.sql").read_text(encoding="utf-8")
            query = OwnQuery(sql, frozenset({"outcomes", "sessions"}), facts)
            [fresh] = lake.query(query, as_of=snap, tenant=context.tenant).arrow().to_pylist()
            tokens, before = fresh["tokens"], (inputs["began_before_us"], database_now(database))
            waits_for = missing_for_start(loop.start, tokens, checkpoint, *before)
            if waits_for is not None:
                return StageWaits(waits_for)
            name = f"loop-{label_of(loop.name, context.tenant)}-{context.cycle.number:04d}"
            snapshot = name_snap(database, name, name, snap, f"the sessions of {context.occasion}")
        summary = f"{tokens} fresh scored tokens of {fresh['sessions']} sessions from {checkpoint}"
        result = {"snapshot": snapshot, "scored_at_us": report.as_of_us}
        result |= {"computed": report.sessions, **fresh}
        return StageDone(result, {"parent": checkpoint, "began_at": context.claim.at}, summary)


def missing_for_start(
    start: CycleStart, tokens: int, checkpoint: str, began_before_us: int | None, now_us: int
) -> str | None:
    """Say what a cycle waits for; None if it can begin. `began_before_us` is the previous start."""
    reasons = []
    if start.tokens is not None:
        if tokens >= start.tokens:
            return None
        reasons = [f"{tokens} of {start.tokens} fresh scored tokens from {checkpoint}"]
    if start.every_s is not None:
        if began_before_us is None:
            return None
        left_s = start.every_s - (now_us - began_before_us) / SECOND_US
        if left_s <= 0:
            return None
        reasons.append(f"{left_s:.0f} s until the next scheduled start")
    return ", or ".join(reasons)


class ShardStage(Stage):
    """Builds the shard from the cycle's snapshot."""

    name = "shard"

    def inputs(self, context: StageContext) -> StageFacts:
        recipe, parent = context.loop.load_recipe(), context.parent
        snapshot = context.cycle.results["rewards"]["snapshot"]
        facts = {"recipe": recipe.canonical, "query": recipe.query}
        return facts | {"snapshot": snapshot, "parent": parent}

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        loop = context.loop
        recipe = replace(loop.load_recipe(), as_of=inputs["snapshot"])
        with open_executor(context.lake.settings) as executor:
            by = f"loop {loop.name}"
            built = build_shard(context.lake, executor, recipe, tenant=context.tenant, by=by)
        manifest = built.manifest
        counted_from, counts = manifest.counted_from, manifest.counts
        if loop.shard.staleness == "channel" and counted_from != context.parent:
            why = (
                f"in the snapshot {loop.channel} was at {counted_from}, now it is at"
                f" {context.parent}: the shard would hold sessions of another checkpoint"
            )
            return CycleOver("refused", why)
        result: dict[str, Any] = {"shard": manifest.id, "counted_from": counted_from}
        result |= {name: getattr(counts, name) for name in ("samples", "tokens", "trainable")}
        result["excluded"] = dict(counts.excluded)
        summary = f"{counts.samples} samples, {counts.trainable} tokens to train on"
        return StageDone(result, summary=f"{manifest.id} with {summary}")


class TrainStage(Stage):
    """Has the trainer make the next checkpoint from the parent and the shard."""

    name = "train"

    def inputs(self, context: StageContext) -> StageFacts:
        parent = find(context.database, context.tenant, context.parent)
        shard = context.cycle.results["shard"]["shard"]
        trainer = context.loop.trainer
        folder = shard_folder(context.tenant, shard)
        how = {"url": trainer.url} if trainer.command is None else {"command": trainer.command}
        return how | {
            "shard": shard,
            "shard_folder": _address(context.lake.settings.store_url, folder),
            "parent": parent.name,
            "parent_uri": parent.uri,
            "parent_digest": parent.digest,
            "checkpoint": context.candidate,
        }

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        facts = {name: value for name, value in inputs.items() if name not in ("url", "command")}
        lake = without_secrets(context.lake.settings.store_url)
        facts |= {"lake": lake, "loop": context.loop.name, "cycle": context.cycle.number}
        # The key begins with the checkpoint's name, for people who read it.
        _, digest = encoded_inputs(inputs)
        suffix = text_digest(f"{context.tenant}\0{digest}").removeprefix("sha256:")
        key = f"{inputs['checkpoint']}-{suffix}"
        limits = {"limit": float(context.loop.trainer.limit_s)}
        if (left_s := context.claim.left_s()) is not None:
            limits["budget"] = max(left_s, 1.0)
        limited_by = min(limits, key=lambda name: limits[name])
        limit: dict[str, Any] = {"limit_s": limits[limited_by], "limited_by": limited_by}
        task = TrainingTask(key=key, attempt=context.claim.epoch, facts=facts, **limit)
        trained = _open_trainer(context).train(task, context.claim.lost)
        summary = f"{trained.uri}, {trained.digest}"
        return StageDone(msgspec.structs.asdict(trained), summary=summary)


def _open_trainer(context: StageContext) -> Trainer:
    settings, loop, trainer = context.lake.settings, context.loop, context.loop.trainer
    if trainer.command is not None:
        return CommandTrainer(
            command=loop.here(trainer.command),
            directory=loop.directory,
            folders=TrainerFolders.of(settings, loop, context.tenant, context.cycle.number),
            data=settings.data,
        )
    assert trainer.url is not None
    of_loop = settings.room(LoopSettings)
    return HttpTrainer(
        address=HttpAddress.of(trainer.url, "The address of the trainer"),
        egress=EgressPolicy.for_operator(settings),
        token=token_of(trainer.token_env),
        pause_s=of_loop.loop_poll_seconds,
        silence_s=of_loop.loop_trainer_silence_seconds,
    )


def _address(store_url: str, folder: str) -> str:
    """Return a path if the store is local files, else an address."""
    if store_url.startswith("file://"):
        return str(Path(store_url.removeprefix("file://")) / folder)
    base, _, options = store_url.partition("?")
    return f"{base.rstrip('/')}/{folder}" + (f"?{options}" if options else "")


class RegisterStage(Stage):
    """Registers the trained checkpoint. Readable files must match its digest."""

    name = "register"

    def inputs(self, context: StageContext) -> StageFacts:
        results = context.cycle.results
        facts = {"name": context.candidate, "parent": context.parent}
        return {**results["train"], **facts, "shard": results["shard"]["shard"]}

    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        what = {key: inputs[key] for key in ("name", "uri", "digest", "parent", "form")}
        checkpoint = register(
            *(context.database, context.lake.settings),
            **what,
            tenant=context.tenant,
            actor=context.actor,
            shards=[inputs["shard"]],
            note=inputs["note"] or context.occasion,
        )
        name, checked = checkpoint.name, checkpoint.checked
        result = {"checkpoint": name, "digest": checkpoint.digest, "checked": checked}
        return StageDone(result, {"checkpoint": name}, f"{name}, {checked}")
