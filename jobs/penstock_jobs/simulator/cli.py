"""`penstock simulate`: sessions with known truth."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import data_output, progress_of, say, show_json
from penstock.core.clock import SECOND_US
from penstock.core.errors import InvalidInput
from penstock_jobs.simulator.delivery import EventLine, FileSink, HttpSink, Sink, batches, deliver
from penstock_jobs.simulator.policy import POLICIES, read_policy
from penstock_jobs.simulator.production import CHECKPOINTS, START_US, Checkpoint, Production
from penstock_jobs.simulator.truth import SessionTruth
from penstock_jobs.simulator.users import PLAIN, bent

_CHECKPOINT_HELP = (
    f"Checkpoint that serves; may be repeated. POLICY: {', '.join(POLICIES)}, or a file."
)


def simulate(
    *,
    sessions: Annotated[int, typer.Option(help="Number of sessions.", min=1)] = 300,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 7,
    first: Annotated[
        int, typer.Option(help="First session number; a number always means one session.", min=0)
    ] = 0,
    rate: Annotated[
        float | None,
        typer.Option(help="Events per second. Default: as many as the sink takes.", min=0.01),
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="Start of the first session, such as 2026-11-02T09:00Z.")
    ] = None,
    compress: Annotated[
        int, typer.Option(help="Factor by which events are faster than users.", min=1)
    ] = 1,
    checkpoint: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]POLICY", help=_CHECKPOINT_HELP)
    ] = None,
    world: Annotated[
        int, typer.Option(help="Habits of users: 0 for plain ones, other seeds bend them.", min=0)
    ] = 0,
    late: Annotated[
        float, typer.Option(help="Share of events that arrive up to six hours late.", min=0, max=1)
    ] = 0.0,
    repeated: Annotated[
        float, typer.Option(help="Share of events that arrive twice.", min=0, max=1)
    ] = 0.0,
    out: Annotated[
        Path | None, typer.Option(parser=options.path, help="Write NDJSON to this file.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="Post to the gateway at http://HOST:PORT.")] = None,
    key: Annotated[str | None, typer.Option(help="Key with the role ingest, for --to.")] = None,
    truth: Annotated[
        Path | None,
        typer.Option(parser=options.path, help="Write each session's truth to this JSONL file."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Simulate sessions with known truth, and send their events.

    Without --out or --to the events go to standard output.

    Example: penstock simulate --sessions 300 --to http://127.0.0.1:8787 --key KEY --truth t.jsonl
    """
    checkpoints, start_us = _checkpoints(checkpoint), _start_us(start)
    habits = bent(world) if world else PLAIN
    production = Production(seed, checkpoints, start_us, compress, world=habits)
    truths: list[SessionTruth] = []
    lines = deliver(
        production, sessions, first=first, late=late, repeated=repeated, learn=truths.append
    )
    with _sink(out, to, key, json=json) as sink:
        _send(batches(lines, rate), sink, truths, sessions, truth, json=json)


def _send(
    sending: Iterator[list[EventLine]],
    sink: Sink,
    truths: list[SessionTruth],
    sessions: int,
    truth: Path | None,
    *,
    json: bool,
) -> None:
    """Send the events, write their truths, and print counts."""
    edits = events = rejected = 0
    served: Counter[str] = Counter()
    with ExitStack() as closing:
        truth_file = closing.enter_context(_opened(truth)) if truth is not None else None
        follow = closing.enter_context(progress_of("sessions"))
        for batch in sending:
            for session in truths:
                edits += len(session.edits)
                served[session.checkpoint] += 1
                if truth_file is not None:
                    truth_file.write(msgspec.json.encode(session) + b"\n")
            truths.clear()
            rejected += sink.send(batch)
            events += len(batch)
            follow(served.total(), sessions)
    if json:
        counts = {"sessions": served.total(), "edits": edits, "events": events}
        show_json(counts | {"rejected": rejected, "checkpoints": served})
    else:
        by = ", ".join(f"{count} by {name}" for name, count in sorted(served.items()))
        say(f"{events} events of {served.total()} sessions, {by}; {edits} edits")
    if rejected:
        say(f"{rejected} lines were rejected; `penstock rejected list` shows why")
        raise typer.Exit(1)


def _checkpoints(named: list[str] | None) -> tuple[Checkpoint, ...]:
    """Read checkpoints. A name alone is the name of its policy too."""
    checkpoints = []
    for text in named or ():
        name, equals, policy = text.partition("=")
        if not name:
            raise InvalidInput(what=f"--checkpoint {text}", why="it has no name")
        if not equals and name not in POLICIES:
            why = f"no policy has this name; say which one serves, such as {name}=good"
            raise InvalidInput(what=f"--checkpoint {text}", why=why)
        checkpoints.append(Checkpoint(name, read_policy(policy or name)))
    return tuple(checkpoints) or CHECKPOINTS


def _start_us(text: str | None) -> int:
    if text is None:
        return START_US
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return round(moment.timestamp() * SECOND_US)
    raise InvalidInput(what=f"--start {text}", why="it is not a time with a zone")


@contextmanager
def _sink(out: Path | None, to: str | None, key: str | None, *, json: bool) -> Iterator[Sink]:
    if out is not None and to is not None:
        raise InvalidInput(what="Both --out and --to", why="name only one")
    if out is None and to is None and json:
        why = "the events go there; name --out or --to"
        raise InvalidInput(what="Standard output", why=why)
    if key is not None and to is None:
        raise InvalidInput(what="--key", why="it needs --to")
    with ExitStack() as closing:
        if to is not None:
            sink: Sink = HttpSink(to, key, tell=say)
        else:
            file = data_output() if out is None else closing.enter_context(_opened(out))
            sink = FileSink(file)
        closing.callback(sink.close)
        yield sink


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise InvalidInput(what=f"The file {path}", why=error.strerror or error) from error
