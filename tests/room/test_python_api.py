"""What Python programs rely on: `import penstock`."""

import pydoc
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.core.errors import LibraryMissing
from penstock.lake.errors import LakeMissing
from tests.support.lakes import hand_lake, make_event

SQL = "select type, count(*) as n from events group by all order by all"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with hand_lake(tmp_path) as by_hand:
        by_hand.send([make_event("s-1", number) for number in range(3)])
    return tmp_path


def test_a_folder_without_a_lake_is_said_to_be_none_and_stays_as_it_is(tmp_path: Path) -> None:
    for folder in (tmp_path / "nothing", tmp_path):
        with pytest.raises(LakeMissing, match="holds no lake yet"):
            penstock.open(folder)
    with pytest.raises(LakeMissing):
        penstock.read_shard(tmp_path, "a-name")
    assert list(tmp_path.iterdir()) == []


def test_rows_come_in_the_form_that_is_asked_for(data: Path) -> None:
    with penstock.open(data) as lake:
        query = lake.query(SQL)
        rows = [{"type": "user_message", "n": 3}]
        assert isinstance(query.arrow(), pa.Table)
        assert query.arrow().to_pylist() == rows
        assert pa.Table.from_batches(query.batches()).to_pylist() == rows
        assert query.df().to_dict("records") == rows


def test_polars_has_them_where_it_is_installed(data: Path) -> None:
    pytest.importorskip("polars")
    with penstock.open(data) as lake:
        assert lake.query(SQL).pl().to_dicts() == [{"type": "user_message", "n": 3}]


@pytest.mark.parametrize(("form", "library"), [("df", "pandas"), ("pl", "polars")])
def test_a_library_that_is_not_installed_is_named(
    data: Path, monkeypatch: pytest.MonkeyPatch, form: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with penstock.open(data) as lake, pytest.raises(LibraryMissing, match=f"pip install {library}"):
        getattr(lake.query(SQL), form)()


def test_help_explains_the_package_and_each_name() -> None:
    text = pydoc.plain(pydoc.render_doc(penstock))
    assert "penstock.open(" in text
    for name in set(penstock.__all__) - {"__version__"}:
        assert (getattr(penstock, name).__doc__ or "").strip(), name
        assert name in text
