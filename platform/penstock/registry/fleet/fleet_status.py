"""The status of a fleet, computed from its replicas' reports."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from penstock.backends.terminal.output import time_text

if TYPE_CHECKING:
    from penstock.registry.channels.change import ChannelState

PartName = Literal["main", "canary"]
PARTS: tuple[PartName, ...] = get_args(PartName)
State = Literal["waiting", "fetching", "loading", "loaded", "failed"]
STATES: tuple[State, ...] = get_args(State)


class PartTarget(msgspec.Struct, frozen=True):
    """The checkpoint that a part of a channel should serve."""

    #: The number of its weights; without a checkpoint, the version of the channel.
    version: int
    checkpoint: str | None
    digest: str | None


def part_target(channel: "ChannelState", part: str) -> PartTarget:
    """The target of a part. The canary part serves the main checkpoint while there is no canary."""
    if part == "canary" and channel.canary is not None:
        version = channel.canary_version or channel.version
        return PartTarget(version, channel.canary, channel.canary_digest)
    version = channel.checkpoint_version or channel.version
    return PartTarget(version, channel.checkpoint, channel.digest)


class ReplicaGroup(msgspec.Struct, frozen=True):
    """Replicas with equal reports, and when the first and last of them had loaded it."""

    part: str
    state: str
    loaded: str | None
    silent: bool
    replicas: int
    loaded_first: int | None
    loaded_last: int | None


class PartStatus(msgspec.Struct, kw_only=True):
    """The status of a part of a fleet. Silent replicas count only in `silent` and `unsure`."""

    part: str
    wanted: str | None
    #: All replicas have loaded the wanted checkpoint.
    whole: bool
    mixed: bool
    #: Since when it is whole or mixed.
    since: str | None
    loaded: dict[str, int]
    replicas: int
    #: Replicas without the wanted checkpoint, and those that failed to load it.
    behind: int
    failed: int
    silent: int
    #: Silent replicas that may still serve another checkpoint.
    unsure: int


def part_statuses(channel: "ChannelState", groups: Sequence[ReplicaGroup]) -> list[PartStatus]:
    """The status of each part with replicas, and always of the main one."""
    by_part = {part: [group for group in groups if group.part == part] for part in PARTS}
    return [
        part_status(part, part_target(channel, part).checkpoint, of_part)
        for part, of_part in by_part.items()
        if of_part or part == "main"
    ]


def part_status(part: str, wanted: str | None, groups: Sequence[ReplicaGroup]) -> PartStatus:
    heard = [group for group in groups if not group.silent]
    silent = [group for group in groups if group.silent]
    loaded: Counter[str] = Counter()
    #: When the first replica of each checkpoint had loaded it.
    firsts: dict[str, int] = {}
    for group in heard:
        if group.loaded is not None and group.loaded_first is not None:
            loaded[group.loaded] += group.replicas
            known = firsts.get(group.loaded, group.loaded_first)
            firsts[group.loaded] = min(group.loaded_first, known)
    replicas = _count(heard)
    ready = _count(group for group in heard if (group.state, group.loaded) == ("loaded", wanted))
    unsure = _count(group for group in silent if group.loaded != wanted)
    mixed = len(loaded) > 1
    whole = wanted is not None and replicas == ready > 0 and unsure == 0
    since: int | None = None
    if mixed and len(firsts) > 1:  # mixed since the second checkpoint was loaded
        since = sorted(firsts.values())[1]
    elif whole:
        times = (group.loaded_last for group in heard if group.loaded_last is not None)
        since = max(times, default=None)
    return PartStatus(
        part=part,
        wanted=wanted,
        whole=whole,
        mixed=mixed,
        since=time_text(since) if since is not None else None,
        loaded=dict(sorted(loaded.items())),
        replicas=replicas,
        behind=replicas - ready,
        failed=_count(group for group in heard if group.state == "failed"),
        silent=_count(silent),
        unsure=unsure,
    )


def describe_part(channel: str, part: PartStatus) -> str:
    fleet = f"the fleet of {channel}" + (" (canary)" if part.part == "canary" else "")
    have = _replicas(part.replicas, "has", "have")
    failed = f"; {_replicas(part.failed, 'failed', 'failed')} to load it" if part.failed else ""
    silent = f"; {_replicas(part.silent, 'is', 'are')} silent" if part.silent else ""
    if part.unsure:
        silent += f" ({part.unsure} may serve another checkpoint)"
    if not part.replicas:
        return f"{fleet} is unknown: no replica reported{silent}"
    if part.mixed:
        loaded = part.loaded.items()
        counts = ", ".join(f"{_replicas(count, 'has', 'have')} {name}" for name, count in loaded)
        return f"{fleet} is mixed: {counts}; the channel is at {part.wanted}{failed}{silent}"
    if part.whole:
        return f"{fleet} is whole: {have} {part.wanted}{silent}"
    if part.wanted is None:
        return f"{fleet} waits: nothing was promoted to the channel yet{silent}"
    if part.behind:
        has = "has" if part.behind == 1 else "have"
        behind = f"{part.behind} of {_replicas(part.replicas, has, has)} not loaded {part.wanted}"
        return f"{fleet} is behind: {behind}{failed}{silent}"
    return f"{fleet} is unsure: {have} {part.wanted}{silent}"


def _count(groups: Iterable[ReplicaGroup]) -> int:
    return sum(group.replicas for group in groups)


def _replicas(count: int, verb: str, verb_of_several: str) -> str:
    return f"1 replica {verb}" if count == 1 else f"{count} replicas {verb_of_several}"
