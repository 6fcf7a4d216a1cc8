"""Designs of benchmarks, as the database keeps them: one for a checkpoint at a version of a suite,
for ever."""

from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.attempts import Place, read_attempts
from penstock.database.engine import Database, insert_new, now_us
from penstock.errors import InvalidInput
from penstock.gate.adaptive import Design, parse
from penstock.gate.tables import benchmark_design


def keep_design(database: Database, place: Place, design: Design) -> Design:
    """The design that counts: this one, or the one that was there before. Raises InvalidInput where
    there are attempts already, which somebody may have looked at."""
    with database.write() as connection:
        if (known := read_design(connection, place)) is not None:
            return known
        if read_attempts(connection, place):
            what = f"A plan for {place.checkpoint} on {place.suite}"
            why = "it has results there already, and a plan has to stand before the first attempt"
            raise InvalidInput(what=what, why=why)
        row = asdict(place) | {"document": design.text, "made_at": now_us()}
        if insert_new(connection, benchmark_design, row):
            return design
        known = read_design(connection, place)
    assert known is not None
    return known


def read_design(connection: Connection, place: Place) -> Design | None:
    mine = benchmark_design.c
    query = sa.select(mine.document).where(
        *(mine[name] == value for name, value in asdict(place).items())
    )
    text = connection.scalar(query)
    return None if text is None else parse(text)
