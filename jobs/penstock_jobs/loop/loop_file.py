"""A loop file: the channel, when a cycle begins, and what each stage does.

Paths are relative to the file, and commands run in its folder."""

import os
import re
import shlex
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
#: Names of loops are part of the names of checkpoints, snapshots and folders.
_NAME = re.compile("[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
#: A program beside the loop file, in a command.
_PROGRAM = re.compile(r"{here}/([\w./-]+\.(?:py|sh))\b")


@dataclass(frozen=True)
class CycleStart:
    """The start of a cycle: as soon as one of the two limits is reached.

    `tokens` are completion tokens of the channel's checkpoint, scored since the previous cycle."""

    tokens: Positive | None = None
    every_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.tokens is None and self.every_s is None:
            how = 'tokens = 2000000, every = "5h" or both'
            raise ValueError(f"it does not say when a cycle begins; set {how}")


@dataclass(frozen=True)
class TrainerSection:
    command: str | None = None
    url: str | None = None
    #: The environment variable of the runner that holds the token for `url`.
    token_env: str | None = None
    limit_s: Seconds = 4 * _HOUR_S
    #: Where a command writes; None for the data directory.
    output: Path | None = None
    #: How long failed tries and unpromoted checkpoints are kept; None for ever.
    keep_s: Seconds | None = None

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise ValueError("it needs either a command or a url, not both")
        if self.url is None:
            if self.token_env is not None:
                raise ValueError("token_env goes with a url; a command has the whole environment")
        elif self.output is not None or self.keep_s is not None:
            raise ValueError("output and keep go with a command; a url has its own folders")


@dataclass(frozen=True)
class ServingSection:
    #: It serves `{checkpoint}`, whose files are at `{uri}`, at `{port}` of 127.0.0.1.
    command: str
    #: The path that answers 200 once the checkpoint is served.
    ready: str = "/health"
    limit_s: Seconds = 120

    def __post_init__(self) -> None:
        if "{port}" not in self.command:
            raise ValueError("its command names no {port}, where attempts look for the model")
        if not re.fullmatch("/[!-~]*", self.ready):
            raise ValueError(f"ready must be a path such as /health, not {self.ready!r}")


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
        for path in self.visible:
            if not path.exists():
                raise ValueError(f"visible names {path}, which is not there")


@dataclass(frozen=True)
class CanarySection:
    #: The first share; None for the first step of the channel's policy.
    share: float | None = None
    limit_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.share is not None and not 0 < self.share < 1:
            raise ValueError(f"share must lie between 0 and 1, but is {self.share!r}")


@dataclass(frozen=True)
class RetryPolicy:
    """The number of tries of a stage, and the pauses between them.

    Each pause is twice as long as the last, up to the longest. Failed cycles pause likewise."""

    tries: Positive = 3
    pause_s: Seconds = 30
    longest_s: Seconds = 1_800

    def __post_init__(self) -> None:
        if self.pause_s > self.longest_s:
            raise ValueError("pause is longer than longest")


@dataclass(frozen=True)
class RewardsSection:
    #: A shipped definition by name, or a file.
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
    for_s: Seconds


@dataclass(frozen=True, kw_only=True)
class LoopSections:
    name: str
    channel: str
    start: CycleStart
    trainer: TrainerSection
    serving: ServingSection | None = None
    bench: tuple[BenchSection, ...] = ()
    rewards: RewardsSection = RewardsSection()
    shard: ShardSection
    gate: GateSection = GateSection()
    canary: CanarySection | None = None
    watch: WatchSection | None = None
    retry: RetryPolicy = RetryPolicy()
    budget_s: Seconds = 5 * _HOUR_S
    #: Whether a cycle over its budget ends, or is only shown.
    over_budget: Literal["show", "end"] = "show"

    def __post_init__(self) -> None:
        if not self.bench:
            raise ValueError("it has no [[bench]], which the gate needs")
        if self.serving is not None and any(bench.serving for bench in self.bench):
            raise ValueError("[serving] gives attempts their address; remove serving in [[bench]]")


@dataclass(frozen=True, kw_only=True)
class LoopFile(LoopSections):
    #: The text of a policy for the channel; None keeps the channel's own.
    policy: str | None
    #: The digest of this file alone, without the files that it names.
    digest: str
    directory: Path

    def load_definition(self) -> Definition:
        definition = self.rewards.definition
        known = definition in shipped()
        return find_definition(definition if known else str(self.directory / definition))

    def load_recipe(self) -> Recipe:
        """Load the recipe. Raises InvalidInput if it does not fit this loop."""
        recipe = load_recipe(self.shard.recipe)
        if (why := _misfit(recipe, self)) is not None:
            raise InvalidInput(what=f"The recipe {self.shard.recipe} in a loop", why=why)
        return recipe

    def here(self, command: str, **facts: str) -> str:
        """Replace `{here}` by the loop file's folder, and each fact, quoted for a shell."""
        values = {"here": str(self.directory), **facts}
        pattern = rf"\{{({'|'.join(values)})\}}"
        return re.sub(pattern, lambda found: shlex.quote(values[found[1]]), command)


def load_loop(path: Path) -> LoopFile:
    """Read a loop file, and check the recipe, definition, policy and programs that it names.

    Raises InvalidInput."""
    where, directory = str(path), path.parent.resolve()
    content = read_text(path)
    sections = read_section(LoopSections, parse_toml(content, where), where, directory)
    check_name("The name of a loop", name := sections.name)
    if not _NAME.fullmatch(name):
        why = "use at most 64 letters, digits and any of - _ ."
        raise InvalidInput(what=f"The name of a loop {name!r}", why=why)
    check_channel_name(sections.channel)
    if (url := sections.trainer.url) is not None:
        # The address is stored with each cycle, where every reader sees it.
        here = f"[trainer] of {where}, url"
        if HttpAddress.of(url, here).login is not None or without_secrets(url) != url:
            why = "it must hold no user or key; name the variable with the token in token_env"
            raise InvalidInput(what=here, why=why)
    serving = () if sections.serving is None else (sections.serving.command,)
    agents = (bench.agent for bench in sections.bench)
    for program in _PROGRAM.findall(" ".join([sections.trainer.command or "", *serving, *agents])):
        if not (directory / program).is_file():
            raise InvalidInput(what=f"{{here}}/{program} in {where}", why="there is no such file")
    policy_path = sections.gate.policy
    policy = None if policy_path is None else read_text(policy_path)
    if policy is not None:
        parse(policy, str(policy_path))
    facts: dict[str, Any] = {"digest": text_digest(content), "directory": directory}
    loop = LoopFile(**vars(sections), policy=policy, **facts)
    loop.load_recipe()
    loop.load_definition()
    return loop


def label_of(loop: str, tenant: str) -> str:
    """Return a name that is unique among all tenants."""
    return loop if tenant == TENANT_DEFAULT else f"{loop}@{tenant}"


def token_of(variable: str | None) -> str | None:
    """Read the secret in a variable, if one is named. Raises InvalidInput, without the secret."""
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token or not token.isascii() or not token.isprintable():
        why = "in the environment of this runner it holds no token"
        raise InvalidInput(what=f"token_env {variable}", why=why)
    return token


def _misfit(recipe: Recipe, loop: LoopFile) -> str | None:
    if recipe.as_of != "latest":
        return f"as_of is {recipe.as_of!r}: each cycle would train on the same sessions; remove it"
    if loop.shard.staleness == "channel" and recipe.staleness.channel != loop.channel:
        counted = recipe.staleness.channel or recipe.staleness.checkpoint
        by = f"it names {counted!r}" if counted else "it names none"
        return (
            f"its [staleness] must have channel = {loop.channel!r} and max_versions, but {by};"
            ' to use sessions of any checkpoint, set staleness = "recipe" in [shard] of the loop'
        )
    if recipe.reward is None:
        return None
    if recipe.reward.pending == "wait":
        return 'pending is "wait", but new sessions never end; set pending = "drop"'
    name = recipe.reward.definition
    definition = find_definition(name if name in shipped() else str(recipe.directory / name))
    computed = loop.load_definition()
    if definition.version == computed.version:
        return None
    why = f"its definition is {definition.name} ({definition.version}), but the loop computes"
    return f"{why} {computed.name} ({computed.version})"
