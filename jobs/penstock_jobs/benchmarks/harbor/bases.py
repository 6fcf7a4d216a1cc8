"""Base images that this machine stands in for: its own distribution, and languages on it."""

import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from penstock_jobs.benchmarks.harbor.dockerfile import CannotBeMade
from penstock_jobs.benchmarks.sandbox.sandbox_files import system_path

_REGISTRIES = re.compile(r"(docker\.io/|public\.ecr\.aws/docker/)?(library/)?")
_NAME = re.compile(r"(?P<name>[a-z]+):(?P<version>[a-z0-9.]+)(?P<more>(-[a-z0-9]+)*)(@sha256:.*)?")
_DATE = re.compile(r"\d{8}(\.\d+)?")


@dataclass(frozen=True)
class _Language:
    """An image of a language: the command that says its version, and what it has beside it."""

    command: tuple[str, ...]
    #: So many parts of the version have to be the same.
    parts: int
    setup: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


#: The place of the image's own Python, where pip may install.
_PYTHON = (
    "/usr/bin/python3 -m venv /usr/local || { /usr/bin/python3 -m venv --without-pip /usr/local"
    " && /usr/bin/python3 -m pip -q --python /usr/local/bin/python install pip setuptools wheel; }"
)
_LANGUAGES = {
    "python": _Language(("/usr/bin/python3", "--version"), 2, (_PYTHON,)),
    "golang": _Language(
        ("go", "version"), 2, ("mkdir -p /go/bin",), (("GOPATH", "/go"), ("PATH", "/go/bin:$PATH"))
    ),
    "node": _Language(("node", "--version"), 1),
    "rust": _Language(("cargo", "--version"), 2),
}
_DISTRIBUTIONS = ("debian", "ubuntu")


def stand_in(image: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The setup commands and variables that make this machine like a base image.

    Raises CannotBeMade."""
    found = _NAME.fullmatch(_REGISTRIES.sub("", image, count=1))
    if found is None or found["name"] not in (*_LANGUAGES, *_DISTRIBUTIONS):
        raise CannotBeMade(why=f"its base {image} is no plain distribution or language")
    name, version = found["name"], found["version"]
    release = platform.freedesktop_os_release()
    codename, number = release.get("VERSION_CODENAME", ""), release.get("VERSION_ID", "")
    more = [part for part in found["more"].split("-") if part not in ("", "slim")]
    here = f"this machine is {release['ID']} {number}"
    if name in _DISTRIBUTIONS:
        same = version == codename or f"{version}.".startswith(f"{number}.")
        if release["ID"] != name or not same or any(not _DATE.fullmatch(part) for part in more):
            raise CannotBeMade(why=f"its base is {image}; {here}")
        return (), {}
    language = _LANGUAGES[name]
    if release["ID"] != "debian" or any(part != codename for part in more):
        raise CannotBeMade(why=f"its base is {image}; {here}")
    asked = version.split(".")[: language.parts]
    known = _version_of(*language.command)
    if not asked[0].isdecimal() or known.split(".")[: len(asked)] != asked:
        has = f"has {name} {known}" if known else f"has no {name} that everybody may run"
        raise CannotBeMade(why=f"its base is {image}; this machine {has}")
    return language.setup, dict(language.variables)


@cache
def _version_of(program: str, argument: str) -> str:
    path = shutil.which(program, path=system_path())
    if path is None:
        return ""
    said = subprocess.run([path, argument], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else ""
