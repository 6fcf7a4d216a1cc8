"""A small HTTP client of the service, which retries as a good producer does."""

import http.client
import json
import time
from dataclasses import dataclass
from typing import Any, Self

from penstock.http.address import HttpAddress

_TRIES_MAX = 200
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection, opened again when it breaks. Not shared between threads."""

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 30) -> None:
        self._connection = HttpAddress.of(url, "The address of the service").connection(timeout_s)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def post(self, path: str, body: bytes, **headers: str) -> Reply:
        """Raises OSError or http.client.HTTPException when there is no answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._ask("POST", path, body, self._headers | named)

    def get(self, path: str) -> Reply:
        return self._ask("GET", path, None, self._headers)

    def send_events(self, body: bytes) -> dict[str, Any]:
        """Post events until they are acknowledged; the answer."""
        for _ in range(_TRIES_MAX):
            try:
                reply = self.post("/v1/events", body)
            except (OSError, http.client.HTTPException):
                time.sleep(_PAUSE_SECONDS)
                continue
            if reply.status == 200:
                answer: dict[str, Any] = reply.json()
                return answer
            if reply.status not in (429, 503):
                raise AssertionError(f"{reply.status}: {reply.body[:500]!r}")
            time.sleep(float(reply.headers.get("retry-after", _PAUSE_SECONDS)))
        raise TimeoutError("the service did not acknowledge the events")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
