"""One name for each file of a session, however its events spell the path."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from posixpath import isabs, normpath

#: Without these a path is relative and has one spelling.
_ODD = re.compile(r"^[/.]|//|/\.|/$|^[A-Za-z]:[\\/]")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def file_names(sent: Iterable[str]) -> Mapping[str, str]:
    """Each path → the name of its file: the first spelling of it. No event says where the project
    lies, so the session's own paths do: it is the folder in which the most of the absolute paths
    are one of the relative ones. Empty where all are spelled alike."""
    paths = list(dict.fromkeys(sent))
    if not any(map(_ODD.search, paths)):
        return {}
    plain = {path: _plain(path) for path in paths}
    root = _root(set(plain.values()))
    names: dict[str, str] = {}
    return {path: names.setdefault(plain[path].removeprefix(root), path) for path in paths}


def _plain(path: str) -> str:
    if _DRIVE.match(path):
        path = "/" + path.replace("\\", "/")
    plain = normpath(path) if path else ""
    return plain[1:] if plain.startswith("//") else plain


def _root(paths: Iterable[str]) -> str:
    """The folder ends with a slash. Without a path to tell it by, it is empty."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    absolute = []
    for path in paths:
        if isabs(path):
            absolute.append(path)
        else:
            by_name[path.rpartition("/")[2]].append(path)
    roots = Counter(
        path.removesuffix(relative)
        for path in absolute
        for relative in by_name.get(path.rpartition("/")[2], ())
        if path.endswith(f"/{relative}")
    )
    # Of several with as many, the outermost: it holds the files of the others.
    return min(roots, key=lambda root: (-roots[root], len(root), root), default="")
