"""Whoever asks a store for a name: it leads to nothing outside."""

from pathlib import Path

import pytest

from penstock.backends.storage import open_store
from penstock.backends.storage.object_store import FileStore, ObjectStore
from penstock.core.files import NameUnsafe
from penstock.core.settings import Settings


@pytest.mark.parametrize("kind", ["files", "s3"])
@pytest.mark.parametrize("name", ["../victim", "/victim", "a/../../victim", "", "a\0b", "a\\b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    store: ObjectStore = FileStore(tmp_path / "lake")
    if kind == "s3":  # refused before anything is asked
        url = "s3://bucket/prefix?endpoint=http://127.0.0.1:1"
        store = open_store(Settings(data=tmp_path, store_url=url))
    with pytest.raises(NameUnsafe):
        store.open(name)
    with pytest.raises(NameUnsafe):
        store.delete(name)
    if name:  # without one it is the address of the store
        with pytest.raises(NameUnsafe):
            store.address(name)
    with pytest.raises(NameUnsafe), store.create(name) as file:
        file.write(b"gone")
    assert victim.read_text() == "precious"


def test_a_listing_stays_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    with pytest.raises(NameUnsafe):
        list(FileStore(tmp_path / "lake").list("../"))
