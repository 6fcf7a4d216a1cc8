"""What is the S3 store's own: uploads that fail, a service in trouble, and one that refuses."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.backends.storage import open_store
from penstock.backends.storage import s3 as s3_store
from penstock.backends.storage.object_store import ObjectStore, StoreRefused, StoreUnreachable
from penstock.core.errors import SettingInvalid
from penstock.core.settings import Settings
from tests.support.servers.faults import (
    CutAnswer,
    CutRequest,
    Fault,
    FaultyProxy,
    Hold,
    Refuse,
    Seen,
    faulty_proxy,
    first,
)
from tests.support.servers.s3 import S3Server

ALWAYS = 1000
SMALL, LARGE = 1000, 24 * 1024 * 1024


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3.url) as proxy:
        yield proxy


@pytest.fixture
def url(s3: S3Server, proxy: FaultyProxy) -> str:
    """The store's address by way of the proxy."""
    return s3.store_url(s3.new_prefix(), proxy.url)


@pytest.fixture
def store(url: str, tmp_path: Path) -> ObjectStore:
    return open_impatient(url, tmp_path)


@pytest.fixture(autouse=True)
def _impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_store, "ATTEMPTS_MAX", 2)
    monkeypatch.setattr(s3_store, "SILENCE_SECONDS_MAX", 1)


def open_impatient(url: str, data: Path) -> ObjectStore:
    return open_store(Settings(data=data, store_url=url))


def put(store: ObjectStore, name: str, size: int = SMALL) -> None:
    with store.create(name) as file:
        file.write(b"x" * size)


def names(store: ObjectStore) -> list[str]:
    return [found.name for found in store.list()]


# Half-written uploads


@pytest.mark.parametrize(
    ("size", "which"),
    [
        (SMALL, ("PUT", "")),
        (LARGE, ("POST", "uploads")),
        (LARGE, ("PUT", "partNumber=1")),
        (LARGE, ("PUT", "partNumber=2")),
        (LARGE, ("POST", "uploadId")),
    ],
    ids=["one request", "begin", "first part", "second part", "complete"],
)
@pytest.mark.parametrize("fault", [CutRequest(), Refuse(503, "SlowDown")], ids=["cut", "slow down"])
def test_an_upload_that_fails_at_any_request_leaves_nothing_to_read(
    store: ObjectStore, proxy: FaultyProxy, size: int, which: tuple[str, str], fault: Fault
) -> None:
    proxy.script = first(ALWAYS, fault, *which)
    with pytest.raises(StoreUnreachable):
        put(store, "events/a", size)
    proxy.script = None
    assert names(store) == []
    with pytest.raises(FileNotFoundError):
        store.open("events/a")
    put(store, "events/a", size)
    assert store.open("events/a").size() == size


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_an_upload_whose_answer_is_lost_leaves_the_whole_object_or_none(
    store: ObjectStore, proxy: FaultyProxy, size: int
) -> None:
    query = "uploadId" if size == LARGE else ""
    proxy.script = first(ALWAYS, CutAnswer(20), "POST" if query else "PUT", query)
    with suppress(StoreUnreachable):  # where nothing but the headers counts it went well
        put(store, "events/a", size)
    proxy.script = None
    assert {found.size for found in store.list()} <= {size}


def test_a_part_that_fails_for_a_moment_is_sent_again(
    store: ObjectStore, proxy: FaultyProxy
) -> None:
    proxy.script = first(1, CutRequest(), "PUT")
    put(store, "events/a", LARGE)
    assert store.open("events/a").size() == LARGE


def test_nothing_is_sent_before_the_block_ends_well(store: ObjectStore, proxy: FaultyProxy) -> None:
    def write() -> None:
        with store.create("events/a") as file:
            file.write(b"x" * LARGE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert proxy.seen == []


WRITE_ONE = """
import sys
from pathlib import Path
from penstock.core.settings import Settings
from penstock.backends.storage import open_store
store = open_store(Settings(data=Path(sys.argv[1]), store_url=sys.argv[2]))
with store.create("events/a") as file:
    file.write(b"x" * int(sys.argv[3]))
"""


def test_a_process_killed_while_it_sends_leaves_nothing(
    store: ObjectStore, proxy: FaultyProxy, url: str, tmp_path: Path
) -> None:
    """Neither an object nor a file of its own."""
    reached, never = threading.Event(), threading.Event()

    def script(seen: Seen) -> Fault | None:
        if "partNumber=2" not in seen.query:
            return None
        reached.set()
        return Hold(never)

    proxy.script = script
    command = [sys.executable, "-c", WRITE_ONE, str(tmp_path), url, str(LARGE)]
    writer = subprocess.Popen(command)
    assert reached.wait(60)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    never.set()
    proxy.script = None
    assert names(store) == []
    with pytest.raises(FileNotFoundError):
        store.open("events/a")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# A service in trouble


@pytest.mark.parametrize(
    "fault",
    [
        Refuse(503, "SlowDown"),
        Refuse(429, "TooManyRequests"),
        Refuse(500, "InternalError"),
        CutRequest(),
        CutAnswer(100),
    ],
    ids=["503", "429", "500", "cut request", "cut answer"],
)
def test_trouble_that_passes_is_waited_for(
    store: ObjectStore, proxy: FaultyProxy, fault: Fault
) -> None:
    put(store, "events/a", 500_000)
    for ask in asks_of(store):
        proxy.script = first(1, fault)
        ask()
    proxy.script = first(1, fault)
    with store.open("events/a") as source:
        assert source.read() == b"x" * 500_000
    proxy.script = None
    assert names(store) == ["events/a"]


@pytest.mark.parametrize(
    "fault",
    [Refuse(503, "SlowDown"), Refuse(429, "TooManyRequests"), CutRequest()],
    ids=["503", "429", "cut"],
)
def test_trouble_that_stays_is_a_sentence_after_so_many_tries(
    store: ObjectStore, proxy: FaultyProxy, fault: Fault
) -> None:
    put(store, "events/a", 500_000)
    source = store.open("events/a")
    proxy.script = lambda _seen: fault
    for ask in (*asks_of(store), source.read):
        del proxy.seen[:]
        with pytest.raises(StoreUnreachable, match="cannot be reached"):
            ask()
        assert 2 <= len(proxy.seen) <= 2 * 2


def test_a_listing_that_is_late_is_asked_for_again_and_given_up(
    store: ObjectStore, proxy: FaultyProxy
) -> None:
    put(store, "events/a")
    until = threading.Event()
    proxy.script = first(1, Hold(until), "GET", "list-type")
    assert names(store) == ["events/a"]
    proxy.script = first(ALWAYS, Hold(until), "GET", "list-type")
    with pytest.raises(StoreUnreachable, match="Timeout"):
        names(store)
    proxy.script = None
    until.set()
    assert names(store) == ["events/a"]


def test_a_long_listing_comes_in_pages_and_folder_by_folder(
    store: ObjectStore, proxy: FaultyProxy, s3: S3Server, url: str
) -> None:
    prefix = url.partition("/lake/")[2].partition("?")[0]
    folder = s3.root / "lake" / prefix / "events" / "p-0000"
    folder.mkdir(parents=True)
    for number in range(1500):
        (folder / f"{number:04d}").write_bytes(b"x")
    put(store, "later/a")
    found = store.list()
    next(found)
    asked = len(proxy.seen)
    assert len(list(found)) == 1500
    assert len(proxy.seen) > asked
    assert len([seen for seen in proxy.seen if "continuation-token" in seen.query]) == 1


# A service that refuses


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "the access key is not known"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "does not belong to the access key"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "there is no key at all"),
    ],
    ids=["key", "secret", "none"],
)
def test_a_wrong_key_is_said(
    store: ObjectStore,
    proxy: FaultyProxy,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for ask in asks_of(store):
        del proxy.seen[:]
        with pytest.raises(StoreRefused, match=said) as refused:
            ask()
        assert refused.value.exit_status == 3
        assert len(proxy.seen) <= 3, "and asking again would not help"


def test_a_missing_bucket_is_not_an_absent_object(s3: S3Server, tmp_path: Path) -> None:
    url = s3.store_url("x").replace("//lake/", "//no-such-bucket/")
    for ask in asks_of(open_impatient(url, tmp_path)):
        with pytest.raises(StoreRefused, match="there is no such bucket"):
            ask()


def test_an_endpoint_that_is_not_there_is_said(s3: S3Server, tmp_path: Path) -> None:
    url = s3.store_url("x", "http://127.0.0.1:1")
    for ask in asks_of(open_impatient(url, tmp_path)):
        with pytest.raises(StoreUnreachable, match=r"s3://lake/x at http://127\.0\.0\.1:1 cannot"):
            ask()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Refuse(301, "PermanentRedirect"), "another region"),
        (Refuse(400, "AuthorizationHeaderMalformed"), "another region"),
        (Refuse(403, "AccessDenied"), "may not do that"),
        (Refuse(400, "ExpiredToken"), "too old"),
        (Refuse(400, "InvalidRequest"), "refused: "),
    ],
    ids=lambda value: value.code if isinstance(value, Refuse) else "",
)
def test_other_refusals_are_told_apart(
    store: ObjectStore, proxy: FaultyProxy, fault: Fault, said: str
) -> None:
    proxy.script = lambda _seen: fault
    for ask in asks_of(store):
        with pytest.raises(StoreRefused, match=said) as refused:
            ask()
        assert "s3://lake/" in str(refused.value)
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(refused.value)


def asks_of(store: ObjectStore) -> list[Callable[[], object]]:
    """Each kind of request."""
    return [
        lambda: put(store, "events/b"),
        lambda: store.open("events/a"),
        lambda: names(store),
        lambda: store.delete("events/b"),
        store.check,
    ]


# Few requests


def test_an_object_is_read_in_few_requests(store: ObjectStore, proxy: FaultyProxy) -> None:
    put(store, "a", 1_000_000)
    del proxy.seen[:]
    with store.open("a") as source:
        source.seek(source.size() - 8)
        source.read(8)
        source.seek(source.size() - 5000)
        source.read(4992)
        for position in range(0, 100_000, 1000):
            source.seek(position)
            source.read(1000)
    assert [seen.method for seen in proxy.seen] == ["HEAD", "GET", "GET"]


# Addresses


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://", "name of a bucket"),
        ("s3:///prefix", "name of a bucket"),
        ("s3://key:secret@bucket/lake", "keys do not belong"),
        ("s3://bucket/lake?secret_key=x", "secret_key is not one of its options"),
        ("s3://bucket?endpoint=localhost:9000", r"is not http\(s\)://HOST:PORT"),
        ("s3://bucket?endpoint=http://a:b@host", r"is not http\(s\)://HOST:PORT"),
    ],
)
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(SettingInvalid, match=why):
        open_store(Settings(data=tmp_path, store_url=url))


@pytest.mark.parametrize("prefix", ["", "/", "/a", "/a/b/"])
def test_a_store_takes_any_prefix(s3: S3Server, tmp_path: Path, prefix: str) -> None:
    mark = s3.new_prefix()
    url = f"s3://lake{prefix}?endpoint={s3.url}/&region=us-east-1"
    store = open_store(Settings(data=tmp_path, store_url=url))
    put(store, f"{mark}/x")
    assert [found.name for found in store.list(mark)] == [f"{mark}/x"]
    store.delete(f"{mark}/x")
    assert [found.name for found in store.list(mark)] == []
