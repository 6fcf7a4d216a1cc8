"""What every object store does, by its protocol alone. A new twin joins as a parameter of
`store`; `reopen` gives the same store as another process sees it."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.backends.storage import open_store
from penstock.backends.storage.object_store import FileStore, ObjectStore, StoredObject
from penstock.core.settings import Settings
from tests.support.servers.s3 import S3Server

OpenStore = Callable[[], ObjectStore]


@pytest.fixture(params=["files", "s3"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    if request.param == "files":
        return lambda: FileStore(tmp_path / "lake")
    server: S3Server = request.getfixturevalue("s3")
    settings = Settings(data=tmp_path, store_url=server.store_url(server.new_prefix()))
    return lambda: open_store(settings)


@pytest.fixture
def store(reopen: OpenStore) -> ObjectStore:
    return reopen()


def put(store: ObjectStore, name: str, content: bytes = b"content") -> None:
    with store.create(name) as file:
        file.write(content)


def content_of(store: ObjectStore, name: str) -> bytes:
    with store.open(name) as source:
        return bytes(source.read())


def names(store: ObjectStore, prefix: str = "") -> list[str]:
    return [found.name for found in store.list(prefix)]


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 4096 * 3])
def test_an_object_comes_back_byte_for_byte(reopen: OpenStore, content: bytes) -> None:
    put(reopen(), "events/p-0000/a.parquet", content)
    assert content_of(reopen(), "events/p-0000/a.parquet") == content
    assert list(reopen().list()) == [StoredObject("events/p-0000/a.parquet", len(content))]


def test_an_object_is_written_in_pieces_and_read_from_anywhere(store: ObjectStore) -> None:
    with store.create("a") as file:
        for number in range(1000):
            file.write(b"%04d" % number)
        assert file.tell() == 4000
    with store.open("a") as source:
        assert source.size() == 4000
        source.seek(3996)
        assert source.read(4) == b"0999"
        source.seek(40)
        assert source.read(8) == b"00100011"


def test_nothing_can_be_opened_before_the_block_ends(reopen: OpenStore) -> None:
    store = reopen()
    with store.create("a") as file:
        file.write(b"x" * 1_000_000)
        file.flush()
        for one in (store, reopen()):
            with pytest.raises(FileNotFoundError):
                one.open("a")
    assert content_of(reopen(), "a") == b"x" * 1_000_000


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, OSError, GeneratorExit])
def test_nothing_is_left_of_a_write_that_failed(
    store: ObjectStore, failure: type[BaseException]
) -> None:
    def write() -> None:
        with store.create("events/a") as file:
            file.write(b"half")
            file.flush()
            raise failure

    with pytest.raises(failure):
        write()
    assert names(store) == []
    with pytest.raises(FileNotFoundError):
        store.open("events/a")
    put(store, "events/a")
    assert content_of(store, "events/a") == b"content"


def test_a_list_holds_what_lies_below_its_prefix(store: ObjectStore) -> None:
    assert names(store) == names(store, "events") == []
    everything = ["events/p-0000/a", "events/p-0000/b", "events/p-0001/a", "events-old/a", "z"]
    for name in everything:
        put(store, name)
    assert sorted(names(store)) == sorted(everything)
    assert sorted(names(store, "events")) == sorted(everything[:3])
    assert sorted(names(store, "events/p-0000")) == sorted(everything[:2])
    assert names(store, "missing") == []
    for name in ("missing", "events/missing", "events/a/missing", "a/b/c/d"):
        with pytest.raises(FileNotFoundError):
            store.open(name)
    addresses = {store.address(name) for name in everything}
    assert len(addresses) == len(everything)
    assert store.address("events/a").endswith("events/a")


def test_an_unfinished_write_is_listed_under_the_name_it_would_get(reopen: OpenStore) -> None:
    """So that collection can ask whether anyone still means to write it."""
    store = reopen()
    with store.create("events/a") as file:
        file.write(b"x")
        file.flush()
        assert set(names(reopen(), "events")) <= {"events/a"}
    assert names(reopen()) == ["events/a"]


def test_what_is_deleted_is_gone_and_can_be_deleted_again(reopen: OpenStore) -> None:
    store = reopen()
    put(store, "events/a")
    put(store, "events/b")
    for _ in range(2):
        store.delete("events/a")
        assert names(reopen()) == ["events/b"]
    store.delete("never/there")
    store.delete("never")
    with pytest.raises(FileNotFoundError):
        store.open("events/a")


def test_who_reads_an_object_goes_on_when_it_is_deleted(store: ObjectStore) -> None:
    put(store, "a", b"0123456789")
    with store.open("a") as source:
        assert source.read(5) == b"01234"
        store.delete("a")
        if isinstance(store, FileStore):  # others may say that it is gone
            assert source.read(5) == b"56789"
    assert names(store) == []


def test_objects_are_written_side_by_side(store: ObjectStore) -> None:
    def write(number: int) -> None:
        for index in range(10):
            put(store, f"p-{number}/{index}", b"%d" % number * 1000)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        for index in range(10):
            assert content_of(store, f"p-{number}/{index}") == b"%d" % number * 1000
