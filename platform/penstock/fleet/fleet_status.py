"""Whether the replicas of a channel serve one checkpoint: decided from what they said."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

PartName = Literal["main", "canary"]
PARTS: tuple[PartName, ...] = get_args(PartName)
State = Literal["waiting", "fetching", "loading", "loaded", "failed"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Group:
    """Replicas that said the same; `loaded_first` and `loaded_last` are when the first and the last
    of them was heard to have loaded that."""

    part: str
    state: str
    loaded: str | None
    silent: bool
    replicas: int
    loaded_first: int | None
    loaded_last: int | None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a part of a fleet stands. Silent replicas are in `silent` and nowhere else."""

    part: PartName
    #: What the channel is at, for this part.
    wanted: str | None
    #: All were heard and have loaded what the channel is at.
    whole: bool
    #: Different checkpoints answer the traffic of this part.
    mixed: bool
    #: Since when it is whole, or mixed: for mixed, at least since then.
    since: int | None
    #: How many replicas have loaded which checkpoint.
    loaded: Mapping[str, int]
    replicas: int
    #: How many of them have not loaded what the channel is at, and how many failed at that.
    behind: int
    failed: int
    silent: int
    #: How many of the silent ones were last heard with another checkpoint: they may serve it still.
    unsure: int


class Pointed(Protocol):
    """A channel, as far as it matters here."""

    @property
    def checkpoint(self) -> str | None: ...
    @property
    def canary(self) -> str | None: ...


def wanted_by(pointed: Pointed, part: str) -> str | None:
    """Which checkpoint a part serves: the canary's while there is one, else the main one."""
    if part == "canary" and pointed.canary is not None:
        return pointed.canary
    return pointed.checkpoint


def standings(pointed: Pointed, groups: Iterable[Group]) -> list[Standing]:
    """One for each part that has replicas; of the main one in any case."""
    found = list(groups)
    parts = {"main", *(one.part for one in found)}
    return [
        standing(part, wanted_by(pointed, part), [one for one in found if one.part == part])
        for part in PARTS
        if part in parts
    ]


def standing(part: PartName, wanted: str | None, groups: Iterable[Group]) -> Standing:
    """Of one part, by its groups."""
    found = list(groups)
    heard = [one for one in found if not one.silent]
    silent = [one for one in found if one.silent]
    loaded: Counter[str] = Counter()
    for one in heard:
        if one.loaded is not None:
            loaded[one.loaded] += one.replicas
    replicas = _count(heard)
    ready = _count(one for one in heard if one.state == "loaded" and one.loaded == wanted)
    unsure = _count(one for one in silent if one.loaded != wanted)
    mixed = len(loaded) > 1
    whole = wanted is not None and replicas == ready > 0 and unsure == 0
    return Standing(
        part=part,
        wanted=wanted,
        whole=whole,
        mixed=mixed,
        since=_mixed_since(heard) if mixed else _whole_since(heard) if whole else None,
        loaded=dict(sorted(loaded.items())),
        replicas=replicas,
        behind=replicas - ready,
        failed=_count(one for one in heard if one.state == "failed"),
        silent=_count(silent),
        unsure=unsure,
    )


def say_standing(channel: str, one: Standing) -> str:
    """In a sentence."""
    fleet = f"the fleet of {channel}" + (" (canary)" if one.part == "canary" else "")
    silent = f"; {_are(one.silent)} silent" if one.silent else ""
    if one.unsure:
        silent += f", {_may(one.unsure)} serve another checkpoint"
    if not one.replicas:
        return f"{fleet} is unknown: no replica was heard{silent}"
    if one.mixed:
        counts = ", ".join(f"{_have(count)} {name}" for name, count in one.loaded.items())
        return f"{fleet} is mixed: {counts}; the channel is at {one.wanted}{_failed(one)}{silent}"
    if one.whole:
        return f"{fleet} is whole: {_have(one.replicas)} {one.wanted}{silent}"
    if one.wanted is None:
        return f"{fleet} waits: nothing was promoted to the channel yet{silent}"
    behind = "has" if one.behind == 1 else "have"
    said = f"{one.behind} of {_replicas(one.replicas)} {behind} not loaded {one.wanted}"
    if one.behind:
        return f"{fleet} is behind: {said}{_failed(one)}{silent}"
    return f"{fleet} is unsure: {_have(one.replicas)} {one.wanted}{silent}"


def _count(groups: Iterable[Group]) -> int:
    return sum(one.replicas for one in groups)


def _mixed_since(heard: Iterable[Group]) -> int | None:
    """From when the second of the checkpoints was loaded: since then two were there at any time."""
    first: dict[str, int] = {}
    for one in heard:
        if one.loaded is not None and one.loaded_first is not None:
            first[one.loaded] = min(one.loaded_first, first.get(one.loaded, one.loaded_first))
    return sorted(first.values())[1] if len(first) > 1 else None


def _whole_since(heard: Iterable[Group]) -> int | None:
    return max((one.loaded_last for one in heard if one.loaded_last is not None), default=None)


def _replicas(count: int) -> str:
    return f"{count} replica{'' if count == 1 else 's'}"


def _have(count: int) -> str:
    return f"{_replicas(count)} {'has' if count == 1 else 'have'}"


def _are(count: int) -> str:
    return f"{_replicas(count)} {'is' if count == 1 else 'are'}"


def _may(count: int) -> str:
    return f"{count} of which may"


def _failed(one: Standing) -> str:
    return f"; {_replicas(one.failed)} failed to load it" if one.failed else ""
