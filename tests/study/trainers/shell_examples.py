"""Runs an example in shell as the loop's command trainer would, with its export there already."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.repository import ROOT

EXAMPLES = ROOT / "examples" / "trainers"


@dataclass
class Example:
    """`folder` has `parent`, and a folder with `data` for each run; `train` is started by it."""

    name: str
    folder: Path
    train: list[str]
    options: tuple[str, ...] = ()
    told: dict[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        return ["sh", str(EXAMPLES / self.name), *self.options]

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {"TRAIN": shlex.join(self.train), "PATH": path, **self.told}

    def run(self, where: str, **told: str) -> int:
        output = self.folder / where / "output"
        output.mkdir(exist_ok=True)
        facts = {
            "SHARD": "sha256:1",
            "DATA": str(self.folder),
            "PARENT_URI": f"file://{self.folder / 'parent'}",
            "WORK": str(self.folder / where),
            "OUTPUT": str(output),
            "ANSWER": str(self.folder / where / "answer.json"),
        }
        names = {f"PENSTOCK_{name}": value for name, value in facts.items()}
        environment = os.environ | self.environment | names | told
        return subprocess.run(self.command, env=environment, check=False, cwd=ROOT).returncode

    def digest(self, where: str) -> str:
        found: str = json.loads((self.folder / where / "answer.json").read_text())["digest"]
        return found
