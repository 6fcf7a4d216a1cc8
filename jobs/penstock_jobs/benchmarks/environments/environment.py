"""The environment of a task: what makes its tree runnable, the digest of all of it, and the package
indexes of this machine."""

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from itertools import chain
from pathlib import Path

from penstock.core.errors import PenstockError
from penstock.core.toml_document import Positive
from penstock_jobs.benchmarks.sandbox import network
from penstock_jobs.benchmarks.sandbox.network import address_of
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, FilePrint, system_path

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
