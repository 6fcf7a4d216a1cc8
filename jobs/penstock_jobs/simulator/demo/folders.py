"""The folders of a demo: its lake, and its story with the files that a user may change."""

import fcntl
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.core.errors import InvalidInput
from penstock.core.files import make_directory
from penstock.core.settings import FILE_NAME
from penstock_jobs.simulator.examples import LEFT_BEHIND, examples_folder

#: Marks a folder that a demo made, which the next demo may replace.
_MARK = "MADE-BY-PENSTOCK-DEMO"
_MARK_TEXT = "`penstock demo` made this folder. The next demo with the same --data replaces it.\n"
_SETTINGS = """\
flush_seconds_max = 0.2
executor = "processes"
loop_poll_seconds = 0.1
canary_settle_seconds = 0
canary_look_seconds = 0.1
canary_quiet_seconds = 1
"""


@dataclass
class DemoFolders:
    data: Path

    def __post_init__(self) -> None:
        self.story = self.data.with_name(f"{self.data.name}-story")
        self.loops, self.models = self.story / "loop", self.story / "models"
        self.engines = self.story / "engines"
        self.log = self.story / "serve.log"


def make_folders(data: Path | None, *, isolated: bool = True) -> DemoFolders:
    """Make the demo's folders, with settings and the files of examples/demo for users to change.

    Raises InvalidInput if they hold other files, or if a service uses them."""
    lake = (data or Path("penstock-demo")).absolute()
    if not lake.name:
        why = "the demo needs a folder beside it"
        raise InvalidInput(what=f"The directory {lake}", why=why)
    folders = DemoFolders(lake)
    try:
        for folder in (folders.data, folders.story):
            _check_free(folder)
        for folder in (folders.data, folders.story):
            if (folder / _MARK).exists():
                shutil.rmtree(folder)
            make_directory(folder)
            (folder / _MARK).write_text(_MARK_TEXT, encoding="utf-8")
        (lake / FILE_NAME).write_text(_SETTINGS, encoding="utf-8")
        source = examples_folder() / "demo"
        shutil.copytree(source, folders.loops, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
        folders.models.mkdir()
        folders.engines.mkdir()
        # The commands use this Python, which has the trainer's libraries.
        python = shlex.quote(sys.executable).replace("\\", "\\\\").replace('"', '\\"')
        for file in folders.loops.glob("*.toml"):
            text = file.read_text(encoding="utf-8")
            text = re.sub(r'(?<=")(exec )?python3 ', lambda call: f"{call[1] or ''}{python} ", text)
            if not isolated:
                text = text.replace("[[bench]]", "[[bench]]\nisolation = false")
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The directory {error.filename}", why=why) from error
    return folders


def _check_free(folder: Path) -> None:
    if not folder.exists():
        return
    what = f"The directory {folder}"
    if not (folder / _MARK).exists() and (not folder.is_dir() or any(folder.iterdir())):
        why = "it is not empty, and no demo made it; name an empty directory"
        raise InvalidInput(what=what, why=why)
    for lock in folder.glob("log/*/writer.lock"):
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                why = "a service uses it; stop the service, or name another directory"
                raise InvalidInput(what=what, why=why) from error
