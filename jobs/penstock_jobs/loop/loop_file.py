"""A loop file: which channel, when a cycle begins, and what each stage of it does.

Paths in it are relative to it; commands run where it lies."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.backends.http.address import HttpAddress
from penstock.core.errors import InvalidInput
from penstock.core.settings import without_secrets
from penstock.core.toml_document import Positive, Seconds, parse_toml, read_section, read_text
from penstock.events.event import TENANT_DEFAULT
from penstock.registry.checkpoints.checkpoint import check_channel_name, check_name
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.gate.policy import parse
from penstock_jobs.rewards.definition import DEFAULT, Definition, find_definition, shipped
from penstock_jobs.shards.recipe import Recipe, load_recipe

_HOUR_S = 3_600
#: Names of loops stand in those of checkpoints, snapshots and folders.
_NAME_CHARS_MAX = 64


@dataclass(frozen=True)
class CycleStart:
    """A cycle begins as soon as one of the two is reached. `tokens` are completion tokens of
    sessions that the channel's checkpoint wrote and that were scored since the cycle before."""

    tokens: Positive | None = None
    every_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.tokens is None and self.every_s is None:
            how = 'tokens = 2000000, every = "5h" or both'
            raise ValueError(f"it does not say when a cycle begins: {how}")


@dataclass(frozen=True)
class TrainerSection:
    command: str | None = None
    url: str | None = None
    #: The name of a variable of the runner's environment that holds the token for `url`.
    token_env: str | None = None
    limit_s: Seconds = 4 * _HOUR_S
    #: Where a command writes; None: below the data directory.
    output: Path | None = None
    #: How long failed tries and checkpoints that were not promoted stay; None: for ever.
    keep_s: Seconds | None = None

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise ValueError("it needs either a command or a url, not both")
        if self.url is None:
            if self.token_env is not None:
                raise ValueError("token_env is for a url; a command has the environment")
        elif self.output is not None or self.keep_s is not None:
            raise ValueError("output and keep are for a command; a url has its own folders")


@dataclass(frozen=True)
class BenchSection:
    suite: Path
    agent: str
    serving: str | None = None
    attempts: Positive | None = None
    until_decided: bool = False
    isolation: bool = True
    pass_env: tuple[str, ...] = ()
    visible: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not (self.suite / "suite.toml").is_file():
            raise ValueError(f"there is no suite in {self.suite}: no suite.toml")


@dataclass(frozen=True)
class CanarySection:
    #: Its first share; None: the first step of the channel's policy.
    share: float | None = None
    limit_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.share is not None and not 0 < self.share < 1:
            raise ValueError(f"share lies between 0 and 1, and is {self.share!r}")


@dataclass(frozen=True)
class RetryPolicy:
    """How often a stage may fail, and its pauses: each is twice as long as the one before, up to
    the longest. The same pauses stand between cycles that fail."""

    tries: Positive = 3
    pause_s: Seconds = 30
    longest_s: Seconds = 1_800

    def __post_init__(self) -> None:
        if self.pause_s > self.longest_s:
            raise ValueError("pause is longer than longest")


@dataclass(frozen=True)
class RewardsSection:
    #: A name of those that come with Penstock, or a file.
    definition: str = DEFAULT


@dataclass(frozen=True)
class ShardSection:
    recipe: Path
    staleness: Literal["channel", "recipe"] = "channel"


@dataclass(frozen=True)
class GateSection:
    policy: Path | None = None


@dataclass(frozen=True)
class WatchSection:
    for_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.for_s is None:
            raise ValueError('it does not say how long: for = "2h"')


@dataclass(frozen=True, kw_only=True)
class LoopSections:
    name: str
    channel: str
    start: CycleStart
    trainer: TrainerSection
    bench: tuple[BenchSection, ...] = ()
    rewards: RewardsSection = RewardsSection()
    shard: ShardSection
    gate: GateSection = GateSection()
    canary: CanarySection | None = None
    watch: WatchSection | None = None
    retry: RetryPolicy = RetryPolicy()
    budget_s: Seconds = 5 * _HOUR_S
    #: Whether a cycle that takes longer ends, or is only shown.
    over_budget: Literal["show", "end"] = "show"

    def __post_init__(self) -> None:
        if not self.bench:
            raise ValueError("it has no [[bench]]: the gate would know nothing")


@dataclass(frozen=True, kw_only=True)
class LoopFile(LoopSections):
    #: The text of a policy that the channel is given; None: it has its own.
    policy: str | None
    #: Of its text; not of the files that it names.
    digest: str
    directory: Path

    def load_definition(self) -> Definition:
        definition = self.rewards.definition
        known = definition in shipped()
        return find_definition(definition if known else str(self.directory / definition))

    def load_recipe(self) -> Recipe:
        """Raises InvalidInput where it does not fit this loop."""
        recipe = load_recipe(self.shard.recipe)
        if (why := _misfit(recipe, self)) is not None:
            raise InvalidInput(what=f"The recipe {self.shard.recipe} in a loop", why=why)
        return recipe

    def here(self, command: str) -> str:
        """Puts the folder of the loop file in the place of `{here}`, quoted for a shell."""
        return command.replace("{here}", shlex.quote(str(self.directory)))


def load_loop(path: Path) -> LoopFile:
    """Reads the recipe, the definition and the policy too: nothing begins with a mistake in them.
    Raises InvalidInput."""
    where, directory = str(path), path.parent.resolve()
    content = read_text(path)
    sections = read_section(LoopSections, parse_toml(content, where), where, directory)
    check_name("The name of a loop", name := sections.name)
    fit = name.replace("-", "").replace("_", "").replace(".", "")
    if not (fit.isascii() and fit.isalnum()) or name[0] == "." or len(name) > _NAME_CHARS_MAX:
        why = f"it is at most {_NAME_CHARS_MAX} letters, digits and any of - _ ."
        raise InvalidInput(what=f"The name of a loop {name!r}", why=why)
    check_channel_name(sections.channel)
    if (url := sections.trainer.url) is not None:
        # The address is stored with each cycle, where everybody can read it.
        here = f"[trainer] of {where}, url"
        if HttpAddress.of(url, here).login is not None or without_secrets(url) != url:
            why = "no users and keys belong into it: token_env names the variable that has a token"
            raise InvalidInput(what=here, why=why)
    policy_path = sections.gate.policy
    policy = None if policy_path is None else read_text(policy_path)
    if policy is not None:
        parse(policy, str(policy_path))
    facts: dict[str, Any] = {"digest": text_digest(content), "directory": directory}
    loop = LoopFile(**vars(sections), policy=policy, **facts)
    loop.load_recipe()
    return loop


def label_of(loop: str, tenant: str) -> str:
    """The loop's name, where names of all tenants stand beside each other."""
    return loop if tenant == TENANT_DEFAULT else f"{loop}@{tenant}"


def token_of(variable: str | None) -> str | None:
    """The secret in a variable; None where none is named. Raises InvalidInput, without it."""
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token or not token.isascii() or not token.isprintable():
        why = "where this runner of the loop runs that variable holds no token"
        raise InvalidInput(what=f"token_env {variable}", why=why)
    return token


def environment_of(variables: tuple[str, ...]) -> Mapping[str, str]:
    for name in variables:
        if name not in os.environ:
            why = "there is no such variable where this runner of the loop runs"
            raise InvalidInput(what=f"pass_env {name}", why=why)
    return {name: os.environ[name] for name in variables}


def _misfit(recipe: Recipe, loop: LoopFile) -> str | None:
    for name in (recipe.tokens.tokenizer, recipe.tokens.template):
        if name is not None and not (recipe.directory / name).is_file():
            return f"there is no file {recipe.directory / name}, which its [tokens] names"
    if recipe.as_of != "latest":
        return f"as_of is {recipe.as_of!r}: each cycle would train on the same sessions. Remove it"
    if loop.shard.staleness == "channel" and recipe.staleness.channel != loop.channel:
        counted = recipe.staleness.channel or recipe.staleness.checkpoint
        by = f"it counts from {counted!r}" if counted else "it names none"
        return (
            f"its [staleness] has to say channel = {loop.channel!r}, with max_versions, and {by};"
            ' to use sessions of any checkpoint, say staleness = "recipe" in [shard] of the loop'
        )
    if recipe.reward is None:
        return None
    if recipe.reward.pending == "wait":
        return 'pending is "wait", and production never rests; say pending = "drop"'
    name = recipe.reward.definition
    definition = find_definition(name if name in shipped() else str(recipe.directory / name))
    computed = loop.load_definition()
    if definition.version == computed.version:
        return None
    why = f"its definition is {definition.name} ({definition.version}), and the loop computes"
    return f"{why} {computed.name} ({computed.version})"
