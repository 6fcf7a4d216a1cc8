"""Tasks in Harbor's format, of a base that this machine stands in for."""

import platform
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.suite_factory import write

SOLVE = "#!/bin/bash\nwc -l < /app/data.txt > /app/answer; echo done > /opt/mark\n"
TEST = """#!/bin/bash
[ "$(cat answer)" = 3 ] && [ -e /opt/mark ] && echo 1 > /logs/verifier/reward.txt && exit
echo 0 > /logs/verifier/reward.txt
exit 7
"""


def base() -> str:
    release = platform.freedesktop_os_release()
    if release["ID"] not in ("debian", "ubuntu"):
        pytest.skip(f"no image is like this machine, {release['ID']}")
    return f"{release['ID']}:{release['VERSION_ID']}"


def make_task(folder: Path, files: Mapping[str, str | None] | None = None) -> Path:
    """A task that works, with other files; None leaves one out."""
    defaults: dict[str, str] = {
        "task.toml": 'version = "1.0"\n[metadata]\ntags = ["lines"]\nextra = 1\n'
        "[environment]\nmemory_mb = 1024\nallow_internet = false\n[verifier]\ntimeout_sec = 60\n",
        "instruction.md": "<!-- canary GUID 1 -->\n\nCount the lines.\n",
        "environment/Dockerfile": f"FROM {base()}\nENV KIND=lines\nWORKDIR /app\n"
        "COPY data.txt ./\nRUN echo $KIND > /opt/built\n",
        "environment/data.txt": "1\n2\n3\n",
        "tests/test.sh": TEST,
        "solution/solve.sh": SOLVE,
    }
    for path, text in {**defaults, **(files or {})}.items():
        if text is not None:
            write(folder / path, text)
    return folder
