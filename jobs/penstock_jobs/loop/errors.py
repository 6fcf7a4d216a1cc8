"""The errors of the loop."""

from penstock.errors import PenstockError


class StageLost(PenstockError):
    """Another runner has the stage {stage} of cycle {cycle} of the loop {loop} by now: this one
    was silent for longer than PENSTOCK_LEASE_SECONDS. What it did is not taken."""


class TrainerFailed(PenstockError):
    """The trainer made no checkpoint: {why}."""


class TrainerRefused(PenstockError, http_status=409):
    """The trainer at {address} refused with status {status}: {why}. It is not asked again."""
