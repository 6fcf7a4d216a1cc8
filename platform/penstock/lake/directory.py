"""Opening the lake for a command."""

from contextlib import ExitStack
from pathlib import Path

from penstock.database import migrations
from penstock.database.engine import parse_database_address
from penstock.directories import make_directory
from penstock.errors import InvalidInput
from penstock.lake.errors import LakeMissing
from penstock.lake.lake import Lake
from penstock.settings import Settings, load_settings


def open_existing(data: Path | None) -> Lake:
    """A lake that is there already. Raises LakeMissing, DatabaseOutdated."""
    settings = load_settings(data)
    if _embedded_file(settings) is not None and not _embedded_file(settings).exists():  # type: ignore[union-attr]
        raise LakeMissing(where=settings.data)
    with ExitStack() as closing:
        lake = closing.enter_context(Lake(settings))
        migrations.check(lake.database)
        closing.pop_all()
    return lake


def open_or_make(settings: Settings) -> Lake:
    """A lake, made if there is none. The embedded database is brought up to date; one that
    others share is only checked. Raises DatabaseOutdated."""
    embedded = _embedded_file(settings)
    if embedded is not None:
        make_data_directory(embedded.parent)
    with ExitStack() as closing:
        lake = closing.enter_context(Lake(settings))
        if embedded is not None:
            migrations.upgrade(lake.database)
        else:
            migrations.check(lake.database)
        closing.pop_all()
    return lake


def make_data_directory(directory: Path) -> None:
    """Raises InvalidInput where it cannot be made."""
    try:
        make_directory(directory)
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The directory {directory}", why=why) from error


def _embedded_file(settings: Settings) -> Path | None:
    url = parse_database_address(settings.database_url)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None
