"""Errors of a service, raised here as they were there: of the same name, with the same message and
the same exit status."""

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.errors import PenstockError, received_error
from penstock.http.errors import AnswerUnusable, KeyMissing, KeyNotValid, ServerUnreachable

#: Without a problem of ours they are from something before the service, and pass.
_PASSING = {408, 429, 502, 503, 504}


def refusal_of(status: int, body: bytes, url: str, *, with_key: bool) -> PenstockError:
    """The error that an answer says."""
    fields = document_of(body)
    if status == 401 and fields.get("error", "KeyRefused") == "KeyRefused":
        return KeyNotValid(url=url) if with_key else KeyMissing(url=url)
    detail = fields.get("detail", "nothing that Penstock says")
    if name := fields.get("error"):
        kind = next((kind for kind in _family(PenstockError) if kind.__name__ == name), None)
        facts = {key: value for key, value in fields.items() if key not in _OF_PROBLEMS}
        exit_status = fields.get("exit_status", 1)
        return received_error(str(name), kind, str(detail), facts, exit_status)
    if status in _PASSING:
        return ServerUnreachable(url=url, why=f"{status} {fields.get('detail', '')}".strip())
    return AnswerUnusable(url=url, status=status, why=detail)


_OF_PROBLEMS = {"title", "status", "detail", "type", "error", "exit_status"}


def document_of(body: bytes) -> dict[str, Any]:
    """A JSON object; an empty one, where it is none."""
    try:
        return msgspec.json.decode(body, type=dict)
    except (ValueError, RecursionError):
        return {}


def _family(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)
