"""All that a definition says of a bucket of sessions. A pure function."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.credit import Place, credit_rows, share, standings
from penstock_jobs.rewards.definition import Definition, Term
from penstock_jobs.rewards.outcomes import Limits, Outcome, outcomes
from penstock_jobs.rewards.rates import Tally, tallies
from penstock_jobs.rewards.rows import REWARD_ROWS, Bucket, Parameters

_PERSISTENCE = "edit_persistence"


@dataclass(frozen=True, eq=False)
class Scored:
    #: REWARD_ROWS, of the definition's rewards and of what it makes of them.
    rewards: pa.Table
    #: One for each session, and it counted.
    outcomes: list[tuple[Outcome, Tally]]
    #: When a session has to be looked at again though nothing new came, in microseconds.
    due_us: dict[str, int]


def score(
    bucket: Bucket,
    definition: Definition,
    *,
    places: Mapping[str, Place] | None = None,
    consents: Mapping[str, str] | None = None,
) -> Scored:
    """`places` and `consents` are by session."""
    places = places or {}
    rows = rewards_of(bucket, definition.terms)
    known = standings(definition, rows, places)
    found = share(outcomes(bucket, known, consents or {}, _limits(definition)), places)
    rewards = pa.concat_tables([rows, credit_rows(found, bucket.model_calls)])
    return Scored(rewards, list(zip(found, tallies(bucket, found), strict=True)), _due(rewards))


def rewards_of(bucket: Bucket, terms: Iterable[Term]) -> pa.Table:
    """The rows of these rewards alone."""
    tables = [term.reward.compute(bucket, term.parameters) for term in terms]
    return pa.concat_tables([REWARD_ROWS.empty_table(), *tables])


def _limits(definition: Definition) -> Limits:
    """With the definition's horizons: then texts are compared only once."""
    for term in definition.terms:
        if term.reward.name == _PERSISTENCE and isinstance(term.parameters, Parameters):
            return Limits(persistence=term.parameters)
    return Limits()


def _due(rewards: pa.Table) -> dict[str, int]:
    waiting = rewards.filter(pc.is_valid(rewards["due_us"]))
    first = waiting.group_by("session_id").aggregate([("due_us", "min")])
    columns = (first[name].to_pylist() for name in ("session_id", "due_us_min"))
    return dict(zip(*columns, strict=True))
