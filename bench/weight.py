"""What Penstock weighs, beside the ceilings of pyproject.toml: the last step of `make lint`."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Pages that are written from the code: nobody keeps their words short.
_GENERATED = "docs/reference/"


def weigh() -> dict[str, int]:
    """What the ceilings are about, by their names."""
    product = _tracked("platform/*.py", "jobs/*.py")
    pages = [path for path in _tracked("docs/*.md") if not path.startswith(_GENERATED)]
    return {
        "product_lines_max": sum(map(_lines, product)),
        "product_modules_max": len(product),
        "test_lines_max": sum(map(_lines, _tracked("tests/*.py"))),
        "docs_words_max": sum(len(re.findall(r"\S+", _read(path))) for path in pages),
    }


def main() -> int:
    settings = tomllib.loads(_read("pyproject.toml"))
    ceilings: dict[str, int] = settings["tool"]["penstock"]["weight"]
    heavy = False
    for name, weight in weigh().items():
        over = weight > ceilings[name]
        heavy |= over
        print(f"{name.removesuffix('_max'):16} {weight:7,} of {ceilings[name]:7,}", "!" * over)
    if heavy:
        print(
            "Too heavy. Take something out; or raise the ceiling in pyproject.toml, and say why in"
            " docs/decisions.md."
        )
    return int(heavy)


def _tracked(*patterns: str) -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for path in done.stdout.splitlines() if (ROOT / path).is_file()]


def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _lines(path: str) -> int:
    return _read(path).count("\n")


if __name__ == "__main__":
    sys.exit(main())
