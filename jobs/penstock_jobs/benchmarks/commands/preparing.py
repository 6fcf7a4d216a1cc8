"""`penstock bench lint | register`."""

import typer

from penstock.events.tenants import TENANT_DEFAULT
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table
from penstock.terminal.progress import progress_of
from penstock_jobs.benchmarks.commands import options as options_of
from penstock_jobs.benchmarks.suite import TASK_BYTES_MAX


def lint(
    suite: options_of.SuiteFolder,
    no_isolation: options_of.NoIsolation = False,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Whether a suite measures anything. Exit 1 when something is wrong with it.

    Each check is run on the untouched tree, which has to fail, and on the solution, which has to
    pass; where nothing is to be edited the untouched tree has to pass.

    Example: penstock bench lint examples/suites/core
    """
    from penstock.execution.opening import open_executor
    from penstock.settings import load_settings
    from penstock_jobs.benchmarks import lint as linting
    from penstock_jobs.benchmarks.suite import read_suite

    found = read_suite(suite)
    settings = load_settings(data)
    with (
        open_executor(settings) as executor,
        progress_of("tasks") as follow,
    ):
        findings = linting.lint(
            executor,
            found,
            settings,
            isolated=not no_isolation,
            follow=follow,
        )
    if json:
        show_json({"suite": found.name, "version": found.version, "findings": findings})
    else:
        show_table(["task", "problem"], [[one.task, one.problem] for one in findings])
        say(f"{found.name} ({found.version}): {len(found.tasks)} tasks, {len(findings)} problems")
    if findings:
        raise typer.Exit(1)


def register(
    suite: options_of.SuiteFolder,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Make a suite known without running it: shards leave out what its tasks hold.

    Example: penstock bench register examples/suites/core
    """
    from penstock_jobs.benchmarks.running import register_suite
    from penstock_jobs.benchmarks.suite import read_suite

    found = read_suite(suite)
    with open_existing(data) as lake:
        bytes_max = TASK_BYTES_MAX
        new = register_suite(lake.database, tenant, found, bytes_max)
    if json:
        show_json({"suite": found.name, "version": found.version, "new": new})
    else:
        say(f"{found.name} ({found.version}): {'registered' if new else 'known already'}")
