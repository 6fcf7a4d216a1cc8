"""The errors of the loop."""

from penstock.errors import PenstockError


class StageLost(PenstockError):
    """Another runner has the stage {stage} of cycle {cycle} of the loop {loop} by now: this one
    was silent for longer than PENSTOCK_LOOP_LEASE_SECONDS. What it did is not taken."""


class TrainerFailed(PenstockError):
    """The trainer ended with status {status}. The end of what it said, from {log}: {output}"""


class TrainerTooSlow(PenstockError):
    """The trainer was ended: it had not finished after {limit_s} s, the `limit` of the loop file.
    The end of what it said, from {log}: {output}"""


class TrainerAnswerUnfit(PenstockError):
    """The trainer ended well, and its answer {path} cannot be used: {why}. It is a JSON object with
    `uri` and `digest`: docs/loop.md."""


class TrainerUnreachable(PenstockError):
    """The trainer at {address} cannot be reached: {why}. A job that it has goes on, and is found
    again when it can."""


class TrainerRefused(PenstockError):
    """The trainer at {address} refused with status {status}: {why}"""

    http_status = 409
