"""A recipe: the sessions of a shard and how they become samples. A TOML file with a query."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from penstock.core.errors import InvalidInput
from penstock.core.toml_document import (
    NotNegative,
    Positive,
    Seconds,
    parse_toml,
    read_section,
    read_text,
    refuse_unknown,
    table,
    text,
    unknown,
)
from penstock_jobs.rewards.definition import Definition, find_definition, shipped

Pending = Literal["wait", "drop"]
AdvantageKind = Literal["group", "stratum", "none"]
Consent = Literal["train", "not_denied"]


@dataclass(frozen=True)
class Tokens:
    """The source of token ids: an inference engine, or a template and a tokenizer."""

    source: Literal["engine", "render", "prefer-engine"] = "prefer-engine"
    #: Relative to the recipe.
    tokenizer: str | None = None
    template: str | None = None
    #: What `prefer-engine` does with a session of another tokenizer.
    other_tokenizer: Literal["refuse", "render"] = "refuse"
    max_length: Positive = 32_768
    pack: bool = False


@dataclass(frozen=True)
class RewardChoice:
    """The reward. `wait`: no build while one is pending. `drop`: leave such sessions out."""

    pending: Pending
    #: A shipped definition, or a file relative to the recipe.
    definition: str = "default"
    horizon_s: NotNegative | None = None


@dataclass(frozen=True)
class RewardTarget:
    """The reward definition at the recipe's horizon."""

    definition: Definition
    pending: Pending
    #: Whether the lake has other horizons, so that rewards are combined again.
    recombined: bool = False


@dataclass(frozen=True)
class Advantage:
    """The reward against a baseline, and what it is divided by."""

    kind: AdvantageKind = "none"
    #: The spread of the group's rewards; with strata, of all differences to train on.
    spread: bool = False
    #: How many trained turns or tokens the rollout has.
    per: Literal["session", "turn", "token"] = "session"


@dataclass(frozen=True)
class Staleness:
    """Limits of age. Versions are counted back from a channel's checkpoint or a named one."""

    channel: str | None = None
    checkpoint: str | None = None
    max_versions: NotNegative | None = None
    max_age_s: Seconds | None = None


@dataclass(frozen=True)
class Exclude:
    suites: tuple[str, ...] = ()
    consent: Consent = "train"
    vendor_models: bool = True
    overlap_words: Positive = 13
    overlap_min: float = 0.1
    near_duplicates: bool = False
    similarity_min: float = 0.8
    max_per_user: Positive | None = None
    max_per_repo: Positive | None = None


@dataclass(frozen=True)
class Preferences:
    """Preferences. Pairs from edits by users take longer than the rest of a build."""

    edits: bool = False
    horizon_s: NotNegative = 600


@dataclass(frozen=True)
class Hints:
    """Hints for a teacher: rows are what the model sampled and a later event corrects.

    For each row the first source that has a hint gives it."""

    sources: tuple[str, ...] = ("label", "follow_up", "test_failure", "tool_error")
    #: What is trained in a row.
    unit: Literal["call", "turn", "request"] = "call"
    #: Keep hints that hold the solution, at least in part.
    solutions: bool = False
    #: A longer hint is cut at a clause.
    max_tokens: Positive = 256


@dataclass(frozen=True)
class EvaluationSplit:
    eval: float = 0.0
    by: Literal["group", "user", "repo"] = "user"
    keep: Literal["both", "train", "eval"] = "both"


@dataclass(frozen=True)
class OutputSizes:
    max_sessions: Positive | None = None
    #: Before compression; None takes the default.
    file_bytes: Positive | None = None


@dataclass(frozen=True)
class TextRepository:
    """A Git repository, relative to the recipe, and what it is called in suites."""

    path: str
    repo: str
    #: An SPDX expression.
    license: str
    commit: str = "HEAD"


@dataclass(frozen=True)
class Text:
    """Whole files instead of conversations: of repositories those whose path fits `files`."""

    #: The tokenizer's token that ends each file.
    separator: str
    files: tuple[str, ...] = ("*",)
    max_bytes: Positive = 1_000_000
    repositories: tuple[TextRepository, ...] = ()


@dataclass(frozen=True)
class RecipeFile:
    """The keys and sections of a recipe's file, with all defaults."""

    name: str
    #: The key `query`; empty for texts of repositories alone.
    query_file: str = ""
    as_of: str = "latest"
    seed: NotNegative = 0
    tokens: Tokens = field(default_factory=Tokens)
    reward: RewardChoice | None = None
    advantage: Advantage = field(default_factory=Advantage)
    staleness: Staleness = field(default_factory=Staleness)
    exclude: Exclude = field(default_factory=Exclude)
    preferences: Preferences = field(default_factory=Preferences)
    hints: Hints | None = None
    split: EvaluationSplit = field(default_factory=EvaluationSplit)
    text: Text | None = None
    output: OutputSizes = field(default_factory=OutputSizes)


@dataclass(frozen=True)
class Recipe(RecipeFile):
    query: str = ""
    target: RewardTarget | None = field(default=None, compare=False)
    directory: Path = field(default=Path(), compare=False)

    @property
    def canonical(self) -> str:
        """Encode the recipe with all defaults, independent of comments and order."""
        names = [entry.name for entry in fields(RecipeFile) if entry.name != "as_of"]
        values = {name: getattr(self, name) for name in names}
        return msgspec.json.encode(values, order="sorted").decode()


def load_recipe(path: Path) -> Recipe:
    """Read a recipe. Raises InvalidInput, with the key and the nearest known one."""
    where, directory = str(path), path.parent
    document = parse_toml(read_text(path), where)
    keys = [entry.name.removesuffix("_file") for entry in fields(RecipeFile)]
    refuse_unknown(document, keys, where)
    query = ""
    if "query" in document or not table(document, "text", where).get("repositories"):
        query_file = document["query_file"] = text(document, "query", where)
        query = read_text(directory / query_file)
        if not query.strip():
            raise InvalidInput(what=f"The query {directory / query_file}", why="it is empty")
    if "pending" not in table(document, "reward", where) and "reward" in document:
        why = 'set pending = "wait" or "drop", for sessions with pending rewards'
        raise InvalidInput(what=f"[reward] of {where}", why=why)
    as_of = document.get("as_of")
    if isinstance(as_of, datetime):  # a TOML time
        if as_of.tzinfo is None:
            raise InvalidInput(what=where, why=f"as_of has no time zone: {as_of.isoformat()}")
        document["as_of"] = as_of.isoformat()
    document.pop("query", None)
    written = read_section(RecipeFile, document, where)
    values = {entry.name: getattr(written, entry.name) for entry in fields(RecipeFile)}
    values["exclude"] = replace(written.exclude, suites=tuple(sorted({*written.exclude.suites})))
    recipe = Recipe(**values, query=query, directory=directory)
    for section, why in _contradictions(recipe):
        raise InvalidInput(what=f"[{section}] of {where}", why=why)
    if recipe.reward is None:
        return recipe
    return replace(recipe, target=read_target(recipe.reward, directory))


def _contradictions(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield contradictory sections with reasons."""
    for key in ("overlap_min", "similarity_min"):
        if not getattr(recipe.exclude, key):
            yield "exclude", f"{key} = 0 would exclude everything"
    source, staleness = recipe.tokens.source, recipe.staleness
    if recipe.tokens.tokenizer is None and source != "engine":
        yield "tokens", f"source is {source!r}, which needs a tokenizer (tokenizer.json)"
    if recipe.tokens.other_tokenizer == "render" and source != "prefer-engine":
        yield "tokens", f"other_tokenizer goes with prefer-engine, but source is {source!r}"
    references = [name for name in (staleness.channel, staleness.checkpoint) if name is not None]
    if len(references) > 1:
        yield "staleness", "it names a channel and a checkpoint; keep one"
    if references and staleness.max_versions is None:
        why = f"it needs max_versions, the most versions behind {references[0]}"
        yield "staleness", why
    if staleness.max_versions is not None and not references:
        yield "staleness", "max_versions needs a channel or a checkpoint to count back from"
    if recipe.advantage.kind == "none" and recipe.advantage != Advantage():
        yield "advantage", "spread and per need a kind, group or stratum"
    if recipe.hints is not None:
        yield from (("hints", why) for why in _hint_contradictions(recipe, recipe.hints))
    if recipe.advantage.kind != "none" and recipe.reward is None:
        why = f"kind is {recipe.advantage.kind!r}, which needs a [reward]"
        yield "advantage", why


def _hint_contradictions(recipe: Recipe, hints: Hints) -> Iterator[str]:
    from penstock_jobs.shards.hints.sources import SOURCES, WRITTEN

    if recipe.tokens.tokenizer is None:
        yield "hints are put into tokens by [tokens] tokenizer (tokenizer.json) and template"
    if recipe.text is not None or recipe.tokens.pack:
        yield "no hints go with [text] or with pack"
    if not {*hints.sources} - {WRITTEN}:
        yield f"sources needs one beside {WRITTEN}"
    for name in hints.sources:
        if (source := SOURCES.get(name)) is None:
            yield f"source {name}: {unknown(name, SOURCES)}"
        elif source.solves and not hints.solutions:
            yield f"{name} holds the solution: it needs solutions = true"


def read_target(reward: RewardChoice, directory: Path) -> RewardTarget:
    """Load the definition at the horizon. Raises InvalidInput if either is missing."""
    name = reward.definition
    own = find_definition(name if name in shipped() else str(directory / name))
    definition = at_horizon(own, reward.horizon_s)
    return RewardTarget(definition, reward.pending, recombined=definition is not own)


def at_horizon(definition: Definition, horizon_s: int | None) -> Definition:
    """Return the definition at another horizon.

    Raises InvalidInput if it does not compute its rewards there."""
    if horizon_s is None:
        return definition
    counted = [term for term in definition.counted() if term.horizon_s is not None]
    setting = f"horizon_s = {horizon_s}"
    if not counted:
        why = f"no counted reward of the definition {definition.name} has a horizon"
        raise InvalidInput(what=setting, why=why)
    for term in counted:
        computed = getattr(term.parameters, "horizons_s", ())
        if horizon_s not in computed:
            known = ", ".join(map(str, computed))
            why = f"{definition.name} computes {term.reward.name} at {known} seconds"
            raise InvalidInput(what=setting, why=why)
    terms = tuple(
        term if term.horizon_s is None else replace(term, horizon_s=horizon_s)
        for term in definition.terms
    )
    return definition if terms == definition.terms else replace(definition, terms=terms)
