"""The errors of asking a server, and of answering one."""

from penstock.errors import Backlogged, PenstockError


class BodyTooLarge(PenstockError, exit_status=2, http_status=413):
    """The request body is over the limit of {limit_bytes} bytes {measure}.
    Nothing of it was accepted; send less in one request."""


class CutOff(Backlogged):
    """The service ended before the request was answered. Whether events of it were taken in is
    not known. Send it again in {retry_after_s} s."""

    def __init__(self) -> None:
        super().__init__(why="the service ends")


class ServerUnreachable(PenstockError, exit_status=3):
    """No answer from {url}: {why}. `penstock serve` has to run there: check the address."""


class AnswerUnusable(PenstockError):
    """{url} answered {status}: {why}"""


class AddressForbidden(PenstockError, exit_status=2, http_status=400):
    """{host} is not dialled: it is not known, or not on the internet. An operator allows networks
    beside the internet with PENSTOCK_EGRESS_NETWORKS; docs/security.md says how."""


class KeyNotValid(PenstockError):
    """The key is not valid: {url} does not know it, or it was revoked. `penstock keys list` on the
    machine of the lake shows those there are; `penstock login` keeps another one."""


class KeyMissing(PenstockError):
    """There is no key to ask {url} with: `penstock login {url}` keeps one, or name it in
    PENSTOCK_KEY."""
