"""Base images that this machine stands in for: its own distribution, and languages on it."""

import platform
import re
import shutil
import subprocess
from functools import cache

from penstock_jobs.benchmarks.harbor.dockerfile import CannotBeMade
from penstock_jobs.benchmarks.sandbox.sandbox_files import system_path

_REGISTRIES = re.compile(r"(docker\.io/|public\.ecr\.aws/docker/)?(library/)?")
_NAME = re.compile(r"(?P<name>[a-z]+):(?P<version>[a-z0-9.]+)(?P<more>(-[a-z0-9]+)*)(@sha256:.*)?")
_DATE = re.compile(r"\d{8}(\.\d+)?")


#: The place of the image's own Python, where pip may install.
_PYTHON = (
    "/usr/bin/python3 -m venv /usr/local || { /usr/bin/python3 -m venv --without-pip /usr/local"
    " && /usr/bin/python3 -m pip -q --python /usr/local/bin/python install pip setuptools wheel; }"
)
_GO = {"GOPATH": "/go", "PATH": "/go/bin:$PATH"}
#: The command that says a language's version, how many parts of it have to be the same, setup
#: and variables that make the machine like the image.
_LANGUAGES: dict[str, tuple[tuple[str, str], int, str, dict[str, str]]] = {
    "python": (("/usr/bin/python3", "--version"), 2, _PYTHON, {}),
    "golang": (("go", "version"), 2, "mkdir -p /go/bin", _GO),
    "node": (("node", "--version"), 1, "true", {}),
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
    language = _LANGUAGES.get(name)
    if language is None:
        same = version == codename or f"{version}.".startswith(f"{number}.")
        same &= release["ID"] == name and all(map(_DATE.fullmatch, more))
    else:
        same = release["ID"] in _DISTRIBUTIONS and set(more) <= {codename}
    if not same:
        raise CannotBeMade(why=f"its base is {image}; this machine is {release['ID']} {number}")
    if language is None:
        return (), {}
    command, parts, setup, variables = language
    asked, known = version.split(".")[:parts], _version_of(*command)
    if known.split(".")[: len(asked)] != asked:
        why = (
            f"its base is {image}; this machine has {name} {known or 'for its owner only, or not'}"
        )
        raise CannotBeMade(why=why)
    return (setup,), {**variables}


@cache
def _version_of(program: str, argument: str) -> str:
    path = shutil.which(program, path=system_path())
    if path is None:
        return ""
    said = subprocess.run([path, argument], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else ""
