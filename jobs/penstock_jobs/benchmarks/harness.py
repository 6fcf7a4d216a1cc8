"""The harness of a run, as its command and the options tell it."""

import hashlib
import shlex
from contextlib import suppress
from pathlib import Path

from penstock.core.errors import InvalidInput
from penstock.core.files import DIGEST_PREFIX
from penstock.core.settings import Settings
from penstock.registry.checkpoints.digests import digest_files, text_digest
from penstock.registry.checkpoints.harness import Harness


def harness_of(
    agent: str, checkpoint: str, settings: Settings, *, named: str | None, prompt: Path | None
) -> Harness:
    """`named` is NAME or NAME=VERSION. Files count that the command names by absolute paths; the
    checkpoint's name in the command does not. Raises InvalidInput."""
    name, _, version = (named or "agent").partition("=")
    try:
        written = prompt.read_bytes() if prompt is not None else None
    except OSError as error:
        raise InvalidInput(what=str(prompt), why=error.strerror or str(error)) from error
    return Harness(
        name=name,
        version=version,
        prompt=DIGEST_PREFIX + hashlib.sha256(written).hexdigest() if written is not None else "",
        program=_program_digest(agent, checkpoint, settings),
    )


def _program_digest(agent: str, checkpoint: str, settings: Settings) -> str:
    lines = [agent.replace(checkpoint, "{checkpoint}")]
    with suppress(ValueError):  # the shell will judge the command
        for word in shlex.split(agent):
            if word.startswith("/") and Path(word).exists():
                found = digest_files(word, settings)
                lines.append(f"{word} {found.digest or found.why}")
    return text_digest("\n".join(lines))
