"""The errors of rewards."""

from penstock.errors import PenstockError


class SessionUnknown(PenstockError, exit_status=2, http_status=404):
    """No segment holds a session {session!r} of the tenant {tenant}. What was sent in the last
    seconds may be in the log alone."""


class JudgeUnfit(PenstockError, exit_status=2):
    """The reward {reward} cannot be computed: {why}. It goes by PENSTOCK_JUDGE_URL,
    PENSTOCK_JUDGE_MODEL={model} and PENSTOCK_JUDGE_MESSAGE_CHARS_MAX={chars}: set them so, or
    change the reward's parameters in its definition."""
