"""Where the model is, how it is asked, and what its answers depend on."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InvalidInput
from penstock.http.address import HttpAddress
from penstock.settings import Settings, without_secrets
from penstock_jobs.rewards.followups.llm.answers import prompt_version
from penstock_jobs.rewards.settings import RewardSettings

#: Tries of one request.
_ATTEMPTS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the model is, and the limits of asking it."""

    #: Up to and without `/chat/completions`: http://127.0.0.1:8000/v1
    url: str
    model: str
    key: str = field(default="", repr=False)
    #: Tries of one request.
    attempts_max: int = 4
    #: Wait for an answer.
    timeout_seconds: float = 60.0
    #: Longest pause between two tries, also when the server asks for a longer one.
    pause_seconds_max: float = 30.0
    #: What the model may write.
    answer_tokens_max: int = 200
    #: Other parameters of the request, such as `seed`.
    parameters: tuple[tuple[str, Any], ...] = (("temperature", 0),)


def endpoint_of(settings: Settings) -> Endpoint:
    return Endpoint(
        url=settings.room(RewardSettings).judge_url,
        model=settings.room(RewardSettings).judge_model,
        key=settings.room(RewardSettings).judge_key,
        attempts_max=_ATTEMPTS_MAX,
        timeout_seconds=settings.room(RewardSettings).judge_seconds_max,
    )


def address_of(endpoint: Endpoint) -> HttpAddress:
    """Raises InvalidInput where nothing can be sent there, or not with this key."""
    address = HttpAddress.of(
        endpoint.url, f"The address of the judge, {without_secrets(endpoint.url)!r},"
    )
    if not (endpoint.key.isascii() and endpoint.key.isprintable()):
        raise InvalidInput(what="The key of the judge", why="it holds what no header may")
    return address


def version_of(endpoint: Endpoint, message_chars_max: int) -> str:
    """Of what the answers depend on; the address is not among it, the model's name is."""
    shown = [
        prompt_version(),
        endpoint.model,
        endpoint.parameters,
        endpoint.answer_tokens_max,
        message_chars_max,
    ]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:12]
