"""Signatures of the newest entry of each chain: the audit, histories of channels, journals.

Hashes tell a changed entry from the others. Whoever writes to the database can make all hashes
anew, but not the signature of the last one: its key is not in the database."""

import hashlib
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Column, Connection, String, Table, select

from penstock.backends.database.engine import insert_of
from penstock.backends.database.tables import metadata
from penstock.core.lake_keys import SIGNATURE, HeadKeys

signed_head = Table(
    "signed_head",
    metadata,
    Column("chain", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    #: As in a document that the same key signed.
    Column("signature", String(256), nullable=False),
)


def chain_name(kind: str, *place: str) -> str:
    return f"{kind}:{hashlib.sha256(msgspec.json.encode(place)).hexdigest()[:40]}"


def sign_head(connection: Connection, chain: str, number: int, hash_: str) -> None:
    """Sign the entry that is the chain's newest when this transaction commits. Raises
    SigningKeyUnfit."""
    if (keys := _keys(connection)) is None:
        return
    facts = {"chain": chain, "number": number, "hash": hash_}
    signature = msgspec.json.encode(keys.own.sign(facts)[SIGNATURE]).decode()
    statement: Any = insert_of(connection)(signed_head).values(**facts, signature=signature)
    renewed = {name: statement.excluded[name] for name in ("number", "hash", "signature")}
    connection.execute(statement.on_conflict_do_update(index_elements=["chain"], set_=renewed))


def head_flaw(connection: Connection, chain: str, number: int, hash_: str) -> str | None:
    """Return why an entry is not the one that was signed as the newest. Raises SigningKeyUnfit."""
    if (keys := _keys(connection)) is None:
        return None
    row = connection.execute(select(signed_head).where(signed_head.c.chain == chain)).first()
    if row is None:
        return "its newest entry is not signed" if number else None
    facts = {"chain": chain, "number": row.number, "hash": row.hash}
    if not keys.have_signed(facts | {SIGNATURE: msgspec.json.decode(row.signature)}):
        return "the signature of its newest entry is not by a key of this lake"
    if (row.number, row.hash) != (number, hash_):
        return f"it ends with entry {number}, and entry {row.number} was signed as its newest"
    return None


def _keys(connection: Connection) -> HeadKeys | None:
    """The keys of the database's settings; a database that was opened by its address has none."""
    keys: HeadKeys | None = connection.get_execution_options().get("head_keys")
    return keys
