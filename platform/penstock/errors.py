"""The error family. A class's docstring is the message a person reads.

Each message says what happened, to what, and what to do. Facts are passed by name and fill
the braces of the docstring; they stay readable as `error.facts`.
"""

import inspect
from functools import partial
from typing import Any, ClassVar


class PenstockError(Exception):
    """Something went wrong inside Penstock: {what}."""

    #: What the command line returns: 1 refused, 2 wrong usage or input, 3 unreachable.
    exit_status: ClassVar[int] = 1
    #: What HTTP answers.
    http_status: ClassVar[int] = 500

    def __init__(self, **facts: object) -> None:
        super().__init__(facts)
        self.facts = facts

    def __str__(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "").format(**self.facts)

    @property
    def http_headers(self) -> dict[str, str]:
        """Headers of the answer over HTTP."""
        return {}

    @property
    def http_fields(self) -> dict[str, Any]:
        """What stands in the answer beside the message, for programs."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes with their facts."""
        return partial(type(self), **self.facts), ()


class ExtraMissing(PenstockError):
    """{what} needs more than the base install: pip install 'penstock[{extra}]'."""

    exit_status = 2


class InvalidInput(PenstockError):
    """{what} cannot be used: {why}."""

    exit_status = 2
    http_status = 400


class SettingInvalid(PenstockError):
    """The setting {name} from {origin} cannot be used: {why}."""

    exit_status = 2


class Backlogged(PenstockError):
    """No room for more events now: {why}. Nothing of the request was accepted.
    Send it again in {retry_after_s} s."""

    http_status = 503

    def __init__(self, *, why: str, retry_after_s: int = 1) -> None:
        super().__init__(why=why, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s

    @property
    def http_headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after_s)}


class TooManyRequests(Backlogged):
    """Too much at the same time for this key: {why}.
    Send it again in {retry_after_s} s."""

    http_status = 429


def one_line(error: object) -> str:
    """A message without its line breaks."""
    return " ".join(str(error).split())
