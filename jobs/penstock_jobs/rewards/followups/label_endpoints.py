"""Endpoints of labels: the next message to label, a label, undo, and corrected rates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, get_args

import msgspec
from msgspec import Meta

from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock_jobs.rewards.due_sessions import definition_known_as
from penstock_jobs.rewards.followups.dissatisfaction import Dissatisfaction, dissatisfaction
from penstock_jobs.rewards.followups.judge import Label, Tests
from penstock_jobs.rewards.followups.labels import (
    UNCLEAR,
    JudgedFollowUps,
    LabelRepeats,
    MessagePlace,
    StoredLabel,
    add_label,
    by_people,
    current_labels,
    digest_of,
    people_first,
    read_follow_ups,
)
from penstock_jobs.rewards.followups.questions import follow_up_at, kept_frame, next_questions


class NothingToUndo(PenstockError, exit_status=2, http_status=404):
    """No label by {by} counts, so nothing was undone."""


class AlreadyLabelled(PenstockError, exit_status=2, http_status=409):
    """{by} has already labelled this message as {label}. Nothing was changed; ask for the next
    message."""


class MessageUnknown(PenstockError, exit_status=2, http_status=404):
    """The message of turn {turn} of session {session!r} is gone, or has other words. Ask for the
    next message."""


#: What each label says the user did. From `incomplete` on, the work was not what was asked.
ANSWERS: Mapping[str, str] = {
    "moves_on": "wants the next thing",
    "accepts": "thanks, confirms, commits, answers; wants nothing new",
    "refines": "wishes something more or different; nothing was wrong",
    "asks": "wants to know something",
    "abandons": "drops it: no longer needed, given up, or done by hand",
    "incomplete": "misses a part, or asks for the same again",
    "corrects": "says that it is not what was asked",
    "reports_failure": "says that it does not work",
    "reverts": "wants it undone, or undid it",
    "complains": "is displeased; sarcasm too",
    UNCLEAR: "nobody can tell",
}
#: The keys of the answers, in the terminal and in the console.
KEYS: Mapping[str, str] = dict(zip("myradicfvxn", ANSWERS, strict=True))

#: The most missing messages that one answer skips.
_GONE_MAX = 20


class NextLabelRequest(Request):
    """The next unlabelled message: drawn at random, or what a drawn one needs to be decided."""

    definition: str = "default"
    checkpoint: str | None = None


class OpenMessage(msgspec.Struct):
    """A message without a label. A label repeats its `message`, `until_us`, `drawn` and `again`.

    `again` asks for a second label of a message, which tells how sure labels are.
    `message` is the digest of the text, `until_us` the end of the newest session in the draw."""

    session_id: str
    turn: int
    message: str
    drawn: bool
    again: bool
    until_us: int
    judged: float | None
    checkpoint: str | None
    text: str
    agent: str
    previous: str
    edited: bool
    tests: Tests | None


class NextLabel(msgspec.Struct):
    """The next message. `open` counts messages without a label of a person, `labelled` others."""

    definition: str
    version: str
    next: OpenMessage | None
    open: int
    labelled: int


def _next(lake: Lake, caller: Caller, request: NextLabelRequest) -> NextLabel:
    known = definition_known_as(lake.database, request.definition)
    labels = by_people(current_labels(lake.database, caller.tenant))
    places = frozenset(label.place for label in labels)
    frame = kept_frame(lake, known.version, caller.tenant, request.checkpoint, labels)
    again = current_labels(lake.database, caller.tenant, again=True)
    found = None
    for asked in islice(next_questions(frame, labels, again), _GONE_MAX):
        if (follow_up := follow_up_at(lake, caller.tenant, asked.place)) is not None:
            message = follow_up.message
            found = OpenMessage(
                *asked.place,
                message=digest_of(message),
                drawn=asked.drawn,
                again=asked.again,
                until_us=frame.until_us,
                judged=None if asked.again else asked.judged,
                checkpoint=asked.checkpoint,
                text=message.text,
                agent=message.agent,
                previous=message.previous,
                edited=message.edited,
                tests=message.tests,
            )
            break
    return NextLabel(known.name, known.version, found, *frame.counts(places))


class LabelOrder(Request):
    """A label of the message from `GET /v1/labels/next`; `unclear` if nobody can tell."""

    session_id: str
    turn: int
    message: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    drawn: bool
    until_us: Annotated[int, Meta(ge=0, lt=2**62)]
    label: str
    definition: str = "default"
    again: bool = False


class GivenAnswer(msgspec.Struct):
    """A stored label; null after an undo."""

    session_id: str
    turn: int
    message: str
    label: str | None
    by: str


def _label(lake: Lake, caller: Caller, order: LabelOrder) -> GivenAnswer:
    known = definition_known_as(lake.database, order.definition)
    labels = (*get_args(Label), UNCLEAR)
    label = next((each for each in labels if each == order.label), None)
    if label is None:
        why = f"use one of {', '.join(labels)}"
        raise InvalidInput(what=f"The label {order.label[:100]!r}", why=why)
    place = MessagePlace(order.session_id, order.turn)
    follow_up = follow_up_at(lake, caller.tenant, place)
    if follow_up is None or digest_of(follow_up.message) != order.message:
        raise MessageUnknown(session=order.session_id, turn=order.turn)
    of_session = lake.database, caller.tenant, [order.session_id]
    for given in by_people(current_labels(*of_session, again=order.again)):
        if (given.place, given.message) == (place, order.message):
            raise AlreadyLabelled(by=given.by, label=given.label or "")
    stored = StoredLabel(
        *place,
        order.message,
        label,
        order.drawn,
        order.until_us,
        by=caller.actor,
        is_model=False,
        again=order.again,
    )
    add_label(lake.database, caller.tenant, stored, known.version)
    return GivenAnswer(*place, order.message, label, caller.actor)


class UndoRequest(Request):
    """Undo the newest label of the caller that counts."""

    definition: str = "default"


def _undo(lake: Lake, caller: Caller, request: UndoRequest) -> GivenAnswer:
    known = definition_known_as(lake.database, request.definition)
    own = [
        label
        for again in (False, True)
        for label in by_people(current_labels(lake.database, caller.tenant, again=again))
        if label.by == caller.actor
    ]
    if not own:
        raise NothingToUndo(by=caller.actor)
    newest = max(own, key=lambda label: label.at)
    taken_back = newest._replace(label=None)
    add_label(lake.database, caller.tenant, taken_back, known.version)
    return GivenAnswer(*newest.place, newest.message, None, caller.actor)


class CheckpointLabels(msgspec.Struct):
    """The rate of requests that left users dissatisfied, with a 95 % interval, by checkpoint; of
    sessions of several or none where `checkpoint` is null.

    `labels` are of messages, and `drawn` counts drawn requests that they decide. `value`, `low` and
    `high` are null while there are too few. `truth_by` says whose labels count, `later` how many
    sessions are newer than the draw."""

    checkpoint: str | None
    sessions: int
    judged: float
    value: float | None
    low: float | None
    high: float | None
    labels: int
    drawn: int
    truth_by: str
    later: int


def effect_by_checkpoint(
    follow_ups: JudgedFollowUps, labels: Sequence[StoredLabel], repeats: LabelRepeats
) -> list[CheckpointLabels]:
    groups = follow_ups.by_checkpoint()
    found = dissatisfaction(groups, labels, repeats) if groups else {}
    newest = {name: own.column("first_us").max() for name, own in groups.items()}
    order = sorted(found, key=lambda name: (name is None, -newest[name]))
    return [_of_checkpoint(name, found[name]) for name in order]


def _of_checkpoint(name: str | None, found: Dissatisfaction) -> CheckpointLabels:
    low, high = interval = found.interval() or (None, None)
    return CheckpointLabels(
        name,
        len(found.sessions),
        found.rate.judged,
        found.rate.value if any(interval) else None,
        low,
        high,
        found.labels,
        found.rate.requests,
        found.truth_by,
        found.later,
    )


class EffectRequest(Request):
    definition: str = "default"


class LabelEffect(msgspec.Struct):
    """Effects of labels, and how often each label was given."""

    definition: str
    version: str
    labels: dict[str, int]
    checkpoints: list[CheckpointLabels]


def _effect(lake: Lake, caller: Caller, request: EffectRequest) -> LabelEffect:
    known = definition_known_as(lake.database, request.definition)
    follow_ups = read_follow_ups(lake, known.version, caller.tenant)
    labels = current_labels(lake.database, caller.tenant)
    again = current_labels(lake.database, caller.tenant, again=True)
    repeats = LabelRepeats.of(labels, again)
    places = follow_ups.numbers_of({label.place for label in labels})
    own = [label for label in people_first(labels) if label.place in places]
    return LabelEffect(
        definition=known.name,
        version=known.version,
        labels=dict(Counter(str(label.label) for label in own).most_common()),
        checkpoints=effect_by_checkpoint(follow_ups, labels, repeats),
    )


NEXT_LABEL = Endpoint(
    "GET /v1/labels/next", _next, ("read",), "The next message to label", reads_rows=True
)
LABEL = Endpoint(
    "POST /v1/labels",
    _label,
    (),
    "Label a message",
    refused={404: "The message is gone.", 409: "Somebody has already labelled it."},
    reads_rows=True,
)
UNDO = Endpoint(
    "POST /v1/labels/undo",
    _undo,
    (),
    "Undo the newest label of the caller",
    refused={404: "No label of the caller counts."},
)
LABEL_RATES = Endpoint(
    "GET /v1/labels/rates",
    _effect,
    ("read",),
    "The judge's rates, corrected by labels, with intervals",
    reads_rows=True,
)

ENDPOINTS: Endpoints = [NEXT_LABEL, LABEL, UNDO, LABEL_RATES]
