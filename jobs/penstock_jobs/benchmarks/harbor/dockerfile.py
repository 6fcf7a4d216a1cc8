"""Dockerfiles as commands for setup: what builds an image, and what stands in for its base."""

import json
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from posixpath import dirname, join, normpath

from penstock.core.errors import PenstockError
from penstock_jobs.benchmarks.sandbox.sandbox_files import system_path


class CannotBeMade(PenstockError, exit_status=2):
    """The task cannot be run here: {why}"""


_HEREDOC = re.compile(r"""(?<!<)<<(?!<)-?\s*(["']?)([A-Za-z_]\w*)\1""")
_REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")
#: They say nothing about files. Harnesses run their own command in place of CMD.
_IGNORED = ("CMD", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME")
_ROOT = ("root", "0", "root:root", "0:0")


@dataclass
class Build:
    """The parts of an image. Reads the instruction NAME with `read_name`."""

    image: str = ""
    #: Commands for `sh`, to run in a folder with the context's files.
    commands: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    _arguments: dict[str, str] = field(default_factory=dict)

    def _words(self, rest: str) -> list[str]:
        words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
        return [expand(word, self._arguments | self.variables) for word in words]

    def read_from(self, rest: str) -> None:
        words = [word for word in self._words(rest) if not word.startswith("--")]
        if self.image or not words:
            raise ValueError("only one base can be stood in for")
        self.image = words[0]

    def read_arg(self, rest: str) -> None:
        for word in self._words(rest):
            name, _, value = word.partition("=")
            self._arguments[name] = value

    def read_env(self, rest: str) -> None:
        words = self._words(rest)
        if words and "=" not in words[0]:
            words = [f"{words[0]}={' '.join(words[1:])}"]
        for word in words:
            name, _, value = word.partition("=")
            self.variables[name] = value

    def read_workdir(self, rest: str) -> None:
        self.workdir = normpath(join(self.workdir, *self._words(rest)))
        self.commands.append(f"mkdir -p {shlex.quote(self.workdir)}")

    def read_user(self, rest: str) -> None:
        if self._words(rest)[0] not in _ROOT:
            raise ValueError("all run as root here")

    def read_entrypoint(self, rest: str) -> None:
        if rest != "[]":
            raise ValueError("nothing is started before the agent here")

    def read_run(self, rest: str) -> None:
        if rest.startswith("--"):
            raise ValueError("a mount cannot be made here")
        command = json.loads(rest) if rest.startswith("[") else ["/bin/sh", "-c", rest]
        given = [f"{name}={value}" for name, value in self._arguments.items() if value]
        words = ["exec", *(["env", *given] if given else []), *command]
        place = shlex.quote(self.workdir)
        self.commands.append(f"cd {place}\n{shlex.join(words)}")

    def read_copy(self, rest: str) -> None:
        while rest.startswith("--"):
            flag, _, rest = rest.partition(" ")
            if flag not in ("--link", *(f"--chown={name}" for name in _ROOT)):
                raise ValueError(f"{flag} cannot be done here")
        *words, target = self._words(rest)
        place = normpath(join(self.workdir, target))
        into = len(words) > 1 or target.endswith(("/", ".")) or place == "/"
        folder = place if into else dirname(place)
        sources = " ".join(_pattern(normpath(word.lstrip("/") or ".")) for word in words)
        if ".." in sources.split("/"):
            raise ValueError("it leads out of the context")
        quoted, folder = shlex.quote(place), shlex.quote(folder)
        self.commands.append(
            f'for source in {sources}; do if [ -d "$source" ]; then mkdir -p {quoted}'
            f' && cp -RP "$source/." {quoted}; else mkdir -p {folder}'
            f' && cp -P "$source" {quoted}; fi || exit; done'
        )


def read_dockerfile(text: str) -> Build:
    """Raises CannotBeMade."""
    build = Build()
    for name, rest in _instructions(text):
        if name in _IGNORED:
            continue
        read = getattr(build, f"read_{name.lower()}", None)
        if read is None:
            raise CannotBeMade(why=f"its Dockerfile has {name}")
        try:
            read(rest)
        except ValueError as error:
            raise CannotBeMade(why=f"its Dockerfile has {name} {rest[:80]!r}: {error}") from error
    if not build.image:
        raise CannotBeMade(why="its Dockerfile names no base")
    return build


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = iter(text.splitlines())
    says_something = re.compile(r"\s*[^#\s]").match
    for first in filter(says_something, lines):
        line = first.rstrip()
        while line.endswith("\\"):
            line = line[:-1] + next(filter(says_something, lines), "").rstrip()
        name, _, rest = line.strip().partition(" ")
        name, rest = name.upper(), rest.strip()
        if name in ("RUN", "COPY", "ADD"):
            for _quote, end in _HEREDOC.findall(rest):
                for below in lines:
                    rest += f"\n{below}"
                    if below.strip() == end:
                        break
        yield name, rest


def expand(text: str, known: Mapping[str, str]) -> str:
    """Replace references to variables. $PATH stays if it is unknown."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        given = known.get(name, "$PATH" if name == "PATH" else "")
        if found[3] == "+":
            return found[4] if given else ""
        return given or found[4] or ""

    return _REFERENCE.sub(value, text)


def _pattern(path: str) -> str:
    """Quote a path, but for the characters of patterns."""
    return "".join(
        part if part in ("*", "?") else shlex.quote(part)
        for part in re.split(r"([*?])", path)
        if part
    )


# Base images that this machine stands in for

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
