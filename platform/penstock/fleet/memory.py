"""What a sidecar remembers in its folder: what was loaded at last, and which sidecar it is."""

import secrets
from pathlib import Path

import msgspec

from penstock.errors import InvalidInput
from penstock.storage.files import FileStore

NAME = "state.json"


class Loaded(msgspec.Struct, frozen=True):
    """What the engine has, and the digests of all that this consists of."""

    checkpoint: str
    digest: str
    version: int
    chain: list[str]


class Remembered(msgspec.Struct, frozen=True):
    """`loaded` is null while a command runs, and after one that failed: nobody knows then what the
    engine has."""

    sidecar: str
    loaded: Loaded | None = None


def remembered(directory: Path) -> Remembered:
    """What was written at last; anew where there is nothing, or nothing that can be read."""
    try:
        return msgspec.json.decode((directory / NAME).read_bytes(), type=Remembered)
    except (FileNotFoundError, ValueError):
        return Remembered(secrets.token_hex(8))


def remember(directory: Path, state: Remembered) -> None:
    """All of it, or what was there before. Raises InvalidInput."""
    try:
        with FileStore(directory).create(NAME) as file:
            file.write(msgspec.json.encode(state) + b"\n")
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The directory {directory}", why=why) from error
