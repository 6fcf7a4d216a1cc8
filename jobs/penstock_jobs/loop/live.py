"""What the canary and the watch have in common: looks at live metrics, one runner at a time."""

from collections.abc import Iterator

from penstock.channels.channel import ChannelState, channel_state, policy_of
from penstock.channels.history import channel_changes
from penstock.database.leases import leased
from penstock.errors import InvalidInput
from penstock.gate.policy import LiveRequirement, parse
from penstock.lake.settings import LakeSettings
from penstock_jobs.canary.live_metrics import COLUMNS
from penstock_jobs.canary.watch import WatchRound, lease_of, watch_once
from penstock_jobs.loop.stage import Work
from penstock_jobs.rewards import running
from penstock_jobs.rewards.definition import Definition, parse_definition
from penstock_jobs.rewards.definitions import DEFAULT, find_definition, shipped
from penstock_jobs.rewards.keeping import definition_known_as


def look(work: Work) -> WatchRound:
    """A round of the watcher, which rolls back what is worse; nothing where a watcher beside the
    loop is at it. Computes first what the metrics ask for, since rewards that nobody computes stay
    pending. Raises PromotionConflict, DatabaseUnreachable, and what computing rewards raises."""
    settings = work.lake.settings
    name = lease_of(work.tenant, work.loop.channel)
    owner = f"{work.actor}-{work.held.epoch}"[:64]
    with leased(work.lake.database, name, owner, settings.room(LakeSettings).lease_seconds) as mine:
        if mine:
            _compute_rewards(work)
            return watch_once(work.lake, work.tenant, work.loop.channel)
    return WatchRound("nothing", "another watcher is looking at this moment")


def state_of(work: Work) -> ChannelState:
    return channel_state(work.lake.database, work.tenant, work.loop.channel)


def why_gone(work: Work, version: int) -> str:
    """Why a channel is no longer at what the loop promoted, by the first change that took it."""
    history = channel_changes(work.lake.database, work.tenant, work.loop.channel, after=version)
    for one in history:
        if work.candidate not in (one.checkpoint, one.canary):
            return f"{one.action} by {one.actor}: {one.reason}"
    return "nobody said why"


def _compute_rewards(work: Work) -> None:
    state = state_of(work)
    text = policy_of(work.lake.database, state)
    live = parse(text, f"the policy of {state.name}").live if text is not None else ()
    if definitions := list(_definitions(work, live)):
        with work.executor() as executor:
            for one in definitions:
                running.run(work.lake, executor, running.Work(one))


def _definitions(work: Work, live: tuple[LiveRequirement, ...]) -> Iterator[Definition]:
    """Each that a metric asks for, once. One that nobody knows is the look's to complain of."""
    asked = [
        one.definition or DEFAULT for one in live if one.definition or one.metric not in COLUMNS
    ]
    mine = work.loop.load_definition()
    for name in dict.fromkeys(asked):
        if name in (mine.name, mine.version):
            yield mine
            continue
        try:
            known = definition_known_as(work.lake.database, name)
        except InvalidInput:
            if name in shipped():
                yield find_definition(name)
        else:
            yield parse_definition(known.text, known.name)
