"""The harness that made attempts: the agent's program around the model."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


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
