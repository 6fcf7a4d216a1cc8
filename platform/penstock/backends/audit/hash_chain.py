"""A chain of entries, each of which holds the hash of the one before: the audit, the history of a
channel, the journal of evidence. An entry that was altered breaks all that follow."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

NO_HASH = "0" * 64


def hash_of(entry: Mapping[str, Any]) -> str:
    """SHA-256 of all fields but `hash`, as JSON with sorted keys and no spaces."""
    fields = {name: value for name, value in entry.items() if name != "hash"}
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


@dataclass
class ChainReader:
    """The newest entry that was read, by its number and hash."""

    number: int = 0
    hash: str = NO_HASH
    at: int = 0

    def follow(self, number: int, entry: Mapping[str, Any]) -> str | None:
        """Go on to the next entry; or say why it is not as it was written."""
        if number != self.number + 1:
            return f"after {self.number} comes {number}"
        if entry["previous_hash"] != self.hash:
            return "it names another hash than the entry before it has"
        if entry["hash"] != hash_of(entry):
            return "its hash is not the hash of its content"
        if (at := entry.get("at", 0)) < self.at:
            return "it is older than the entry before it"
        self.number, self.hash, self.at = number, entry["hash"], at
        return None
