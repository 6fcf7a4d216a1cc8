"""The object store in a bucket of S3, or of a service that speaks its protocol.

An object is written to a local file first and uploaded when it is complete. Arrow's own output
stream cannot be given up: closing or dropping one makes an object of what it has got so far.
"""

import mmap
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, TypeVar, cast

import pyarrow as pa

from penstock.directories import make_directory
from penstock.errors import PenstockError
from penstock.storage import StoredObject
from penstock.storage.s3_answers import explain, is_over_rate
from penstock.storage.windows import WindowedFile

#: Up to here an object is sent in one request; beyond, in parts of Arrow's choosing.
_ONE_REQUEST_BYTES = 5 * 1024 * 1024
_PAUSE_SECONDS_MIN = 0.2

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where the objects are. No keys: those come from the usual places of AWS tools."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None

    def __str__(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"s3://{self._below(self.prefix)}{at}"

    def path(self, name: str) -> str:
        return self._below(self.prefix, name)

    def _below(self, *parts: str) -> str:
        return "/".join(part for part in (self.bucket, *parts) if part)


@dataclass(frozen=True)
class Patience:
    """How long to wait, and how often to try."""

    connect_seconds_max: float
    silence_seconds_max: float
    attempts_max: int


class S3Store:
    """An ObjectStore in a bucket."""

    local = False

    def __init__(self, place: Place, patience: Patience, spool: Path) -> None:
        """What is being written waits in the directory `spool`."""
        self._place = place
        self._patience = patience
        self._spool = spool

    def check(self) -> None:
        self._list_directory("")
        self._refuse_missing_bucket()

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        make_directory(self._spool)
        with TemporaryFile(dir=self._spool) as file:  # without a name: it never outlives a crash
            yield cast(BinaryIO, file)
            file.flush()
            # On a thread, which no signal interrupts between the first byte and the last.
            with ThreadPoolExecutor(1, "upload") as uploads:
                uploads.submit(self._upload, name, file).result()

    def open(self, name: str) -> pa.NativeFile:
        path = self._place.path(name)
        source = self._ask(lambda: self._files.open_input_file(path))

        def fetch(offset: int, length: int) -> pa.Buffer:
            return self._ask(lambda: pa.py_buffer(source.read_at(length, offset)))

        return pa.PythonFile(WindowedFile(fetch, source.size()), mode="r")

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Folder by folder. Uploads that were never completed are not listed: docs/storage.md."""
        folders = [prefix]
        while folders:
            for name, size in self._list_directory(folders.pop()):
                if size is None:
                    folders.append(name)
                else:
                    yield StoredObject(name, size)

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._ask(lambda: self._files.delete_file(self._place.path(name)))

    def address(self, name: str) -> str:
        return f"s3://{self._place.path(name)}"

    def _upload(self, name: str, file: IO[bytes]) -> None:
        size = file.seek(0, 2)
        content: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        files = self._files if size <= _ONE_REQUEST_BYTES else self._files_for_parts
        path = self._place.path(name)
        self._ask(lambda: _write(files, path, pa.py_buffer(content)), absent_is_fine=False)

    def _list_directory(self, name: str) -> Sequence[tuple[str, int | None]]:
        """What lies directly in a folder: names, and sizes where it is an object."""
        from pyarrow import fs

        path = self._place.path(name)
        found = self._ask(
            lambda: self._files.get_file_info(fs.FileSelector(path, allow_not_found=True))
        )
        if not found:
            self._refuse_missing_bucket()
        above = len(self._place.path("")) + 1
        return [
            (one.path[above:], one.size if one.type is fs.FileType.File else None) for one in found
        ]

    def _refuse_missing_bucket(self) -> None:
        """To look for an object, or to list, in a bucket that is not there finds just nothing."""
        from pyarrow import fs

        found = self._ask(lambda: self._files.get_file_info(self._place.bucket))
        if found.type is fs.FileType.NotFound:
            raise explain("NO_SUCH_BUCKET", self._place)

    def _ask(self, request: Callable[[], T], *, absent_is_fine: bool = True) -> T:
        """What it returns. Raises FileNotFoundError, StoreUnreachable, StoreRefused.

        The SDK repeats what fails for a moment. It does not know the answer 429, which some
        services give where S3 says 503.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return request()
            except FileNotFoundError:
                self._refuse_missing_bucket()
                raise
            except OSError as error:
                if not is_over_rate(str(error)) or attempt >= self._patience.attempts_max:
                    raise self._explain(str(error)) from error
                time.sleep(_PAUSE_SECONDS_MIN * 2**attempt)

    def _explain(self, answer: str) -> PenstockError:
        """A HEAD is refused without a reason, so something that gets one is asked instead."""
        from pyarrow import fs

        if "No response body" in answer:
            nothing = fs.FileSelector(self._place.path("-"), allow_not_found=True)
            try:
                self._files.get_file_info(nothing)
            except OSError as error:
                answer = str(error)
        return explain(answer, self._place)

    @cached_property
    def _files(self) -> Any:
        """Sends a small object in one request: whole or not at all by nature."""
        return self._connect(allow_delayed_open=True)

    @cached_property
    def _files_for_parts(self) -> Any:
        """Begins an upload before anything is written: where that fails, nothing can appear."""
        return self._connect(allow_delayed_open=False)

    def _connect(self, **how: Any) -> Any:
        from pyarrow import fs

        place, patience = self._place, self._patience
        scheme, _, host = (place.endpoint or "").partition("://")
        address = {"endpoint_override": host, "scheme": scheme} if place.endpoint else {}
        return fs.S3FileSystem(
            **address,
            **how,
            region=place.region,
            connect_timeout=patience.connect_seconds_max,
            request_timeout=patience.silence_seconds_max,
            background_writes=True,  # so that a part that failed keeps the others from counting
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=patience.attempts_max),
        )


def _write(files: Any, path: str, content: pa.Buffer) -> None:
    stream = files.open_output_stream(path)
    stream.write(content)
    stream.close()
