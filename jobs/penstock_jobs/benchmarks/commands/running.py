"""`penstock bench run`."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.events.tenants import TENANT_DEFAULT
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json
from penstock.terminal.progress import progress_of
from penstock_jobs.benchmarks.commands import options as options_of
from penstock_jobs.benchmarks.suite import TASK_BYTES_MAX

if TYPE_CHECKING:
    from penstock_jobs.benchmarks.running import Options

_Paths = list[Path]


@dataclass(frozen=True)
class Until:
    """Until the verdict by this channel's policy stands, or so many attempts at a task."""

    channel: str
    attempts_max: int | None


def run(
    suite: options_of.SuiteFolder,
    *,
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="NAME", help="A registered checkpoint.")
    ],
    agent: Annotated[
        str, typer.Option("--agent", metavar="CMD", help="The agent, as a shell runs it.")
    ],
    serving: Annotated[
        str | None,
        typer.Option("--serving", metavar="URL", help="Where the checkpoint is served."),
    ] = None,
    attempts: Annotated[
        int | None, typer.Option("--attempts", metavar="N", min=1, help="At each task.")
    ] = None,
    until_decided: Annotated[
        bool,
        typer.Option("--until-decided", help="Attempts until the gate's verdict stands."),
    ] = False,
    attempts_max: Annotated[
        int | None,
        typer.Option("--max-attempts", metavar="N", min=1, help="At a task, until decided."),
    ] = None,
    channel: Annotated[
        str, typer.Option("--channel", metavar="NAME", help="Whose policy decides.")
    ] = "production",
    tasks: Annotated[str, typer.Option("--tasks", metavar="A,B", help="Only these tasks.")] = "",
    pass_env: Annotated[
        list[str] | None,
        typer.Option("--pass-env", metavar="NAME", help="A variable that the agent gets too."),
    ] = None,
    hidden: Annotated[
        _Paths | None,
        typer.Option("--hidden", parser=options.path, metavar="PATH", help="Not to be seen."),
    ] = None,
    visible: Annotated[
        _Paths | None,
        typer.Option(
            "--visible", parser=options.path, metavar="PATH", help="To be read, also below /tmp."
        ),
    ] = None,
    no_isolation: options_of.NoIsolation = False,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Let an agent attempt each task of a suite with a checkpoint, and score what it leaves.

    Each attempt has a fresh copy of its task, no network but the serving address, and does not
    see the check. What is recorded is not run again: start it anew after an interruption.
    With --until-decided the channel's policy says when it is enough; its error stays as asked.

    Example: penstock bench run examples/suites/core --checkpoint ckpt-0013 --agent "my-agent"
    """
    from penstock_jobs.benchmarks.running import Options

    wanted = Options(
        agent=agent,
        serving=serving,
        attempts=attempts,
        tasks=tuple(one.strip() for one in tasks.split(",") if one.strip()),
        environment=_environment(pass_env or []),
        isolated=not no_isolation,
        hidden=tuple(str(path.absolute()) for path in hidden or []),
        visible=tuple(str(path.absolute()) for path in visible or []),
    )
    _refuse_mixed(until_decided, attempts_max, wanted)
    until = Until(channel, attempts_max) if until_decided else None
    _run(suite, checkpoint, wanted, until, data, tenant=tenant, json=json)


def _run(
    folder: Path,
    name: str,
    wanted: "Options",
    until: Until | None,
    data: Path | None,
    *,
    tenant: str,
    json: bool,
) -> None:
    from penstock.checkpoints.attempt import AttemptScope
    from penstock.checkpoints.registration import find
    from penstock.execution.opening import open_executor
    from penstock_jobs.benchmarks import running
    from penstock_jobs.benchmarks.commands.looking import known_of, show_summary
    from penstock_jobs.benchmarks.deciding import UntilDecided
    from penstock_jobs.benchmarks.suite import read_suite

    suite = read_suite(folder)
    with open_existing(data) as lake:
        checkpoint = find(lake.database, tenant, name).name
        choose = None
        if until is not None:
            running.register_suite(lake.database, tenant, suite, TASK_BYTES_MAX)
            place = AttemptScope(tenant, suite.name, suite.version, checkpoint)
            choose = UntilDecided(lake.database, place, until.channel, most=until.attempts_max)
        with (
            open_executor(lake.settings) as executor,
            progress_of("attempts") as follow,
        ):
            report = running.run(
                lake,
                executor,
                suite,
                checkpoint,
                wanted,
                tenant=tenant,
                choose=choose,
                follow=follow,
            )
        known = known_of(lake.database, report.place)
    if json:
        facts = {"run": report.run, "made": report.made, "known": report.known} | asdict(known)
        show_json(facts | ({"until": choose.ended.document} if choose else {}))
        return
    say(f"{report.made} attempts were made, {report.known} were known already.")
    if choose is not None:
        say(choose.ended.told)
    show_summary(known)


def _refuse_mixed(until_decided: bool, attempts_max: int | None, wanted: "Options") -> None:
    from penstock.errors import InvalidInput

    if not until_decided and attempts_max is not None:
        raise InvalidInput(what="--max-attempts", why="it goes with --until-decided")
    if until_decided and (wanted.attempts is not None or wanted.tasks):
        why = "the verdict is about all tasks, and says itself how many attempts are enough"
        raise InvalidInput(what="--attempts or --tasks with --until-decided", why=why)


def _environment(names: list[str]) -> dict[str, str]:
    from penstock.errors import InvalidInput

    for name in names:
        if name not in os.environ:
            raise InvalidInput(what=f"--pass-env {name}", why="there is no such variable here")
    return {name: os.environ[name] for name in names}
