"""The error family. The docstring of a class is its message: what happened, to what, what to do.

Facts are passed by name and fill the braces of the docstring.
"""

import re
from collections.abc import Mapping
from functools import partial
from types import new_class
from typing import Any, ClassVar


class PenstockError(Exception):
    """Something went wrong inside Penstock: {what}."""

    #: The exit status of a command: 1 refused, 2 wrong usage or input, 3 unreachable.
    exit_status: ClassVar[int] = 1
    #: The status of an answer over HTTP.
    http_status: ClassVar[int] = 500
    http_headers: Mapping[str, str] = {}

    def __init_subclass__(
        cls,
        *,
        exit_status: int | None = None,
        http_status: int | None = None,
        http_headers: Mapping[str, str] | None = None,
    ) -> None:
        cls.exit_status = cls.exit_status if exit_status is None else exit_status
        cls.http_status = cls.http_status if http_status is None else http_status
        cls.http_headers = cls.http_headers if http_headers is None else http_headers

    def __init__(self, **facts: object) -> None:
        super().__init__(facts)
        self.facts = facts

    def __str__(self) -> str:
        from inspect import cleandoc  # loading it takes as long as all that a sandbox needs

        return cleandoc(type(self).__doc__ or "").format(**self.facts)

    @property
    def http_fields(self) -> dict[str, Any]:
        """Fields for programs in the answer, beside the message."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the facts when the error travels between processes."""
        return partial(type(self), **self.facts), ()


def received_error(
    name: str,
    kind: type[PenstockError] | None,
    message: str,
    facts: Mapping[str, Any],
    exit_status: int,
) -> PenstockError:
    """Rebuild an error that another process raised. `kind` is its class where that is known."""

    def show(_error: PenstockError) -> str:
        return message

    base = kind or PenstockError
    fields = property(lambda error: error.facts)
    body = {"__str__": show, "__doc__": base.__doc__, "http_fields": fields}
    same: Any = new_class(name, (base,), {"exit_status": exit_status}, lambda of: of.update(body))
    error: PenstockError = same.__new__(same)
    error.facts = dict(facts)
    return error


class ExtraMissing(PenstockError, exit_status=2):
    """{what} needs more than the base install: pip install 'penstock[{extra}]'."""


class LibraryMissing(PenstockError, exit_status=2):
    """{what} needs {library}, which is not installed: pip install {library}."""


class InvalidInput(PenstockError, exit_status=2, http_status=400):
    """{what} cannot be used: {why}."""


class SettingInvalid(PenstockError, exit_status=2):
    """The setting {name} from {origin} cannot be used: {why}."""


class StoreNeeded(PenstockError, exit_status=2):
    """`{command}` works on the files of a lake, not over a service. Run it on the lake's machine,
    with --data DIR."""


class Backlogged(PenstockError, http_status=503):
    """The service has no room for more now: {why}. Nothing was accepted.
    Send it again in {retry_after_s} s."""

    def __init__(self, *, why: str, retry_after_s: int = 1) -> None:
        super().__init__(why=why, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s
        self.http_headers = {"Retry-After": str(retry_after_s)}


class TooManyRequests(Backlogged, http_status=429):
    """This key has too much under way: {why}.
    Send it again in {retry_after_s} s."""


def public_cause(error: Exception) -> str:
    """Say why something failed. Texts of unexpected errors may quote secrets: only the log has
    them."""
    if isinstance(error, PenstockError):
        return one_line(error)
    plain = isinstance(error, (OSError, ImportError))
    why = f": {one_line(error)}" if plain else "; the log of the service says more"
    return type(error).__name__ + why


#: What the operating system's errors begin with: a number that tells nobody anything.
_ERRNO = re.compile(r"\[Errno -?\d+\] ")


def one_line(error: object) -> str:
    """An error as people read it."""
    return " ".join(_ERRNO.sub("", str(error)).split())
