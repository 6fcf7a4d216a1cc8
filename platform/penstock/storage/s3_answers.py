"""From what Arrow tells of a request that failed to one of our errors."""

import re

from penstock.errors import PenstockError
from penstock.storage.errors import StoreRefused, StoreUnreachable

_CODE = re.compile(r"AWS Error (?P<code>\w+)(?: \(HTTP status (?P<status>\d+)\))?")
_NAME = re.compile(r"Unable to parse ExceptionName: (?P<name>\w+)")

#: What trying again does not mend, and what to do about it.
_REFUSALS = {
    "NO_SUCH_BUCKET": (
        "there is no such bucket",
        "Make it, or correct PENSTOCK_STORE_URL; nothing is made by itself",
    ),
    "INVALID_ACCESS_KEY_ID": ("the access key is not known there", "Look at AWS_ACCESS_KEY_ID"),
    "SIGNATURE_DOES_NOT_MATCH": (
        "the secret key does not belong to the access key",
        "Look at AWS_SECRET_ACCESS_KEY",
    ),
    "EXPIRED_TOKEN": ("the session token is too old", "Get a new one"),
    "ACCESS_DENIED": (
        "this key may not do that, or there is no key at all",
        "The permissions that are needed stand in docs/storage.md",
    ),
    "WRONG_REGION": (
        "the bucket is in another region",
        "Name it: PENSTOCK_STORE_URL=s3://…?region=…",
    ),
}
#: What may be over in a moment.
_PASSING = {
    *("NETWORK_CONNECTION", "SLOW_DOWN", "THROTTLING", "REQUEST_TIMEOUT"),
    *("INTERNAL_FAILURE", "SERVICE_UNAVAILABLE"),
}
_PASSING_STATUS = {"408", "429", "500", "502", "503", "504"}
_SAME_AS = {
    "ExpiredToken": "EXPIRED_TOKEN",
    "InvalidToken": "EXPIRED_TOKEN",
    "PermanentRedirect": "WRONG_REGION",
    "TemporaryRedirect": "WRONG_REGION",
    "AuthorizationHeaderMalformed": "WRONG_REGION",
    "IllegalLocationConstraintException": "WRONG_REGION",
    "AllAccessDisabled": "ACCESS_DENIED",
    "INVALID_CLIENT_TOKEN_ID": "INVALID_ACCESS_KEY_ID",
    "301": "WRONG_REGION",
    "307": "WRONG_REGION",
    "401": "ACCESS_DENIED",
    "403": "ACCESS_DENIED",
}


def is_over_rate(answer: str) -> bool:
    """Whether the service asked to go slower in a way that the SDK takes for a refusal."""
    return _status(answer) == "429" and "No response body" not in answer


def explain(answer: str, where: object) -> PenstockError:
    """`answer` is Arrow's text, or a code alone."""
    for code in _codes(answer):
        known = _SAME_AS.get(code, code)
        if known in _REFUSALS:
            why, hint = _REFUSALS[known]
            return StoreRefused(where=where, why=why, hint=hint)
    if "AWS Error" in answer and not _passes(answer):
        return StoreRefused(where=where, why=answer, hint="Look at PENSTOCK_STORE_URL")
    return StoreUnreachable(where=where, why=answer)


def _passes(answer: str) -> bool:
    found = _CODE.search(answer)
    return found is not None and (found["code"] in _PASSING or _status(answer) in _PASSING_STATUS)


def _codes(answer: str) -> list[str]:
    found = _CODE.search(answer)
    name = _NAME.search(answer)
    named = [name["name"]] if name else []
    return [*named, *(filter(None, found.groups()) if found else [answer])]


def _status(answer: str) -> str:
    found = _CODE.search(answer)
    return (found["status"] or "") if found else ""
