"""The errors of building shards."""

from penstock.errors import PenstockError


class RewardsPending(PenstockError, http_status=409):
    """{count} of {asked} sessions have rewards that are still pending by the definition
    {definition}; {until}. Nothing was built: build later, or leave such sessions out by
    `pending = "drop"` in the recipe."""


class NothingToBuild(PenstockError, exit_status=2):
    """Of the {asked} sessions that the query of {recipe} named, none is left: {why}. Nothing was
    built. Those without a reward by the recipe's definition wait for `penstock rewards run`."""


class ExportEmpty(PenstockError):
    """Nothing of the shard {shard} can be written for {target}: {why}. No directory was made.
    docs/exporters.md says what each reason means."""


class TemplateLimitReached(PenstockError, exit_status=2):
    """The chat template {template} was ended while {work}: {why}. Nothing was built. Mend the
    template, or leave the session out by the recipe's query."""


class TokenizerMismatch(PenstockError, exit_status=2):
    """The engine's tokens of {whose} are not of the recipe's tokenizer: {why}. Nothing was built:
    rendered anew as text, a session holds no token that the model wrote, and no log-probability.
    Name the engine's tokenizer.json under [tokens], or have such sessions rendered by
    `other_tokenizer = "render"` there."""
