"""`penstock demo`."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.terminal import options
from penstock.terminal.interruption import ended_as_by_ctrl_c
from penstock.terminal.output import say, show_json, show_table

if TYPE_CHECKING:
    from penstock_jobs.demo.place import Place
    from penstock_jobs.demo.story import Chapter, Ending, Measured

#: As whoever calls has it.
_PATH = os.environ.get("PATH", "")
_WELCOME = """\
Penstock, from production to the next checkpoint and back, in six cycles. A laptop is enough: the
users and the model are simulated, and all else is real. The model is a table of 14 numbers that
says how it works: carefully, hastily, by asking instead … Whoever knows it knows the truth, so
that you can see whether what Penstock measures is true."""


def demo(
    data: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            metavar="DIR",
            help="Where the lake is made; the files of the story go to DIR-story beside it."
            "  [default: penstock-demo]",
        ),
    ] = None,
    sessions: Annotated[int, typer.Option(help="Sessions in each cycle.", min=150)] = 220,
    seconds: Annotated[
        float | None, typer.Option(help="Begin no other cycle after so long.", min=0)
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed tells the same story.")] = 11,
    json: options.Json = False,
) -> None:
    """Watch the whole loop: simulated users work with a checkpoint, rewards say what it was worth,
    a trainer makes the next one, the benchmark and the gate judge it, production changes. In six
    cycles a weak model gets good, a hole in the reward is found by the trainer and stopped by the
    gate, and a bad checkpoint that slips through is taken back.

    Example: penstock demo
    """
    from penstock.lake.directory import open_existing
    from penstock_jobs.demo.page import write_page
    from penstock_jobs.demo.place import make_place
    from penstock_jobs.demo.player import Player
    from penstock_jobs.demo.server import running_server
    from penstock_jobs.demo.story import ACTS

    begun = time.monotonic()
    place = make_place(data, isolated=_can_isolate())
    # The loop's commands are run by the Python that runs this.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), _PATH])
    say(_WELCOME)
    chapters: list[Chapter] = []
    with (
        ended_as_by_ctrl_c(),
        place.log.open("wb") as log,
        running_server(place.data, log=log) as server,
        open_existing(place.data) as lake,
    ):
        say(f"\nThe service runs at {server.url}, with its data in {place.data}")
        player = Player(
            lake=lake, server=server, place=place, seed=seed, sessions=sessions, tell=say
        )
        player.begin()
        chapters.extend(
            player.play(ACTS, go_on=lambda: seconds is None or time.monotonic() - begun < seconds)
        )
        ending = player.end()
    write_page(place.page, chapters, ending)
    if json:
        show_json({"chapters": chapters, "ending": ending})
    else:
        say("")
        show_table(_COLUMNS, _rows(chapters, ending))
        _say_what_next(place, chapters)
    if any(one.outcome == "failed" for one in chapters):
        raise typer.Exit(1)


def _can_isolate() -> bool:
    """Whether agents can be kept in rooms here; it is said where they cannot."""
    from penstock_jobs.benchmarks.errors import IsolationImpossible
    from penstock_jobs.benchmarks.sandbox.isolated import check

    try:
        check()
    except IsolationImpossible as error:
        say(f"{error} The scripted agent of the demonstration runs without a room.")
        return False
    return True


_COLUMNS = [
    "cycle", "served by", "edits kept", "in truth", "dissatisfied", "in truth",
    "made", "benchmark", "gate", "what became of it",
]  # fmt: skip


def _rows(chapters: Sequence["Chapter"], ending: "Ending") -> Iterator[list[object]]:
    for one in chapters:
        yield [
            one.number, one.parent, *_shares(one.measured, one.known),
            one.checkpoint, _score(one), one.gate, one.outcome.replace("_", " "),
        ]  # fmt: skip
    yield ["", ending.checkpoint, *_shares(ending.measured, ending.known), "", "", "", "serves"]


def _shares(found: "Measured", truth: "Measured") -> list[str]:
    from penstock_jobs.demo.story import percent

    pairs = ((found.kept, truth.kept), (found.dissatisfied, truth.dissatisfied))
    return [percent(share) for pair in pairs for share in pair]


def _score(chapter: "Chapter") -> str:
    if chapter.score is None or chapter.score_before is None:
        return ""
    return f"{chapter.score_before:.2f} → {chapter.score:.2f}"


def _say_what_next(place: "Place", chapters: Sequence["Chapter"]) -> None:
    """What there is to be seen, in commands that can be copied."""
    penstock, data = _own_name(), shlex.quote(str(_near(place.data)))
    learn = shlex.quote(str(_near(place.loops / "learn.toml")))
    tries = [
        (f"channels history production --data {data}", "who moved the channel, and why"),
        (f"loop history --data {data}", "how long each stage took"),
        (f'query "from outcomes limit 20" --data {data}', "any SQL: docs/sql.md"),
        *(
            (f"gate check {one.checkpoint} --data {data}", "the whole verdict on the hack")
            for one in chapters
            if one.act.meant == "refused" and one.verdict is not None
        ),
        (
            f"loop run {learn} --once --data {data}",
            "one more cycle, with what you changed in that folder",
        ),
    ]
    for one in chapters:
        if one.outcome == "failed":
            say(f"Cycle {one.number} failed: {one.why}")
        elif not one.as_meant:
            meant = one.act.meant.replace("_", " ")
            say(f"Cycle {one.number} was meant to end as {meant}: luck is with other seeds")
    say(f"\nThe same with plots, and the story of each cycle: {_near(place.page)}")
    say(f"The loop file, its rewards, its gate and its trainer: {_near(place.loops)}\n\nTry now")
    width = max(len(command) for command, _ in tries)
    for command, why in tries:
        say(f"   {penstock} {command:<{width}}   # {why}")


def _own_name() -> str:
    """As it can be called from here."""
    if shutil.which("penstock", path=_PATH) is not None:
        return "penstock"
    return shlex.quote(str(_near(Path(sys.executable).with_name("penstock"))))


def _near(path: Path) -> Path:
    """As it is named from here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
