"""Chains of entries in the database: the audit, the history of a channel, a journal of evidence.

Each entry holds the hash of the one before, so an altered entry breaks all that follow. Whoever
writes to the database can make all hashes anew, but not the signature of the newest entry: its key
is not in the database."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Connection, String, Table

from penstock.backends.audit.entry import BEGINNING, NO_HASH, Flaw, Head, first_flaw, hash_of
from penstock.backends.database.engine import clock_us, insert_new
from penstock.backends.database.tables import metadata, name_columns, required
from penstock.core.lake_keys import ALGORITHM, SIGNATURE, HeadKeys

#: The newest entry of each chain. Whoever appends holds this row.
chain_head = Table(
    "chain_head",
    metadata,
    #: The table of its entries, and what they have in common beside the tenant.
    Column("entries", String(32), primary_key=True),
    *name_columns("tenant", primary_key=True),
    Column("place", String(512), primary_key=True),
    *required(BigInteger, "number", "at", "cut_number"),
    *required(String(64), "hash", "cut_hash"),
    #: Of all other columns, by the lake's key; null where none signs.
    Column("signature", String(256)),
)


def link_columns() -> list[Column[Any]]:
    """Make the columns that the tables of all chains have, beside the number of an entry."""
    return [*required(BigInteger, "at"), *required(String(64), "previous_hash", "hash")]


def heads_in(entries: Table) -> sa.Select[Any]:
    return sa.select(chain_head).where(chain_head.c.entries == entries.name)


class Chain(msgspec.Struct, frozen=True):
    """The rows of a table that have the same values in the columns `whose`, the tenant among
    them. The column `numbered` counts them from 1."""

    entries: Table
    whose: Mapping[str, str]
    numbered: str = "number"

    def is_mine(self) -> sa.ColumnElement[bool]:
        return sa.and_(*(self.entries.c[name] == value for name, value in self.whose.items()))

    def select_entries(self, *, newest: bool = False) -> sa.Select[Any]:
        query, number = sa.select(self.entries).where(self.is_mine()), self.entries.c[self.numbered]
        return query.order_by(number.desc()).limit(1) if newest else query.order_by(number)

    def hold(self, connection: Connection, *, make: bool = False) -> dict[str, Any] | None:
        """Lock the chain until the transaction ends, and read its row. `make` begins it."""
        if make:
            start = {"number": 0, "hash": NO_HASH, "at": 0, "cut_number": 0, "cut_hash": NO_HASH}
            insert_new(connection, chain_head, self._key | start)
        row = connection.execute(self._select_head().with_for_update()).first()
        return None if row is None else row._asdict()

    def append(self, connection: Connection, *entries: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Append entries, and return them as they were stored. Raises SigningKeyUnfit.

        Where the newest entry is not the signed one, the new one is not signed either: what was
        forged stays unsigned, and is found."""
        held = self.hold(connection) or self.hold(connection, make=True)
        assert held is not None
        columns = self.entries.c[self.numbered], self.entries.c.hash
        newest = self.select_entries(newest=True).with_only_columns(*columns)
        found = Head(*(connection.execute(newest).first() or (0, NO_HASH)))
        last = Head(held["number"], held["hash"])
        signs = found == last and not _why_unsigned(connection, held)
        last = found if found.number > last.number else last
        # A clock that was set back does not turn the order round.
        at, rows = max(clock_us(connection), held["at"]), []
        for entry in entries:
            link = {self.numbered: last.number + 1, "at": at, "previous_hash": last.hash}
            row = {**entry, **self.whose, **link}
            row["hash"] = hash_of(row)
            last = Head(row[self.numbered], row["hash"])
            rows.append(row)
        connection.execute(sa.insert(self.entries), rows)
        _keep(connection, held | asdict(last) | {"at": at}, signs=signs)
        return rows

    def cut(self, connection: Connection, number: int) -> int:
        """Remove the entries up to this one, which is not the newest, and count them. What is left
        is verified from there on."""
        held, numbers = self.hold(connection), self.entries.c[self.numbered]
        last = connection.execute(self.select_entries().where(numbers == number)).first()
        if held is None or last is None:  # others cut it, too
            return 0
        removed = sa.delete(self.entries).where(self.is_mine(), numbers <= number)
        cut = {"cut_number": number, "cut_hash": last.hash}
        _keep(connection, held | cut, signs=not _why_unsigned(connection, held))
        return connection.execute(removed).rowcount

    def flaw(
        self, connection: Connection, noted: Head | None = None, *, newest: bool = False
    ) -> Flaw | None:
        """Check the whole chain, or its newest entry alone. Raises SigningKeyUnfit."""
        row = connection.execute(self._select_head()).first()
        head = Head(row.number, row.hash) if row is not None else BEGINNING
        cut = Head(row.cut_number, row.cut_hash) if row is not None else BEGINNING
        query = self.select_entries(newest=newest).execution_options(yield_per=1_000)
        with connection.execute(query) as rows:
            entries: Iterator[dict[str, Any]] = (entry._asdict() for entry in rows)
            if newest and (first := next(entries, None)):
                cut = Head(first[self.numbered] - 1, first["previous_hash"])
                entries = iter([first])
            flaw = first_flaw(entries, head, cut=cut, noted=noted, numbered=self.numbered)
        if flaw is None and row is not None and (why := _why_unsigned(connection, row._asdict())):
            flaw = Flaw(head.number, why)
        return flaw

    @property
    def _key(self) -> dict[str, str]:
        whose = dict(self.whose)
        tenant, place = whose.pop("tenant"), "\n".join(whose.values())
        return {"entries": self.entries.name, "tenant": tenant, "place": place}

    def _select_head(self) -> sa.Select[Any]:
        columns = chain_head.c
        return sa.select(chain_head).where(*(columns[k] == v for k, v in self._key.items()))


def chains_in(connection: Connection, entries: Table, *whose: str) -> list[Chain]:
    """Find all chains of a table, also those that lost their head or their entries."""
    found = connection.execute(sa.select(*(entries.c[name] for name in whose)).distinct())
    heads = connection.execute(heads_in(entries))
    places = {tuple(row) for row in found}
    places |= {(row.tenant, *row.place.split("\n"))[: len(whose)] for row in heads}
    whole = sorted(place for place in places if len(place) == len(whose))
    return [Chain(entries, dict(zip(whose, place, strict=True))) for place in whole]


# Signatures


def sign_heads(connection: Connection) -> int:
    """Sign the chains that no key of the lake has signed, as they are now, and count them. Raises
    SigningKeyUnfit."""
    rows = connection.execute(sa.select(chain_head).with_for_update()).all()
    heads = [row._asdict() for row in rows]
    unsigned = [head for head in heads if _why_unsigned(connection, head)]
    for row in unsigned:
        _keep(connection, row, signs=True)
    return len(unsigned)


def _keep(connection: Connection, row: Mapping[str, Any], *, signs: bool) -> None:
    keys = _keys(connection)
    facts = {name: value for name, value in row.items() if name != SIGNATURE}
    signature = None
    if signs and keys is not None:
        signature = "{key}:{value}".format(**keys.own.sign(facts)[SIGNATURE])
    own = (chain_head.c[column.name] == row[column.name] for column in chain_head.primary_key)
    update = sa.update(chain_head).where(*own)
    connection.execute(update.values(**facts, signature=signature))


def _why_unsigned(connection: Connection, row: Mapping[str, Any]) -> str | None:
    """Return why the row of a chain is not as it was signed. Raises SigningKeyUnfit."""
    if (keys := _keys(connection)) is None or not row["number"]:
        return None
    if row[SIGNATURE] is None:
        return "its newest entry is not signed"
    key, _, value = str(row[SIGNATURE]).partition(":")
    if keys.have_signed({**row, SIGNATURE: {"algorithm": ALGORITHM, "key": key, "value": value}}):
        return None
    return "the signature of its newest entry is not by a key of this lake"


def _keys(connection: Connection) -> HeadKeys | None:
    """The keys of the database's settings; a database that was opened by its address has none."""
    keys: HeadKeys | None = connection.get_execution_options().get("head_keys")
    return keys
