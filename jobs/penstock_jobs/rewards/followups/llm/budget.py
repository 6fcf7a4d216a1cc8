"""What a run may spend on a judge that costs money."""

from typing import NamedTuple, Protocol

import sqlalchemy as sa

from penstock.database.engine import Database
from penstock.database.inserting import insert_of
from penstock_jobs.rewards.tables import judge_spending


class Spent(NamedTuple):
    requests: int
    tokens: int


class Budget(Protocol):
    """Tokens are set aside before a request is sent, by a guess that is rather too high, and put
    right by what the answer says. Safe between threads."""

    def take(self, tokens: int) -> bool:
        """Whether one more request of so many tokens may be sent."""
        ...

    def settle(self, taken: int, spent: int) -> None: ...


class DatabaseBudget:
    """Of one run, whatever processes it has, and on whatever machines. What a killed process had
    set aside stays set aside: nobody knows whether it was spent."""

    def __init__(self, database: Database, run: str, requests_max: int, tokens_max: int) -> None:
        self._database = database
        self._run = run
        self._requests_max = requests_max
        self._tokens_max = tokens_max

    def take(self, tokens: int) -> bool:
        requests_then, tokens_then = judge_spending.c.requests + 1, judge_spending.c.tokens + tokens
        with self._database.write() as connection:
            none = insert_of(connection)(judge_spending).values(run=self._run, requests=0, tokens=0)
            connection.execute(none.on_conflict_do_nothing())
            taken = connection.execute(
                sa.update(judge_spending)
                .where(
                    judge_spending.c.run == self._run,
                    requests_then <= self._requests_max,
                    tokens_then <= self._tokens_max,
                )
                .values(requests=requests_then, tokens=tokens_then)
            )
            return taken.rowcount == 1

    def settle(self, taken: int, spent: int) -> None:
        right = judge_spending.c.tokens + (spent - taken)
        with self._database.write() as connection:
            connection.execute(
                sa.update(judge_spending)
                .where(judge_spending.c.run == self._run)
                .values(tokens=right)
            )


def spent(database: Database, run: str) -> Spent:
    """So far, with what is set aside."""
    query = sa.select(judge_spending.c.requests, judge_spending.c.tokens)
    with database.read() as connection:
        row = connection.execute(query.where(judge_spending.c.run == run)).one_or_none()
    return Spent(row.requests, row.tokens) if row else Spent(0, 0)
