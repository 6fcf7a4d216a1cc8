"""Answers that were paid for once: by the digest of prompt, model and content.

Neither key nor value holds any text of a user, so that erasing a session leaves nothing to erase
here.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec
import sqlalchemy as sa

from penstock.database.engine import Database, now_us
from penstock.database.inserting import insert_of
from penstock_jobs.rewards.followups.llm.answers import Answer, answer_in
from penstock_jobs.rewards.tables import judge_answer

#: Below what any of the databases takes in one statement.
_KEYS_A_QUERY = 500


class Cache(Protocol):
    """Shared by the processes of all runs."""

    def get(self, keys: Iterable[str]) -> dict[str, Answer]:
        """Those that are known."""
        ...

    def put(self, answers: Mapping[str, Answer]) -> None:
        """Keeps them for good when it returns. An answer that is there stays as it is."""
        ...


class DatabaseCache:
    """In the metadata database. Its rows may be deleted: then they are asked for again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, keys: Iterable[str]) -> dict[str, Answer]:
        found: dict[str, Answer] = {}
        query = sa.select(judge_answer.c.key, judge_answer.c.answer)
        wanted = list(keys)
        with self._database.read() as connection:
            for start in range(0, len(wanted), _KEYS_A_QUERY):
                some = judge_answer.c.key.in_(wanted[start : start + _KEYS_A_QUERY])
                for row in connection.execute(query.where(some)):
                    if answer := answer_in(row.answer):
                        found[row.key] = answer
        return found

    def put(self, answers: Mapping[str, Answer]) -> None:
        rows = [
            {"key": key, "answer": msgspec.json.encode(answer).decode()}
            for key, answer in sorted(answers.items())  # so that no two wait for each other
        ]
        if not rows:
            return
        with self._database.write() as connection:
            made = insert_of(connection)(judge_answer).values(created_at=now_us())
            connection.execute(made.on_conflict_do_nothing(), rows)
