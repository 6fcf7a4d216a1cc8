"""Rewards of edits: survival of their text, the forms that editors publish, and comments."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from operator import attrgetter

import pyarrow as pa
from rapidfuzz.distance import Prefix

from penstock_jobs.rewards.bucket import Bucket, EditParameters, by_session
from penstock_jobs.rewards.definition import Reward
from penstock_jobs.rewards.edit_scores import EditScore, score_edits
from penstock_jobs.rewards.rows import RewardRows
from penstock_jobs.rewards.texts import survival
from penstock_jobs.rewards.texts.changes import CompareCost
from penstock_jobs.rewards.texts.languages import comment_start, is_comment
from penstock_jobs.rewards.texts.trail import HorizonState, Row, TrackedEdit, named, ranges_now


def edit_persistence(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """edit_persistence: how much of what the agent wrote is still there.

    Measures: whose text survived. Each character of a file carries who wrote it; an edit owns what
    its `before` and `after` differ by. Text that is kept, moved, formatted anew or brought back
    keeps its owner. What others comment out, or put where it never runs (`if False:`), is gone.

    Formula, at a horizon h, white space never counted:

        persistence = Σ over written lines of owned(line) · d(line) / (written − reworked)

    d is 1 for a line that is all there with nothing put in between, else sim4(line now, line as
    written). `reworked` are characters that later edits of the session replaced. An edit that only
    took away: 1 − characters that came back at its place / characters taken away, likewise.

    Range: 0, nothing is left, to 1, untouched. Weight: the denominator to `weight_exponent`.
    pending: nobody has looked, and there is time left. censored: `unobserved`; `branch_changed`,
    all looks were at another branch; `workspace_gone`, nobody looked after the session;
    `path_lost`, its text went to a file at which nobody looked; `self_rework`, the agent replaced
    all of it. invalid: `before_mismatch`, the text that it replaced is not there, or several times;
    `undecodable`; `too_expensive`; `nothing_written`, only white space or places changed.
    To game it: write what nobody reads or dares to touch; edit less or ask instead; rewrite one's
    own text before the user does (read it beside self_rework).
    """

    def score(edit: TrackedEdit, at_horizon: HorizonState) -> EditScore:
        if edit.deleted:
            if at_horizon.home is None:
                return EditScore(None, "path_lost")
            cost = CompareCost(parameters.cells_max)
            back, own = survival.count_restored(edit, at_horizon.home, cost)
            left = edit.ink_size - own
            if left <= 0:
                return EditScore(None, "self_rework")
            return EditScore(max(1 - back / left, 0.0), weighs=left / edit.ink_size)
        if edit.is_as_made(at_horizon):
            return EditScore(1.0)
        alive = survival.survivors(edit, at_horizon)
        whole = [(origin, origin + length) for origin, _, _, length in alive] == edit.written
        if whole and not at_horizon.reworked:
            return EditScore(1.0)
        taken = survival.reworked_places(at_horizon, alive)
        left = edit.ink_size - _ink_at(edit, taken)
        if left <= 0:
            return EditScore(None, "self_rework")
        kept = survival.credit(edit.after, edit.written, alive, taken)
        return EditScore(min(kept / left, 1.0), weighs=left / edit.ink_size)

    return score_edits("edit_persistence", bucket, parameters, score, attrgetter("ink_size"))


def self_rework(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """self_rework: how much of its own work the agent did again.

    Measures: which share of an edit later edits of the session replaced. It is neither survival nor
    the user's rejection, so edit_persistence leaves it out.

    Formula, at a horizon, white space not counted: characters that a later edit of the session took
    away and nobody brought back / characters written. For an edit that only took away: characters
    that the agent brought back at its place / characters taken away.

    Range: 0, none, to 1, all: lower is better. Weight: the denominator to `weight_exponent`.
    pending, censored, invalid: as edit_persistence says, without `self_rework`.
    To game it: make one large edit, or leave a mistake. As a penalty it teaches not to correct.
    """

    def score(edit: TrackedEdit, at_horizon: HorizonState) -> EditScore:
        if edit.deleted:
            if at_horizon.home is None:
                return EditScore(None, "path_lost")
            cost = CompareCost(parameters.cells_max)
            _, own = survival.count_restored(edit, at_horizon.home, cost)
            return EditScore(own / edit.ink_size)
        if not at_horizon.reworked:
            return EditScore(0.0)
        taken = survival.reworked_places(at_horizon, survival.survivors(edit, at_horizon))
        return EditScore(_ink_at(edit, taken) / edit.ink_size)

    return score_edits("self_rework", bucket, parameters, score, attrgetter("ink_size"))


def line_survival(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """line_survival: how many of the lines that the agent wrote are still its own.

    Measures: what one checks with `git blame -w -M -C`. A line is the edit's when the edit wrote a
    character of it, or made it by shortening, splitting or joining lines. It survives while it is
    anywhere as the edit left it, white space aside, and still holds text of the edit.

    Formula, at a horizon: surviving lines / (lines written − lines that later edits changed).

    Range: 0 to 1. Weight: the denominator to `weight_exponent`.
    pending, censored, invalid: as edit_persistence says. `self_rework` where the agent changed all
    of the lines; `nothing_written` also where the edit only took away: blame shows no deletions.
    To game it: write many short lines that nobody touches; edit_persistence counts characters.
    """
    lines_of = cache(survival.written_lines)

    def score(edit: TrackedEdit, at_horizon: HorizonState) -> EditScore:
        lines = lines_of(edit)
        if not lines:
            return EditScore(None, "nothing_written")
        cost = CompareCost(parameters.cells_max)
        alive, reworked = survival.surviving_lines(edit, lines, at_horizon, cost)
        if (left := len(lines) - reworked) == 0:
            return EditScore(None, "self_rework")
        return EditScore(alive / left, weighs=left / len(lines))

    return score_edits("line_survival", bucket, parameters, score, lambda edit: len(lines_of(edit)))


def _ink_at(edit: TrackedEdit, places: set[int]) -> int:
    return sum(not edit.after[at].isspace() for at in places)


def edit_no_revert(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """edit_no_revert: whether the text went back to what it was before the edit.

    Measures: reverting, as it is published: it falls only where text becomes more like it was
    before.

    Formula, for each stretch that the edit replaced, with what was put at its edges:

        1 − max(sim4(now, before) − sim4(after, before), 0) / (1 − sim4(after, before))

    The mean over the stretches by the length of what each replaced; 1 where sim4(after, before) is
    1 or nothing was replaced. sim4 is the share of character 4-grams that two texts have in common;
    lengths are in UTF-16 code units, white space included.

    Range: 0, all is as it was, to 1. Weight: characters replaced to `weight_exponent`.
    pending, censored, invalid: as edit_persistence says, without `self_rework`: it does not ask who
    changes the text. The text of a file that was deleted or renamed is empty.
    To game it: insert, and never replace; or replace by text that is like the old one.
    """

    def score(edit: TrackedEdit, at_horizon: HorizonState) -> EditScore:
        if edit.is_as_made(at_horizon):
            return EditScore(1.0)
        now = ranges_now(edit, at_horizon)
        texts = [(*before_after, text) for before_after, text in zip(edit.ranges, now, strict=True)]
        return EditScore(survival.no_revert_range(texts))

    return score_edits("edit_no_revert", bucket, parameters, score, attrgetter("units_replaced"))


def four_gram_range(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """four_gram_range: how like what the agent wrote the same stretches still are, as published.

    Measures: what attached editors report, for comparison; train on edit_persistence.

    Formula, over the stretches that the edit wrote, with what was put at their edges:

        Σ length(written) · sim4(now, written) / Σ length(written)

    1 where nothing was written. Moved text is gone.

    Range: 0 to 1. Weight: characters written to `weight_exponent`.
    pending, censored, invalid: as edit_no_revert says.
    To game it: as edit_persistence; edits that only take away are always 1, with no weight.
    """

    def score(edit: TrackedEdit, at_horizon: HorizonState) -> EditScore:
        if edit.is_as_made(at_horizon):
            return EditScore(1.0)
        now = ranges_now(edit, at_horizon)
        texts = [(changed.after, text) for changed, text in zip(edit.ranges, now, strict=True)]
        return EditScore(survival.four_gram_range(texts))

    return score_edits("four_gram_range", bucket, parameters, score, attrgetter("units_written"))


def four_gram_presence(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """four_gram_presence: how much of what the agent wrote is anywhere in the file, as published.

    Measures: what editors report that know the written pieces and the file as it is now, for
    comparison. Boilerplate keeps deleted edits alive in it.

    Formula, over the written pieces: Σ max(1, length − 3) · presence / Σ max(1, length − 3).
    Presence is the share of a piece's 4-grams that occur anywhere in the file; a shorter piece is
    in it or is not. An edit that wrote nothing: sim4 of the whole file, now and right after. A
    deleted file is 0.

    Range: 0 to 1. Weight: characters written to `weight_exponent`.
    pending, censored, invalid: as edit_no_revert says. `unobserved` also where nothing was written
    and nobody knew the whole file when the edit was made.
    To game it: write what is in the file anyway.
    """

    def score(edit: TrackedEdit, at_horizon: HorizonState) -> EditScore:
        if edit.is_as_made(at_horizon):
            return EditScore(1.0)
        now = at_horizon.home.text if at_horizon.home else ""
        chunks = [changed.after for changed in edit.ranges if changed.after]
        if chunks:
            return EditScore(survival.four_gram_presence(chunks, now))
        if edit.made is None or not (edit.made.whole or now == edit.made.text):
            return EditScore(None, "unobserved")
        return EditScore(survival.sim4(now, edit.made.text))

    return score_edits("four_gram_presence", bucket, parameters, score, attrgetter("units_written"))


@dataclass(frozen=True)
class CommentParameters:
    """`chars_min` inserted characters make an edit count; `free_share` is a share of them."""

    chars_min: int = 200
    free_share: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.free_share < 1 or self.chars_min < 1:
            raise ValueError("free_share must be in [0, 1) and chars_min at least 1")


def reasoning_in_comments(bucket: Bucket, parameters: CommentParameters) -> pa.Table:
    """reasoning_in_comments: did the agent think aloud in the code.

    Measures: how much of what an edit put in is comments. A model that is charged for its thinking
    was seen to move it there, where the user has to read it.

    Formula, per edit that puts in at least `chars_min` characters: share = characters of inserted
    lines that are comments alone / characters of inserted lines. Above `free_share`,

        value = − (share − free_share) / (1 − free_share)

    A line is inserted when `before` has it less often than `after`. A session is the mean of its
    edits, weighted by inserted characters.

    Range: −1, nothing but comments, to 0.
    pending, censored, invalid: never. Shorter edits, and prose (Markdown, plain text), have no row.
    To game it: put the comment behind code on its line, or into strings: only whole lines within
    triple quotes count.
    """
    rows = RewardRows("reasoning_in_comments")
    of_sessions: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    columns = ("edit_id", "event_id", "path", "before", "after", "checkpoint")
    for session, edits in by_session(bucket.edits, *columns).items():
        for edit_id, edit in named(edits):
            score = _comment_score(edit, parameters)
            if score is not None:
                value, written = score
                of_sessions[session].append(score)
                checkpoint = edit["checkpoint"]
                rows.add(session, ("edit", edit_id), value, weight=written, checkpoint=checkpoint)
    for session, scores in of_sessions.items():
        written = sum(weight for _, weight in scores)
        value = sum(value * weight for value, weight in scores) / written
        rows.add(session, ("session", session), value, weight=written)
    return rows.table()


def _comment_score(edit: Row, parameters: CommentParameters) -> tuple[float, int] | None:
    """Return the value and the number of inserted characters."""
    if len(edit["after"] or "") < parameters.chars_min:
        return None
    start = comment_start(edit["path"] or "")
    if start is None:
        return None
    comments, written = comment_chars(edit["before"] or "", edit["after"] or "", start)
    if written < parameters.chars_min:
        return None
    excess = max(comments / written - parameters.free_share, 0.0)
    return 0.0 - excess / (1 - parameters.free_share), written


def comment_chars(before: str, after: str, start: str) -> tuple[int, int]:
    same = before.rfind("\n", 0, Prefix.similarity(before, after)) + 1
    left = Counter(before[same:].splitlines())
    comments = written = 0
    quotes = [sign for sign in ('"""', "'''") if start == "#" and sign in after]
    within = sum(map(before[:same].count, quotes)) % 2 == 1
    for line in after[same:].splitlines():
        opens = sum(map(line.count, quotes)) if quotes else 0
        in_quotes = within or opens > 0
        within = within ^ (opens % 2 == 1)
        known = left.get(line)
        if known:
            left[line] = known - 1
            continue
        text = line.strip()
        written += len(text)
        if in_quotes or is_comment(text, start):
            comments += len(text)
    return comments, written


_OWN = (edit_persistence, self_rework, line_survival)
_PUBLISHED = (edit_no_revert, four_gram_range, four_gram_presence)
REWARDS = (
    *(Reward(score.__name__, 3, score, EditParameters) for score in _OWN + _PUBLISHED),
    Reward("reasoning_in_comments", 1, reasoning_in_comments, CommentParameters),
)
