"""The object store in a bucket of S3, or of a service with its protocol.

An object is written to a local file and uploaded when it is complete. Arrow's output stream, even
when it is dropped, would make an object of the bytes written so far."""

import mmap
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, Self, TypeVar, cast
from urllib.parse import SplitResult, parse_qsl, unquote

import pyarrow as pa
from pyarrow import fs

from penstock.backends.http.address import HttpAddress
from penstock.backends.storage.object_store import (
    RandomAccess,
    StoredObject,
    StoreRefused,
    StoreUnreachable,
)
from penstock.core.errors import InvalidInput, PenstockError, SettingInvalid
from penstock.core.files import make_directory, relative_name

_ADDRESS_OPTIONS = ("endpoint", "region")
#: Larger objects are sent in parts of Arrow's choosing.
_ONE_REQUEST_BYTES = 5 * 1024 * 1024
_PAUSE_SECONDS_MIN = 0.2
_CONNECT_SECONDS_MAX = 5.0
SILENCE_SECONDS_MAX = 20.0
ATTEMPTS_MAX = 5  # of one request
#: Smaller reads are not worth a request.
WINDOW_BYTES = 256 * 1024

T = TypeVar("T")


@dataclass(frozen=True)
class S3Address:
    """The place of the objects. Keys come from the usual places of AWS."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None

    @classmethod
    def of(cls, url: SplitResult) -> Self:
        """Raises SettingInvalid."""
        options = parse_qsl(url.query, keep_blank_values=True)
        values = {name: value for name, value in options if value}
        endpoint = values.get("endpoint", "")
        why = ""
        if "@" in url.netloc:
            why = "keys do not belong into an address; set AWS_ACCESS_KEY_ID and the like"
        elif not url.netloc:
            why = "s3:// is followed by the name of a bucket"
        elif unknown := [name for name, _ in options if name not in _ADDRESS_OPTIONS]:
            why = f"{unknown[0]} is not one of its options, {' and '.join(_ADDRESS_OPTIONS)}"
        elif endpoint:
            try:
                server = HttpAddress.of(endpoint, "The endpoint")
                is_server = not (server.path.strip("/") or server.query or server.login)
            except InvalidInput:
                is_server = False
            if not is_server:
                why = f"the endpoint {endpoint!r} is not http(s)://HOST:PORT"
        if why:
            raise SettingInvalid(name="store_url", origin="the settings", why=why)
        prefix = unquote(url.path).strip("/")
        return cls(url.netloc, prefix, endpoint.rstrip("/") or None, values.get("region"))

    def __str__(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"s3://{self.path('')}{at}"

    def path(self, name: str) -> str:
        return "/".join(part for part in (self.bucket, self.prefix, name) if part)


class S3Store:
    local = False

    def __init__(self, address: S3Address, spool: Path) -> None:
        self._address = address
        self._spool = spool  # the directory of objects that are being written

    def check(self) -> None:
        self._list_directory("")
        self._refuse_missing_bucket()

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        make_directory(self._spool)
        with TemporaryFile(dir=self._spool) as file:  # without a name: it never outlives a crash
            yield cast(BinaryIO, file)
            file.flush()
            # A thread, because no signal interrupts it between the first byte and the last.
            with ThreadPoolExecutor(1, "upload") as uploads:
                uploads.submit(self._upload, name, file).result()

    def open(self, name: str) -> pa.NativeFile:
        path = self._path(name)
        source = self._request(lambda: self._files.open_input_file(path))

        def fetch(offset: int, length: int) -> pa.Buffer:
            return self._request(lambda: pa.py_buffer(source.read_at(length, offset)))

        return pa.PythonFile(_WindowedFile(fetch, source.size()), mode="r")

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        folders = [prefix]
        while folders:
            for name, size in self._list_directory(folders.pop()):
                if size is None:
                    folders.append(name)
                else:
                    yield StoredObject(name, size)

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._request(lambda: self._files.delete_file(self._path(name)))

    def address(self, name: str) -> str:
        return f"s3://{self._path(name) if name else self._address.path(name)}"

    def _path(self, name: str) -> str:
        return self._address.path(relative_name(name))

    def _upload(self, name: str, file: IO[bytes]) -> None:
        size = file.seek(0, 2)
        content: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        files = self._files if size <= _ONE_REQUEST_BYTES else self._files_for_parts

        def write() -> None:
            stream = files.open_output_stream(self._path(name))
            stream.write(pa.py_buffer(content))
            stream.close()

        self._request(write)

    def _list_directory(self, name: str) -> Sequence[tuple[str, int | None]]:
        selector = fs.FileSelector(self._address.path(name), allow_not_found=True)
        entries = self._request(lambda: self._files.get_file_info(selector))
        if not entries:
            self._refuse_missing_bucket()
        start = len(self._address.path("")) + 1
        return [
            (entry.path[start:], entry.size if entry.type is fs.FileType.File else None)
            for entry in entries
        ]

    def _refuse_missing_bucket(self) -> None:
        """Raise for a missing bucket: S3 itself only says that the object is missing."""
        bucket = self._request(lambda: self._files.get_file_info(self._address.bucket))
        if bucket.type is fs.FileType.NotFound:
            raise explain("NO_SUCH_BUCKET", self._address)

    def _request(self, request: Callable[[], T]) -> T:
        """Do a request, and repeat it after a 429: the SDK repeats other passing failures. Raises
        FileNotFoundError, StoreUnreachable, StoreRefused."""
        for attempt in count(1):
            try:
                return request()
            except FileNotFoundError:
                self._refuse_missing_bucket()
                raise
            except OSError as error:
                answer = str(error)
                over_rate = _code_and_status(answer)[1] == "429" and _NO_REASON not in answer
                if over_rate and attempt < ATTEMPTS_MAX:
                    time.sleep(_PAUSE_SECONDS_MIN * 2**attempt)
                    continue
                if _NO_REASON in answer:  # as of a refused HEAD: a request that has one is sent
                    nothing = fs.FileSelector(self._address.path("-"), allow_not_found=True)
                    try:
                        self._files.get_file_info(nothing)
                    except OSError as explained:
                        answer = str(explained)
                raise explain(answer, self._address) from error
        raise AssertionError  # the loop never ends

    @cached_property
    def _files(self) -> Any:
        """The file system that sends a small object in one request."""
        return self._connect(allow_delayed_open=True)

    @cached_property
    def _files_for_parts(self) -> Any:
        """The file system that begins an upload before it writes, so a failure leaves no object."""
        return self._connect(allow_delayed_open=False)

    def _connect(self, *, allow_delayed_open: bool) -> Any:
        scheme, _, host = (self._address.endpoint or "").partition("://")
        return fs.S3FileSystem(
            **({"endpoint_override": host, "scheme": scheme} if host else {}),
            allow_delayed_open=allow_delayed_open,
            region=self._address.region,
            connect_timeout=_CONNECT_SECONDS_MAX,
            request_timeout=SILENCE_SECONDS_MAX,
            background_writes=True,  # so that a failed part makes the whole upload fail
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS_MAX),
        )


class _WindowedFile(RandomAccess):
    """A remote file that is read in large pieces. It keeps the last piece and the end."""

    def __init__(self, fetch: Callable[[int, int], pa.Buffer], size: int) -> None:
        super().__init__(size)
        self._fetch = fetch
        self._windows: dict[str, tuple[int, pa.Buffer]] = {}

    def piece(self, start: int, length: int) -> pa.Buffer:
        if not length:
            return pa.py_buffer(b"")
        for first, window in self._windows.values():
            if first <= start and start + length <= first + window.size:
                return window.slice(start - first, length)
        if length >= WINDOW_BYTES:
            return self._fetch(start, length)
        tail = max(0, self._size - WINDOW_BYTES)
        first = min(start, tail)
        window = self._fetch(first, min(WINDOW_BYTES, self._size - first))
        self._windows["end" if first == tail else "last"] = (first, window)
        return window.slice(start - first, length)


# What a failed request means

_CODE = re.compile(r"AWS Error (?P<code>\w+)(?: \(HTTP status (?P<status>\d+)\))?")
_NAME = re.compile(r"Unable to parse ExceptionName: (?P<name>\w+)")
_NO_REASON = "No response body"

#: Errors that another try does not mend, and what to do about them.
_REFUSALS = {
    "NO_SUCH_BUCKET": "there is no such bucket. Make it, or correct PENSTOCK_STORE_URL",
    "INVALID_ACCESS_KEY_ID": "the access key is not known there. Check AWS_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH": "the secret key does not belong to the access key. Check"
    " AWS_SECRET_ACCESS_KEY",
    "EXPIRED_TOKEN": "the session token is too old. Get a new one",
    "ACCESS_DENIED": "this key may not do that, or there is no key at all. docs/deploy.md lists"
    " the permissions that are needed",
    "WRONG_REGION": "the bucket is in another region. Name it: PENSTOCK_STORE_URL=s3://…?region=…",
}
_SAME_AS = {
    **dict.fromkeys(("ExpiredToken", "InvalidToken"), "EXPIRED_TOKEN"),
    **dict.fromkeys(("PermanentRedirect", "TemporaryRedirect", "301", "307"), "WRONG_REGION"),
    "AuthorizationHeaderMalformed": "WRONG_REGION",
    "IllegalLocationConstraintException": "WRONG_REGION",
    **dict.fromkeys(("AllAccessDisabled", "401", "403"), "ACCESS_DENIED"),
    "INVALID_CLIENT_TOKEN_ID": "INVALID_ACCESS_KEY_ID",
}
#: Errors that may be over in a moment.
_PASSING = {
    *("NETWORK_CONNECTION", "SLOW_DOWN", "THROTTLING", "REQUEST_TIMEOUT"),
    *("INTERNAL_FAILURE", "SERVICE_UNAVAILABLE"),
}
_PASSING_STATUS = {"408", "429", "500", "502", "503", "504"}


def explain(answer: str, where: object) -> PenstockError:
    """Make the error for Arrow's text about a failed request, or for an error code."""
    code, status = _code_and_status(answer)
    name = _NAME.search(answer)
    for key in (name and name["name"], code or answer, status):
        if refusal := _REFUSALS.get(_SAME_AS.get(key, key)) if key else None:
            return StoreRefused(where=where, why=refusal)
    if "AWS Error" in answer and code not in _PASSING and status not in _PASSING_STATUS:
        return StoreRefused(where=where, why=f"{answer}. Check PENSTOCK_STORE_URL")
    return StoreUnreachable(where=where, why=answer)


def _code_and_status(answer: str) -> tuple[str, str]:
    match = _CODE.search(answer)
    return (match["code"], match["status"] or "") if match else ("", "")
