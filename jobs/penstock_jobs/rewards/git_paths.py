"""Which file of a repository a path of a session is.

An edit's path is the repository's path that it ends with, the longest one, or the only one that
ends with it. Where two paths of a session would be the same file, only the one that is spelled
like the repository's is.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from penstock_jobs.rewards.git_repository import BranchHistory


def path_matcher(
    history: BranchHistory, directory: Path
) -> Callable[[Iterable[str]], dict[str, str]]:
    """Which of a repository's paths the paths of a session are, without those that are no file of
    the repository for certain."""
    first = set(history.before)
    changed = (file for commit in history.commits for files in commit.changed for file in files)
    every = first | {file.path for file in changed}
    root = directory.resolve().as_posix().removesuffix("/") + "/"
    by_name: dict[str, list[str]] = {}
    for path in every:
        by_name.setdefault(path.rpartition("/")[2], []).append(path)

    def repository_path(path: str) -> str | None:
        if path in every:
            return path
        same = by_name.get(path.rpartition("/")[2], [])
        shorter = [candidate for candidate in same if path.endswith("/" + candidate)]
        if shorter:
            return max(shorter, key=len)
        longer = [candidate for candidate in same if candidate.endswith("/" + path)]
        likely = [candidate for candidate in longer if candidate in first] or longer
        return likely[0] if len(likely) == 1 else None

    def match(names: Iterable[str]) -> dict[str, str]:
        spelled = {name: plain(name).removeprefix(root) for name in sorted(names)}
        names_of: dict[str, list[str]] = {}
        for name, path in spelled.items():
            if (known := repository_path(path)) is not None:
                names_of.setdefault(known, []).append(name)
        matched = {}
        for path, own in names_of.items():
            chosen = own if len(own) == 1 else [name for name in own if spelled[name] == path]
            if len(chosen) == 1:
                matched[chosen[0]] = path
        return matched

    return match


def new_name(name: str, old: str, new: str) -> str:
    """The session's name of the new path follows from its name of the old one."""
    if plain(name).endswith(old):
        return plain(name).removesuffix(old) + new
    return new.removeprefix(old[: len(old) - len(plain(name))])


def plain(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./")
