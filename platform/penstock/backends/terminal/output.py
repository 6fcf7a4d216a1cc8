"""Answers on standard output, as tables for people or one JSON document for programs; everything
else, progress included, on standard error.

Commands write by these functions alone. They show control characters as numbers, so that no text
of others controls a terminal."""

import codecs
import getpass
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import PenstockError, one_line
from penstock.core.visible_text import visible, visible_json, visible_line

if TYPE_CHECKING:
    from rich.text import Text

_CELL_CHARS_MAX = 200

_document_shown = threading.Event()


def show_json(value: object) -> None:
    import msgspec

    _document_shown.set()
    sys.stdout.write(visible_json(msgspec.json.format(encode(value), indent=2).decode()) + "\n")


def show_json_line(value: object) -> None:
    """Show a document on a line of its own. The reader of a pipe gets it at once."""
    sys.stdout.write(visible_json(encode(value).decode()) + "\n")
    sys.stdout.flush()


def show_text(*lines: str) -> None:
    """Show lines of an answer, unwrapped. The reader of a pipe gets them at once."""
    sys.stdout.write("".join(f"{visible(line)}\n" for line in lines))
    sys.stdout.flush()


def show_styled(lines: Iterable[Sequence[tuple[str, str]]]) -> None:
    """Show lines of texts with styles such as `bold` and `green`: coloured on a terminal, plain in
    a pipe."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=10_000, highlight=False)
    for line in lines:
        whole = Text()
        for text, style in line:
            whole.append(visible_line(text), style)
        console.print(whole, soft_wrap=True)


def encode(value: object) -> bytes:
    import msgspec

    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: object) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def say_next_page(cursor: str | None) -> None:
    """Say how to get the next page of a list, if there is one."""
    if cursor is not None:
        say(f"The next page: --cursor {cursor}")


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, nothing: str = "-"
) -> None:
    """Show a table as wide as the terminal, or as it needs to be in a pipe. `nothing` stands for
    None; it is not empty, since an empty text is a value."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = [Text(visible_line(name), "bold") for name in columns]
    cells = [[_cell(value, nothing) for value in row] for row in rows]
    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)
    table = Table(show_edge=False, pad_edge=False, box=None)
    for name in names:
        table.add_column(name, overflow="fold")
    for row in cells:
        table.add_row(*row)
    console.print(table, soft_wrap=not console.is_terminal)


def show_rows(rows: Iterable[object], *names: str, **titled: str) -> None:
    """Show a table of records with these fields as columns, some with titles of their own. Fields
    such as `created_at` are times."""
    titles = {name: _title(name) for name in names} | titled
    table = [[_field(row, name) for name in titles] for row in rows]
    show_table([*titles.values()], table)


def show_fields(record: Mapping[str, object]) -> None:
    """Show a table with a line for each field that is not None."""
    show_table(["what", "value"], [pair for pair in record.items() if pair[1] is not None])


def _is_time(name: str) -> bool:
    return name.endswith("_at") or name in ("at", "hour")


def _title(name: str) -> str:
    if _is_time(name):
        return f"{name.removesuffix('_at')} (UTC)"
    return name.replace("_", " ")


def _field(row: object, name: str) -> object:
    value = getattr(row, name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not _is_time(name) or value is None:
        return value
    return datetime.fromisoformat(value) if isinstance(value, str) else time_of(value)


def _cell(value: object, nothing: str) -> "Text":
    """Make plain text, in which marks such as [bold] and :smile: mean nothing."""
    from rich.text import Text

    if value is None:
        return Text(nothing, "dim")
    if isinstance(value, datetime):
        return Text(value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3])
    text = encode(value).decode() if isinstance(value, Mapping | list) else str(value)
    text = visible_line(text[: _CELL_CHARS_MAX + 1])
    return Text(text if len(text) <= _CELL_CHARS_MAX else text[: _CELL_CHARS_MAX - 1] + "…")


def say(text: str) -> None:
    sys.stderr.write(visible(text) + "\n")


def prompt_secret(text: str) -> str:
    return getpass.getpass(visible_line(text))


def show_error(error: PenstockError) -> None:
    say(f"penstock: {one_line(error)}")


def show_error_document(
    name: str, message: str, exit_status: int, fields: Mapping[str, Any] | None = None
) -> None:
    """Show an error to a program, with the field names of an answer over HTTP. A command that has
    shown its answer, such as a verdict, has said it there."""
    if not _document_shown.is_set():
        fixed = {"error": name, "detail": message, "exit_status": exit_status}
        show_json_line({**fixed, **(fields or {})})


def guard_terminal() -> None:
    """Prepare a command: unexpected errors and logs of libraries are shown by this module too."""
    _document_shown.clear()
    sys.excepthook = _show_crash
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_LibraryFormatter("%(levelname)s: %(message)s"))


def _show_crash(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    import traceback

    say("".join(traceback.format_exception(kind, error, at)).rstrip("\n"))


class _LibraryFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()


def data_output(*, json: bool = False, raw: bool = False) -> BinaryIO:
    """Open standard output for data. A pipe, a file or a `raw` output gets it as it is; a terminal
    gets control characters as numbers. JSON has them as numbers everywhere."""
    sys.stdout.flush()
    plain = sys.stdout.buffer
    if raw or not (json or stdout_is_terminal()):
        return plain
    return cast(BinaryIO, _VisibleOutput(plain, json=json))


def relay_output() -> Callable[[bytes], None]:
    """Make a function that shows the output of another program on standard error, piece by piece. A
    progress bar that is redrawn becomes lines."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def show(piece: bytes) -> None:
        text = decoder.decode(piece).replace("\r\n", "\n").replace("\r", "\n")
        sys.stderr.write(visible(text))
        sys.stderr.flush()

    return show


class _VisibleOutput:
    """An output that shows control characters, and bytes that are no UTF-8, as numbers. Characters
    may come in pieces."""

    def __init__(self, out: BinaryIO, *, json: bool) -> None:
        self.closed = False
        self._out = out
        self._shown = visible_json if json else visible
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, content: bytes) -> int:
        self._out.write(self._shown(self._decoder.decode(content)).encode())
        return len(content)

    def flush(self) -> None:
        self._out.flush()


def time_of(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, tz=UTC)


def time_text(us: int) -> str:
    return time_of(us).isoformat()


def facts(value: Any) -> dict[str, Any]:
    fields = asdict(value)
    for name, content in fields.items():
        if name.endswith("_at") or name == "hour":
            fields[name] = time_text(content) if content is not None else None
        elif isinstance(content, bytes):
            fields[name] = content.decode(errors="replace")
    return fields


# Progress

#: From one line of progress to the next, where no bar is shown.
_LINE_SECONDS = 10.0


@contextmanager
def progress_of(what: str, clock: Clock | None = None) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error: a bar, or a line now and then. Yields a function that takes
    how many are done, and of how many."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        lines = _ProgressLines(what, clock or SystemClock())
        yield lambda done, of: lines.show(f"{done:,} of {of:,}")
        return
    with Progress(console=console) as progress:
        bar = progress.add_task(_without_markup(what))
        yield lambda done, of: progress.update(bar, completed=done, total=of)


@contextmanager
def progress_of_bytes(what: str) -> Iterator[Callable[[int], object]]:
    """Show how many bytes are done and how fast. Yields a function that takes how many more."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    console = Console(stderr=True)
    columns = ("{task.description}", DownloadColumn(), TransferSpeedColumn())
    if not console.is_terminal:
        lines, bytes_done = _ProgressLines(what, SystemClock()), 0

        def add(count: int) -> None:
            nonlocal bytes_done
            bytes_done += count
            lines.show(f"{bytes_done / 1_000_000:,.0f} MB")

        yield add
        return
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(_without_markup(what), total=None)
        yield lambda count: progress.advance(task, count)


@contextmanager
def spinner_of(what: str, every_s: float = _LINE_SECONDS) -> Iterator[None]:
    """Show that work goes on whose progress nobody knows."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(_without_markup(what)):
            yield
        return
    ended, clock = threading.Event(), SystemClock()
    begun_s = clock.elapsed_s()

    def say_so() -> None:
        while not ended.wait(every_s):
            say(f"{what}: {clock.elapsed_s() - begun_s:.0f} s so far")

    lines = threading.Thread(target=say_so, name="progress", daemon=True)
    lines.start()
    try:
        yield
    finally:
        ended.set()
        lines.join()


class _ProgressLines:
    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._last_s = clock.elapsed_s()

    def show(self, state: str) -> None:
        now_s = self._clock.elapsed_s()
        if now_s - self._last_s >= _LINE_SECONDS:
            self._last_s = now_s
            say(f"{self._what}: {state}")


def _without_markup(text: str) -> str:
    from rich.markup import escape

    return escape(visible_line(text))
