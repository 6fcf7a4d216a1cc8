"""A loop file: which channel, when a cycle begins, and what each stage of it does.

A TOML file. Paths in it are relative to it; commands run where it lies.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from penstock.checkpoints.digests import text_digest
from penstock.checkpoints.names import check_channel_name, check_name
from penstock.errors import InvalidInput
from penstock.gate import policy
from penstock.http.address import HttpAddress
from penstock.settings import without_secrets
from penstock.toml_document import (
    choice,
    duration_s,
    flag,
    number,
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

Counted = Literal["channel", "recipe"]
_HOUR_S = 3_600
#: Names of loops stand in those of checkpoints, snapshots and folders.
_NAME_CHARS_MAX = 64


@dataclass(frozen=True)
class Start:
    """Whichever comes first. `tokens` are completion tokens of sessions that the channel's
    checkpoint wrote and that were scored since the cycle before."""

    tokens: int | None
    every_s: int | None


@dataclass(frozen=True)
class Trainer:
    """A command or an address; the other one is None."""

    command: str | None = None
    url: str | None = None
    #: The name of a variable of the runner's environment that holds the token for `url`.
    token_env: str | None = None
    limit_s: int = 4 * _HOUR_S
    #: Where a command writes; None: below the data directory.
    output: Path | None = None


@dataclass(frozen=True)
class Bench:
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
class Canary:
    #: Its first share; None: the first step of the channel's policy.
    share: float | None = None
    limit_s: int | None = None


@dataclass(frozen=True)
class Retry:
    """How often a stage may fail, and how long it pauses: each pause is twice as long as the one
    before, up to the longest. The same pauses stand between cycles that fail."""

    tries: int = 3
    pause_s: float = 30.0
    longest_s: float = 1_800.0


@dataclass(frozen=True)
class LoopFile:
    name: str
    channel: str
    start: Start
    trainer: Trainer
    bench: tuple[Bench, ...]
    #: As written: a name of those that come with Penstock, or a file.
    definition: str
    recipe: Path
    counted: Counted = "channel"
    #: The text of a policy that the channel is given; None: it has its own.
    policy: str | None = None
    canary: Canary | None = None
    watch_s: int | None = None
    retry: Retry = field(default_factory=Retry)
    budget_s: int = 5 * _HOUR_S
    #: Of all that it says; not of the files that it names.
    digest: str = ""
    directory: Path = Path()

    def load_definition(self) -> Definition:
        """Raises InvalidInput."""
        known = self.definition in shipped()
        return find_definition(self.definition if known else str(self.directory / self.definition))

    def load_recipe(self) -> Recipe:
        """Raises InvalidInput where it does not fit this loop."""
        recipe = load_recipe(self.recipe)
        for problem in _misfits(recipe, self):
            raise InvalidInput(what=f"The recipe {self.recipe} in a loop", why=problem)
        return recipe

    def here(self, command: str) -> str:
        """`{here}` is where the loop file lies, as a shell takes it for one word."""
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
_BENCH = (
    "suite", "agent", "serving", "attempts", "until_decided", "isolation", "pass_env", "visible",
    "hidden",
)  # fmt: skip
_TOP = ("name", "channel", "budget", "bench", *_KEYS)


def load_loop(path: Path) -> LoopFile:
    """Reads the recipe, the definition and the policy too, so that what is wrong is said before
    anything is done. Raises InvalidInput, which names the key and the nearest known one."""
    where, directory = str(path), path.parent.resolve()
    content = read_text(path)
    found = parse_toml(content, where)
    refuse_unknown(found, _TOP, where)
    parts = {name: table(found, name, where) for name in _KEYS}
    for name, keys in _KEYS.items():
        refuse_unknown(parts[name], keys, f"{where}, [{name}]")
    budget_s = duration_s(found, "budget", where)
    loop = LoopFile(
        name=_name(text(found, "name", where)),
        channel=check_channel_name(text(found, "channel", where)),
        start=_start(parts["start"], f"{where}, [start]"),
        trainer=_trainer(parts["trainer"], f"{where}, [trainer]", directory),
        bench=_benches(found, where, directory),
        definition=text_or_none(parts["rewards"], "definition", f"{where}, [rewards]") or DEFAULT,
        recipe=directory / text(parts["shard"], "recipe", f"{where}, [shard]"),
        counted=choice(
            parts["shard"], "staleness", get_args(Counted), "channel", f"{where}, [shard]"
        ),
        policy=_policy(parts["gate"], f"{where}, [gate]", directory),
        canary=_canary(parts["canary"], f"{where}, [canary]") if "canary" in found else None,
        watch_s=_watch(parts["watch"], f"{where}, [watch]") if "watch" in found else None,
        retry=_retry(parts["retry"], f"{where}, [retry]"),
        budget_s=LoopFile.budget_s if budget_s is None else budget_s,
        digest=text_digest(content),
        directory=directory,
    )
    loop.load_recipe()
    return loop


def _name(name: str) -> str:
    check_name("The name of a loop", name)
    fit = name.replace("-", "").replace("_", "").replace(".", "")
    if not (fit.isascii() and fit.isalnum()) or name[0] == "." or len(name) > _NAME_CHARS_MAX:
        why = f"it is at most {_NAME_CHARS_MAX} letters, digits and any of - _ ."
        raise InvalidInput(what=f"The name of a loop {name!r}", why=why)
    return name


def _start(found: Mapping[str, Any], where: str) -> Start:
    start = Start(
        tokens=whole_or_none(found, "tokens", where, least=1),
        every_s=duration_s(found, "every", where),
    )
    if start == Start(None, None):
        why = 'it does not say when a cycle begins: tokens = 2000000, every = "5h" or both'
        raise InvalidInput(what=where, why=why)
    return start


def _trainer(found: Mapping[str, Any], where: str, directory: Path) -> Trainer:
    limit_s = duration_s(found, "limit", where)
    names = ("command", "url", "token_env", "output")
    command, url, token_env, output = (text_or_none(found, name, where) for name in names)
    if (command is None) == (url is None):
        why = "it has either a command or a url, and exactly one of them"
        raise InvalidInput(what=where, why=why)
    if url is None and token_env is not None:
        raise InvalidInput(what=where, why="token_env is for a url; a command has the environment")
    if url is not None:
        _check_url(url, where)
        if output is not None:
            raise InvalidInput(what=where, why="output is for a command; a url has its own folders")
    return Trainer(
        command=command,
        url=url,
        token_env=token_env,
        limit_s=Trainer.limit_s if limit_s is None else limit_s,
        output=None if output is None else directory / output,
    )


def _check_url(url: str, where: str) -> None:
    """What is in a loop file is kept with each cycle, for everybody to read."""
    found = HttpAddress.of(url, f"{where}, url")
    if found.login is not None or without_secrets(url) != url:
        why = "users and keys do not belong into it: token_env names the variable that has a token"
        raise InvalidInput(what=f"{where}, url", why=why)


def _benches(found: Mapping[str, Any], where: str, directory: Path) -> tuple[Bench, ...]:
    entries = found.get("bench", [])
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise InvalidInput(what=where, why="bench is written as [[bench]]")
    if not entries:
        raise InvalidInput(what=where, why="it has no [[bench]]: the gate would know nothing")
    return tuple(
        _bench(one, f"{where}, [[bench]] {at}", directory) for at, one in enumerate(entries, 1)
    )


def _bench(found: Mapping[str, Any], where: str, directory: Path) -> Bench:
    refuse_unknown(found, _BENCH, where)
    bench = Bench(
        folder=directory / text(found, "suite", where),
        agent=text(found, "agent", where),
        serving=text_or_none(found, "serving", where),
        attempts=whole_or_none(found, "attempts", where, least=1),
        until_decided=flag(found, "until_decided", False, where),
        isolated=flag(found, "isolation", True, where),
        pass_env=texts(found, "pass_env", where),
        visible=tuple(str(directory / one) for one in texts(found, "visible", where)),
        hidden=tuple(str(directory / one) for one in texts(found, "hidden", where)),
    )
    if not (bench.folder / "suite.toml").is_file():
        why = f"there is no suite in {bench.folder}: no suite.toml"
        raise InvalidInput(what=where, why=why)
    return bench


def _policy(found: Mapping[str, Any], where: str, directory: Path) -> str | None:
    name = text_or_none(found, "policy", where)
    if name is None:
        return None
    content = read_text(directory / name)
    policy.parse(content, str(directory / name))
    return content


def _canary(found: Mapping[str, Any], where: str) -> Canary:
    wanted = share(found, "share", 0.5, where)
    if not 0 < wanted < 1:
        raise InvalidInput(what=where, why=f"share lies between 0 and 1, and is {wanted!r}")
    return Canary(wanted if "share" in found else None, duration_s(found, "limit", where))


def _watch(found: Mapping[str, Any], where: str) -> int:
    watch_s = duration_s(found, "for", where)
    if watch_s is None:
        raise InvalidInput(what=where, why='it does not say how long: for = "2h"')
    return watch_s


def _retry(found: Mapping[str, Any], where: str) -> Retry:
    pause_s, longest_s = (duration_s(found, key, where) for key in ("pause", "longest"))
    retry = Retry(
        tries=whole(found, "tries", Retry.tries, where, least=1),
        pause_s=Retry.pause_s if pause_s is None else number(pause_s, "pause", where),
        longest_s=Retry.longest_s if longest_s is None else number(longest_s, "longest", where),
    )
    if retry.pause_s > retry.longest_s:
        raise InvalidInput(what=where, why="pause is longer than longest")
    return retry


def _misfits(recipe: Recipe, loop: LoopFile) -> list[str]:
    """Why a recipe cannot be used by this loop."""
    found = [
        f"there is no file {recipe.path(name)}, which its [tokens] names"
        for name in (recipe.tokens.tokenizer, recipe.tokens.template)
        if name is not None and not recipe.path(name).is_file()
    ]
    if recipe.as_of != "latest":
        found.append(
            f"as_of is {recipe.as_of!r}: each cycle would train on the same sessions; a loop says"
            " itself which moment its cycle is about"
        )
    if loop.counted == "channel" and recipe.staleness.channel != loop.channel:
        counted = recipe.staleness.channel or recipe.staleness.checkpoint
        by = f"it counts from {counted!r}" if counted else "it names none"
        found.append(
            f"its [staleness] has to say channel = {loop.channel!r}, with max_versions, so that"
            f" samples of retired checkpoints are left out, and {by}; where that is meant, the"
            ' [shard] of the loop file says staleness = "recipe"'
        )
    if recipe.reward is None:
        return found
    if recipe.reward.pending == "wait":
        found.append(
            'pending is "wait": production never rests, and such a shard would never be built;'
            ' say pending = "drop"'
        )
    name = recipe.reward.definition
    known = find_definition(name if name in shipped() else str(recipe.path(name)))
    mine = loop.load_definition()
    if known.version != mine.version:
        found.append(
            f"its definition is {known.name} ({known.version}), and the loop computes {mine.name}"
            f" ({mine.version})"
        )
    return found
