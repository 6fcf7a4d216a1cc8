"""What can be asked of the results of benchmarks."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.checkpoints.attempts import Attempt
from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake
from penstock.lake.pages import ListQuestion, Page, encode_cursor, page_of
from penstock.settings import MIB
from penstock_jobs.benchmarks.importers.trials import ImportProblem
from penstock_jobs.benchmarks.result_import import ImportReport, ReadResults, take_results
from penstock_jobs.benchmarks.summary import (
    CheckpointComparison,
    CheckpointResults,
    compare_checkpoints,
    results_of,
    version_advice,
)

_BODY_BYTES_MAX = 16 * MIB
_NUMBER_MAX = 2**31 - 1


class ResultsAnswer(Page):
    """`advice` says which scores are of versions that do not count any more."""

    results: list[CheckpointResults]
    advice: str | None


class ImportAnswer(msgspec.Struct):
    report: ImportReport
    advice: str | None


class ResultsQuestion(ListQuestion, kw_only=True):
    """Of all checkpoints, or of one; at the newest version that each was tried at, or at one."""

    suite: str
    checkpoint: str | None = None
    suite_version: str | None = None


class ComparisonQuestion(Question):
    suite: str
    before: str
    after: str


class ImportQuestion(Question):
    """Attempts that a harness made, as `penstock bench import` reads them: `format` is its name,
    `source` where they were read, `places` where the result of each attempt stands there."""

    suite: str
    checkpoint: str
    format: str
    source: str
    attempts: list[Attempt]
    places: list[str]
    problems: list[ImportProblem] = []  # noqa: RUF012  # msgspec copies it
    suite_version: str | None = None
    first_attempt: Annotated[int, Meta(ge=0, le=_NUMBER_MAX)] = 0
    dry_run: bool = False


def _show(lake: Lake, caller: Caller, question: ResultsQuestion) -> ResultsAnswer:
    from penstock.checkpoints.attempts import AttemptScope, checkpoints_tried, versions_tried

    database, tenant, suite = lake.database, caller.tenant, question.suite
    one = question.checkpoint
    scopes = []
    for name in [one] if one else checkpoints_tried(database, tenant, suite):
        wanted = [question.suite_version] if question.suite_version is not None else None
        versions = wanted or versions_tried(database, tenant, suite, name)[-1:]
        scopes += [AttemptScope(tenant, suite, version, name) for version in versions]
    place = lambda scope: encode_cursor(scope.checkpoint, scope.suite_version)  # noqa: E731
    page, after = page_of(scopes, question, place)
    results = [results_of(database, scope) for scope in page]
    known = [result for result in results if result.summary.scored or result.summary.errors]
    return ResultsAnswer(known, version_advice(database, tenant, suite), next=after)


def _compare(lake: Lake, caller: Caller, question: ComparisonQuestion) -> CheckpointComparison:
    names = question.suite, question.before, question.after
    return compare_checkpoints(lake.database, caller.tenant, *names)


def _import(lake: Lake, caller: Caller, question: ImportQuestion) -> ImportAnswer:
    results = ReadResults(
        format=question.format,
        source=question.source,
        attempts=question.attempts,
        places=question.places,
        problems=question.problems,
    )
    report = take_results(
        lake.database,
        results,
        tenant=caller.tenant,
        suite=question.suite,
        checkpoint=question.checkpoint,
        suite_version=question.suite_version,
        first_attempt=question.first_attempt,
        dry_run=question.dry_run,
    )
    return ImportAnswer(report, version_advice(lake.database, caller.tenant, question.suite))


SHOW_RESULTS = Call(
    path="/v1/suites/{suite}/results",
    question=ResultsQuestion,
    answer=ResultsAnswer,
    work=_show,
    roles=("read", "promote"),
    summary="What checkpoints scored at a suite",
    reads_rows=True,
)
COMPARE_RESULTS = Call(
    path="/v1/suites/{suite}/comparison",
    question=ComparisonQuestion,
    answer=CheckpointComparison,
    work=_compare,
    roles=("read", "promote"),
    summary="Two checkpoints at a suite, paired by task",
    reads_rows=True,
)
IMPORT_RESULTS = Call(
    method="POST",
    path="/v1/suites/{suite}/results",
    question=ImportQuestion,
    answer=ImportAnswer,
    work=_import,
    noted="result",
    roles=("promote",),
    summary="Take results that another harness made; a second time adds nothing",
    refused={
        404: "There is no such checkpoint.",
        409: "Another result is recorded for one of these attempts. Nothing was taken.",
    },
    body_bytes_max=_BODY_BYTES_MAX,
)

CALLS = [SHOW_RESULTS, COMPARE_RESULTS, IMPORT_RESULTS]
