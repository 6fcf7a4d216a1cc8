"""The harness that made attempts: the agent's program around the model."""

import hashlib
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.core.errors import InvalidInput
from penstock.core.files import DIGEST_PREFIX
from penstock.core.settings import Settings
from penstock.registry.checkpoints.digests import digest_files, text_digest


@dataclass(frozen=True, order=True, kw_only=True)
class Harness:
    """A harness, as far as it is known. Unknown parts are empty."""

    name: str
    version: str = ""
    #: Digests of its prompt, and of its command with the files that it names.
    prompt: str = ""
    program: str = ""

    def __str__(self) -> str:
        parts = [f"prompt {self.prompt[:19]}"] if self.prompt else []
        parts += [f"program {self.program[:19]}"] if self.program else []
        known = f"{self.name} {self.version}".strip()
        return f"{known} ({', '.join(parts)})" if parts else known


def harness_in(conditions: Mapping[str, Any]) -> Harness | None:
    """The harness that the conditions of a run tell."""
    known = conditions.get("harness")
    return msgspec.convert(known, Harness) if known else None


def named(harnesses: Iterable[Harness | None]) -> str:
    return " and ".join(sorted({str(each or "an unknown harness") for each in harnesses}))


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
