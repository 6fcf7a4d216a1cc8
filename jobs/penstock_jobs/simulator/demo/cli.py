"""`penstock demo`."""

import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.interruption import ended_as_by_ctrl_c
from penstock.backends.terminal.output import say, show_table, stdout_is_terminal
from penstock.core.files import open_private
from penstock.lake.commands import Outcome, command
from penstock.lake.lake import open_existing

if TYPE_CHECKING:
    from penstock_jobs.simulator.demo.folders import DemoFolders
    from penstock_jobs.simulator.demo.story import Chapter

#: PATH before this process changes it.
_PATH = os.environ.get("PATH", "")
_WELCOME = """\
Penstock, from production to the next checkpoint and back, in six cycles. A laptop is enough. The
model is a real transformer, small enough for a CPU: it samples its answers token by token, and a
policy gradient on these tokens makes the next checkpoint. Its users are simulated. They ask for
sums, read what it wrote, and keep it, rewrite it or complain. The demo knows which answers are
right, so you can compare the truth with what Penstock measures."""

Data = Annotated[
    Path | None,
    typer.Option(
        parser=options.path,
        metavar="DIR",
        help="Folder of the lake; other files of the demo go to DIR-story beside it."
        "  [default: penstock-demo]",
    ),
]
Sessions = Annotated[int, typer.Option(help="Sessions per cycle.", min=150)]
Seconds = Annotated[
    float | None, typer.Option(help="Start no further cycle after this time.", min=0)
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same story.")]


@command()
def demo(
    data: Data = None, sessions: Sessions = 180, seconds: Seconds = None, seed: Seed = 11
) -> Iterator[object]:
    """Watch the whole loop: a small transformer, simulated users, six cycles.

    In each cycle users work with a checkpoint, rewards measure its sessions, a trainer makes the
    next checkpoint, benchmark and gate judge it, and production changes. A weak model gets good,
    the gate stops a model that exploits a hole in the reward, and a bad checkpoint that slips
    through is rolled back.

    Example: penstock demo
    """
    from penstock_jobs.simulator.demo.engines import Engines
    from penstock_jobs.simulator.demo.folders import make_folders
    from penstock_jobs.simulator.demo.labels import judge_sentences
    from penstock_jobs.simulator.demo.player import Player
    from penstock_jobs.simulator.demo.server import running_server
    from penstock_jobs.simulator.demo.story import ACTS, COLUMNS, curve_lines, table_rows

    started = time.monotonic()
    folders = make_folders(data, isolated=_can_isolate())
    # The loop's commands use this Python.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), _PATH])
    say(_WELCOME)
    chapters: list[Chapter] = []
    with (
        ended_as_by_ctrl_c(),
        open_private(folders.log, "wb") as log,
        running_server(folders.data, log=log) as server,
        open_existing(folders.data) as lake,
        closing(Engines(server, folders.loops, folders.engines, log)) as engines,
    ):
        say(f"\nThe service runs at {server.url}, with its data in {folders.data}")
        if server.sign_in and stdout_is_terminal():
            say(f"Watch it in the console, with this one-time link: {server.sign_in}")
        player = Player(
            lake=lake, server=server, folders=folders, seed=seed, sessions=sessions,
            engines=engines, tell=say,
        )  # fmt: skip
        player.begin()
        until = math.inf if seconds is None else started + seconds
        chapters.extend(player.play(ACTS, go_on=lambda: time.monotonic() < until))
        ending = player.end()
    failed = any(chapter.outcome == "failed" for chapter in chapters)
    yield Outcome({"chapters": chapters, "ending": ending, "misses": player.misses}, failed)
    say("")
    show_table(COLUMNS, table_rows(chapters, ending))
    say("")
    for line in curve_lines(chapters, ending):
        say(line)
    say(f"\n{judge_sentences(player.misses)}")
    _say_what_next(folders, chapters)


def _can_isolate() -> bool:
    from penstock_jobs.benchmarks.sandbox.sandbox import IsolationImpossible, check_isolation

    try:
        check_isolation()
    except IsolationImpossible as error:
        say(f"{error} The scripted agent of the demonstration runs without isolation.")
        return False
    return True


def _say_what_next(folders: "DemoFolders", chapters: Sequence["Chapter"]) -> None:
    penstock = "penstock"
    if shutil.which(penstock, path=_PATH) is None:
        penstock = shlex.quote(str(_near(Path(sys.executable).with_name(penstock))))
    data = shlex.quote(str(_near(folders.data)))
    learn = shlex.quote(str(_near(folders.loops / "learn.toml")))
    tries = {
        "channels history production": "who changed the channel, and why",
        "loop history": "how long each stage took",
        'query "from outcomes where superseded_at is null limit 20"': (
            "any SQL: docs/reference/sql.md"
        ),
    }
    for chapter in chapters:
        if chapter.act.meant == "refused" and chapter.verdict is not None:
            tries[f"gate check {chapter.checkpoint}"] = "the complete verdict on the hack"
    tries["serve"] = "the console at http://127.0.0.1:8787: sessions, rewards, channels"
    tries[f"loop run {learn} --once"] = "one more cycle, with your changes in that folder"
    for chapter in chapters:
        if chapter.outcome == "failed":
            say(f"Cycle {chapter.number} failed: {chapter.why}")
        elif chapter.outcome != chapter.act.meant:
            meant = chapter.act.meant.replace("_", " ")
            say(f"Cycle {chapter.number} should have ended as {meant}. Try another --seed.")
    say(f"\nThe loop, its rewards, its gate and its trainer: {_near(folders.loops)}\n\nTry now")
    width = max(map(len, tries)) + len(f" --data {data}")
    for words, why in tries.items():
        say(f"   {penstock} {f'{words} --data {data}':<{width}}   # {why}")


def _near(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
