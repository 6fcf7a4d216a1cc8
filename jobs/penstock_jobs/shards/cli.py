"""`penstock shards` and `penstock consent`."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import (
    encode,
    progress_of,
    say,
    say_next_page,
    show_rows,
    show_table,
    show_text,
    spinner_of,
)
from penstock.core.endpoint import Client
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT, Consent
from penstock.lake.commands import Outcome, asks, command
from penstock.lake.lake import Lake
from penstock.shards.endpoints import DROP_SHARD
from penstock.shards.shard import ShardDropped
from penstock_jobs.shards.endpoints import (
    LIST_SHARDS,
    SHOW_SHARD,
    ShardDetails,
    ShardRequest,
    ShardsAnswer,
)

if TYPE_CHECKING:
    from penstock.access.privacy.consents import DecisionKind
    from penstock.shards.manifest import StoredShard
    from penstock_jobs.shards.build import ShardBuild
    from penstock_jobs.shards.consents import WithdrawalAnswer
    from penstock_jobs.shards.export import ExportReport

Shard = Annotated[
    str, typer.Argument(metavar="ID", help="A shard, by name, id or prefix of the id.")
]

NewFolder = Annotated[
    Path, typer.Option("--out", parser=options.path, metavar="DIR", help="A new directory.")
]

app = typer.Typer(help="Training shards, built from queries.", no_args_is_help=True)


@app.command()
@command()
def build(
    lake: Lake,
    recipe: Annotated[
        Path, typer.Argument(parser=options.path, metavar="RECIPE.toml", help="The recipe.")
    ],
    tenant: options.Tenant = TENANT_DEFAULT,
    left_out: Annotated[
        Path | None,
        typer.Option(
            "--left-out",
            parser=options.path,
            metavar="FILE",
            help="Write left-out sessions with reasons to a file, one JSON object per line.",
        ),
    ] = None,
) -> Iterator[object]:
    """Build a shard by a recipe: files that a trainer reads, and a manifest that proves them.

    The same recipe over the same snapshot makes the same bytes. PENSTOCK_EXECUTOR says where the
    work is done.

    Example: penstock shards build examples/recipes/sft-persistent.toml
    """
    from penstock.backends.execution import open_executor
    from penstock_jobs.shards.build import build_shard
    from penstock_jobs.shards.recipe import load_recipe

    loaded = load_recipe(recipe)
    with open_executor(lake.settings) as executor, progress_of("slices") as follow:
        built = build_shard(
            lake, executor, loaded, tenant=tenant, by=options.actor(None), follow=follow
        )
    if left_out is not None:
        lines = (encode(session._asdict()) + b"\n" for session in built.left_out)
        try:
            left_out.write_bytes(b"".join(lines))
        except OSError as error:
            raise InvalidInput(what=str(left_out), why=error.strerror or str(error)) from error
    names = ("new", "asked", "problems", "branches_left_out")
    document = {"shard": built.manifest.id} | {name: getattr(built, name) for name in names}
    yield document | {"manifest": built.manifest}
    _show_build(built)


def _show_build(built: "ShardBuild") -> None:
    manifest, counts = built.manifest, built.manifest.counts
    show_text(manifest.id)
    if not built.new:
        say("The same shard already exists.")
    examples = {
        session.reason: f"{session.session_id}: {session.detail}"
        for session in built.left_out
        if session.detail
    }
    rows: list[Sequence[object]] = [
        ["sessions asked for", built.asked],
        ["sessions in it", counts.sessions],
        *([f"left out: {why}", count, examples.get(why)] for why, count in counts.excluded.items()),
        ["samples", counts.samples],
        *([f"  {status}", count] for status, count in counts.status.items()),
        *([f"branches left out: {reason}", n] for reason, n in built.branches_left_out.items()),
        *([f"hints: {kind}", n] for kind, n in counts.hints.items()),
        ["tokens", counts.tokens],
        ["trainable tokens", counts.trainable],
        *([["rows when packed", counts.packed_rows]] if counts.packed_rows else []),
        ["files", len(manifest.files)],
        *([f"events with a problem: {kind}", n] for kind, n in sorted(built.problems.items())),
        *([["snapshot", manifest.snapshot.name]] if manifest.snapshot else []),
    ]
    show_table(["what", "value", "such as"], [[*row, ""][:3] for row in rows])


@app.command("list")
@asks(LIST_SHARDS)
def list_(page: ShardsAnswer) -> None:
    """List shards, the newest last.

    Example: penstock shards list
    """
    names = ("id", "name", "samples", "tokens", "trainable", "bytes", "marked_sessions")
    show_rows(page.shards, *names, "created_at", "gone")


@app.command()
@asks(SHOW_SHARD)
def show(details: ShardDetails) -> None:
    """Show a shard: its manifest, its marks, and checkpoints trained on it.

    Example: penstock shards show sft-persistent
    """
    document = details.manifest
    built_at = datetime.fromisoformat(details.built_at)
    rows: list[list[object]] = [["shard", details.shard], ["built at", built_at]]
    if details.gone is not None:
        rows += [[details.gone, details.gone_at], ["because", details.gone_why]]
    rows += [[name, value] for name, value in document.items() if name not in ("files", "query")]
    rows += [["marked", f"{mark.session_id}: {mark.reason}"] for mark in details.marks]
    for learner in details.trained:
        through = f", from {learner.through}" if learner.through else ""
        rows.append(["trained", f"{learner.checkpoint} ({learner.state}{through})"])
    show_table(["what", "value"], rows)
    columns = ["name", "rows", "tokens", "trainable", "bytes", "sha256"]
    show_table(columns, [[part[name] for name in columns] for part in document["files"]])
    show_text(str(document.get("query", "")).strip())


def _stored(lake: Lake, tenant: str, shard: str) -> "StoredShard":
    from penstock.shards.manifest import stored_shard
    from penstock.shards.registered_shards import find_shard

    known = find_shard(lake.database, tenant, shard)
    return stored_shard(lake.store, known.folder, known.id)


@app.command()
@command()
def verify(lake: Lake, shard: Shard, tenant: options.Tenant = TENANT_DEFAULT) -> Iterator[object]:
    """Verify a shard against its files. Exit 1 if anything does not match.

    Example: penstock shards verify sft-persistent
    """
    from penstock.shards.registered_shards import check_withdrawn
    from penstock.shards.validation import verify_shard

    with spinner_of("verifying"):
        stored = _stored(lake, tenant, shard)
        withdrawn = check_withdrawn(lake.database, lake.settings, tenant, stored.id)
        proof = verify_shard(stored)
    if withdrawn:
        say(f"{withdrawn} of its sessions may no longer be trained on: rebuild it")
    yield Outcome(proof, failed=bool(proof.problems))
    for problem in proof.problems:
        say(problem)
    counts = f"{proof.files} files, {proof.samples} samples, {proof.tokens} tokens"
    say(f"{stored.id}: {counts}: {len(proof.problems)} problems")


@app.command()
@command()
def diff(
    lake: Lake, before: Shard, after: Shard, tenant: options.Tenant = TENANT_DEFAULT
) -> Iterator[object]:
    """Show what changed from one shard to another, and why.

    Example: penstock shards diff 96380bb6 dbf6e012
    """
    from penstock_jobs.shards.shard_difference import diff_shards

    with spinner_of("comparing"):
        difference = diff_shards(*(_stored(lake, tenant, shard) for shard in (before, after)))
    yield difference
    rows = [[change.what, str(change.before), str(change.after)] for change in difference.changes]
    show_table(["what", "before", "after"], rows)
    for line in difference.query:
        say(line)
    samples = difference.samples
    say(
        f"samples: {samples.same} in both, {samples.otherwise} with another reward or weight,"
        f" {samples.only_before} only before, {samples.only_after} only after"
    )
    for side in ("before", "after"):
        if sessions := getattr(samples, f"sessions_only_{side}"):
            say(f"sessions only {side}: {', '.join(sessions)}")


@app.command()
@command()
def export(
    client: Client,
    shard: Shard,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="The target; an unknown name lists all.")
    ],
    out: NewFolder,
) -> Iterator[object]:
    """Write a shard in the format of another trainer.

    Rows that the format cannot hold are left out and counted.

    Example: penstock shards export sft-persistent --to trl-sft --out sft
    """
    from penstock.shards.shard_places import shard_at_hand
    from penstock_jobs.shards.export import check_target, export_shard

    check_target(to, out)
    marked = _marked(client, shard)
    with shard_at_hand(client, shard, out.absolute().parent) as stored:
        report = export_shard(stored, to, out)
    if marked:
        say(f"{len(marked)} of its sessions must not be trained on: rebuild it before training")
    yield report
    _say_rows(report, f"for {report.written_for}")
    if report.note:
        say(report.note)
    for name in report.files:
        show_text(str(out / name))


@app.command()
@command()
def publish(
    client: Client,
    shard: Shard,
    *,
    license_: Annotated[
        str, typer.Option("--license", help="The Hub's name of a licence, such as cc-by-4.0.")
    ],
    out: NewFolder,
) -> Iterator[object]:
    """Write a shard as a data set for the Hugging Face Hub: conversations in Parquet, and a card.

    Nothing is uploaded.

    Example: penstock shards publish sft-persistent --license cc-by-4.0 --out sft
    """
    from penstock.shards.shard_places import shard_at_hand
    from penstock_jobs.shards.publication import publish_shard

    marked = _marked(client, shard)
    with shard_at_hand(client, shard, out.absolute().parent) as stored:
        report = publish_shard(stored, license_, out, marked)
    yield report
    _say_rows(report, f"in {out}")
    say(f"Read {out / 'README.md'} before you upload the folder.")


def _marked(client: Client, shard: str) -> set[str]:
    """Return sessions of a shard that must not be trained on."""
    marks = client.call(SHOW_SHARD, ShardRequest(shard=shard)).marks
    return {mark.session_id for mark in marks}


def _say_rows(report: "ExportReport", where: str) -> None:
    say(f"{report.rows} rows of {report.shard} {where}")
    for reason, count in sorted(report.left_out.items()):
        say(f"left out: {reason} {count}")


@app.command()
@asks(DROP_SHARD)
def drop(dropped: ShardDropped) -> None:
    """Delete the files of a shard, but keep its counts, manifest and lineage.

    Refused if a channel points at a checkpoint that was trained on it. Refused also during a loop
    cycle with the shard, or a benchmark of such a checkpoint.

    Example: penstock shards drop sft-persistent --reason "replaced by sft-2"
    """
    for needed in dropped.needed:
        say(f"dropped, although {needed}")
    say(f"{dropped.shard}: {dropped.files} files deleted, {dropped.bytes} bytes")
    if dropped.snapshot:
        say(f"The snapshot {dropped.snapshot} still keeps its source: penstock snapshots drop")


# Consent


consent_app = typer.Typer(
    help="Whether data of users, projects and sessions may be trained on.", no_args_is_help=True
)


@consent_app.command("set")
@command(by=True)
def set_consent(
    client: Client,
    consent: Annotated[Consent, typer.Argument(help="`unknown` revokes the previous decision.")],
    *,
    user: Annotated[str | None, typer.Option(metavar="U", help="All sessions of a user.")] = None,
    project: Annotated[
        str | None, typer.Option(metavar="P", help="All sessions of a project.")
    ] = None,
    session: Annotated[str | None, typer.Option(metavar="S", help="One session.")] = None,
    reason: Annotated[str, typer.Option(help="The reason, shown in the list.")] = "",
) -> Iterator[object]:
    """Decide whether data of a user, project or session may be trained on.

    The decision also covers stored data: `no_train` marks shards that hold it, and names
    checkpoints that learned from them. A single `no_train` of session, user or project outweighs
    any `train`.

    Example: penstock consent set no_train --user u-77 --reason "asked for on 12 May"
    """
    from penstock_jobs.shards.consents import DECIDE_CONSENT, DecideRequest

    given: dict[DecisionKind, str | None] = {"user": user, "project": project, "session": session}
    named = [(kind, value) for kind, value in given.items() if value is not None]
    if len(named) != 1 or not named[0][1]:
        why = "give exactly one of --user, --project, --session"
        raise InvalidInput(what="penstock consent set", why=why)
    kind, subject = named[0]
    question = DecideRequest(kind=kind, subject=subject, consent=consent, reason=reason)
    answer = client.call(DECIDE_CONSENT, question)
    yield answer
    say(f"{kind} {subject}: {consent} from now on")
    if consent == "no_train":
        _show_withdrawal(answer)


def _show_withdrawal(answer: "WithdrawalAnswer") -> None:
    say(f"{answer.sessions} stored sessions match; {len(answer.shards)} shards are marked")
    if not answer.shards:
        return
    rows: list[list[object]] = [
        [each.name, each.shard, each.sessions, ", ".join(each.checkpoints)]
        for each in answer.shards
    ]
    show_table(["name", "shard", "withdrawn sessions", "checkpoints that learned it"], rows)


@consent_app.command("list")
@command()
def list_consents(
    client: Client, limit: options.Limit = None, cursor: options.Cursor = None
) -> Iterator[object]:
    """List all decisions, including replaced ones, the newest last.

    Example: penstock consent list
    """
    from penstock_jobs.shards.consents import LIST_DECISIONS, DecisionsRequest

    page = client.call(LIST_DECISIONS, DecisionsRequest(limit=limit, cursor=cursor))
    say_next_page(page.next)
    yield page.decisions
    names = ("kind", "subject", "consent", "holds", "decided_at")
    show_rows(page.decisions, *names, decided_by="by", reason="reason")
