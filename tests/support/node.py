"""The package for TypeScript, as an agent has it: packed, and installed."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.servers.jars import skip

PACKAGE = Path(__file__).parents[2] / "clients" / "typescript"
_SECONDS_MAX = 600


def npm(*arguments: str | Path, folder: Path = PACKAGE) -> str:
    """What it prints; the test fails where it fails."""
    command = ["npm", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def compiler_ready() -> None:
    """Skips the test where Node is missing, or the compiler cannot be had; with CI in the
    environment it fails instead."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            skip(f"{program} is not installed")
    modules = PACKAGE / "node_modules"
    with (PACKAGE / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        if (modules / "ready").exists():
            return
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(
            command, cwd=PACKAGE, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
        )
        if done.returncode:
            skip(f"npm could not get the compiler: {done.stderr[-500:]}")
        (modules / "ready").touch()


def installed_in(folder: Path) -> Path:
    """A folder in which programs may `import "penstock-recorder"`."""
    compiler_ready()
    npm("pack", "--silent", "--pack-destination", folder)
    [packed] = folder.glob("*.tgz")
    agent = folder / "agent"
    agent.mkdir()
    (agent / "package.json").write_text('{"private": true, "type": "module"}\n')
    npm("install", "--offline", "--no-audit", "--no-fund", packed, folder=agent)
    return agent


def node_environment() -> dict[str, str]:
    """Without options that somebody set for their own programs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}
