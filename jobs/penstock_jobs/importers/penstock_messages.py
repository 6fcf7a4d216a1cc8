"""Sessions that Penstock itself wrote as messages."""

from collections.abc import Mapping
from typing import Any

from penstock_jobs.importers.importer import ImportedEvent


def own_session(row: Mapping[str, Any]) -> list[ImportedEvent] | None:
    return None
