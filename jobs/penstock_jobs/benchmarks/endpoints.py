"""The endpoints of benchmark results."""

import msgspec

from penstock.core.endpoint import (
    Caller,
    Endpoint,
    ListRequest,
    Page,
    Request,
    encode_cursor,
    page_of,
)
from penstock.core.room import Endpoints
from penstock.core.settings import MIB
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.suites import SettledTask, settled_tasks
from penstock_jobs.benchmarks.result_import import ImportReport, ImportRequest, take_results
from penstock_jobs.benchmarks.suite import VARIANT_MARK
from penstock_jobs.benchmarks.summary import (
    CheckpointComparison,
    CheckpointResults,
    compare_checkpoints,
    results_of,
    version_advice,
    with_frontier,
)

_BODY_BYTES_MAX = 16 * MIB


class ResultsAnswer(Page):
    """Results of a suite and its variants by checkpoint, in the order of the first attempts.

    `advice` names scores of suite versions that no longer count, and `settled` tasks that no
    longer tell checkpoints apart."""

    results: list[CheckpointResults]
    advice: str | None
    settled: list[SettledTask]


class ImportAnswer(msgspec.Struct):
    report: ImportReport
    advice: str | None


class ResultsRequest(ListRequest, kw_only=True):
    """Results of one checkpoint or all; by default of the newest version that each attempted."""

    suite: str
    checkpoint: str | None = None
    suite_version: str | None = None


class ComparisonRequest(Request):
    suite: str
    before: str
    after: str


def _show(lake: Lake, caller: Caller, request: ResultsRequest) -> ResultsAnswer:
    from penstock.registry.checkpoints.attempts import (
        checkpoints_tried,
        variants_tried,
        versions_tried,
    )
    from penstock.registry.checkpoints.journal import AttemptScope

    database, tenant, suite = lake.database, caller.tenant, request.suite
    one = request.checkpoint
    scopes = []
    for tried in variants_tried(database, tenant, suite, VARIANT_MARK):
        for name in [one] if one else checkpoints_tried(database, tenant, tried):
            wanted = [request.suite_version] if request.suite_version is not None else None
            versions = wanted or versions_tried(database, tenant, tried, name)[-1:]
            scopes += [AttemptScope(tenant, tried, version, name) for version in versions]
    place = lambda scope: encode_cursor(scope.suite, scope.checkpoint, scope.suite_version)  # noqa: E731
    page, after = page_of(scopes, request, place)
    results = with_frontier([results_of(database, scope) for scope in page])
    known = [result for result in results if result.summary.scored or result.summary.errors]
    advice = version_advice(database, tenant, suite)
    return ResultsAnswer(known, advice, settled_tasks(database, tenant, suite), next=after)


def _compare(lake: Lake, caller: Caller, request: ComparisonRequest) -> CheckpointComparison:
    names = request.suite, request.before, request.after
    return compare_checkpoints(lake.database, caller.tenant, *names)


def _import(lake: Lake, caller: Caller, request: ImportRequest) -> ImportAnswer:
    report = take_results(lake.database, caller.tenant, request)
    return ImportAnswer(report, version_advice(lake.database, caller.tenant, request.suite))


SHOW_RESULTS = Endpoint(
    "GET /v1/suites/{suite}/results",
    _show,
    ("read", "promote"),
    "Scores of checkpoints on a suite",
    reads_rows=True,
)
COMPARE_RESULTS = Endpoint(
    "GET /v1/suites/{suite}/comparison",
    _compare,
    ("read", "promote"),
    "Two checkpoints compared on a suite, task by task",
    reads_rows=True,
)
IMPORT_RESULTS = Endpoint(
    "POST /v1/suites/{suite}/results",
    _import,
    ("promote",),
    "Import results of another harness; importing them again adds nothing",
    audited_as="result",
    refused={
        404: "There is no such checkpoint.",
        409: "A different result is recorded for one of these attempts. Nothing was imported.",
    },
    body_bytes_max=_BODY_BYTES_MAX,
)

ENDPOINTS: Endpoints = [SHOW_RESULTS, COMPARE_RESULTS, IMPORT_RESULTS]
