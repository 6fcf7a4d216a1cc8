"""OCI images as layers, where podman or docker is there."""

import shutil
import subprocess
import tarfile
from pathlib import Path

from penstock_jobs.benchmarks.environments.environment import EnvironmentFailed

_RUNTIMES = ("podman", "docker")


def unpack(image: str, place: Path) -> None:
    """Write the files of an image, named by its digest, to `files`. Raises EnvironmentFailed."""
    runtime = next(filter(shutil.which, _RUNTIMES), None)
    if runtime is None or _ask(runtime, "info").returncode:
        why = f"the image {image} needs podman or docker, and neither answers on this machine"
        raise EnvironmentFailed(why=why)
    # It is never started; an image without a command of its own wants one named.
    made = _ask(runtime, "create", image, "true")
    if made.returncode:
        raise EnvironmentFailed(why=f"{runtime} cannot take {image}: {made.stderr.strip()[-500:]}")
    container, archive = made.stdout.strip().splitlines()[-1], place / "image.tar"
    try:
        if _ask(runtime, "export", "-o", str(archive), container).returncode:
            raise EnvironmentFailed(why=f"{runtime} cannot write out the files of {image}")
        with tarfile.open(archive) as files:
            files.extractall(place / "files", filter="tar")
    finally:
        _ask(runtime, "rm", container)
        archive.unlink(missing_ok=True)


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
