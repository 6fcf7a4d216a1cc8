"""`penstock query`, `penstock snapshots`, `penstock lake` and `penstock db`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, cast, get_args

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.interruption import ended_as_by_ctrl_c
from penstock.backends.terminal.output import (
    data_output,
    facts,
    progress_of_bytes,
    say,
    say_next_page,
    show_fields,
    show_rows,
    show_table,
    spinner_of,
    stdout_is_terminal,
)
from penstock.core.endpoint import Client, ListRequest, page_of
from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.lake import SnapshotUnknown
from penstock.lake.commands import Outcome, command
from penstock.lake.lake import Lake, make_data_directory, read_statistics

if TYPE_CHECKING:
    from penstock.core.endpoint import Answer
    from penstock.lake.query.row_formats import Format
    from penstock.lake.upkeep.backup import Backup

lake_app = typer.Typer(help="The files of the lake.", no_args_is_help=True)
snapshots_app = typer.Typer(
    help="Name the lake as it is; a query as of it reads the same rows for ever.",
    no_args_is_help=True,
)
database_app = typer.Typer(help="The metadata database.", no_args_is_help=True)

#: A table on a terminal is for reading; for all rows there are the other formats.
_TABLE_ROWS_MAX = 1_000
_BINARY_FORMATS = ("arrow", "parquet")


# Queries


@command()
def query(
    client: Client,
    sql: Annotated[
        str, typer.Argument(help="A SELECT over the views of docs/reference/sql.md; - is stdin.")
    ],
    *,
    as_of: Annotated[
        str | None, typer.Option(help="A snapshot's name, or a time: the lake as it was.")
    ] = None,
    form: Annotated[
        Literal["table", "json", "csv", "arrow", "parquet"] | None,
        typer.Option("--format", help="By default a table, or the ending of --out."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
    json: options.Json = False,
) -> None:
    """Query the lake with SQL. Events that are not in a segment yet are included.

    Example: penstock query "select type, count(*) from events group by all"
    """
    from penstock.lake.query.guard import SQL_LENGTH_MAX
    from penstock.lake.query.row_formats import write_rows

    text = sys.stdin.read(SQL_LENGTH_MAX + 1) if sql == "-" else sql
    chosen = "json" if json else form or ("table" if out is None else _format_of(out))
    with client.rows(text, as_of) as answer:
        if chosen == "table":
            _show_rows(answer)
        else:
            with _destination(out, chosen) as file:
                count = write_rows(answer.batches, chosen, file)
            if out is not None:
                say(f"{count} rows in {out}")
        if answer.cut_off:
            say("The newest events are missing: the log holds more than a query may read.")


def _format_of(out: Path) -> "Format":
    from penstock.lake.query.row_formats import Format

    for form in get_args(Format):
        if out.suffix == f".{form}":
            return cast(Format, form)
    raise InvalidInput(what=f"--out {out}", why="its ending names no format; add --format")


def _show_rows(answer: "Answer") -> None:
    from penstock.lake.query.row_formats import rows_of

    rows = []
    for batch in answer.batches:
        rows += [list(row.values()) for row in rows_of(batch)]
        if len(rows) > _TABLE_ROWS_MAX:
            break
    show_table(answer.batches.schema.names, rows[:_TABLE_ROWS_MAX], nothing="NULL")
    if len(rows) > _TABLE_ROWS_MAX:
        say(f"(the first {_TABLE_ROWS_MAX} rows; --format json or --out FILE gives all)")


@contextmanager
def _destination(out: Path | None, form: str) -> Iterator[BinaryIO]:
    """Open the output. A file appears only when it is whole; devices and pipes are written to."""
    if out is None:
        if form in _BINARY_FORMATS and stdout_is_terminal():
            raise InvalidInput(
                what=f"--format {form}", why="a terminal shows text; add --out FILE, or use a pipe"
            )
        yield data_output(json=form == "json")
        return
    unfinished = out.with_name(out.name + ".unfinished")
    try:
        if out.exists() and not out.is_file():
            with out.open("wb") as file:
                yield file
            return
        with unfinished.open("wb") as file:
            yield file
        unfinished.rename(out)
    except OSError as error:
        raise InvalidInput(what=f"--out {out}", why=error.strerror or str(error)) from error
    finally:
        unfinished.unlink(missing_ok=True)


# Snapshots

SnapshotName = Annotated[str, typer.Argument(help="The snapshot's name.")]


@snapshots_app.command("list")
@command()
def list_(
    lake: Lake, limit: options.Limit = None, cursor: options.Cursor = None
) -> Iterator[object]:
    """List the snapshots, the oldest first.

    Example: penstock snapshots list
    """
    from penstock.lake.catalog import list_snapshots

    page = ListRequest(limit=limit, cursor=cursor)
    known = list_snapshots(lake.database)
    snapshots, after = page_of(known, page, lambda snapshot: snapshot.name)
    say_next_page(after)
    yield [facts(snapshot) for snapshot in snapshots]
    show_rows(snapshots, "name", "snap", "created_at", "note")


@snapshots_app.command()
@command()
def create(
    lake: Lake, name: SnapshotName, note: Annotated[str, typer.Option(help="What it is for.")] = ""
) -> Iterator[object]:
    """Name the lake as it is now; events that are only in the log are not part of it.

    Example: penstock snapshots create before-the-release
    """
    from penstock.lake.catalog import create_snapshot

    snapshot = create_snapshot(lake.database, name, note)
    yield facts(snapshot)
    say(f"{snapshot.name} is snap {snapshot.snap}")


@snapshots_app.command()
@command()
def show(lake: Lake, name: SnapshotName) -> Iterator[object]:
    """Show a snapshot.

    Example: penstock snapshots show before-the-release
    """
    from penstock.lake.catalog import list_snapshots

    snapshot = next((each for each in list_snapshots(lake.database) if each.name == name), None)
    if snapshot is None:
        raise SnapshotUnknown(name=name)
    yield facts(snapshot)
    show_fields(facts(snapshot))


@snapshots_app.command()
@command()
def drop(lake: Lake, name: SnapshotName) -> Iterator[object]:
    """Drop a snapshot. Files that only it needs will be collected.

    Example: penstock snapshots drop before-the-release
    """
    from penstock.lake.catalog import drop_snapshot

    drop_snapshot(lake.database, name)
    yield {"dropped": name}
    say(f"{name} is dropped")


# The files of the lake


@lake_app.command()
@command()
def stats(lake: Lake) -> Iterator[object]:
    """Show how much the lake holds.

    Example: penstock lake stats
    """
    statistics = read_statistics(lake)
    yield statistics
    show_fields(statistics)


@lake_app.command()
@command()
def compact(lake: Lake) -> Iterator[object]:
    """Merge small segments now. `serve` does it by itself.

    Example: penstock lake compact
    """
    from penstock.core.metrics import Metrics
    from penstock.lake.upkeep.rounds import upkeep_by_hand, upkeep_jobs

    with upkeep_by_hand(lake), spinner_of("merging"):
        did = upkeep_jobs()["compaction"](lake, Metrics())
    yield {"did": did}
    say(did or "no segments to merge")


@lake_app.command("verify")
@command()
def verify_(
    lake: Lake,
    deep: Annotated[
        bool, typer.Option("--deep", help="Check every event too: it is there once, in its place.")
    ] = False,
) -> Iterator[object]:
    """Check every file against the database. Exit 1 if anything does not match.

    PENSTOCK_EXECUTOR says where the work runs.

    Example: penstock lake verify
    """
    from penstock.backends.execution import open_executor
    from penstock.lake.upkeep.verification import verify, verify_deep

    with open_executor(lake.settings) as executor, spinner_of("verifying"):
        report = verify(lake, executor)
        if deep:
            report = replace(report, findings=report.findings + verify_deep(lake, executor))
    counts = {"segments": report.segments, "rows": report.rows}
    counts |= {f"{name}s": count for name, count in report.others.items()}
    yield Outcome(counts | {"findings": report.findings}, failed=bool(report.findings))
    for finding in report.findings:
        say(f"{finding.name}: {finding.problem}")
    held = {"segment": report.segments, "event": report.rows, **report.others}
    texts = [f"{count} {name.replace('_', ' ')}s" for name, count in held.items()]
    say(f"{', '.join(texts)}: {len(report.findings)} problems")


@lake_app.command()
@command()
def gc(
    lake: Lake,
    grace: Annotated[
        float | None,
        typer.Option(
            help="Seconds for which a replaced file is kept; by default the setting.", min=0
        ),
    ] = None,
) -> Iterator[object]:
    """Delete files that nobody needs: replaced ones, and remains of crashes.

    Example: penstock lake gc
    """
    from penstock.lake.upkeep.rounds import collect, upkeep_by_hand

    with upkeep_by_hand(lake), spinner_of("collecting"):
        report = collect(lake, grace)
    others = {folder: n for folder, n in report.replaced.items() if folder != "events"}
    counts = {"uncommitted": report.uncommitted, "leases": report.leases}
    yield {"segments": report.segments, **others, **counts}
    replaced = ", ".join(f"{n} replaced files of {name}" for name, n in report.replaced.items())
    say(f"{replaced} and {report.uncommitted} uncommitted files deleted")


# The metadata database


@database_app.command()
@command()
def upgrade(data: options.Data = None) -> Iterator[object]:
    """Bring the tables to the revision of this Penstock. A missing database is made.

    Example: penstock db upgrade
    """
    from penstock.backends.database import migrations

    settings = load_settings(data)
    make_data_directory(settings.data)
    with Lake(settings) as lake:
        migrations.upgrade(lake.database)
        yield from _revision(lake)


@database_app.command()
@command()
def check(lake: Lake) -> Iterator[object]:
    """Check that the database is there and suits this Penstock. Exit 1 otherwise.

    Example: penstock db check
    """
    yield from _revision(lake)


def _revision(lake: Lake) -> Iterator[object]:
    from penstock.backends.database import migrations

    revision = migrations.check(lake.database)
    yield {"revision": revision}
    say(f"the database is at revision {revision}")


# Backups


@command()
def backup(
    lake: Lake,
    target: Annotated[
        Path,
        typer.Argument(
            parser=options.path, metavar="PATH", help="A new directory, or a new file NAME.tar."
        ),
    ],
) -> Iterator[object]:
    """Copy an embedded lake as it is now, while it is served.

    Example: penstock backup /backups/penstock-monday.tar
    """
    from penstock.lake.upkeep.backup import back_up

    with ended_as_by_ctrl_c(), progress_of_bytes("copied") as more:
        made = back_up(lake, target, more)
    yield from _show_backup(made, target, "holds")


@command()
def restore(
    source: Annotated[
        Path,
        typer.Argument(parser=options.path, metavar="PATH", help="A backup of `penstock backup`."),
    ],
    data: options.Data = None,
) -> Iterator[object]:
    """Restore a lake from a backup, into an empty data directory.

    Every file is verified first.

    Example: penstock restore /backups/penstock-monday.tar --data penstock-data
    """
    from penstock.lake.upkeep.backup import restore as restore_lake

    directory = load_settings(data).data
    with ended_as_by_ctrl_c(), progress_of_bytes("restored") as more:
        restored = restore_lake(source, directory, more)
    yield from _show_backup(restored, directory, "is a lake again, with")


def _show_backup(backup: "Backup", place: Path, verb: str) -> Iterator[object]:
    sizes = {"files": len(backup.files), "bytes": backup.bytes}
    yield {"path": str(place), "snap": backup.snap, **sizes}
    size = f"{len(backup.files)} files, {backup.bytes:,} bytes"
    say(f"{place} {verb} {size}, up to snap {backup.snap}")
