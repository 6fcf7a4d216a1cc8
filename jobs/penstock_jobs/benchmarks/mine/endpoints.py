"""The endpoints of proposals, for the command and the console."""

import msgspec

from penstock.core.endpoint import Caller, Endpoint, ListRequest, Page, Request, page_of
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock_jobs.benchmarks.mine.proposals import (
    JudgementRequest,
    Proposal,
    files_of,
    find_proposal,
    judge,
    proposals_of,
)


class ProposalsRequest(ListRequest, kw_only=True):
    suite: str


class ProposalsAnswer(Page):
    proposals: list[Proposal]


class ProposalRequest(Request):
    suite: str
    task: str


class ProposalAnswer(msgspec.Struct):
    """A proposal, its solution as a diff, and what its check said of both trees. What a rule left
    out has none of these."""

    proposal: Proposal
    solution: str = ""
    untouched: str = ""
    settled: str = ""


def _list(lake: Lake, caller: Caller, request: ProposalsRequest) -> ProposalsAnswer:
    known = proposals_of(lake.database, caller.tenant, request.suite)
    page, after = page_of(known, request, lambda proposal: proposal.task)
    return ProposalsAnswer([*page], next=after)


def _show(lake: Lake, caller: Caller, request: ProposalRequest) -> ProposalAnswer:
    place = caller.tenant, request.suite, request.task
    known = find_proposal(lake.database, *place)
    if known.state == "left_out":
        return ProposalAnswer(known)
    kept = files_of(lake, *place)
    solution = "".join(diff.text for diff in kept.change.source)
    return ProposalAnswer(known, solution, kept.before, kept.after)


def _judge(lake: Lake, caller: Caller, request: JudgementRequest) -> ProposalAnswer:
    judge(lake, caller, request)
    return _show(lake, caller, ProposalRequest(suite=request.suite, task=request.task))


LIST_PROPOSALS = Endpoint(
    "GET /v1/suites/{suite}/proposals",
    _list,
    ("read", "promote"),
    "Tasks that were mined for a suite",
    reads_rows=True,
)
SHOW_PROPOSAL = Endpoint(
    "GET /v1/suites/{suite}/proposals/{task}",
    _show,
    ("read", "promote"),
    "A mined task: its prompt, its solution, and what its check says",
    reads_rows=True,
)
JUDGE_PROPOSAL = Endpoint(
    "POST /v1/suites/{suite}/proposals/{task}",
    _judge,
    ("promote",),
    "Take, refuse or mend a mined task",
    audited_as="result",
)
ENDPOINTS: Endpoints = [LIST_PROPOSALS, SHOW_PROPOSAL, JUDGE_PROPOSAL]
