"""Rewards of work left to others: text that was taken back, and work that remained to do.

Both are measured over all edits of a request together, when the request ended."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import exp
from typing import Literal, NamedTuple

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.definition import Reward, latest_due
from penstock_jobs.rewards.followups.request_kinds import Kind
from penstock_jobs.rewards.requests import PLEASED, RawJudgeParameters, Request, Scores, requests_of
from penstock_jobs.rewards.rows import Standing
from penstock_jobs.rewards.texts import survival
from penstock_jobs.rewards.texts.changes import CompareCost, TooExpensive, ink, ink_count
from penstock_jobs.rewards.texts.languages import comment_start, is_comment
from penstock_jobs.rewards.texts.places import PlaceWeights
from penstock_jobs.rewards.texts.provenance import FileState, without
from penstock_jobs.rewards.texts.trail import HorizonState, Survivor, TrackedEdit, WeighedLine

#: What others put elsewhere in a file may be another matter: it counts by half in the share.
_ELSEWHERE = 0.5
#: The share of removed lines that the request itself wrote.
_OWN_SHARE = 0.6

Stretch = tuple[int, int]
#: Why the remainder of an edit is unknown: the file of a removal is gone, or nobody knows what was
#: in the file before.
Unseen = Literal["path_lost", "unobserved"]


class Remainder(NamedTuple):
    """Characters of an edit: still there, taken back, and put into its file by others."""

    #: For an edit that only took away: removed ones that are still away.
    kept: float
    taken: float
    #: Within and beside the text of the request, and elsewhere.
    put: float
    elsewhere: float


def is_all_comments(edit: TrackedEdit) -> bool:
    """Whether it wrote nothing but lines that are comments alone."""
    start = comment_start(edit.path or "")
    if edit.deleted or start is None or start not in edit.after:
        return False
    lines = (line.strip() for at, end in edit.written for line in _lines(edit.after, at, end))
    return all(is_comment(line, start) for line in lines if line)


def came_to_nothing(edits: Sequence[TrackedEdit]) -> bool:
    """Whether these edits of one turn and file, in order, left it as it was before them."""
    first, last = edits[0].made, edits[-1].made
    if len(edits) < 2 or first is None or last is None:
        return False
    return ink(_text_before(edits[0], first)) == ink(last.text)


def takes_own(edit: TrackedEdit, earlier: Sequence[TrackedEdit]) -> bool:
    """Whether it takes away what earlier edits of the same turn and file had written."""
    if not edit.deleted or not earlier:
        return False
    known = {
        ink(line)
        for other in earlier
        for start, end in other.written
        for line in _lines(other.after, start, end)
    }
    gone = [ink(line) for text in edit.deleted.values() for line in text.splitlines()]
    return sum(len(line) for line in gone if line in known) >= _OWN_SHARE * sum(map(len, gone))


def _text_before(edit: TrackedEdit, made: FileState) -> str:
    parts, at = [], 0
    for number, changed in enumerate(edit.ranges):
        start, end = made.ranges.get((edit.owner, number), (at, at))
        parts += [made.text[at:start], changed.before]
        at = end
    return "".join([*parts, made.text[at:]])


def remainder(
    edit: TrackedEdit,
    at_end: HorizonState,
    request: Mapping[int, TrackedEdit],
    comments: float,
    cost: CompareCost,
) -> Remainder | Unseen:
    """Measure what remained of an edit, or say why it is unknown.

    `request` are its edits by owner, `comments` the weight of comment lines. Raises
    TooExpensive."""
    home = at_end.home
    back, again = 0.0, 0
    if edit.deleted:
        if home is None:
            return "path_lost"
        back, again = survival.count_restored(edit, home, cost)
    put = _put(edit, edit.praised or at_end, request)
    if put is None and edit.praised is None and not back:
        return "unobserved"
    within, elsewhere = put or (0, 0)
    if edit.deleted:
        return Remainder(max(edit.ink_size - back - again, 0.0), back, within, elsewhere)
    if comments not in edit.lines:
        edit.lines[comments] = _weighed_lines(edit, comments)
    lines = edit.lines[comments]
    size = sum(weight * chars for _, _, chars, weight in lines)
    if edit.is_as_made(at_end):
        return Remainder(size, 0.0, within, elsewhere)
    alive = survival.survivors(edit, at_end)
    reworked = [(start, start + length) for start, length in at_end.reworked]
    standing = [(origin, origin + length) for origin, _, _, length in alive]
    lost = without(edit.written, standing)
    taken = _taken(edit.after, lines, alive, without(lost, reworked))
    own = _taken(edit.after, lines, (), without(lost, without(lost, reworked))) if reworked else 0.0
    return Remainder(max(size - taken - own, 0.0), taken, within, elsewhere)


def _put(
    edit: TrackedEdit, seen: HorizonState, request: Mapping[int, TrackedEdit]
) -> tuple[int, int] | None:
    """Count what others put into the file since the edit: at the request's text, and elsewhere.

    None if nobody can tell, because the file was never seen as a whole before."""
    home, before = seen.home, seen.before
    if home is None or edit.made is None or not home.text.strip():
        return 0, 0
    if home is edit.made and all(
        owner == edit.owner or owner not in request for owner, _ in home.ranges
    ):
        return 0, 0
    # Else others wrote some of its text, nobody knows whether before the edit or after it.
    if home.unseen <= edit.made.unseen:
        before = edit.made
    if before is None:
        return None
    within, at = 0, 0
    places = sorted((place, owner) for (owner, _), place in home.ranges.items() if owner in request)
    for (start, end), _ in places:
        begin = max(start, at)
        within += home.count_others(begin, end)
        at = max(at, end)
    # An edit that moved text of others into this file put nothing there.
    brought = sum(request[owner].brought for owner in {owner for _, owner in places})
    within = max(within - brought, 0)
    return within, max(home.ink_of_others - before.ink_of_others - within, 0)


def _weighed_lines(edit: TrackedEdit, comments: float) -> list[WeighedLine]:
    text, start = edit.after, comment_start(edit.path or "")
    if start is not None and start not in text:
        start = None
    lines = []
    for begin, end in survival.lines_of(text, edit.written):
        weight = 1.0
        if start and is_comment(text[text.rfind("\n", 0, begin) + 1 : end].strip(), start):
            weight = comments
        lines.append((begin, end, ink_count(text[begin:end]), weight))
    return lines


def _taken(
    text: str, lines: Iterable[WeighedLine], alive: Sequence[Survivor], lost: Sequence[Stretch]
) -> float:
    """Count lost text, and the changed part of lines that are partly there."""
    total = 0.0
    at = 0
    for begin, end, size, weight in lines:
        while at < len(lost) and lost[at][1] <= begin:
            at += 1
        if at == len(lost):
            break
        first, last = lost[at]
        if first <= begin and last >= end:
            total += weight * size
        elif first < end:
            gone = sum(
                ink_count(text[max(first, begin) : min(last, end)])
                for first, last in lost[at:]
                if first < end
            )
            left = survival.credit(text, [(begin, end)], alive) if gone < size else 0.0
            total += weight * max(gone, size - left)
    return total


def _lines(text: str, start: int, end: int) -> list[str]:
    return text[start:end].splitlines(keepends=True)


#: An edit of less weight is no work: nobody asked for it.
_WORK_MIN = 0.5
#: How steeply worth falls around `scale_chars`.
_STEEPNESS = 1.4
#: From the first to the second probability of dissatisfied, work that nobody did comes to count
#: as left to do: who complains has not got it, whether or not somebody does it then.
_COMPLAINT = (0.5, 0.8)
#: Characters that a request of size 1 asks for at least; one of size 2 asks for twice as many.
_ASKED_CHARS = 200.0
#: How dissatisfied people are, on average, who got nothing: so are those who say nothing of it.
_DISSATISFIED_WITH_NOTHING = 0.7
#: These may be done without an edit; only people can tell whether they were.
_UNSEEN_KINDS: tuple[Kind, ...] = ("question", "terminal")
_SELF_REWORK = Standing("censored", reason="self_rework")


@dataclass(frozen=True)
class WorkParameters(EditParameters, RawJudgeParameters):
    """`scale_chars` characters left to others turn 1 into 0.37.

    `places` are weights of characters by place."""

    scale_chars: float = 90.0
    places: PlaceWeights = field(default_factory=PlaceWeights)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale_chars <= 0:
            raise ValueError("scale_chars must be above 0")

    def worth(self, chars: float) -> float:
        """Return what is left of 1 with so many characters left to others."""
        return exp(-((chars / self.scale_chars) ** _STEEPNESS))


def taken_back(bucket: Bucket, parameters: WorkParameters) -> pa.Table:
    """taken_back: how much of what the agent wrote was taken back, as it was.

    Measures: the user's rejection in characters. Text beside a rejected edit makes it no lighter.

    Formula, per request at a horizon after its last edit or when the next request begins, if that
    is sooner; white space not counted:

        −(1 − g(L))     g(n) = exp(−(n / scale_chars)^1.4)     L = Σ weight · characters taken back

    Characters of an edit are taken back if they are gone and the agent did not replace them. Lines
    that are partly there count as much as edit_persistence discounts. For an edit that only took
    away, characters that others brought back count. `places` are the weights of the files. A
    session is the mean of its requests by size.

    Range: −1, all of a large work, to 0, nothing.
    pending, censored, invalid: as work_left says.
    To game it: write nothing, or where nobody answers; so it only takes, and work_left gives.
    """
    scores: dict[Request, Scores] = {
        request: {
            horizon_s: work.standing(parameters.worth(work.taken) - 1)
            for horizon_s, work in works.items()
        }
        for request, works in _works(bucket, parameters).items()
    }
    return requests_of(bucket).rows("taken_back", scores)


def work_left(bucket: Bucket, parameters: WorkParameters) -> pa.Table:
    """work_left: how little of a request was left to do for others.

    Measures: who did the work in the places that a request touched, over all its edits. What others
    took back of it, and what they put there until it ended, was still to be done.

    Formula, per request at a horizon after its last edit, or the last question of the agent, or
    when the next request begins, if that is sooner; white space not counted:

        place · min(kept / (kept + T(½)), g(T(1)))     g(n) = exp(−(n / scale_chars)^1.4)
        T(e) = Σ of its files: weight · max(taken back, put + e · elsewhere)

    `kept` are characters that are still there, weighted too; padding raises them, so g bounds what
    it wins. `put` is what others put within and beside the request's text, `elsewhere` by how much
    they made the rest of a file longer. After praise additions no longer count. Weights are 1 for
    code and for what the request is about, else as `places` says for tests, docs, fixtures,
    generated files, comments and edits that only took away. `place` is the highest weight of the
    edits; below 0.5, or if edits of a request together left their file as it was, it is 0. A
    session is the mean of its requests by size.

    Unless the user was pleased (each judgement dissatisfied with less than 0.1), it is multiplied
    by min(kept / (200 · size), 1): the words of a request tell the least that it takes.

    What users say bounds it: where the last judgement is dissatisfied with 0.8 or more, it is 0. A
    complaint stands until the agent edits again or the user is thankful. Where nobody says a word,
    nor any verifier, 0.7 · (1 − value) is taken away: so dissatisfied are people on average who got
    nothing. A question or a command needs no edit: it is worth 1 if somebody judged it. Other
    requests are worth 0 without an edit, before that is taken away.

    Range: −0.7 to 1, nothing was left to do.
    pending: a horizon has not passed. censored: `silence`, nobody judged a question or a command;
    `unobserved`, also where others may have written what nobody had seen before; of the larger part
    of the text as edit_persistence says. invalid: likewise.
    To game it: edit where the user will not answer, and leave the work undone: benchmarks show
    that.
    """
    scores: dict[Request, Scores] = {
        request: {
            horizon_s: _as_judged(
                request, work.standing(work.value(parameters)), work.of_asked(request)
            )
            for horizon_s, work in works.items()
        }
        for request, works in _works(bucket, parameters).items()
    }
    for request in requests_of(bucket).all:
        if request.acted and request.kind in _UNSEEN_KINDS:
            known = scores.get(request, {})
            scores[request] = {
                horizon_s: _answered(request, known.get(horizon_s))
                for horizon_s in parameters.horizons_s
            }
        elif request.acted and request.text and request not in scores:
            scores[request] = _undone(bucket.as_of_us, parameters, request)
    return requests_of(bucket).rows("work_left", scores)


def _as_judged(request: Request, standing: Standing, of_asked: float = 1.0) -> Standing:
    """Bound worth by the last judgement. Without one, what is left to do counts against it."""
    if standing.value is None:
        return standing
    worth = standing.value * of_asked
    if (dissatisfied := request.still_dissatisfied) is None:
        missed = 0.0 if request.reported else _DISSATISFIED_WITH_NOTHING * (1 - standing.value)
        return standing._replace(value=worth - missed)
    low, high = _COMPLAINT
    at_most = min(max((high - dissatisfied) / (high - low), 0.0), 1.0)
    return standing._replace(value=min(worth, at_most))


def _answered(request: Request, seen: Standing | None) -> Standing:
    """Score what may be done without an edit. Edits that others took back make it worth less."""
    if seen is not None and seen.state == "pending":
        return seen
    if request.still_dissatisfied is None:
        return Standing("censored", reason="silence")
    value = 1.0 if seen is None or seen.value is None else seen.value
    return _as_judged(request, Standing("scored", value))


def _undone(as_of_us: int, parameters: WorkParameters, request: Request) -> Scores:
    """Score a request without an edit. The agent may still make one until a horizon passed."""
    scores: Scores = {}
    windows = zip(parameters.horizons_s, parameters.terms().windows_us, strict=True)
    for horizon_s, (_, end) in windows:
        due_us = request.last_act + end
        is_open = request.ended_us is None and due_us > as_of_us
        pending = Standing("pending", due_us=due_us)
        scores[horizon_s] = pending if is_open else _as_judged(request, Standing("scored", 0.0))
    return scores


class _Work(NamedTuple):
    """The work on a request at a horizon, in weighted characters."""

    kept: float = 0.0
    taken: float = 0.0
    #: Left to others, with half of what is elsewhere and with all.
    near: float = 0.0
    left: float = 0.0
    place: float = 0.0
    #: Why it is unknown.
    unknown: Standing | None = None

    def standing(self, value: float) -> Standing:
        return self.unknown or Standing("scored", value)

    def value(self, parameters: WorkParameters) -> float:
        whole = self.kept + self.near
        share = self.kept / whole if whole else 1.0
        return self.place * min(share, parameters.worth(self.left))

    def of_asked(self, request: Request) -> float:
        """Return the share of the least that a request takes, where nobody else can tell."""
        if request.dissatisfied is not None and request.dissatisfied < PLEASED:
            return 1.0
        return min(self.kept / (_ASKED_CHARS * request.size), 1.0)


Works = dict[int, _Work]


def _works(bucket: Bucket, parameters: WorkParameters) -> dict[Request, Works]:
    return bucket.once(
        ("works", parameters),
        lambda: {each.request: each.works() for each in _measures(bucket, parameters)},
    )


def works(bucket: Bucket, parameters: WorkParameters) -> frozenset[tuple[str, str]]:
    """Return edits that are work: not notes, comments, generated text, or undone by the request."""
    return frozenset(
        (edit.session, edit.target_id)
        for measure in _measures(bucket, parameters)
        for edit in measure.edits
        if measure.best[edit]
    )


def _measures(bucket: Bucket, parameters: WorkParameters) -> list["_Measure"]:
    def found() -> list[_Measure]:
        requests = requests_of(bucket)
        edits: defaultdict[Request, list[TrackedEdit]] = defaultdict(list)
        for session, trail in bucket.trails(parameters, requests.spans()).items():
            for edit in trail:
                if edit.request is not None:
                    edits[requests.of_turn[session, edit.turn]].append(edit)
        return [_Measure(request, own, parameters) for request, own in edits.items()]

    return bucket.once(("measures of work", parameters), found)


class _Measure:
    """Measures the edits of a request."""

    def __init__(
        self, request: Request, edits: Iterable[TrackedEdit], parameters: WorkParameters
    ) -> None:
        self.request, self._parameters = request, parameters
        self.edits = sorted(edits, key=lambda edit: edit.owner)
        self._owners = {edit.owner: edit for edit in self.edits}
        places = parameters.places.of_request(request.kind)
        self._comments = places.comments
        self._weights = {edit: places.of(edit.place_of_loss) for edit in self.edits}
        vain = set(_in_vain(self.edits))
        best = {edit: places.of(edit.place) * _kind_weight(edit, places) for edit in self.edits}
        #: The weight that each edit gives its request.
        self.best = {
            edit: 0.0 if edit in vain or weight < _WORK_MIN else weight
            for edit, weight in best.items()
        }
        self._known: dict[tuple[int, HorizonState], Remainder | Standing] = {}

    def works(self) -> Works:
        # One observation often answers several horizons.
        at = cache(self._at)
        states = zip(*(edit.request_states for edit in self.edits), strict=True)
        return dict(zip(self._parameters.horizons_s, map(at, states), strict=True))

    def _at(self, states: tuple[HorizonState, ...]) -> _Work:
        seen = zip(self.edits, states, strict=True)
        found = {edit: self._remainder(edit, state) for edit, state in seen}
        known = {edit: own for edit, own in found.items() if isinstance(own, Remainder)}
        if unknown := _unknown(found, known):
            return _Work(unknown=unknown)
        if not any(map(sum, known.values())):
            return _Work(unknown=_SELF_REWORK)
        taken: defaultdict[str, float] = defaultdict(float)
        # All edits of a request see text that was put into a file: it counts once.
        put: defaultdict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        kept = 0.0
        for edit, own in known.items():
            weight = self._weights[edit]
            kept += weight * own.kept
            taken[edit.path] += weight * own.taken
            added = weight * own.put, weight * own.elsewhere
            put[edit.path] = max(put[edit.path], added, key=sum)
        left = sum(max(taken[path], sum(put[path])) for path in taken)
        near = sum(
            max(own, put[path][0] + _ELSEWHERE * put[path][1]) for path, own in taken.items()
        )
        place = max(self.best[edit] for edit in known)
        return _Work(kept, sum(taken.values()), near, left, place)

    def _remainder(self, edit: TrackedEdit, state: HorizonState) -> Remainder | Standing:
        if state.state != "scored":
            return Standing(state.state, None, state.reason, due_us=state.due_us)
        key = edit.owner, state
        if key not in self._known:
            cost = CompareCost(self._parameters.cells_max)
            try:
                own = remainder(edit, state, self._owners, self._comments, cost)
            except TooExpensive:
                self._known[key] = Standing("invalid", reason="too_expensive")
            else:
                self._known[key] = (
                    own if isinstance(own, Remainder) else Standing("censored", reason=own)
                )
        return self._known[key]


def _unknown(
    found: Mapping[TrackedEdit, Remainder | Standing], known: Mapping[TrackedEdit, Remainder]
) -> Standing | None:
    """Return why the work is unknown: a part is pending, or most of its text was not seen."""
    others = [own for own in found.values() if isinstance(own, Standing)]
    if waiting := [own.due_us for own in others if own.state == "pending"]:
        return Standing("pending", due_us=latest_due(waiting))
    unseen = sum(edit.ink_size for edit in found if edit not in known)
    if not others or (known and sum(edit.ink_size for edit in known) >= unseen):
        return None
    counts = Counter(own._replace(due_us=None) for own in others)
    return min(counts, key=lambda own: (-counts[own], str(own)))


def _kind_weight(edit: TrackedEdit, places: PlaceWeights) -> float:
    if edit.deleted:
        return places.deletions
    return places.comments if is_all_comments(edit) else 1.0


def _in_vain(edits: Sequence[TrackedEdit]) -> Iterator[TrackedEdit]:
    """Yield edits that other edits of the request undid, and those that undid them."""
    by_path: defaultdict[str, list[TrackedEdit]] = defaultdict(list)
    for edit in edits:
        by_path[edit.path].append(edit)
    for own in by_path.values():
        if came_to_nothing(own):
            yield from own
        else:
            yield from (edit for at, edit in enumerate(own) if takes_own(edit, own[:at]))


REWARDS = (
    Reward("taken_back", 3, taken_back, WorkParameters),
    Reward("work_left", 4, work_left, WorkParameters),
)
