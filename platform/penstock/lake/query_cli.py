"""`penstock query`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer

from penstock.errors import InvalidInput
from penstock.events.tenants import TENANT_DEFAULT
from penstock.lake.answer_formats import Format, rows_of, write
from penstock.lake.directory import open_existing
from penstock.lake.lake import Query
from penstock.lake.query import Answer
from penstock.terminal import options
from penstock.terminal.output import say, show_table

#: A table on a terminal is for reading; for all rows there are the other formats.
_TABLE_ROWS_MAX = 1_000


def query(
    sql: Annotated[str, typer.Argument(help="A SELECT over the views of docs/sql.md; - reads it.")],
    *,
    data: options.Data = None,
    as_of: Annotated[
        str | None, typer.Option(help="A snapshot's name, or a time: the lake as it was.")
    ] = None,
    form: Annotated[
        Literal["table", "json", "csv", "arrow", "parquet"] | None,
        typer.Option("--format", help="By default a table, or what the name of --out ends with."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Ask the lake with SQL; events that are not in a segment yet are included.

    Example: penstock query "select type, count(*) from events group by all"
    """
    chosen = "json" if json else form or _form_of(out)
    text = sys.stdin.read() if sql == "-" else sql
    with open_existing(data) as lake:
        asked = lake.query(text, as_of=as_of, tenant=tenant)
        if chosen == "table":
            _show(asked)
        else:
            _write(asked, chosen, out)


def _form_of(out: Path | None) -> Literal["table"] | Format:
    if out is None:
        return "table"
    forms: dict[str, Format] = {
        ".json": "json",
        ".csv": "csv",
        ".arrow": "arrow",
        ".parquet": "parquet",
    }
    if out.suffix not in forms:
        raise InvalidInput(what=f"--out {out}", why="its ending names no format; add --format")
    return forms[out.suffix]


def _show(asked: Query) -> None:
    with asked.run() as answer:
        rows = []
        for batch in answer.batches:
            rows += [list(row.values()) for row in rows_of(batch)]
            if len(rows) > _TABLE_ROWS_MAX:
                break
        show_table(answer.batches.schema.names, rows[:_TABLE_ROWS_MAX])
        if len(rows) > _TABLE_ROWS_MAX:
            say(f"(the first {_TABLE_ROWS_MAX} rows; --format json or --out FILE gives all)")
        _warn(answer)


def _write(asked: Query, form: Format, out: Path | None) -> None:
    with asked.run() as answer, _destination(out) as file:
        count = write(answer.batches, form, file)
        _warn(answer)
    if out is not None:
        say(f"{count} rows in {out}")


@contextmanager
def _destination(out: Path | None) -> Iterator[BinaryIO]:
    """A file that is there only when it is whole."""
    if out is None:
        yield sys.stdout.buffer
        return
    unfinished = out.with_name(out.name + ".unfinished")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.rename(out)
    except OSError as error:
        raise InvalidInput(what=f"--out {out}", why=error.strerror or str(error)) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _warn(answer: Answer) -> None:
    if answer.cut_off:
        say("The log holds more fresh events than a query may read: the newest are missing here.")
