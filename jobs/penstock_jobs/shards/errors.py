"""The errors of building shards."""

from penstock.errors import PenstockError


class RewardsPending(PenstockError):
    """{count} of {asked} sessions have rewards that are still pending by the definition
    {definition}; {until}. Nothing was built: build later, or leave such sessions out by
    `pending = "drop"` in the recipe."""

    http_status = 409


class NothingToBuild(PenstockError):
    """Of the {asked} sessions that the query of {recipe} named, none is left: {why}. Nothing was
    built. Those without a reward by the recipe's definition wait for `penstock rewards run`."""

    exit_status = 2
