"""The errors of rewards."""

from penstock.errors import PenstockError


class SessionUnknown(PenstockError, exit_status=2, http_status=404):
    """No segment holds a session {session!r} of the tenant {tenant}. What was sent in the last
    seconds may be in the log alone."""


class JudgeUnfit(PenstockError, exit_status=2):
    """The reward {reward} cannot be computed: {why}. It goes by PENSTOCK_JUDGE_URL,
    PENSTOCK_JUDGE_MODEL={model} and PENSTOCK_JUDGE_MESSAGE_CHARS_MAX={chars}: set them so, or
    change the reward's parameters in its definition."""


class MessageUnknown(PenstockError, exit_status=2, http_status=404):
    """The message of turn {turn} of session {session!r} is not there any more, or has other words.
    Ask for the next."""


class AlreadyLabelled(PenstockError, exit_status=2, http_status=409):
    """Somebody labelled this message meanwhile: {by} said {label}. Nothing was changed; ask for the
    next."""


class NothingToUndo(PenstockError, exit_status=2, http_status=404):
    """There is no label by {by} that counts: nothing was taken back."""
