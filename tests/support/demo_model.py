"""The model of the demonstration, from the files that users get."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from tests.support.repository import ROOT

DEMO = ROOT / "examples/demo"
FIRST = DEMO / "first.npz"


def demo_module(name: str) -> ModuleType:
    """Import a module of examples/demo. They import each other by their names."""
    if str(DEMO) not in sys.path:
        sys.path.append(str(DEMO))
    return importlib.import_module(name)


@contextmanager
def demo_engine(*arguments: str, weights: Path = FIRST) -> Iterator[str]:
    """Run the engine with a checkpoint. Yields its address."""
    command = [sys.executable, str(DEMO / "engine.py"), str(weights), "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()
