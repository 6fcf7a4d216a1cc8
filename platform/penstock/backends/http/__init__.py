"""Servers and their callers: addresses, one client, errors as problems, bodies within bounds. Here
are the errors of clients and of the service."""

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.core.errors import Backlogged, PenstockError, received_error


class BodyTooLarge(PenstockError, exit_status=2, http_status=413):
    """The request body is over the limit of {limit_bytes} bytes {measure}.
    Nothing of it was accepted; send less in one request."""


class ClientGone(PenstockError, http_status=499):
    """The client hung up before it was answered."""


class CutOff(Backlogged):
    """The service ended before it answered. Whether events of the request were accepted is not
    known. Send it again in {retry_after_s} s."""

    def __init__(self) -> None:
        super().__init__(why="the service ends")


class ServerUnreachable(PenstockError, exit_status=3):
    """{url} does not answer: {why}. Check the address, and that `penstock serve` runs there."""


class AnswerUnusable(PenstockError):
    """{url} answered {status}: {why}"""


class AddressForbidden(PenstockError, exit_status=2, http_status=400):
    """{host} is not dialled: it is unknown, or not on the internet. An operator allows other
    networks with PENSTOCK_EGRESS_NETWORKS; see docs/security.md."""


class KeyNotValid(PenstockError):
    """The key is not valid: {url} does not know it, or it was revoked. `penstock keys list` on the
    lake's machine lists the keys; `penstock login` keeps another one."""


class KeyMissing(PenstockError):
    """{url} needs a key. Keep one with `penstock login {url}`, or set PENSTOCK_KEY."""


#: Without a problem of ours, they come from something before the service, and pass.
_PASSING = {408, 429, 502, 503, 504}


def refusal_of(status: int, body: bytes, url: str, *, with_key: bool) -> PenstockError:
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
    """Read the fields of a JSON object; none if it is no object."""
    try:
        return msgspec.json.decode(body, type=dict)
    except (ValueError, RecursionError):
        return {}


def _family(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)
