"""The engine of a replica: the command that loads a checkpoint, and what it has loaded."""

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from penstock.backends.execution.guarded_process import run_guarded
from penstock.backends.storage.object_store import FileStore
from penstock.backends.terminal.output import relay_output
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.files import sha256_digest
from penstock.core.settings import ENVIRONMENT_PREFIX

MEMORY_NAME = "state.json"
_GRACE_SECONDS = 5.0
_KEY = f"{ENVIRONMENT_PREFIX}KEY"


class LoadFailed(PenstockError):
    """The command that loads {checkpoint} {how}. Its last output: {output}"""


class LoadedCheckpoint(msgspec.Struct, frozen=True):
    """The checkpoint of an engine, and the digests of its chain."""

    checkpoint: str
    digest: str
    version: int
    chain: list[str]

    def __post_init__(self) -> None:
        for digest in (self.digest, *self.chain):
            sha256_digest(digest)


class SidecarMemory(msgspec.Struct, frozen=True):
    """`loaded` is null while it is unknown what the engine has, as during a command."""

    sidecar: str
    loaded: LoadedCheckpoint | None = None


def read_memory(directory: Path) -> SidecarMemory:
    """Read the memory of a sidecar, or make a new one."""
    try:
        return msgspec.json.decode((directory / MEMORY_NAME).read_bytes(), type=SidecarMemory)
    except (FileNotFoundError, ValueError):
        return SidecarMemory(secrets.token_hex(8))


def write_memory(directory: Path, memory: SidecarMemory) -> None:
    """Write the memory atomically. Raises InvalidInput."""
    try:
        with FileStore(directory).create(MEMORY_NAME) as file:
            file.write(msgspec.json.encode(memory) + b"\n")
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The directory {directory}", why=why) from error


class CommandEnd(msgspec.Struct, frozen=True):
    """The end of a command. `how` is empty after status 0; `given_up` says that it was
    cancelled."""

    how: str
    output: str
    given_up: bool = False


def run_command(
    command: str,
    facts: Mapping[str, str],
    *,
    seconds_max: float,
    lock: int,
    given_up: Callable[[], bool],
) -> CommandEnd:
    """Run a command with `sh`, with `facts` in its environment and without the sidecar's key."""
    own = {name: value for name, value in os.environ.items() if name != _KEY}
    end = run_guarded(
        command,
        environment={**own, **facts},
        seconds_max=seconds_max,
        cancelled=given_up,
        show=relay_output(),
        grace_seconds=_GRACE_SECONDS,
        leaves_processes=True,
        open_files=(lock,),
    )
    if end.status is not None:
        return CommandEnd(f"ended with status {end.status}" if end.status else "", end.output)
    if end.cancelled:
        return CommandEnd("was ended with its sidecar", end.output, given_up=True)
    return CommandEnd(f"was ended: it had not finished after {seconds_max:g} s", end.output)
