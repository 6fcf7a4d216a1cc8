"""A recipe: which sessions become a shard, and how.

It is a TOML file beside the query that it names. The manifest keeps its canonical form, so that a
comment or another order of keys does not make another shard.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from penstock.errors import InvalidInput
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
from penstock_jobs.rewards.definition import Definition, find_definition, shipped

Source = Literal["engine", "render", "prefer-engine"]
Pending = Literal["wait", "drop"]
AdvantageKind = Literal["group", "stratum", "none"]
Consent = Literal["train", "not_denied"]
SplitBy = Literal["group", "user", "repo"]
KeptSide = Literal["both", "train", "eval"]


@dataclass(frozen=True)
class Tokens:
    """`engine`: sessions without token ids of an inference engine are left out. `render`: all ids
    come from the template and the tokenizer."""

    source: Source = "prefer-engine"
    #: As written: relative to the recipe. `Recipe.path` says where it is.
    tokenizer: str | None = None
    template: str | None = None
    #: Of a sequence, and of a row of packed ones.
    max_length: int = 32_768
    pack: bool = False


@dataclass(frozen=True)
class RewardChoice:
    """`wait`: nothing is built while a reward is pending. `drop`: such sessions are left out."""

    pending: Pending
    #: A name of those that come with Penstock, or a file, relative to the recipe.
    definition: str = "default"
    #: Takes the place of the definition's own horizons.
    horizon_s: int | None = None


@dataclass(frozen=True)
class RewardTarget:
    """The reward definition at the recipe's horizon."""

    definition: Definition
    pending: Pending
    #: Outcomes in the lake are by other horizons, so rewards have to be combined again.
    recombined: bool = False


@dataclass(frozen=True)
class Advantage:
    kind: AdvantageKind = "none"


@dataclass(frozen=True)
class Staleness:
    """Versions are counted back from a checkpoint: that of a channel, or one by name."""

    channel: str | None = None
    checkpoint: str | None = None
    max_versions: int | None = None
    max_age_s: int | None = None


@dataclass(frozen=True)
class Exclude:
    suites: tuple[str, ...] = ()
    consent: Consent = "train"
    #: Texts of a suite's tasks are compared by runs of so many words.
    overlap_words: int = 13
    #: Left out from this share of a task's runs on.
    overlap_min: float = 0.1
    near_duplicates: bool = False
    #: From which similarity on two count as one: the share of common shingles.
    similarity_min: float = 0.8
    max_per_user: int | None = None
    max_per_repo: int | None = None


@dataclass(frozen=True)
class SplitChoice:
    eval: float = 0.0
    #: Never on both sides, like groups and chains.
    by: SplitBy = "user"
    #: The side that the shard holds. Sessions of the other are left out, and counted.
    keep: KeptSide = "both"


@dataclass(frozen=True)
class OutputSizes:
    """Without a size, that of the settings counts."""

    max_sessions: int | None = None
    file_bytes: int | None = None
    row_group_bytes: int | None = None


@dataclass(frozen=True)
class Recipe:
    name: str
    #: The SQL, and the file that it stands in.
    query: str
    query_file: str
    as_of: str = "latest"
    seed: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    #: None: the shard needs no rewards.
    reward: RewardChoice | None = None
    advantage: Advantage = field(default_factory=Advantage)
    staleness: Staleness = field(default_factory=Staleness)
    exclude: Exclude = field(default_factory=Exclude)
    split: SplitChoice = field(default_factory=SplitChoice)
    output: OutputSizes = field(default_factory=OutputSizes)
    #: The definition that `reward` names.
    target: RewardTarget | None = field(default=None, compare=False)
    directory: Path = field(default=Path(), compare=False)

    def path(self, name: str) -> Path:
        """Of a file that the recipe names."""
        return self.directory / name

    @property
    def canonical(self) -> str:
        """Everything in it, defaults included, as JSON. The query is kept apart from it."""
        said = asdict(replace(self, target=None))
        del said["query"], said["directory"], said["as_of"], said["target"]
        return msgspec.json.encode(said, order="deterministic").decode()


_KEYS: Mapping[str, tuple[str, ...]] = {
    "tokens": ("source", "tokenizer", "template", "max_length", "pack"),
    "reward": ("definition", "horizon_s", "pending"),
    "advantage": ("kind",),
    "staleness": ("channel", "checkpoint", "max_versions", "max_age"),
    "exclude": (
        "suites", "consent", "overlap_words", "overlap_min", "near_duplicates", "similarity_min",
        "max_per_user", "max_per_repo",
    ),
    "split": ("eval", "by", "keep"),
    "output": ("max_sessions", "file_bytes", "row_group_bytes"),
}  # fmt: skip
_TOP = ("name", "query", "as_of", "seed", *_KEYS)


def load_recipe(path: Path) -> Recipe:
    """Raises InvalidInput, which names the key and the nearest known one."""
    where = str(path)
    found = parse_toml(read_text(path), where)
    refuse_unknown(found, _TOP, where)
    parts = {name: table(found, name, where) for name in _KEYS}
    for name, keys in _KEYS.items():
        refuse_unknown(parts[name], keys, f"{where}, [{name}]")
    query_file = text(found, "query", where)
    reward = _reward(parts["reward"], f"{where}, [reward]") if "reward" in found else None
    recipe = Recipe(
        name=text(found, "name", where),
        query=_query(path.parent / query_file),
        query_file=query_file,
        as_of=_as_of(found, where),
        seed=whole(found, "seed", 0, where, least=0),
        tokens=_tokens(parts["tokens"], f"{where}, [tokens]"),
        reward=reward,
        advantage=_advantage(parts["advantage"], f"{where}, [advantage]"),
        staleness=_staleness(parts["staleness"], f"{where}, [staleness]"),
        exclude=_exclude(parts["exclude"], f"{where}, [exclude]"),
        split=_split(parts["split"], f"{where}, [split]"),
        output=_output(parts["output"], f"{where}, [output]"),
        target=None if reward is None else read_target(reward, path.parent),
        directory=path.parent,
    )
    if recipe.advantage.kind != "none" and recipe.reward is None:
        why = f"kind is {recipe.advantage.kind!r}, and there is no [reward] to take it from"
        raise InvalidInput(what=f"{where}, [advantage]", why=why)
    return recipe


def read_target(reward: RewardChoice, directory: Path) -> RewardTarget:
    """Raises InvalidInput where there is no such definition, or not at this horizon."""
    name = reward.definition
    own = find_definition(name if name in shipped() else str(directory / name))
    definition = at_horizon(own, reward.horizon_s)
    return RewardTarget(definition, reward.pending, recombined=definition is not own)


def at_horizon(definition: Definition, horizon_s: int | None) -> Definition:
    """The definition with this horizon instead of its own. Raises InvalidInput where it does not
    compute its rewards at it."""
    if horizon_s is None:
        return definition
    counted = [term for term in definition.counted() if term.horizon_s is not None]
    what = f"horizon_s = {horizon_s}"
    if not counted:
        why = f"no reward that counts in the definition {definition.name} has a horizon"
        raise InvalidInput(what=what, why=why)
    for term in counted:
        computed = getattr(term.parameters, "horizons_s", ())
        if horizon_s not in computed:
            known = ", ".join(map(str, computed))
            why = f"{definition.name} computes {term.reward.name} at {known} seconds"
            raise InvalidInput(what=what, why=why)
    terms = tuple(
        term if term.horizon_s is None else replace(term, horizon_s=horizon_s)
        for term in definition.terms
    )
    return definition if terms == definition.terms else replace(definition, terms=terms)


def _query(path: Path) -> str:
    query = read_text(path)
    if not query.strip():
        raise InvalidInput(what=f"The query {path}", why="it is empty")
    return query


def _as_of(found: Mapping[str, Any], where: str) -> str:
    value = found.get("as_of", "latest")
    if isinstance(value, datetime):  # TOML has times of its own
        if value.tzinfo is None:
            raise InvalidInput(what=where, why=f"as_of has no time zone: {value.isoformat()}")
        return value.isoformat()
    return text({"as_of": value}, "as_of", where)


def _tokens(found: Mapping[str, Any], where: str) -> Tokens:
    tokens = Tokens(
        source=choice(found, "source", get_args(Source), Tokens.source, where),
        tokenizer=text_or_none(found, "tokenizer", where),
        template=text_or_none(found, "template", where),
        max_length=whole(found, "max_length", Tokens.max_length, where, least=1),
        pack=flag(found, "pack", Tokens.pack, where),
    )
    if tokens.tokenizer is None and tokens.source != "engine":
        why = f"source is {tokens.source!r}, which needs a tokenizer: its tokenizer.json"
        raise InvalidInput(what=where, why=why)
    return tokens


def _reward(found: Mapping[str, Any], where: str) -> RewardChoice:
    if "pending" not in found:
        why = 'it does not say what becomes of pending rewards: pending = "wait" or "drop"'
        raise InvalidInput(what=where, why=why)
    return RewardChoice(
        pending=choice(found, "pending", get_args(Pending), None, where),
        definition=text_or_none(found, "definition", where) or RewardChoice.definition,
        horizon_s=whole_or_none(found, "horizon_s", where, least=0),
    )


def _advantage(found: Mapping[str, Any], where: str) -> Advantage:
    return Advantage(choice(found, "kind", get_args(AdvantageKind), Advantage.kind, where))


def _staleness(found: Mapping[str, Any], where: str) -> Staleness:
    staleness = Staleness(
        channel=text_or_none(found, "channel", where),
        checkpoint=text_or_none(found, "checkpoint", where),
        max_versions=whole_or_none(found, "max_versions", where, least=0),
        max_age_s=duration_s(found, "max_age", where),
    )
    behind = [name for name in (staleness.channel, staleness.checkpoint) if name is not None]
    if len(behind) > 1:
        raise InvalidInput(what=where, why="it names a channel and a checkpoint: take one of them")
    if behind and staleness.max_versions is None:
        why = f"max_versions has to say how far behind {behind[0]} a session may be"
        raise InvalidInput(what=where, why=why)
    if staleness.max_versions is not None and not behind:
        why = "max_versions needs a channel or a checkpoint to count back from"
        raise InvalidInput(what=where, why=why)
    return staleness


def _exclude(found: Mapping[str, Any], where: str) -> Exclude:
    return Exclude(
        suites=tuple(sorted(set(texts(found, "suites", where)))),
        consent=choice(found, "consent", get_args(Consent), Exclude.consent, where),
        overlap_words=whole(found, "overlap_words", Exclude.overlap_words, where, least=1),
        overlap_min=_above_none(found, "overlap_min", Exclude.overlap_min, where),
        near_duplicates=flag(found, "near_duplicates", Exclude.near_duplicates, where),
        similarity_min=_above_none(found, "similarity_min", Exclude.similarity_min, where),
        max_per_user=whole_or_none(found, "max_per_user", where, least=1),
        max_per_repo=whole_or_none(found, "max_per_repo", where, least=1),
    )


def _above_none(found: Mapping[str, Any], key: str, default: float, where: str) -> float:
    value = share(found, key, default, where)
    if not value:
        raise InvalidInput(what=where, why=f"{key} = 0 would leave out everything")
    return value


def _split(found: Mapping[str, Any], where: str) -> SplitChoice:
    return SplitChoice(
        eval=share(found, "eval", SplitChoice.eval, where),
        by=choice(found, "by", get_args(SplitBy), SplitChoice.by, where),
        keep=choice(found, "keep", get_args(KeptSide), SplitChoice.keep, where),
    )


def _output(found: Mapping[str, Any], where: str) -> OutputSizes:
    names = _KEYS["output"]
    return OutputSizes(**{name: whole_or_none(found, name, where, least=1) for name in names})
