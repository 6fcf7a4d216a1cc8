"""The jars of servers that run on Java, resolved by Maven from a small pom and kept afterwards."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_KEPT = Path(__file__).parents[3] / ".jars"
_RESOLVE_SECONDS = 600


def classpath(pom: Path) -> str:
    """What `java -cp` takes for the dependencies of this pom. Skips the test where Java or Maven
    is missing, or the jars cannot be had; with CI in the environment it fails instead."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            skip(f"{program} is not installed")
    directory = _KEPT / hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    if not directory.exists():
        _KEPT.mkdir(exist_ok=True)
        # One at a time: tests run side by side, and Maven's own store suffers no two that write.
        with (_KEPT / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.exists():
                _resolve(pom, directory)
    return f"{directory}{os.sep}*"


def skip(why: str) -> None:
    """A server that cannot be had is no failure of ours, except where all must be there."""
    if os.environ.get("CI"):
        pytest.fail(f"with CI set every server must be there: {why}")
    pytest.skip(why)


def _resolve(pom: Path, directory: Path) -> None:
    """The jars appear under their directory as a whole, also where this is interrupted."""
    unfinished = directory.with_name(f"{directory.name}.{os.getpid()}")
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(pom)]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={unfinished}"],
        capture_output=True,
        text=True,
        timeout=_RESOLVE_SECONDS,
        check=False,
    )
    if done.returncode:
        shutil.rmtree(unfinished, ignore_errors=True)
        skip(f"Maven could not get the jars of {pom.name}: {(done.stdout or done.stderr)[-500:]}")
    unfinished.rename(directory)
