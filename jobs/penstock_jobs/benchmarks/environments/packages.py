"""Package indexes: where this machine takes packages from, and the settings that say so."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path

from penstock_jobs.benchmarks.sandbox.network import address_of
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, system_path

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
