"""Labels that people and language models gave to messages, and judged follow-ups in columns.

Labels are append-only. If a late event moves turns, a label is found again by the digest of its
message. Follow-ups are in columns, since a lake has millions of them."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from numpy.typing import NDArray

from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import Deed, person_digest
from penstock.backends.database.engine import Database, insert_of, now_us, portions
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock_jobs.rewards.followups.judge import DISSATISFIED, THRESHOLD, Label, Message
from penstock_jobs.rewards.rows import encoded, sql_of
from penstock_jobs.rewards.tables import follow_up_label, reward_due

#: The labeller could not tell.
UNCLEAR: Literal["unclear"] = "unclear"
GivenLabel = Label | Literal["unclear"]
#: Labels that judge no work, and the label with which a request begins and the last one ends.
NEUTRAL: frozenset[GivenLabel] = frozenset({"asks", "refines", "abandons"})
BEGINS: Label = "moves_on"
Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class MessagePlace(NamedTuple):
    session_id: str
    turn: int


class StoredLabel(NamedTuple):
    """A label as stored; None after an undo."""

    session_id: str
    turn: int
    message: str
    label: GivenLabel | None
    drawn: bool
    until_us: int
    by: str
    is_model: bool
    at: int = 0
    again: bool = False

    @property
    def place(self) -> MessagePlace:
        return MessagePlace(self.session_id, self.turn)

    @property
    def truth(self) -> float | None:
        """Return 1 if the user was dissatisfied, 0.5 for unclear."""
        if self.label is None:
            return None
        return 0.5 if self.label == UNCLEAR else float(self.label in DISSATISFIED)

    def judges(self, *, answers: bool) -> bool:
        """Whether it says anything of the work. `answers`: the agent had asked."""
        return self.label not in NEUTRAL and not (answers and self.label == "accepts")


_COLUMNS = [follow_up_label.c[name] for name in StoredLabel._fields]


@dataclass(frozen=True)
class SessionLabels:
    by_message: Mapping[tuple[str, str], Sequence[StoredLabel]] = field(default_factory=dict)

    @classmethod
    def of(cls, labels: Iterable[StoredLabel]) -> "SessionLabels":
        by_message: dict[tuple[str, str], list[StoredLabel]] = {}
        for label in labels:
            by_message.setdefault((label.session_id, label.message), []).append(label)
        return cls(by_message)

    def of_message(self, place: MessagePlace, message: Message) -> StoredLabel | None:
        """Find the label of a message; of equal messages, the one of the nearest turn."""
        same = self.by_message.get((place.session_id, digest_of(message)), ())
        return min(same, key=lambda label: abs(label.turn - place.turn), default=None)


def digest_of(message: Message) -> str:
    return hashlib.sha256(message.text.encode(errors="surrogatepass")).hexdigest()


def draw(tenant: str, place: MessagePlace) -> float:
    """Return the random place of a message, from 0 to below 1. It never changes."""
    facts = f"{tenant}\0{place.session_id}\0{place.turn}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.sha256(facts).digest()[:7]) / 2.0**56


def add_label(database: Database, tenant: str, label: StoredLabel, version: str) -> None:
    """Store a label, at the database's time.

    The session becomes due again by this version of a definition: the label may decide what the
    judge could not."""
    facts = {**label._asdict(), "tenant": tenant, "at": now_us()}
    keys = {"definition_version": version, "tenant": tenant, "session_id": label.session_id}
    with database.write() as connection:
        connection.execute(sa.insert(follow_up_label).values(facts))
        due = insert_of(connection)(reward_due).values(**keys, due_at=0, computed_at=0)
        due = due.on_conflict_do_update(index_elements=[*keys], set_={"due_at": 0})
        connection.execute(due)
        if not label.is_model:
            subject = person_digest(tenant, "session", label.session_id)
            append(connection, Deed(tenant, label.by, "label", subject))


def current_labels(
    database: Database, tenant: str, sessions: Sequence[str] | None = None, *, again: bool = False
) -> list[StoredLabel]:
    """Return each message's newest label by a person and by a model, in order of storage.

    With `again`, the second labels of messages that were asked twice."""
    columns = follow_up_label.c
    own = columns.tenant == tenant, columns.again == again
    query = sa.select(*_COLUMNS).where(*own).order_by(columns.id)
    queries = [query]
    if sessions is not None:
        queries = [query.where(columns.session_id.in_(some)) for some in portions(sessions)]
    with database.read() as connection:
        rows = [StoredLabel(*row) for query in queries for row in connection.execute(query)]
    newest = {(*label.place, label.message, label.is_model): label for label in rows}
    return [label for label in newest.values() if label.label is not None]


def labels_of(database: Database, tenant: str, sessions: Sequence[str]) -> SessionLabels:
    return SessionLabels.of(people_first(current_labels(database, tenant, sessions)))


class LabelRepeats(NamedTuple):
    """Counts of messages that people labelled twice, and of those where the two differ."""

    asked: int
    differing: int

    @classmethod
    def of(cls, first: Iterable[StoredLabel], second: Iterable[StoredLabel]) -> "LabelRepeats":
        truths = {(label.place, label.message): label.truth for label in by_people(first)}
        pairs = [
            (truths[key], label.truth)
            for label in second
            if (key := (label.place, label.message)) in truths
        ]
        return cls(len(pairs), sum(one != other for one, other in pairs))


def by_people(labels: Iterable[StoredLabel]) -> list[StoredLabel]:
    return [label for label in labels if not label.is_model]


def people_first(labels: Iterable[StoredLabel]) -> list[StoredLabel]:
    chosen: dict[tuple[str, int, str], StoredLabel] = {}
    for label in sorted(labels, key=lambda label: not label.is_model):
        chosen[(*label.place, label.message)] = label
    return list(chosen.values())


_BATCH_ROWS = 1_000


class JudgedFollowUp(NamedTuple):
    session_id: str
    turn: int
    judged: float
    checkpoint: str | None
    first_us: int
    last_us: int
    #: The judge's; None where the user stopped, which nobody needs to judge.
    label: Label | None
    #: The agent had closed with a question: `accepts` is an answer then.
    answers: bool
    chain: str

    @property
    def place(self) -> MessagePlace:
        return MessagePlace(self.session_id, self.turn)


class EndedRequests(NamedTuple):
    """Counts of requests that end with each message, and of those that left users dissatisfied.

    A request ends with the message that moves on, or with the last one of its conversation."""

    total: Values
    dissatisfied: Values

    def beyond(self, rate: float) -> Values:
        """Count dissatisfied ones beyond a rate."""
        return self.dissatisfied - rate * self.total


def ended_requests(lasts: Flags, begins: Flags, verdicts: Values) -> EndedRequests:
    """Find requests where all messages are known. Neutral messages have the verdict −1."""
    ends, total, dissatisfied = lasts | begins, np.zeros(lasts.size), np.zeros(lasts.size)
    if lasts.size:
        starts = np.append(0, np.flatnonzero(ends)[:-1] + 1)
        worst = np.maximum.reduceat(verdicts, starts)
        total[ends], dissatisfied[ends] = worst >= 0, np.maximum(worst, 0)
    return EndedRequests(total, dissatisfied)


@dataclass(frozen=True, eq=False)
class LabelledRequests:
    """Requests as labels tell them; nan where labels do not decide them yet."""

    ended: EndedRequests
    #: How many labels it took, and the number of the message to label next, or −1.
    read: Values
    missing: Numbers


@dataclass(frozen=True, eq=False)
class JudgedFollowUps:
    """Messages and stops, conversation by conversation."""

    rows: pa.Table

    @classmethod
    def of(cls, tenant: str, follow_ups: Iterable[JudgedFollowUp]) -> "JudgedFollowUps":
        rows = [each._asdict() | {"drawn_at": draw(tenant, each.place)} for each in follow_ups]
        return cls(pa.Table.from_pylist(rows))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __iter__(self) -> Iterator[JudgedFollowUp]:
        for batch in self.rows.select(JudgedFollowUp._fields).to_batches(_BATCH_ROWS):
            yield from map(JudgedFollowUp, *batch.to_pydict().values())

    def taken(self, numbers: Numbers) -> "JudgedFollowUps":
        return JudgedFollowUps(self.rows.take(pa.array(numbers)))

    def where(self, holds: pa.ChunkedArray) -> "JudgedFollowUps":
        return JudgedFollowUps(self.rows.filter(holds))

    def of_checkpoint(self, checkpoint: str) -> "JudgedFollowUps":
        return self.where(pc.equal(self.rows["checkpoint"], checkpoint))

    def of_sessions(self, sessions: Iterable[str]) -> "JudgedFollowUps":
        names = pa.array(sessions, pa.string())
        return self.where(pc.is_in(self.rows["session_id"], value_set=names))

    def by_checkpoint(self) -> dict[str | None, "JudgedFollowUps"]:
        codes, names = encoded(self.rows["checkpoint"])
        rows = self.rows.take(pa.array(np.argsort(codes, kind="stable")))
        counts = np.bincount(codes, minlength=len(names))
        starts = np.cumsum(counts) - counts
        return {
            name: JudgedFollowUps(rows.slice(start, count))
            for name, start, count in zip(
                names.to_pylist(), starts.tolist(), counts.tolist(), strict=True
            )
        }

    def lasts(self) -> Flags:
        """Mark the last row of each conversation."""
        codes, _ = encoded(self.rows["chain"])
        return np.append(codes[1:] != codes[:-1], True)[: len(codes)]

    def stops(self) -> Flags:
        stops: Flags = pc.is_null(self.rows["label"]).to_numpy()
        return stops

    def judged_requests(self) -> EndedRequests:
        """Return what the judge alone says of requests. Each has its worst verdict."""
        judged, label = self.column("judged"), self.column("label")
        mild = judged < THRESHOLD
        answered = (label == "accepts") & self.column("answers").astype(bool)
        neutral = mild & (np.isin(label, [*NEUTRAL]) | answered)
        verdicts = np.where(neutral, -1.0, judged)
        return ended_requests(self.lasts(), mild & (label == BEGINS), verdicts)

    def labelled_requests(self, labels: Mapping[MessagePlace, StoredLabel]) -> LabelledRequests:
        """Read labels from each message back to where its request began, or its user complained."""
        given = {number: labels[at] for at, number in self.numbers_of(labels.keys()).items()}
        lasts, answers, stops = self.lasts(), self.column("answers"), self.stops()
        count, dissatisfied = (np.where(stops, 1.0, np.nan) for _ in range(2))
        read, missing = np.zeros(len(self)), np.where(stops, -1, np.arange(len(self)))
        for number, label in given.items():
            judged, worst, missing[number] = 0.0, 0.0, -1
            ends = label.label == BEGINS or lasts[number]
            for at in range(number, -1 if ends else number, -1):
                if worst == 1 or (at < number and lasts[at]):
                    break
                if (own := given.get(at)) is None:
                    missing[number], judged, worst = at, np.nan, np.nan
                    break
                read[number] += 1
                if at < number and own.label == BEGINS:
                    break
                if own.judges(answers=answers[at]):
                    judged, worst = 1.0, max(worst, own.truth or 0.0)
            count[number], dissatisfied[number] = judged, worst
        return LabelledRequests(EndedRequests(count, dissatisfied), read, missing)

    def undecided(self, labels: Mapping[MessagePlace, StoredLabel]) -> tuple[Numbers, Numbers]:
        """Return undecided messages in the order of the draw, and what to label next for each."""
        missing = self.labelled_requests(labels).missing
        order = np.argsort(self.column("drawn_at"), kind="stable")
        order = order[missing[order] >= 0]
        return order, missing[order]

    def conversations_of(self, numbers: Numbers) -> "JudgedFollowUps":
        chains = self.rows["chain"].take(pa.array(numbers))
        return self.where(pc.is_in(self.rows["chain"], value_set=chains.combine_chunks()))

    def numbers_of(self, places: Collection[MessagePlace]) -> dict[MessagePlace, int]:
        if not places:
            return {}
        sessions = pa.array({place.session_id for place in places}, pa.string())
        held = pc.is_in(self.rows["session_id"], value_set=sessions)
        numbers = np.flatnonzero(held.to_numpy())
        near = self.rows.select(["session_id", "turn"]).take(pa.array(numbers)).to_pydict()
        wanted = set(places)
        return {
            place: number
            for place, number in zip(
                map(MessagePlace, *near.values()), numbers.tolist(), strict=True
            )
            if place in wanted
        }

    def column(self, name: str) -> Values:
        values: Values = self.rows[name].to_numpy()
        return values

    def sessions(self) -> tuple[NDArray[np.int64], pa.Array]:
        return encoded(self.rows["session_id"])


def read_follow_ups(
    lake: Lake,
    version: str,
    tenant: str,
    *,
    since_us: int | None = None,
    computed_us: int | None = None,
) -> JudgedFollowUps:
    """Read judged follow-ups; none if the definition judges no messages.

    Raises what queries raise."""
    facts = {"version": version, "since_us": since_us, "computed_us": computed_us}
    query = OwnQuery(sql_of("followups.sql"), frozenset({"rewards", "outcomes"}), facts)
    return JudgedFollowUps(lake.query(query, tenant=tenant).arrow())
