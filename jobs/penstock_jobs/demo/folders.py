"""The folders of a demonstration: a lake, and the loop files, weights and page beside it."""

import fcntl
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.directories import make_directory
from penstock.errors import InvalidInput
from penstock.settings import FILE_NAME

DEFAULT = Path("penstock-demo")
#: Marks a folder that a demonstration made, so that the next one may replace it.
_MARK = "MADE-BY-PENSTOCK-DEMO"
_MARK_TEXT = "`penstock demo` made this. The next one with the same --data replaces it.\n"
#: A demonstration is in a hurry.
_SETTINGS = """\
flush_seconds_max = 0.2
loop_poll_seconds = 0.1
canary_settle_seconds = 0
canary_look_seconds = 0.1
canary_quiet_seconds = 1
"""


@dataclass
class DemoFolders:
    """All paths are absolute."""

    data: Path

    def __post_init__(self) -> None:
        self.story = self.data.with_name(f"{self.data.name}-story")
        self.loops, self.models = self.story / "loop", self.story / "models"
        self.page, self.log = self.story / "demo.html", self.story / "serve.log"


def make_folders(data: Path | None, *, isolated: bool = True) -> DemoFolders:
    """Empty folders, but for the settings and the files of examples/demo, which a user may change.

    Raises InvalidInput if they hold anything that no demonstration made, or a service uses them."""
    lake = (data or DEFAULT).absolute()
    if not lake.name:
        why = "the folder of the story cannot be beside it"
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
        # In a wheel the files lie beside this module, in a checkout in examples.
        shipped = Path(__file__).with_name("_files")
        source = shipped if shipped.exists() else Path(__file__).parents[3] / "examples" / "demo"
        shutil.copytree(source, folders.loops, ignore=shutil.ignore_patterns("__pycache__"))
        folders.models.mkdir()
        # The commands use this Python, which has what the trainer needs.
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
    """Raises InvalidInput where somebody else owns what is there, and OSError."""
    if not folder.exists():
        return
    what = f"The directory {folder}"
    if not (folder / _MARK).exists() and (not folder.is_dir() or any(folder.iterdir())):
        why = "it is not empty and no demo made it: name an empty directory"
        raise InvalidInput(what=what, why=why)
    for lock in folder.glob("log/*/writer.lock"):
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                why = "a service uses it: stop the service, or name another directory"
                raise InvalidInput(what=what, why=why) from error
