"""What can be asked of consent: to decide on somebody's, and what was decided."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.events.event import Consent, Id
from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake
from penstock.lake.pages import ListQuestion, Page, page_of
from penstock.privacy.consents import NO_TRAIN, DecisionKind
from penstock.terminal.output import facts
from penstock_jobs.shards.withdrawal import WithdrawnShard


class DecisionAnswer(msgspec.Struct, kw_only=True):
    """A decision; `holds` is false where a later one of the same subject took its place."""

    id: int
    tenant: str
    kind: DecisionKind
    subject: str
    consent: Consent
    reason: str
    decided_by: str
    decided_at: str
    holds: bool = True


class DecisionsAnswer(Page):
    """The newest comes last."""

    decisions: list[DecisionAnswer]


class WithdrawalAnswer(DecisionAnswer, kw_only=True):
    """`sessions` in the lake name the subject; `shards` are those that are marked by it, with the
    checkpoints that learned from them."""

    sessions: int = 0
    shards: list[WithdrawnShard] = []  # msgspec copies it


class DecisionsQuestion(ListQuestion):
    """All that were ever made."""


class DecideQuestion(Question):
    """Holds from now on; `unknown` takes the decision before back."""

    kind: DecisionKind
    subject: Id
    consent: Consent
    reason: Annotated[str, Meta(max_length=2_000)] = ""


def _list(lake: Lake, caller: Caller, question: DecisionsQuestion) -> DecisionsAnswer:
    from penstock.privacy.consents import list_decisions

    decisions = list_decisions(lake.database, caller.tenant)
    newest = {(each.kind, each.subject): each.id for each in decisions}
    page, after = page_of(decisions, question, lambda each: str(each.id))
    answers = [
        msgspec.convert(
            facts(each) | {"holds": newest[each.kind, each.subject] == each.id}, DecisionAnswer
        )
        for each in page
    ]
    return DecisionsAnswer(answers, next=after)


def _decide(lake: Lake, caller: Caller, question: DecideQuestion) -> WithdrawalAnswer:
    from penstock.privacy.consents import decide_consent
    from penstock_jobs.shards.withdrawal import take_back, withdraw

    subject = question.kind, question.subject
    decision = decide_consent(
        lake.database,
        caller.tenant,
        *subject,
        question.consent,
        reason=question.reason,
        by=caller.actor,
    )
    answer = msgspec.convert(facts(decision), WithdrawalAnswer)
    if question.consent == NO_TRAIN:
        withdrawal = withdraw(lake, caller.tenant, *subject)
        answer.sessions, answer.shards = withdrawal.sessions, withdrawal.shards
    else:
        take_back(lake, caller.tenant)
    return answer


LIST_DECISIONS = Call(
    path="/v1/consents",
    question=DecisionsQuestion,
    answer=DecisionsAnswer,
    work=_list,
    roles=("read",),
    summary="What was decided on the consent of users, projects and sessions",
)
DECIDE_CONSENT = Call(
    method="POST",
    path="/v1/consents",
    question=DecideQuestion,
    answer=WithdrawalAnswer,
    work=_decide,
    roles=(),
    summary="Decide whether what a user, a project or a session sends may be trained on",
    reads_rows=True,
)

CALLS = [LIST_DECISIONS, DECIDE_CONSENT]
