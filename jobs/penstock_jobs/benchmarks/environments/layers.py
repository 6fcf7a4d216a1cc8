"""Layers: what setup wrote, kept in a folder and laid over the machine's files in sandboxes.

A layer is made once for each digest. A maker that is killed leaves a folder that the next one
removes."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from penstock.core.errors import InvalidInput
from penstock.core.files import make_directory, sync_directory
from penstock.core.settings import MIB
from penstock_jobs.benchmarks.environments.environment import (
    Environment,
    EnvironmentFailed,
    digest_of,
    package_settings,
    with_indexes,
    with_variables,
)
from penstock_jobs.benchmarks.sandbox.root_folder import REPLACED
from penstock_jobs.benchmarks.sandbox.sandbox import (
    IsolatedSandbox,
    PathRules,
    SandboxLimits,
    SandboxProgram,
    SandboxRoot,
)
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, prints_in, system_path

_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_CACHES = {"PIP_CACHE_DIR": "pip", "UV_CACHE_DIR": "uv", "npm_config_cache": "npm"}
#: Copies outlive the cache.
_MANNERS = {"UV_LINK_MODE": "copy", "DEBIAN_FRONTEND": "noninteractive", "LANG": "C.UTF-8"}
_PROCESSES = 1_024
#: Their folder in the data directory.
ENVIRONMENTS = "environments"
_OUTPUT_BYTES = 64 * 1024
_LINES_SHOWN = 15


@dataclass(frozen=True)
class Layer:
    digest: str
    #: The digest of what setup wrote.
    content: str
    #: Folders, the uppermost first.
    folders: tuple[str, ...]
    variables: tuple[str, ...] = ()
    #: It lies over an image: the machine's files are not shown.
    whole: bool = False

    def root(self, *, writable: bool = False) -> SandboxRoot:
        return SandboxRoot(self.folders, writable=writable, whole=self.whole)


def make_layer(environment: Environment, files: Sequence[File], folder: Path) -> Layer:
    """Find the layer in a folder of layers, or make it there. `files` are those that setup reads.

    Raises EnvironmentFailed, InvalidInput, IsolationImpossible, SandboxFailed."""
    made_by = environment.facts(files)
    digest = digest_of(made_by)
    if environment.digest not in (None, digest):
        why = f"its digest is {digest}, not {environment.digest}: its commands or files changed"
        raise InvalidInput(what="The environment", why=f"{why}, or this machine's packages")
    below: list[str] = []
    content = ""
    if (image := environment.image) is not None:
        facts: dict[str, object] = {"image": image}
        of_image = digest_of(facts), folder, facts
        content = _kept(*of_image, lambda place: _unpack(image, place))
        below = [str(_place(folder, of_image[0]) / "files")]
    if environment.setup:
        sandbox_root = SandboxRoot(below, writable=True, whole=bool(below))

        def make(place: Path) -> None:
            _run_setup(environment, files, replace(sandbox_root, kept=str(place)), folder)

        content = _kept(digest, folder, made_by, make)
        below = [str(_place(folder, digest) / "files"), *below]
    whole = environment.image is not None
    return Layer(digest, content, tuple(below), environment.variables, whole)


def _place(folder: Path, digest: str) -> Path:
    return folder / "layers" / digest.removeprefix("sha256:")


def _kept(
    digest: str, folder: Path, facts: Mapping[str, object], make: Callable[[Path], None]
) -> str:
    """Make a layer unless it is there. Returns the digest of its content."""
    place = _place(folder, digest)
    make_directory(place.parent)
    with place.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            making = place.with_suffix(".making")
            _remove(making)
            making.mkdir()
            making.chmod(0o755)
            try:
                make(making)
            except BaseException:
                _remove(making)
                raise
            _remove(making / "overlay")
            for name in REPLACED:
                _remove(making / "files" / name)
            record = {"digest": digest, "content": _content_of(making / "files"), "made_by": facts}
            (making / "record.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
            os.sync()
            making.rename(place)
            sync_directory(place.parent)
    content: str = json.loads((place / "record.json").read_text(encoding="utf-8"))["content"]
    return content


def _remove(folder: Path) -> None:
    def enter(remove: Callable[[str], Any], path: str, _error: object) -> None:
        """Try again with the rights of an owner: setup may have closed its folders."""
        for closed in (Path(path).parent, Path(path)):
            if not closed.is_symlink():
                closed.chmod(0o700)
        remove(path) if remove in (os.unlink, os.rmdir) else shutil.rmtree(path)

    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder, onerror=enter)


def _content_of(folder: Path) -> str:
    digest = sha256()
    for path, file in sorted(prints_in(str(folder)).items()):
        digest.update(f"{path}\0{file.digest}\n".encode(errors="surrogateescape"))
    return f"sha256:{digest.hexdigest()}"


def _run_setup(
    environment: Environment, files: Sequence[File], root: SandboxRoot, folder: Path
) -> None:
    """Run the commands in a sandbox that keeps what they write."""
    given, settings = package_settings()
    addresses = with_indexes(environment.network)
    caches = folder / "caches" / digest_of(asdict(environment)).removeprefix("sha256:")
    make_directory(caches, 0o755)
    limits = SandboxLimits(environment.memory_mib * MIB, _PROCESSES, environment.disk_mib * MIB)
    deadline = time.monotonic() + environment.seconds
    root = replace(root, cache=str(caches))
    with IsolatedSandbox(limits, PathRules(), _OUTPUT_BYTES, root) as sandbox:
        sandbox.put("tree", files, writable=True)
        sandbox.put("settings", given, writable=False)
        for name in ("home", "scratch"):
            sandbox.put(name, [], writable=True)
        home = "/root" if os.geteuid() == 0 else sandbox.path("home")
        cache = {name: f"{sandbox.path('cache')}/{part}" for name, part in _CACHES.items()}
        passed = {name: value for name, value in settings.items() if name not in _CACHES}
        passed |= {name: f"{sandbox.path('settings')}/{name}" for name, *_ in given}
        machine = {"PATH": system_path(), "HOME": home} | _MANNERS
        variables = with_variables(environment.variables, machine | cache | passed)
        for command in environment.setup:
            seconds = max(deadline - time.monotonic(), 0.001)
            places = ["sh", "-ec", command], "tree", "home", "scratch", seconds, variables
            shown = {"tree": True, "settings": False}
            ended = sandbox.run(SandboxProgram(*places, shown, addresses))
            if ended.status != 0:
                why = f"went over its {ended.cut}" if ended.cut else f"ended with {ended.status}"
                if ended.unreachable:
                    why += f"; no answer from {', '.join(ended.unreachable)}"
                lines = _CREDENTIALS.sub("//***@", ended.output).strip().splitlines()
                last = "\n".join(lines[-_LINES_SHOWN:])
                raise EnvironmentFailed(why=f"{command[:200]!r} {why}. Its last lines:\n{last}")


_RUNTIMES = ("podman", "docker")


def _unpack(image: str, place: Path) -> None:
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
