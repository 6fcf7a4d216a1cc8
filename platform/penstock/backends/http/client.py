"""HTTP requests that end in time whatever the other side does, and the client of a service."""

import http.client
import io
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.backends.http import (
    AddressForbidden,
    AnswerUnusable,
    ServerUnreachable,
    document_of,
    refusal_of,
)
from penstock.backends.http.address import EgressPolicy, HttpAddress
from penstock.backends.http.login import service_key
from penstock.core.errors import InvalidInput, PenstockError, one_line
from penstock.core.settings import without_secrets

if TYPE_CHECKING:  # only type checkers know it before Python 3.12
    from typing_extensions import Buffer

_SERVICE_SECONDS_MAX = 60.0
#: How long a service may be away or full while events are sent to it.
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1
_PASSING = {408, 429, 502, 503, 504}

_CUT = "it was broken off"
_CUT_OFF = "its answer was cut off"
#: Read of a refusal: problems are short.
_PROBLEM_BYTES_MAX = 16 * 1024 * 1024
_BUFFER_BYTES = 1024 * 1024

T = TypeVar("T")

#: Told of trouble that passes.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class HttpAnswer:
    """`status` is 0 where there was no answer."""

    status: int
    #: Empty where the whole answer came.
    problem: str = ""
    body: bytes = b""
    #: By names in lower case.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Whether the request may have reached the other side.
    sent: bool = True

    @property
    def retry_after_s(self) -> float:
        """The pause that the server asks for. A date, which is by another clock, is not read."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0.0

    def if_whole(self) -> "HttpAnswer":
        """Treat an answer with a missing part as none."""
        return replace(self, status=0, headers={}) if self.problem else self

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class HttpClient:
    """Sends one request at a time; another thread may cut it off."""

    def __init__(
        self,
        address: HttpAddress,
        *,
        seconds_max: float,
        egress: EgressPolicy | None,
        bytes_max: int | None = None,
        keep_alive: bool = False,
    ) -> None:
        """Read at most `bytes_max + 1` bytes of an answer; the last one shows that it is too
        long."""
        self._target = address.target
        self._connection = address.connection(seconds_max, egress)
        self._seconds_max = seconds_max
        self._too_late = f"it did not answer within {seconds_max:g} s"
        self._bytes_max = bytes_max
        self._keep_alive = keep_alive
        self._call: _Call | None = None
        self._is_cut = False

    def request(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        target: str | None = None,
    ) -> HttpAnswer:
        """Send a request to the path of the address, or to `target`."""
        call = _Call(self._connection)
        reused = self._connection.sock is not None
        sent = False
        try:
            with self._current(call):
                if not reused and not self._is_cut:
                    self._connection.connect()
                if self._is_cut:
                    return HttpAnswer(0, _CUT, sent=False)
                sent = True
                self._connection.request(method, target or self._target, body, dict(headers))
                return self._read(call)
        except AddressForbidden as error:
            return HttpAnswer(0, one_line(error), sent=False)
        except TimeoutError:
            return HttpAnswer(0, self._too_late, sent=sent)
        except (OSError, http.client.HTTPException) as error:
            if not reused or call.ended:
                return HttpAnswer(0, call.ended or _described(error), sent=sent)
        return self.request(method, headers, body, target=target)  # servers close idle connections

    @contextmanager
    def streaming(
        self, method: str, headers: Mapping[str, str], body: bytes | None, *, target: str
    ) -> Iterator[tuple[HttpAnswer, BinaryIO]]:
        """Yield an answer, and its body as it comes: each wait takes at most `seconds_max`."""
        self._connection.close()
        try:
            self._connection.request(method, target, body, dict(headers))
            response = self._connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            whole = io.BufferedReader(_WholeBody(response), _BUFFER_BYTES)
            yield HttpAnswer(response.status, headers=names), whole
        finally:
            self._connection.close()

    def cut(self) -> None:
        """Break off the request under way, and send nothing any more."""
        self._is_cut = True
        if (call := self._call) is not None:
            call.end(_CUT)

    def close(self) -> None:
        self._connection.close()

    def _read(self, call: "_Call") -> HttpAnswer:
        response = self._connection.getresponse()
        if call.ended:  # a connection that was cut reads as an answer with fewer headers
            return HttpAnswer(0, call.ended)
        headers = {name.lower(): value for name, value in response.getheaders()}
        answer = HttpAnswer(response.status, headers=headers)
        bytes_max = self._bytes_max
        try:
            body = response.read() if bytes_max is None else response.read(bytes_max + 1)
        except TimeoutError:
            return replace(answer, problem=self._too_late)
        except (OSError, http.client.HTTPException) as error:
            return replace(answer, problem=call.ended or _described(error))
        if call.ended:  # and here as one with fewer bytes
            return replace(answer, problem=call.ended)
        if response.length and bytes_max is not None and len(body) <= bytes_max:
            return replace(answer, problem=_CUT_OFF)
        call.keep = self._keep_alive and response.isclosed()
        return replace(answer, body=body)

    @contextmanager
    def _current(self, call: "_Call") -> Iterator[None]:
        """End a call in time. Time-outs of sockets are not enough: they begin anew with each
        byte."""
        timer = threading.Timer(self._seconds_max, call.end, [self._too_late])
        timer.daemon = True
        timer.start()
        self._call = call
        try:
            yield
        finally:
            self._call = None
            timer.cancel()
            if not call.keep:
                self._connection.close()


class _Call:
    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        #: Why it was ended from outside.
        self.ended = ""
        #: The connection may be used again.
        self.keep = False

    def end(self, why: str) -> None:
        self.ended = why
        if (dialled := self._connection.sock) is not None:
            with suppress(OSError):  # not the method of a TLS socket, which is not for two threads
                socket.socket.shutdown(dialled, socket.SHUT_RDWR)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"


class _WholeBody(io.RawIOBase):
    """A body that raises OSError if it is cut off."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer") -> int:
        count = self._response.readinto(buffer)
        if not count and memoryview(buffer).nbytes and self._response.length:
            raise ConnectionError(_CUT_OFF)
        return count


class ServiceClient:
    """A client of a running service, over one connection that is opened again when it breaks. Only
    `cut` may be called from another thread."""

    def __init__(
        self, url: str, key: str | None = None, seconds_max: float = _SERVICE_SECONDS_MAX
    ) -> None:
        what = f"The address {without_secrets(url)}"
        address = HttpAddress.of(url, what)
        if address.login is not None:
            why = "it holds a login, and the service takes a key"
            raise InvalidInput(what=what, why=why)
        if address.query or address.fragment:
            why = "it holds a query or a fragment after its path"
            raise InvalidInput(what=what, why=why)
        self.url = url
        self._path = address.path.rstrip("/")
        self._http = HttpClient(address, seconds_max=seconds_max, egress=None, keep_alive=True)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def cut(self) -> None:
        """End the request under way, from another thread."""
        self._http.cut()

    def get(self, path: str, **headers: str) -> HttpAnswer:
        return self._request("GET", path, None, headers)

    def post(self, path: str, body: bytes, **headers: str) -> HttpAnswer:
        return self._request("POST", path, body, headers)

    def delete(self, path: str, **headers: str) -> HttpAnswer:
        return self._request("DELETE", path, None, headers)

    def ask(self, path: str, expected: str, document: object = None) -> dict[str, Any]:
        """Get the answer of a path below /v1, or post a document to it. The answer has to have the
        field `expected`. Raises ServerUnreachable where trouble passes, else AnswerUnusable."""
        if document is None:
            answer = self.get(f"/v1/{path}")
        else:
            answer = self.post(f"/v1/{path}", msgspec.json.encode(document))
        fields = document_of(answer.body)
        if answer.status in _PASSING:
            raise ServerUnreachable(url=self.url, why=fields.get("detail", answer.status))
        if answer.status != 200 or expected not in fields:
            why = fields.get("detail", "nothing that Penstock says")
            raise AnswerUnusable(url=self.url, status=answer.status, why=why)
        return fields

    def call(self, method: str, path: str, fields: Mapping[str, object], kind: type[T]) -> T:
        """Send a request. Fields that the path names in braces go into the path, the others into
        the body of a POST or the query."""
        rest = dict(fields)
        target = re.sub(
            r"{(\w+)(?::path)?}", lambda name: quote(str(rest.pop(name[1])), safe=""), path
        )
        body = None
        if method == "POST":
            body = msgspec.json.encode(rest)
        elif rest:
            target += "?" + urlencode({name: _query_text(rest[name]) for name in rest}, doseq=True)
        answer = self._request(method, target, body, {})
        if answer.status != 200:
            raise self._refusal(answer.status, answer.body)
        if kind is bytes:
            return answer.body  # type: ignore[return-value]  # mypy does not see that it is T
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (ValueError, RecursionError) as error:
            why = f"that is no answer of this Penstock: {error}"
            raise AnswerUnusable(url=self.url, status=200, why=why) from None

    @contextmanager
    def streaming(
        self, path: str, document: object = None, **headers: str
    ) -> Iterator[tuple[Mapping[str, str], BinaryIO]]:
        """Yield the headers and the body of an answer, read as it comes. A document is posted.
        Raises what `call` does."""
        body = None if document is None else msgspec.json.encode(document)
        method = "GET" if body is None else "POST"
        sent = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            with self._http.streaming(method, sent, body, target=self._path + path) as opened:
                answer, content = opened
                if answer.status != 200:
                    raise self._refusal(answer.status, content.read(_PROBLEM_BYTES_MAX))
                yield answer.headers, content
        except (ConnectionError, TimeoutError, socket.gaierror, http.client.HTTPException) as error:
            raise ServerUnreachable(url=self.url, why=_described(error)) from error

    def _refusal(self, status: int, body: bytes) -> PenstockError:
        return refusal_of(status, body, self.url, with_key="Authorization" in self._headers)

    def send_events(
        self,
        lines: bytes,
        *,
        patience_s: float = _PATIENCE_SECONDS,
        tell: Tell = lambda _text: None,
        **headers: str,
    ) -> dict[str, Any]:
        """Post events until they are acknowledged. `tell` is called once where that takes longer.
        Raises ServerUnreachable, and what the service refuses."""
        deadline = time.monotonic() + patience_s
        told = False
        while True:
            pause_s = 0.0
            try:
                answer = self.post("/v1/events", lines, **headers)
            except ServerUnreachable as error:
                why = str(error.facts["why"])
            else:
                if answer.status == 200:
                    accepted: dict[str, Any] = answer.json()
                    return accepted
                why = f"{answer.status} {answer.body[:200].decode(errors='replace')}"
                if answer.status not in _PASSING:
                    raise self._refusal(answer.status, answer.body)
                pause_s = answer.retry_after_s
            if time.monotonic() > deadline:
                raise ServerUnreachable(url=self.url, why=why)
            if not told:
                tell(f"{self.url} takes no events: {why}. Trying for {patience_s:.0f} s")
                told = True
            time.sleep(pause_s or _PAUSE_SECONDS)

    def _request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HttpAnswer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        target = self._path + path
        answer = self._http.request(method, self._headers | named, body, target=target)
        if answer.problem:
            raise ServerUnreachable(url=self.url, why=answer.problem)
        return answer


def _query_text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def service_at(url: str, seconds_max: float = _SERVICE_SECONDS_MAX) -> ServiceClient:
    """Make a client of the service at a URL, with the key that is kept for it. Raises
    InvalidInput."""
    return ServiceClient(url, service_key(url), seconds_max)
