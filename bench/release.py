"""`make release`: say what a person has to decide before a release; when all is decided, tag it.

The tag's push builds, tests and publishes: see .github/workflows/release.yml."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_ADDRESSES = ("Homepage", "Documentation", "Source", "Changelog")


def undecided(project: Mapping[str, Any], changes: str, altered: str, tags: str) -> Iterator[str]:
    """What stands between this checkout and a release. `altered` are the files that no commit has,
    `tags` the versions that there are."""
    version, urls = project["version"], project.get("urls", {})
    if missing := [name for name in _ADDRESSES if name not in urls]:
        yield f"pyproject.toml: [project.urls] lacks {', '.join(missing)}"
    for name, url in urls.items():
        if not url.startswith("https://") or ".example" in url:
            yield f"pyproject.toml: {name} is no address that exists: {url}"
    if not re.search(rf"^## {re.escape(version)}, \d{{4}}-\d{{2}}-\d{{2}}$", changes, re.MULTILINE):
        yield f"CHANGELOG.md: the heading of {version} has no date: `## {version}, 2026-12-01`"
    if f"v{version}" in tags.split():
        yield f"pyproject.toml: version {version} was released already"
    if altered:
        yield "files are changed and not committed"


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    is_check = sys.argv[1:] == ["--check"]  # of a tag that is there
    tags = "" if is_check else _git("tag")
    problems = list(undecided(project, changes, _git("status", "--porcelain"), tags))
    for problem in problems:
        print(problem)
    if problems:
        print("docs/development.md says what to decide.")
        return 1
    if not is_check:
        tag = f"v{project['version']}"
        _git("tag", "--annotate", tag, "--message", f"Penstock {project['version']}")
        print(f"Tagged {tag}. `git push origin {tag}` builds, tests and publishes it.")
    return 0


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
