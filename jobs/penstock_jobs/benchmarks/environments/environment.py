"""The environment of a task: what makes its tree runnable, its digest, the package indexes of this
machine, and the layers that are kept of what setup wrote.

A layer is made once for each digest. A maker that is killed leaves a folder that the next one
removes."""

import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.files import make_directory, sync_directory
from penstock.core.settings import MIB
from penstock.core.toml_document import Positive
from penstock_jobs.benchmarks.sandbox import network
from penstock_jobs.benchmarks.sandbox.network import address_of
from penstock_jobs.benchmarks.sandbox.root_folder import REPLACED
from penstock_jobs.benchmarks.sandbox.sandbox import (
    IsolatedSandbox,
    PathRules,
    SandboxLimits,
    SandboxProgram,
    SandboxRoot,
)
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, FilePrint, prints_in, system_path

#: In a list of addresses: the package indexes of this machine.
PACKAGES = "packages"
#: Settings of package managers: passed to setup by name, and never kept.
_SETTINGS = re.compile(
    r"(PIP|UV|NPM_CONFIG|npm_config|POETRY|CARGO)_\w+|GOPROXY|GONOSUMDB|GOFLAGS"
    r"|(SSL|CURL|REQUESTS|NODE_EXTRA)_\w*(CERT|CA|BUNDLE)\w*"
)
_SETTINGS_FILES = {
    "PIP_CONFIG_FILE": (".config/pip/pip.conf", ".pip/pip.conf"),
    "NPM_CONFIG_USERCONFIG": (".npmrc",),
    "UV_CONFIG_FILE": (".config/uv/uv.toml",),
}
_APT = ("sources.list", "sources.list.d/*")
#: Commands that print the index that a tool takes by itself.
_DEFAULTS = (
    (
        "python3",
        "-c",
        "from pip._internal.models.index import PyPI as index;"
        "print(index.url, f'https://{index.file_storage_domain}')",
    ),
    ("npm", "config", "get", "registry"),
    ("go", "env", "GOPROXY"),
)
_URL = re.compile(r"https?://[^\s\"',]+")
_COMMENT = re.compile(r"(?m)^\s*#.*$")


def package_settings() -> tuple[list[File], dict[str, str]]:
    """The caller's settings of package managers: files, named by their variables, and variables."""
    variables = {name: value for name, value in os.environ.items() if _SETTINGS.fullmatch(name)}
    files = []
    for name, places in _SETTINGS_FILES.items():
        candidates = [Path(variables.pop(name))] if name in variables else []
        candidates += [Path.home() / place for place in places]
        if (path := next(filter(Path.is_file, candidates), None)) is not None:
            files.append(File(name, path.read_bytes()))
    return files, variables


def with_indexes(addresses: Iterable[str]) -> list[str]:
    """Put this machine's package indexes in place of PACKAGES."""
    found = list(addresses)
    if PACKAGES not in found:
        return found
    files, variables = package_settings()
    texts = [*variables.values(), *(file.content.decode() for file in files), *_machine_texts()]
    urls = chain.from_iterable(_URL.findall(_COMMENT.sub("", text)) for text in texts)
    return sorted({*found, *map(address_of, urls)} - {PACKAGES})


@cache
def _machine_texts() -> tuple[str, ...]:
    """The sources of apt, and what tools take where no setting says otherwise."""
    texts = [path.read_text() for name in _APT for path in sorted(Path("/etc/apt").glob(name))]
    for program, *arguments in _DEFAULTS:
        if (path := shutil.which(program, path=system_path())) is not None:
            asked = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
            texts.append(asked.stdout)
    return tuple(texts)


_IMAGE = re.compile(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


class EnvironmentFailed(PenstockError, exit_status=2):
    """The environment cannot be made: {why}"""


@dataclass(frozen=True)
class Environment:
    #: Commands for `sh`, run one after another in a folder with the files.
    setup: tuple[str, ...] = ()
    #: Names or patterns of the tree's files that setup reads. A star stands for any characters.
    files: tuple[str, ...] = ()
    #: HOST:PORT that setup may reach; `packages` stands for the package indexes of this machine.
    network: tuple[str, ...] = ()
    #: NAME=VALUE, for setup, agent and check. $PATH stands for the path so far.
    variables: tuple[str, ...] = ()
    #: An OCI image with its digest, instead of the machine's files.
    image: str | None = None
    #: The digest that the environment has to have.
    digest: str | None = None
    seconds: Positive = 1_800
    memory_mib: Positive = 8_192
    disk_mib: Positive = 16_384

    def __post_init__(self) -> None:
        if not self.setup and self.image is None:
            raise ValueError("it needs setup, a list of commands, or an image")
        if self.image is not None and not _IMAGE.fullmatch(self.image):
            raise ValueError(f"image is {self.image!r}, which names no digest (NAME@sha256:…)")
        if self.digest is not None and not _DIGEST.fullmatch(self.digest):
            raise ValueError(f"digest is {self.digest!r}, not sha256: and 64 hexadecimal digits")
        for text in self.variables:
            if not _VARIABLE.fullmatch(text):
                raise ValueError(f"the variable {text!r} is not NAME=VALUE")
        network.plan(address for address in self.network if address != PACKAGES)

    def chosen(self, tree: Iterable[File]) -> list[File]:
        """The tree's files that setup reads."""
        return [file for file in tree if any(fnmatchcase(file.path, name) for name in self.files)]

    def facts(self, files: Sequence[File]) -> dict[str, object]:
        """Everything that makes the layer."""
        bounds = ("digest", "files", "seconds", "memory_mib", "disk_mib")
        made_by = {name: value for name, value in asdict(self).items() if name not in bounds}
        prints = {file.path: FilePrint.of(file).digest for file in files}
        return made_by | {"files": dict(sorted(prints.items())), "base": self.image or base()}


def digest_of(facts: Mapping[str, object]) -> str:
    return f"sha256:{sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}"


def base() -> str:
    """This machine, as far as layers lie over it."""
    release = platform.freedesktop_os_release()
    name = " ".join(release.get(key, "?") for key in ("ID", "VERSION_ID"))
    status = Path("/var/lib/dpkg/status")
    packages = sha256(status.read_bytes() if status.is_file() else b"").hexdigest()[:16]
    who = "root" if os.geteuid() == 0 else "user"
    return f"{name} {platform.machine()} packages {packages} {who}"


def with_variables(variables: Sequence[str], before: Mapping[str, str]) -> dict[str, str]:
    """Set variables, written as NAME=VALUE. A value may name $PATH."""
    after = dict(before)
    for text in variables:
        name, _, value = text.partition("=")
        path = after.get("PATH", system_path())
        after[name] = value.replace("${PATH}", path).replace("$PATH", path)
    return after


# Layers: what setup wrote, kept in a folder and laid over the machine's files in sandboxes

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
