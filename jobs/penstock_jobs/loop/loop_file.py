"""A loop file: which channel, when a cycle begins, and what each stage of it does.

A TOML file. Paths in it are relative to it; commands run where it lies.
"""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from penstock.checkpoints.digests import text_digest
from penstock.checkpoints.names import check_channel_name, check_name
from penstock.errors import InvalidInput
from penstock.gate.policy import parse
from penstock.http.address import HttpAddress
from penstock.settings import without_secrets
from penstock.toml_document import (
    choice,
    duration_s,
    flag,
    parse_toml,
    read_text,
    refuse_unknown,
    share,
    table,
    text,
    text_or_none,
    texts,
    whole,
    whole_or_none,
)
from penstock_jobs.rewards.definition import DEFAULT, Definition, find_definition, shipped
from penstock_jobs.shards.recipe import Recipe, load_recipe

StalenessSource = Literal["channel", "recipe"]
_HOUR_S = 3_600
#: Names of loops stand in those of checkpoints, snapshots and folders.
_NAME_CHARS_MAX = 64


@dataclass(frozen=True)
class CycleStart:
    """Whichever comes first. `tokens` are completion tokens of sessions that the channel's
    checkpoint wrote and that were scored since the cycle before."""

    tokens: int | None
    every_s: int | None


@dataclass(frozen=True)
class TrainerSection:
    """A command or an address; the other one is None."""

    command: str | None = None
    url: str | None = None
    #: The name of a variable of the runner's environment that holds the token for `url`.
    token_env: str | None = None
    limit_s: int = 4 * _HOUR_S
    #: Where a command writes; None: below the data directory.
    output: Path | None = None


@dataclass(frozen=True)
class BenchSection:
    """A suite, and who attempts it with which checkpoint."""

    folder: Path
    agent: str
    serving: str | None = None
    attempts: int | None = None
    until_decided: bool = False
    isolated: bool = True
    pass_env: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class CanarySection:
    #: Its first share; None: the first step of the channel's policy.
    share: float | None = None
    limit_s: int | None = None


@dataclass(frozen=True)
class RetryPolicy:
    """How often a stage may fail, and how long it pauses: each pause is twice as long as the one
    before, up to the longest. The same pauses stand between cycles that fail."""

    tries: int = 3
    pause_s: float = 30.0
    longest_s: float = 1_800.0


@dataclass(frozen=True)
class LoopFile:
    name: str
    channel: str
    start: CycleStart
    trainer: TrainerSection
    bench: tuple[BenchSection, ...]
    #: As written: a name of those that come with Penstock, or a file.
    definition: str
    recipe: Path
    counted: StalenessSource = "channel"
    #: The text of a policy that the channel is given; None: it has its own.
    policy: str | None = None
    canary: CanarySection | None = None
    watch_s: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    budget_s: int = 5 * _HOUR_S
    #: Of its text; not of the files that it names.
    digest: str = ""
    directory: Path = Path()

    def load_definition(self) -> Definition:
        """Raises InvalidInput."""
        known = self.definition in shipped()
        return find_definition(self.definition if known else str(self.directory / self.definition))

    def load_recipe(self) -> Recipe:
        """Raises InvalidInput where it does not fit this loop."""
        recipe = load_recipe(self.recipe)
        if (why := _misfit(recipe, self)) is not None:
            raise InvalidInput(what=f"The recipe {self.recipe} in a loop", why=why)
        return recipe

    def here(self, command: str) -> str:
        """Puts the folder of the loop file in the place of `{here}`, quoted for a shell."""
        return command.replace("{here}", shlex.quote(str(self.directory)))


_KEYS: Mapping[str, tuple[str, ...]] = {
    "start": ("tokens", "every"),
    "rewards": ("definition",),
    "shard": ("recipe", "staleness"),
    "trainer": ("command", "url", "token_env", "limit", "output"),
    "gate": ("policy",),
    "canary": ("share", "limit"),
    "watch": ("for",),
    "retry": ("tries", "pause", "longest"),
}
_BENCH_KEYS = (
    "suite", "agent", "serving", "attempts", "until_decided", "isolation", "pass_env", "visible",
    "hidden",
)  # fmt: skip


def load_loop(path: Path) -> LoopFile:
    """Reads the recipe, the definition and the policy too, so that nothing begins with a mistake
    in them. Raises InvalidInput, which names the key and the nearest known one."""
    where, directory = str(path), path.parent.resolve()
    content = read_text(path)
    document = parse_toml(content, where)
    refuse_unknown(document, ("name", "channel", "budget", "bench", *_KEYS), where)
    sections = {name: table(document, name, where) for name in _KEYS}
    wheres = {name: f"{where}, [{name}]" for name in _KEYS}
    for name, section in sections.items():
        refuse_unknown(section, _KEYS[name], wheres[name])
    sources = get_args(StalenessSource)
    watch_s = duration_s(sections["watch"], "for", wheres["watch"])
    if "watch" in document and watch_s is None:
        raise InvalidInput(what=wheres["watch"], why='it does not say how long: for = "2h"')
    policy_file = text_or_none(sections["gate"], "policy", wheres["gate"])
    policy = None if policy_file is None else read_text(directory / policy_file)
    if policy is not None:
        parse(policy, f"{directory / str(policy_file)}")
    loop = LoopFile(
        name=_name(text(document, "name", where)),
        channel=check_channel_name(text(document, "channel", where)),
        start=_start(sections["start"], wheres["start"]),
        trainer=_trainer(sections["trainer"], wheres["trainer"], directory),
        bench=_benches(document, where, directory),
        definition=text_or_none(sections["rewards"], "definition", wheres["rewards"]) or DEFAULT,
        recipe=directory / text(sections["shard"], "recipe", wheres["shard"]),
        counted=choice(sections["shard"], "staleness", sources, "channel", wheres["shard"]),
        policy=policy,
        canary=_canary(sections["canary"], wheres["canary"]) if "canary" in document else None,
        watch_s=watch_s,
        retry=_retry(sections["retry"], wheres["retry"]),
        budget_s=_duration(document, "budget", LoopFile.budget_s, where),
        digest=text_digest(content),
        directory=directory,
    )
    loop.load_recipe()
    return loop


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
    """The variables that an agent gets too. Raises InvalidInput."""
    for name in variables:
        if name not in os.environ:
            why = "there is no such variable where this runner of the loop runs"
            raise InvalidInput(what=f"pass_env {name}", why=why)
    return {name: os.environ[name] for name in variables}


def _name(name: str) -> str:
    check_name("The name of a loop", name)
    fit = name.replace("-", "").replace("_", "").replace(".", "")
    if not (fit.isascii() and fit.isalnum()) or name[0] == "." or len(name) > _NAME_CHARS_MAX:
        why = f"it is at most {_NAME_CHARS_MAX} letters, digits and any of - _ ."
        raise InvalidInput(what=f"The name of a loop {name!r}", why=why)
    return name


def _duration(section: Mapping[str, Any], key: str, default: float, where: str) -> Any:
    seconds = duration_s(section, key, where)
    return default if seconds is None else seconds


def _start(section: Mapping[str, Any], where: str) -> CycleStart:
    start = CycleStart(
        tokens=whole_or_none(section, "tokens", where, least=1),
        every_s=duration_s(section, "every", where),
    )
    if start == CycleStart(None, None):
        why = 'it does not say when a cycle begins: tokens = 2000000, every = "5h" or both'
        raise InvalidInput(what=where, why=why)
    return start


def _trainer(section: Mapping[str, Any], where: str, directory: Path) -> TrainerSection:
    names = ("command", "url", "token_env", "output")
    command, url, token_env, output = (text_or_none(section, name, where) for name in names)
    if (command is None) == (url is None):
        raise InvalidInput(what=where, why="it needs either a command or a url, not both")
    if url is None and token_env is not None:
        raise InvalidInput(what=where, why="token_env is for a url; a command has the environment")
    if url is not None:
        # The address is stored with each cycle, where everybody can read it.
        if HttpAddress.of(url, f"{where}, url").login is not None or without_secrets(url) != url:
            why = (
                "users and keys do not belong into it: token_env names the variable with the token"
            )
            raise InvalidInput(what=f"{where}, url", why=why)
        if output is not None:
            raise InvalidInput(what=where, why="output is for a command; a url has its own folders")
    return TrainerSection(
        command=command,
        url=url,
        token_env=token_env,
        limit_s=_duration(section, "limit", TrainerSection.limit_s, where),
        output=None if output is None else directory / output,
    )


def _benches(document: Mapping[str, Any], where: str, directory: Path) -> tuple[BenchSection, ...]:
    sections = document.get("bench", [])
    if not isinstance(sections, list) or not all(isinstance(section, dict) for section in sections):
        raise InvalidInput(what=where, why="bench is written as [[bench]]")
    if not sections:
        raise InvalidInput(what=where, why="it has no [[bench]]: the gate would know nothing")
    benches = []
    for number, section in enumerate(sections, 1):
        here = f"{where}, [[bench]] {number}"
        refuse_unknown(section, _BENCH_KEYS, here)
        bench = BenchSection(
            folder=directory / text(section, "suite", here),
            agent=text(section, "agent", here),
            serving=text_or_none(section, "serving", here),
            attempts=whole_or_none(section, "attempts", here, least=1),
            until_decided=flag(section, "until_decided", False, here),
            isolated=flag(section, "isolation", True, here),
            pass_env=texts(section, "pass_env", here),
            visible=tuple(str(directory / path) for path in texts(section, "visible", here)),
            hidden=tuple(str(directory / path) for path in texts(section, "hidden", here)),
        )
        if not (bench.folder / "suite.toml").is_file():
            why = f"there is no suite in {bench.folder}: no suite.toml"
            raise InvalidInput(what=here, why=why)
        benches.append(bench)
    return tuple(benches)


def _canary(section: Mapping[str, Any], where: str) -> CanarySection:
    first = share(section, "share", 0.5, where)
    if not 0 < first < 1:
        raise InvalidInput(what=where, why=f"share lies between 0 and 1, and is {first!r}")
    return CanarySection(first if "share" in section else None, duration_s(section, "limit", where))


def _retry(section: Mapping[str, Any], where: str) -> RetryPolicy:
    retry = RetryPolicy(
        tries=whole(section, "tries", RetryPolicy.tries, where, least=1),
        pause_s=float(_duration(section, "pause", RetryPolicy.pause_s, where)),
        longest_s=float(_duration(section, "longest", RetryPolicy.longest_s, where)),
    )
    if retry.pause_s > retry.longest_s:
        raise InvalidInput(what=where, why="pause is longer than longest")
    return retry


def _misfit(recipe: Recipe, loop: LoopFile) -> str | None:
    """Why a recipe cannot be used by this loop, if it cannot."""
    for name in (recipe.tokens.tokenizer, recipe.tokens.template):
        if name is not None and not recipe.path(name).is_file():
            return f"there is no file {recipe.path(name)}, which its [tokens] names"
    if recipe.as_of != "latest":
        return (
            f"as_of is {recipe.as_of!r}: each cycle would train on the same sessions; a loop says"
            " itself which moment its cycle is about"
        )
    if loop.counted == "channel" and recipe.staleness.channel != loop.channel:
        counted = recipe.staleness.channel or recipe.staleness.checkpoint
        by = f"it counts from {counted!r}" if counted else "it names none"
        return (
            f"its [staleness] has to say channel = {loop.channel!r}, with max_versions, so that"
            f" samples of retired checkpoints are left out, and {by}; where that is meant, the"
            ' [shard] of the loop file says staleness = "recipe"'
        )
    if recipe.reward is None:
        return None
    if recipe.reward.pending == "wait":
        return (
            'pending is "wait": production never rests, and such a shard would never be built;'
            ' say pending = "drop"'
        )
    name = recipe.reward.definition
    theirs = find_definition(name if name in shipped() else str(recipe.path(name)))
    mine = loop.load_definition()
    if theirs.version != mine.version:
        return (
            f"its definition is {theirs.name} ({theirs.version}), and the loop computes {mine.name}"
            f" ({mine.version})"
        )
    return None
