"""Dockerfiles as commands for setup: what builds an image, without its base."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from posixpath import dirname, join, normpath

from penstock.core.errors import PenstockError


class CannotBeMade(PenstockError, exit_status=2):
    """The task cannot be run here: {why}"""


_HEREDOC = re.compile(r"""(?<!<)<<(?!<)-?\s*(["']?)([A-Za-z_]\w*)\1""")
_REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")
#: They say nothing about files. Harnesses run their own command in place of CMD.
_IGNORED = frozenset({
    "CMD", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME",
})  # fmt: skip
_ROOT = ("root", "0", "root:root", "0:0")


@dataclass
class Build:
    image: str = ""
    #: Commands for `sh`, to run in a folder with the context's files.
    commands: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"


def read_dockerfile(text: str) -> Build:
    """Raises CannotBeMade."""
    reader = _Reader()
    for name, rest in _instructions(text):
        if name in _IGNORED:
            continue
        read = getattr(reader, f"read_{name.lower()}", None)
        if read is None:
            raise CannotBeMade(why=f"its Dockerfile has {name}")
        try:
            read(rest)
        except ValueError as error:
            raise CannotBeMade(why=f"its Dockerfile has {name} {rest[:80]!r}: {error}") from error
    if not reader.build.image:
        raise CannotBeMade(why="its Dockerfile names no base")
    return reader.build


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


class _Reader:
    """Reads the instruction NAME with `read_name`."""

    def __init__(self) -> None:
        self.build = Build()
        self._arguments: dict[str, str] = {}
        self._shell = ["/bin/sh", "-c"]

    def _words(self, rest: str) -> list[str]:
        words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
        return [expand(word, self._arguments | self.build.variables) for word in words]

    def read_from(self, rest: str) -> None:
        words = [word for word in self._words(rest) if not word.startswith("--")]
        if self.build.image or not words:
            raise ValueError("only one base can be stood in for")
        self.build.image = words[0]

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
            self.build.variables[name] = value

    def read_workdir(self, rest: str) -> None:
        self.build.workdir = normpath(join(self.build.workdir, *self._words(rest)))
        self.build.commands.append(f"mkdir -p {shlex.quote(self.build.workdir)}")

    def read_shell(self, rest: str) -> None:
        self._shell = json.loads(rest)

    def read_user(self, rest: str) -> None:
        if self._words(rest)[0] not in _ROOT:
            raise ValueError("all run as root here")

    def read_entrypoint(self, rest: str) -> None:
        if rest != "[]":
            raise ValueError("nothing is started before the agent here")

    def read_run(self, rest: str) -> None:
        while rest.startswith("--"):
            flag, _, rest = rest.partition(" ")
            if "type=cache" not in flag and not flag.startswith("--network"):
                raise ValueError("it has another mount than a cache")
            rest = rest.lstrip()
        command = self._shell
        if rest.startswith("["):
            command = json.loads(rest)
        else:
            first, _, below = rest.partition("\n")
            if _HEREDOC.fullmatch(first.strip()):
                rest = below.rpartition("\n")[0]
            command = [*command, rest]
        given = [f"{name}={value}" for name, value in self._arguments.items() if value]
        words = ["exec", *(["env", *given] if given else []), *command]
        place = shlex.quote(self.build.workdir)
        self.build.commands.append(f"cd {place}\n{shlex.join(words)}")

    def read_copy(self, rest: str) -> None:
        mode, words = "", []
        while rest.startswith("--"):
            flag, _, rest = rest.partition(" ")
            name, _, value = flag.partition("=")
            if name == "--chmod":
                mode = value
            elif name != "--link" and not (name == "--chown" and value in _ROOT):
                raise ValueError(f"{name} cannot be done here")
            rest = rest.lstrip()
        *words, target = self._words(rest)
        place = normpath(join(self.build.workdir, target))
        into = len(words) > 1 or target.endswith(("/", ".")) or place == "/"
        folder = place if into else dirname(place)
        sources = " ".join(_pattern(normpath(word.lstrip("/") or ".")) for word in words)
        if ".." in sources.split("/"):
            raise ValueError("it leads out of the context")
        quoted, folder = shlex.quote(place), shlex.quote(folder)
        self.build.commands.append(
            f'for source in {sources}; do if [ -d "$source" ]; then mkdir -p {quoted}'
            f' && cp -RP "$source/." {quoted}; else mkdir -p {folder}'
            f' && cp -P "$source" {quoted}; fi || exit; done'
            + (f" && chmod -R {shlex.quote(mode)} {quoted}" if mode else "")
        )


def _pattern(path: str) -> str:
    """Quote a path, but for the characters of patterns."""
    return "".join(
        part if part in ("*", "?") else shlex.quote(part)
        for part in re.split(r"([*?])", path)
        if part
    )
