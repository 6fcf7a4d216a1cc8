"""Answers that were paid for once: by the digest of prompt, model and content.

Neither key nor value holds any text of a user, so that erasing a session leaves nothing to erase
here.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Protocol

from penstock_jobs.rewards.followups.labels import LABELS
from penstock_jobs.rewards.followups.llm.answers import Answer

_LOCK_SECONDS = 10


class Cache(Protocol):
    def get(self, keys: Iterable[str]) -> dict[str, Answer]:
        """Those that are known."""
        ...

    def put(self, answers: Mapping[str, Answer]) -> None: ...


class MemoryCache:
    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}

    def get(self, keys: Iterable[str]) -> dict[str, Answer]:
        return {key: self._answers[key] for key in keys if key in self._answers}

    def put(self, answers: Mapping[str, Answer]) -> None:
        self._answers.update(answers)


class FileCache:
    """A SQLite file, which processes may share. It is only a cache: it may be deleted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._open()) as connection, connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute(
                "create table if not exists answers (key text primary key, label text not null,"
                " confidence real not null, dissatisfied real not null) without rowid"
            )

    def get(self, keys: Iterable[str]) -> dict[str, Answer]:
        found: dict[str, Answer] = {}
        known = {str(label): label for label in LABELS}
        with closing(self._open()) as connection:
            for key in keys:
                row = connection.execute(
                    "select label, confidence, dissatisfied from answers where key = ?", (key,)
                ).fetchone()
                if row and row[0] in known:
                    found[key] = Answer(known[row[0]], row[1], row[2])
        return found

    def put(self, answers: Mapping[str, Answer]) -> None:
        rows = [(key, one.label, one.confidence, one.dissatisfied) for key, one in answers.items()]
        with closing(self._open()) as connection, connection:
            connection.executemany("insert or replace into answers values (?, ?, ?, ?)", rows)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_LOCK_SECONDS)
